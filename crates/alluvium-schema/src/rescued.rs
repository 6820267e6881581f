//! What a rescued column holds, field by field, and why.

use crate::infer::can_be_named;
use crate::json::{Fault, Scanner};
use crate::plan::same_name;
use crate::{Addition, DecodeError, Decoder, Evolve, Kind, OnConflict, Plan, Shape, additions};
use alluvium_core::{DataType, Packed, Place};
use arrow_array::cast::AsArray;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fields that are told apart; records choose the keys.
const MOST_FIELDS: usize = 10_000;

/// Characters of a value that are kept as an example.
const EXAMPLE: usize = 200;

/// Reads the values of a rescued column, and tells what a plan makes of them now.
#[derive(Debug)]
pub struct Rescued {
    plan: Plan,
    /// Runs the plan over what was rescued before: what it rescues again does still not fit.
    decoder: Decoder,
    rows: u64,
    fields: BTreeMap<Vec<String>, RescuedField>,
    shape: Shape,
    others: u64,
}

/// A field with values in the rescued column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescuedField {
    /// Rows with a value of it.
    pub rows: u64,
    /// Those whose value has a column by now.
    pub older: u64,
    /// The values' kinds, each with its number of rows.
    pub kinds: BTreeMap<Kind, u64>,
    /// The first value that has no column, or the first of all: its JSON text, cut when it is long, and
    /// where its record was.
    pub example: (String, Option<Place>),
}

/// Why the values of a field are in the rescued column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The column or the field of a struct came after them; by now it would take them all.
    Older,
    /// They are not of the type that the field has.
    Type(DataType),
    /// The plan wants an object there.
    Object,
    /// The table has no place for it, or for what is in it, and would get these if the owner approved.
    NotApproved(Vec<Addition>),
    /// The same where `evolve` adds nothing.
    NotAdded(Vec<Addition>),
    /// The table gets these with the next record that has it.
    New(Vec<Addition>),
    /// The name differs only in case from this one, which is taken.
    Case(String),
    /// Delta can hold no such name.
    Name,
    /// The table has as many columns as it may have.
    Full,
    /// Columns are declared for other fields of the same object, so that no column is made for this one.
    Beside,
    /// No value says of which type it is: only null, `[]` and `{}`.
    Untyped,
}

impl Rescued {
    pub fn new(plan: &Plan) -> Self {
        let mut lenient = plan.clone();
        lenient.evolve = Evolve::None;
        lenient.settled = true;
        lenient.columns.iter_mut().for_each(|column| column.on_conflict = OnConflict::Rescue);
        Self {
            plan: plan.clone(),
            decoder: Decoder::new(Arc::new(lenient)),
            rows: 0,
            fields: BTreeMap::new(),
            shape: Shape::default(),
            others: 0,
        }
    }

    /// Takes in values of the column; `place` tells where the record of a value was. What is no JSON
    /// object, which alluvium did not write, counts as a row without a field.
    pub fn observe(&mut self, values: &Packed, place: impl Fn(usize) -> Option<Place>) -> Result<(), DecodeError> {
        let decoded = self.decoder.decode(values)?;
        let again = decoded.batch.column_by_name(&self.plan.rescued).and_then(|column| column.as_string_opt::<i32>());
        let again_of: BTreeMap<u32, &str> = match again {
            Some(again) => {
                decoded.inputs.iter().zip(again.iter()).filter_map(|(at, text)| Some((*at, text?))).collect()
            }
            None => BTreeMap::new(),
        };
        for (at, value) in (0..=u32::MAX).zip(values.iter()) {
            self.rows += 1;
            let Some(members) = value.and_then(|value| self.members(value).ok()) else { continue };
            let again = again_of.get(&at).map(|text| text.as_bytes()).unwrap_or_default();
            let left = self.members(again).unwrap_or_default();
            if self.fields.len() < MOST_FIELDS {
                self.shape.observe(again);
            }
            for (path, text) in members {
                let is_older = !left.contains_key(&path);
                self.add(path, text, is_older, || place(at as usize));
            }
        }
        Ok(())
    }

