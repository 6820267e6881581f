//! What a rescued column holds, field by field, and why.

mod index;
mod why;

use crate::json::{Fault, Scanner};
use crate::{DecodeError, Decoder, Evolve, Kind, OnConflict, Plan, Shape};
use alluvium_core::{Packed, Place};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use index::Index;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use why::Reasons;
pub use why::{Reading, Target, Why};

/// Fields that are told apart; records choose the keys.
const MOST_FIELDS: usize = 10_000;

/// The weight of what is kept of the values' shape, and of the names of fields: records choose these too.
const MOST_WEIGHT: usize = 32_000;

/// Bytes of a name that weigh as much as a field.
const NAME: usize = 64;

/// Characters of a value that are kept as an example.
const EXAMPLE: usize = 200;

/// Reads the values of a rescued column, and tells what a plan makes of them now.
#[derive(Debug)]
pub struct Rescued {
    plan: Plan,
    index: Index,
    /// Runs the plan over what was rescued before: what it rescues again does still not fit.
    decoder: Decoder,
    rows: u64,
    fields: BTreeMap<Vec<String>, RescuedField>,
    /// Of the names in `fields`.
    weight: usize,
    shape: Bounded,
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
    /// Where several columns read the field: the positions of those that are null beside a value.
    unread: BTreeSet<usize>,
}

/// A shape of limited size.
#[derive(Debug, Default)]
struct Bounded {
    shape: Shape,
    /// At least that of the shape.
    weight: usize,
    is_full: bool,
    /// Whether something was left out.
    is_cut: bool,
}

impl Bounded {
    fn observe(&mut self, json: &[u8]) {
        if json.is_empty() || self.is_full {
            self.is_cut |= !json.is_empty();
            return;
        }
        let mut seen = Shape::default();
        seen.observe(json);
        let more = weight(&seen);
        if more > MOST_WEIGHT / 2 {
            self.is_cut = true;
            return;
        }
        self.weight += more;
        self.shape.merge(seen);
        if self.weight > MOST_WEIGHT {
            self.weight = weight(&self.shape);
            // Weighing costs as much as there is: what is nearly full is not weighed time and again.
            self.is_full = self.weight > MOST_WEIGHT / 2;
        }
    }
}

/// The weight of what is below a shape.
fn weight(shape: &Shape) -> usize {
    let fields: usize = shape.fields().map(|(name, field)| 1 + name.len() / NAME + weight(field)).sum();
    fields + shape.element().map_or(0, |element| 1 + weight(element))
}

impl Rescued {
    pub fn new(plan: &Plan) -> Self {
        let mut lenient = plan.clone();
        lenient.evolve = Evolve::None;
        lenient.settled = true;
        lenient.columns.iter_mut().for_each(|column| column.on_conflict = OnConflict::Rescue);
        Self {
            plan: plan.clone(),
            index: Index::new(plan),
            decoder: Decoder::new(Arc::new(lenient)),
            rows: 0,
            fields: BTreeMap::new(),
            weight: 0,
            shape: Bounded::default(),
            others: 0,
        }
    }

    /// Takes in values of the column; `place` tells where the record of a value was. What is no JSON
    /// object, which alluvium did not write, counts as a row without a field.
    pub fn observe(&mut self, values: &Packed, place: impl Fn(usize) -> Option<Place>) -> Result<(), DecodeError> {
        let decoded = self.decoder.decode(values)?;
        let again = decoded.batch.column_by_name(&self.plan.rescued).and_then(|column| column.as_string_opt::<i32>());
        let mut row_of = decoded.inputs.iter().zip(0..).peekable();
        for (at, value) in (0..=u32::MAX).zip(values.iter()) {
            self.rows += 1;
            // A record that is rejected has no row.
            let row = row_of.next_if(|(input, _)| **input == at).map(|(_, row)| row);
            let Some(members) = value.and_then(|value| self.members(value).ok()) else { continue };
            let again = again.zip(row).filter(|(again, row)| again.is_valid(*row));
            let again = again.map(|(again, row)| again.value(row).as_bytes()).unwrap_or_default();
            let left = self.members(again).unwrap_or_default();
            self.shape.observe(again);
            for (path, text) in members {
                let is_older = !left.contains_key(&path);
                let unread = match row.filter(|_| !is_older) {
                    Some(row) => self.unread(&path, &decoded.batch, row),
                    None => Vec::new(),
                };
                self.add(path, text, is_older, unread, || place(at as usize));
            }
        }
        Ok(())
    }