    fn add(&mut self, path: Vec<String>, text: &[u8], is_older: bool, place: impl Fn() -> Option<Place>) {
        if self.fields.len() >= MOST_FIELDS && !self.fields.contains_key(&path) {
            self.others += 1;
            return;
        }
        let field = self.fields.entry(path).or_default();
        // An older value tells less than one that has no place yet.
        if field.rows == 0 || (field.older == field.rows && !is_older) {
            field.example = (cut(text), place());
        }
        field.rows += 1;
        field.older += u64::from(is_older);
        for kind in Shape::of_value(text).kinds() {
            *field.kinds.entry(kind).or_default() += 1;
        }
    }

    /// The values of a rescued text by their paths, which lead through the objects that the plan opens.
    fn members<'t>(&self, text: &'t [u8]) -> Result<BTreeMap<Vec<String>, &'t [u8]>, Fault> {
        let (mut scanner, mut members) = (Scanner::new(text), BTreeMap::new());
        if scanner.peek() != b'{' || std::str::from_utf8(text).is_err() {
            return Err(Fault::NotObject);
        }
        self.walk(&mut scanner, 0, &mut Vec::new(), &mut members)?;
        Ok(members)
    }

    fn walk<'t>(
        &self,
        scanner: &mut Scanner<'t>,
        depth: u32,
        path: &mut Vec<String>,
        members: &mut BTreeMap<Vec<String>, &'t [u8]>,
    ) -> Result<(), Fault> {
        scanner.enter(depth)?;
        if scanner.peek() == b'}' {
            scanner.at += 1;
            return Ok(());
        }
        let mut scratch = Vec::new();
        loop {
            scanner.peek();
            let key = String::from_utf8_lossy(scanner.string()?.unescaped(&mut scratch)).into_owned();
            scanner.colon()?;
            path.push(key);
            if scanner.peek() == b'{' && self.plan.opens(path) {
                self.walk(scanner, depth + 1, path, members)?;
            } else {
                let start = scanner.at;
                scanner.skip_value(depth + 1)?;
                members.insert(path.clone(), scanner.slice(start, scanner.at));
            }
            path.pop();
            if scanner.object_ends()? {
                return Ok(());
            }
        }
    }

    /// Values seen, each that of a row.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values of fields past those that are told apart.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// What was seen of values that have no column.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The fields with values in the column, and why they are there.
    pub fn fields(&self) -> impl Iterator<Item = (&[String], &RescuedField, Why)> {
        self.fields.iter().map(|(path, field)| (path.as_slice(), field, self.why(path, field)))
    }

    fn why(&self, path: &[String], field: &RescuedField) -> Why {
        if field.older == field.rows {
            return Why::Older;
        }
        let proposed = self.proposed(path);
        if let Some(data_type) = self.plan.type_at(path) {
            // A list or map whose objects have new fields is in its column, and rescued whole besides. The
            // fields of a struct are told apart.
            let is_whole = !matches!(data_type, DataType::Struct(_));
            if is_whole && !proposed.is_empty() {
                return Self::held(self.plan.evolve, proposed);
            }
            return Why::Type(data_type.clone());
        }
        if self.plan.opens(path) {
            return Why::Object;
        }
        let (Some(name), parent) = (path.last(), path.get(..path.len() - 1).unwrap_or_default()) else {
            return Why::Untyped;
        };
        if let Some(taken) = self.plan.names_at(parent).into_iter().find(|taken| same_name(taken, name)) {
            return Why::Case(taken.to_owned());
        }
        if !can_be_named(name) {
            return Why::Name;
        }
        let is_beside = !parent.is_empty() && self.plan.type_at(parent).is_none();
        match proposed {
            proposed if !proposed.is_empty() => Self::held(self.plan.evolve, proposed),
            _ if is_beside => Why::Beside,
            _ if self.plan.room() == 0 => Why::Full,
            _ => Why::Untyped,
        }
    }

    fn held(evolve: Evolve, proposed: Vec<Addition>) -> Why {
        match evolve {
            Evolve::Approve => Why::NotApproved(proposed),
            Evolve::None => Why::NotAdded(proposed),
            Evolve::Add | Evolve::Stop => Why::New(proposed),
        }
    }

    /// What the table would get for the field alone if the plan grew.
    fn proposed(&self, path: &[String]) -> Vec<Addition> {
        let (mut found, mut alone) = (&self.shape, Shape::default());
        let mut at = &mut alone;
        for name in path {
            let Some(field) = found.field(name) else { return Vec::new() };
            found = field;
            at = at.field_mut(name);
        }
        at.clone_from(found);
        let adding = Plan { evolve: Evolve::Add, settled: true, ..self.plan.clone() };
        let grown = adding.grow(&alone).ok().flatten();
        grown.map_or_else(Vec::new, |grown| additions(Some(&self.plan.schema()), &grown.schema()))
    }
}