    /// Of several columns that read a path, those that are null in a row.
    fn unread(&self, path: &[String], batch: &RecordBatch, row: usize) -> Vec<usize> {
        let readers = self.index.at(&self.plan, path);
        if readers.len() < 2 {
            return Vec::new();
        }
        let is_null = |at: &usize| batch.columns().get(*at).is_some_and(|column| column.is_null(row));
        readers.into_iter().map(|reader| reader.position).filter(is_null).collect()
    }

    fn add(
        &mut self,
        path: Vec<String>,
        text: &[u8],
        is_older: bool,
        unread: Vec<usize>,
        place: impl Fn() -> Option<Place>,
    ) {
        if !self.fields.contains_key(&path) {
            let weight = self.weight + path.iter().map(|name| name.len() / NAME).sum::<usize>();
            if self.fields.len() >= MOST_FIELDS || weight > MOST_WEIGHT {
                self.others += 1;
                return;
            }
            self.weight = weight;
        }
        let field = self.fields.entry(path).or_default();
        // An older value tells less than one that has no place yet.
        if field.rows == 0 || (field.older == field.rows && !is_older) {
            field.example = (cut(text), place());
        }
        field.rows += 1;
        field.older += u64::from(is_older);
        field.unread.extend(unread);
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
            if scanner.peek() == b'{' && self.index.opens(&self.plan, path) {
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
        &self.shape.shape
    }

    /// Whether there was more than [`Rescued::shape`] can tell.
    pub fn is_cut(&self) -> bool {
        self.shape.is_cut
    }

    /// The fields with values in the column, and why they are there.
    pub fn fields(&self) -> impl Iterator<Item = (&[String], &RescuedField, Why)> {
        let mut reasons = Reasons::new(self);
        self.fields.iter().map(move |(path, field)| (path.as_slice(), field, reasons.why(path, field)))
    }
}

impl Plan {
    /// The plan with another answer to unknown fields; its columns stay.
    pub fn evolving(self, evolve: Evolve) -> Self {
        Self { evolve, ..self }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Addition, Coercion, ColumnSpec, Derivation, PlanOptions, path};
    use alluvium_core::{DataType, Partition};

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

    fn reads(column: &str, how: &str) -> Why {
        Why::Type(vec![Reading { path: path::parse(column).unwrap(), how: how.to_owned() }])
    }

    fn older(column: &str, data_type: DataType) -> Why {
        Why::Older(Some(Target { path: path::parse(column).unwrap(), data_type, is_plain: true }))
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
        assert_eq!(
            explained(&plan, &values),
            [
                ("ID".to_owned(), 1, 0, Why::Case("id".to_owned())),
                ("_RESCUED".to_owned(), 1, 0, Why::Own("_rescued".to_owned())),
                ("a b".to_owned(), 1, 0, Why::Character(' ')),
                ("address".to_owned(), 1, 0, Why::Object),
                ("address.zip".to_owned(), 1, 0, Why::Beside),
                ("amount".to_owned(), 2, 1, reads("amount", "decimal(10,2)")),
                ("gone".to_owned(), 1, 0, Why::Untyped),
                ("id".to_owned(), 2, 1, reads("id", "bigint")),
                ("note".to_owned(), 1, 0, Why::NotApproved(added(&[("note", "string")]))),
                ("s".to_owned(), 1, 0, reads("s", "struct<x:int>")),
                ("s.y".to_owned(), 1, 0, Why::NotApproved(added(&[("s.y", "boolean")]))),
            ]
        );
        assert_eq!(
            explained(&plan, &[r#"{"id":1}"#, r#"{"id":2}"#]),
            [("id".to_owned(), 2, 2, older("id", DataType::BigInt))],
            "what fits by now is older than its column"
        );
    }

    #[test]
    fn what_evolve_does_with_a_new_field_is_said() {
        let text = || added(&[("note", "string")]);
        for (evolve, most, why) in [
            (Evolve::None, 1000, Why::NotAdded(text())),
            (Evolve::Add, 1000, Why::New(text())),
            (Evolve::Stop, 1000, Why::Stops(text())),
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

    #[test]
    fn keys_within_a_value_do_not_pile_up() {
        let mut rescued = Rescued::new(&declared(Evolve::None, 1000, &COLUMNS));
        let keys = |row: usize| (0..20).map(|key| format!("\"k{row}-{key}\":1")).collect::<Vec<_>>().join(",");
        for rows in 0..50 {
            let values: Vec<String> = (0..200).map(|row| format!("{{\"m\":{{{}}}}}", keys(200 * rows + row))).collect();
            rescued.observe(&values.iter().map(|value| Some(value.as_bytes())).collect(), |_| None).unwrap();
        }
        assert!(weight(rescued.shape()) <= 2 * MOST_WEIGHT && rescued.is_cut());
        rescued.observe(&[Some(b"{\"late\":1}".as_slice())].into_iter().collect(), |_| None).unwrap();
        let (.., why) = rescued.fields().next().unwrap();
        assert_eq!(why, Why::Unseen, "what was not looked into is not said to be without a type");
        // Neither do names, however long.
        let mut rescued = Rescued::new(&declared(Evolve::None, 1000, &COLUMNS));
        let values: Vec<String> = (0..200).map(|row| format!("{{\"{row}{}\":1}}", "x".repeat(100_000))).collect();
        rescued.observe(&values.iter().map(|value| Some(value.as_bytes())).collect(), |_| None).unwrap();
        assert!(rescued.is_cut() && rescued.fields.len() < 50 && rescued.others() > 150);
    }

    #[test]
    fn the_columns_that_do_not_read_a_value_are_named_with_what_they_read() {
        let column =
            |name: &str, kind: &str, from: &str, coercion: Coercion, derivation: Option<Derivation>| ColumnSpec {
                from: Some(vec![from.to_owned()]),
                coercion,
                derivation,
                ..ColumnSpec::new(name, DataType::parse(kind).unwrap())
            };
        let columns = vec![
            column("family", "string", "sku", Coercion::None, Some(Derivation::Before("-".to_owned()))),
            column("number", "int", "sku", Coercion::None, Some(Derivation::After("-".to_owned()))),
            column("ts", "timestamp", "at", Coercion::EpochMs, None),
            column("price", "decimal(10,2)", "price", Coercion::ParseString, None),
        ];
        let plan = Plan::declared(columns, PlanOptions { evolve: Evolve::None, ..PlanOptions::default() }).unwrap();
        let told = |value: &str| match explained(&plan, &[value]).pop().unwrap().3 {
            Why::Type(readings) => readings.iter().map(Reading::to_string).collect::<Vec<_>>().join("; "),
            why => format!("{why:?}"),
        };
        assert_eq!(told(r#"{"sku":"AB-x"}"#), "column number reads what is after \"-\" as int");
        let both = "column family reads what is before \"-\" as string; column number reads what is after \"-\" as int";
        assert_eq!(told(r#"{"sku":"none"}"#), both);
        assert_eq!(told(r#"{"at":"2026-03-01T00:00:00Z"}"#), "column ts reads epoch milliseconds");
        assert_eq!(told(r#"{"price":"n/a"}"#), "column price reads decimal(10,2), in a string too");
        assert_eq!(explained(&plan, &[r#"{"sku":"AB-1"}"#])[0].3, Why::Older(None), "no one column has it all");
    }

    #[test]
    fn a_name_that_no_new_column_can_have_is_told_why() {
        let options = |evolve| PlanOptions {
            evolve,
            reserved: vec!["_kafka".to_owned()],
            drops: vec![vec!["debug".to_owned()]],
            ..PlanOptions::default()
        };
        let id = ColumnSpec { from: Some(vec!["number".to_owned()]), ..ColumnSpec::new("id", DataType::BigInt) };
        let table = arrow_schema::Schema::new(vec![
            arrow_schema::Field::new("id", DataType::BigInt.to_arrow(), true),
            arrow_schema::Field::new("note", DataType::String.to_arrow(), true),
        ]);
        let plan = |evolve| Plan::declared(vec![id.clone()], options(evolve)).unwrap().with_table(&table).unwrap();
        let long = "x".repeat(300);
        for (name, why) in [
            ("note", Why::Unfilled(DataType::String)),
            ("Note", Why::Case("note".to_owned())),
            ("id", Why::Taken("number".to_owned())),
            ("ID", Why::Case("id".to_owned())),
            ("_Kafka", Why::Own("_kafka".to_owned())),
            ("a=b", Why::Character('=')),
            (&long, Why::Length),
            ("debug", Why::Dropped),
        ] {
            for evolve in [Evolve::None, Evolve::Add] {
                let value = format!("{{{name:?}:1}}");
                assert_eq!(explained(&plan(evolve), &[&value])[0].3, why, "{name} {evolve:?}");
            }
        }
        // Of two that nobody knew, the first gets the column.
        let told = explained(&plan(Evolve::Add), &[r#"{"New":1}"#, r#"{"new":1}"#]);
        assert_eq!(told[0].3, Why::New(added(&[("New", "bigint")])));
        assert_eq!(told[1].3, Why::Case("New".to_owned()));
    }
}