fn cut(text: &[u8]) -> String {
    // No character takes more than four bytes.
    let beginning = String::from_utf8_lossy(text.get(..4 * EXAMPLE).unwrap_or(text));
    let mut example: String = beginning.chars().take(EXAMPLE).collect();
    if example.len() < text.len() {
        example.push('…');
    }
    example
}

impl Plan {
    /// The type that the plan gives the value at a path of the record.
    fn type_at(&self, path: &[String]) -> Option<&DataType> {
        self.columns.iter().find_map(|column| {
            let mut found = &column.data_type;
            for name in path.strip_prefix(column.path.as_slice())? {
                let DataType::Struct(fields) = found else { return None };
                found = &fields.iter().find(|field| field.name == *name)?.data_type;
            }
            Some(found)
        })
    }

    /// Whether the plan looks into the object at a path of the record.
    fn opens(&self, path: &[String]) -> bool {
        let is_above = |other: &Vec<String>| other.len() > path.len() && other.starts_with(path);
        self.columns.iter().any(|column| is_above(&column.path))
            || self.drops.iter().any(is_above)
            || matches!(self.type_at(path), Some(DataType::Struct(_)))
    }

    /// The names that are taken beside a new field: of columns, or of the fields of a struct.
    fn names_at(&self, parent: &[String]) -> Vec<&str> {
        if let Some(DataType::Struct(fields)) = self.type_at(parent) {
            return fields.iter().map(|field| field.name.as_str()).collect();
        }
        if !parent.is_empty() {
            return Vec::new();
        }
        let columns = self.columns.iter().chain(&self.undeclared).map(|column| column.name.as_str());
        columns.chain(self.reserved.iter().map(String::as_str)).chain([self.rescued.as_str()]).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ColumnSpec, PlanOptions, path};
    use alluvium_core::Partition;

    fn declared(evolve: Evolve, max_columns: usize, columns: &[(&str, &str, &str)]) -> Plan {
        let spec = |(name, kind, from): &(&str, &str, &str)| ColumnSpec {
            from: Some(path::parse(from).unwrap()),
            ..ColumnSpec::new(*name, DataType::parse(kind).unwrap())
        };
        let options = PlanOptions { evolve, max_columns, ..PlanOptions::default() };
        Plan::declared(columns.iter().map(spec).collect(), options).unwrap()
    }

    fn explained(plan: &Plan, values: &[&str]) -> Vec<(String, u64, u64, Why)> {
        let mut rescued = Rescued::new(plan);
        let values: Packed = values.iter().map(|value| Some(value.as_bytes())).collect();
        rescued.observe(&values, |_| None).unwrap();
        let told = |(at, field, why): (&[String], &RescuedField, Why)| (path::join(at), field.rows, field.older, why);
        rescued.fields().map(told).collect()
    }

    fn added(ddl: &[(&str, &str)]) -> Vec<Addition> {
        let addition = |(at, kind): &(&str, &str)| Addition {
            path: path::parse(at).unwrap(),
            data_type: DataType::parse(kind).unwrap(),
        };
        ddl.iter().map(addition).collect()
    }

    /// What is to be approved goes by its name in the table, which need not be that in the record.
    #[test]
    fn additions_are_named_as_the_table_has_them() {
        let columns = [("user", "struct<id:int>", "customer"), ("items", "array<struct<sku:string>>", "items")];
        let plan = declared(Evolve::Approve, 1000, &columns);
        let values = [r#"{"customer":{"tier":"gold"}}"#, r#"{"items":[{"sku":"a","qty":2}]}"#];
        assert_eq!(
            explained(&plan, &values),
            [
                ("customer.tier".to_owned(), 1, 0, Why::NotApproved(added(&[("user.tier", "string")]))),
                ("items".to_owned(), 1, 0, Why::NotApproved(added(&[("items.element.qty", "bigint")]))),
            ]
        );
    }

    const COLUMNS: [(&str, &str, &str); 4] = [
        ("id", "bigint", "id"),
        ("s", "struct<x:int>", "s"),
        ("city", "string", "address.city"),
        ("amount", "decimal(10,2)", "amount"),
    ];

    #[test]
    fn every_reason_is_told_apart() {
        let plan = declared(Evolve::Approve, 1000, &COLUMNS);
        let values = [
            // Not of the type; an older value of a column that is there; a new field of a struct.
            r#"{"id":"x","amount":1.5,"s":{"y":true}}"#,
            r#"{"id":7,"amount":"n/a","s":3}"#,
            // New, of no type, of no name, of another's name, beside a declared one, no object.
            r#"{"note":"n","gone":[],"a b":1,"ID":1,"address":{"zip":"1"},"_RESCUED":1}"#,
            r#"{"address":5}"#,
        ];
        let decimal = DataType::Decimal(10, 2);
        let x = DataType::parse("struct<x:int>").unwrap();
        assert_eq!(
            explained(&plan, &values),
            [
                ("ID".to_owned(), 1, 0, Why::Case("id".to_owned())),
                ("_RESCUED".to_owned(), 1, 0, Why::Case("_rescued".to_owned())),
                ("a b".to_owned(), 1, 0, Why::Name),
                ("address".to_owned(), 1, 0, Why::Object),
                ("address.zip".to_owned(), 1, 0, Why::Beside),
                ("amount".to_owned(), 2, 1, Why::Type(decimal)),
                ("gone".to_owned(), 1, 0, Why::Untyped),
                ("id".to_owned(), 2, 1, Why::Type(DataType::BigInt)),
                ("note".to_owned(), 1, 0, Why::NotApproved(added(&[("note", "string")]))),
                ("s".to_owned(), 1, 0, Why::Type(x)),
                ("s.y".to_owned(), 1, 0, Why::NotApproved(added(&[("s.y", "boolean")]))),
            ]
        );
        assert_eq!(
            explained(&plan, &[r#"{"id":1}"#, r#"{"id":2}"#]),
            [("id".to_owned(), 2, 2, Why::Older)],
            "what fits by now is older than its column"
        );
    }

    #[test]
    fn what_evolve_does_with_a_new_field_is_said() {
        let text = || added(&[("note", "string")]);
        for (evolve, most, why) in [
            (Evolve::None, 1000, Why::NotAdded(text())),
            (Evolve::Add, 1000, Why::New(text())),
            (Evolve::Add, 4, Why::Full),
            (Evolve::Approve, 4, Why::Full),
        ] {
            let plan = declared(evolve, most, &COLUMNS);
            assert_eq!(explained(&plan, &[r#"{"note":"n"}"#]), [("note".to_owned(), 1, 0, why)], "{evolve:?} {most}");
        }
    }

    #[test]
    fn a_column_that_others_wrote_is_read_without_harm() {
        let plan = declared(Evolve::None, 1000, &COLUMNS);
        let values: [&[u8]; 5] = [b"", b"null", b"{\"a\":", b"\xff", b"{\"note\":1}"];
        let mut rescued = Rescued::new(&plan);
        rescued.observe(&values.into_iter().map(Some).collect(), |_| None).unwrap();
        assert_eq!((rescued.rows(), rescued.fields().count()), (5, 1));
    }

    #[test]
    fn an_example_is_short_however_long_the_value_is() {
        let plan = declared(Evolve::None, 1000, &COLUMNS);
        let mut rescued = Rescued::new(&plan);
        let value = format!("{{\"id\":\"{}\"}}", "é".repeat(10_000));
        rescued.observe(&[Some(value.as_bytes())].into_iter().collect(), |_| Some((Partition(3), 7))).unwrap();
        let (_, field, _) = rescued.fields().next().unwrap();
        assert_eq!(field.example, (format!("\"{}…", "é".repeat(EXAMPLE - 1)), Some((Partition(3), 7))));
    }

    #[test]
    fn keys_that_records_choose_are_counted_together_in_the_end() {
        let mut rescued = Rescued::new(&declared(Evolve::None, 1000, &COLUMNS));
        let values: Vec<String> = (0..MOST_FIELDS + 7).map(|number| format!("{{\"k{number}\":1}}")).collect();
        rescued.observe(&values.iter().map(|value| Some(value.as_bytes())).collect(), |_| None).unwrap();
        assert_eq!((rescued.fields.len(), rescued.others()), (MOST_FIELDS, 7));
    }
}
