//! Why the values of a field are in the rescued column.

use super::index::Reader;
use super::{Rescued, RescuedField};
use crate::infer::can_be_named;
use crate::plan::forbidden;
use crate::{Addition, Coercion, Column, Derivation, Evolve, Plan, additions, path};
use alluvium_core::DataType;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Why the values of a field are in the rescued column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The column or the field of a struct came after them; by now it would take them all. Where it is one.
    Older(Option<Target>),
    /// They were rescued before the field was left out.
    Dropped,
    /// They are not what these columns read.
    Type(Vec<Reading>),
    /// The plan wants an object there.
    Object,
    /// The table has no place for it, or for what is in it, and would get these if the owner approved.
    NotApproved(Vec<Addition>),
    /// The same where `evolve` adds nothing.
    NotAdded(Vec<Addition>),
    /// The same where `evolve` stops the pipeline for it.
    Stops(Vec<Addition>),
    /// The table gets these with the next record that has it.
    New(Vec<Addition>),
    /// The table has a column of the name and of this type, which the plan does not fill.
    Unfilled(DataType),
    /// The column of its name reads this other path.
    Taken(String),
    /// The name differs only in case from this one, which is taken.
    Case(String),
    /// The name is that of a column of the pipeline's own.
    Own(String),
    /// Delta can hold no name with this character.
    Character(char),
    /// The name is empty, or too long for a column.
    Length,
    /// The table has as many columns as it may have.
    Full,
    /// Columns are declared for other fields of the same object, so that no column is made for this one.
    Beside,
    /// No value says of which type it is: only null, `[]` and `{}`.
    Untyped,
    /// There was too much to look into.
    Unseen,
}

/// Where a value has its place by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path in the table.
    pub path: Vec<String>,
    pub data_type: DataType,
    /// Whether the value's own JSON text says it: nothing is read more widely or in part.
    pub is_plain: bool,
}

/// How a column, or a field of a struct, reads a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The path in the table.
    pub path: Vec<String>,
    pub how: String,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} reads {}", path::join(&self.path), self.how)
    }
}

impl Reader<'_> {
    fn reading(&self, at: &[String]) -> Reading {
        let (own, inner) = self.coercions(at);
        let mut how = how(self.column.derivation.as_ref(), own, self.data_type);
        for (inner, coercion) in inner {
            how.push_str(&format!(", {} {}", path::join(&inner), coercion.name()));
        }
        Reading { path: self.in_table(at), how }
    }

    /// The coercion of the value, and those of what is in it.
    fn coercions(&self, at: &[String]) -> (Coercion, Vec<(Vec<String>, Coercion)>) {
        let inner = at.get(at.len() - self.inner..).unwrap_or_default();
        let (mut own, mut others) = (Coercion::None, Vec::new());
        for (text, coercion) in self.column.coercions.iter().filter(|(_, coercion)| **coercion != Coercion::None) {
            let parts = if text.is_empty() { Vec::new() } else { path::parse(text).unwrap_or_default() };
            match parts.strip_prefix(inner) {
                Some([]) => own = *coercion,
                Some(below) => others.push((below.to_vec(), *coercion)),
                None => {}
            }
        }
        (own, others)
    }

    fn target(&self, at: &[String]) -> Target {
        let (own, inner) = self.coercions(at);
        let is_plain = matches!(own, Coercion::None | Coercion::ParseString)
            && inner.is_empty()
            && self.column.derivation.is_none();
        Target { path: self.in_table(at), data_type: self.data_type.clone(), is_plain }
    }
}

fn how(derivation: Option<&Derivation>, coercion: Coercion, data_type: &DataType) -> String {
    let epoch = match coercion {
        Coercion::EpochS => Some("epoch seconds"),
        Coercion::EpochMs => Some("epoch milliseconds"),
        Coercion::EpochUs => Some("epoch microseconds"),
        Coercion::EpochNs => Some("epoch nanoseconds"),
        Coercion::EpochDays => Some("days since the epoch"),
        Coercion::None | Coercion::ParseString | Coercion::JsonText => None,
    };
    match (derivation, coercion) {
        (Some(Derivation::Date), _) => format!("the date of {}", epoch.unwrap_or("a timestamp")),
        (Some(Derivation::Before(separator)), _) => format!("what is before {separator:?} as {data_type}"),
        (Some(Derivation::After(separator)), _) => format!("what is after {separator:?} as {data_type}"),
        (None, Coercion::ParseString) => format!("{data_type}, in a string too"),
        (None, Coercion::JsonText) => "any value, as its JSON text".to_owned(),
        (None, _) => epoch.map_or_else(|| data_type.to_string(), str::to_owned),
    }
}

/// Names that are taken, in lower case.
type Names = HashMap<String, Why>;

/// What a plan makes of all that was rescued.
pub(super) struct Reasons<'r> {
    rescued: &'r Rescued,
    grown: Option<Plan>,
    /// What the table would get if the plan grew by all of it, by the path in the table.
    added: BTreeMap<Vec<String>, DataType>,
    undeclared: HashMap<&'r str, &'r Column>,
    /// By the path in the record of what is around the names.
    names: HashMap<Vec<String>, Names>,
}

impl<'r> Reasons<'r> {
    pub fn new(rescued: &'r Rescued) -> Self {
        let plan = &rescued.plan;
        let adding = Plan { evolve: Evolve::Add, settled: true, ..plan.clone() };
        let grown = adding.grow(rescued.shape()).ok().flatten();
        let added = grown.as_ref().map(|grown| additions(Some(&plan.schema()), &grown.schema()));
        let added = added.into_iter().flatten().map(|addition| (addition.path, addition.data_type)).collect();
        let undeclared = plan.undeclared.iter().map(|column| (column.name.as_str(), column)).collect();
        Self { rescued, grown, added, undeclared, names: HashMap::new() }
    }

    pub fn why(&mut self, path: &[String], field: &RescuedField) -> Why {
        let Rescued { plan, index, .. } = self.rescued;
        if index.is_dropped(plan, path) {
            return Why::Dropped;
        }
        let mut readers = index.at(plan, path);
        if field.older == field.rows {
            return Why::Older(match readers.as_slice() {
                [reader] => Some(reader.target(path)),
                _ => None,
            });
        }
        if let Some(reader) = readers.first() {
            // A list or map whose objects have new fields is in its column, and rescued whole besides. The
            // fields of a struct are told apart.
            let proposed = self.below(&reader.in_table(path));
            if !matches!(reader.data_type, DataType::Struct(_)) && !proposed.is_empty() {
                return Self::held(plan.evolve, proposed);
            }
            if !field.unread.is_empty() {
                readers.retain(|reader| field.unread.contains(&reader.position));
            }
            return Why::Type(readers.iter().map(|reader| reader.reading(path)).collect());
        }
        if index.opens(plan, path) {
            return Why::Object;
        }
        let Some((name, parent)) = path.split_last() else { return Why::Untyped };
        if let Some(column) = self.undeclared.get(name.as_str()).filter(|_| parent.is_empty()) {
            return Why::Unfilled(column.data_type.clone());
        }
        let around = index.at(plan, parent).first().map(|reader| reader.in_table(parent));
        let proposed = self.proposed(&[around.as_deref().unwrap_or(parent), std::slice::from_ref(name)].concat());
        if !proposed.is_empty() {
            return Self::held(plan.evolve, proposed);
        }
        let is_beside = !parent.is_empty() && around.is_none();
        if !is_beside && let Some(taken) = self.names(parent).get(&name.to_lowercase()) {
            return match taken {
                Why::Taken(other) if other == name => Why::Taken(self.read_by(name)),
                Why::Taken(other) => Why::Case(other.clone()),
                own => own.clone(),
            };
        }
        match forbidden(name) {
            Some(character) => Why::Character(character),
            None if !can_be_named(name) => Why::Length,
            None if is_beside => Why::Beside,
            None => self.missing(path),
        }
    }

    /// Why a field is not added although nothing is wrong with its name.
    fn missing(&self, path: &[String]) -> Why {
        let seen = path.iter().try_fold(self.rescued.shape(), |shape, name| shape.field(name));
        match seen {
            None if self.rescued.is_cut() => Why::Unseen,
            Some(seen) if seen.inferred().is_some() => Why::Full,
            _ => Why::Untyped,
        }
    }

    fn held(evolve: Evolve, proposed: Vec<Addition>) -> Why {
        match evolve {
            Evolve::Approve => Why::NotApproved(proposed),
            Evolve::None => Why::NotAdded(proposed),
            Evolve::Stop => Why::Stops(proposed),
            Evolve::Add => Why::New(proposed),
        }
    }

    /// What the table would get at a path of it and below.
    fn below(&self, path: &[String]) -> Vec<Addition> {
        let from = self.added.range(path.to_vec()..).take_while(|(found, _)| found.starts_with(path));
        from.map(|(path, data_type)| Addition { path: path.clone(), data_type: data_type.clone() }).collect()
    }

    /// What the table would get for a field that is new: it, or what is around it.
    fn proposed(&self, path: &[String]) -> Vec<Addition> {
        (1..=path.len())
            .filter_map(|end| {
                let (path, inner) = path.split_at_checked(end)?;
                let data_type = self.added.get(path)?;
                inner.iter().try_fold(data_type, |found, name| match found {
                    DataType::Struct(fields) => Some(&fields.iter().find(|field| field.name == *name)?.data_type),
                    _ => None,
                })?;
                Some(Addition { path: path.to_vec(), data_type: data_type.clone() })
            })
            .collect()
    }

    /// The path that the column of a name reads.
    fn read_by(&self, name: &str) -> String {
        let column = self.rescued.plan.columns.iter().find(|column| column.name == name);
        column.map_or_else(|| name.to_owned(), |column| path::join(&column.path))
    }

    /// The names that are taken beside a new field: of columns, or of the fields of a struct.
    fn names(&mut self, parent: &[String]) -> &Names {
        let new = if self.names.contains_key(parent) { Names::new() } else { self.taken(parent) };
        self.names.entry(parent.to_vec()).or_insert(new)
    }

    fn taken(&self, parent: &[String]) -> Names {
        let plan = &self.rescued.plan;
        let grown = self.grown.as_ref().unwrap_or(plan);
        let mut names = Names::new();
        let mut take = |name: &str, why: fn(String) -> Why| {
            names.entry(name.to_lowercase()).or_insert_with(|| why(name.to_owned()));
        };
        if parent.is_empty() {
            plan.reserved.iter().chain([&plan.rescued]).for_each(|name| take(name, Why::Own));
            let columns = plan.columns.iter().chain(&plan.undeclared).chain(&grown.columns);
            columns.for_each(|column| take(&column.name, Why::Taken));
            return names;
        }
        for plan in [plan, grown] {
            let index = super::index::Index::new(plan);
            for reader in index.at(plan, parent) {
                if let DataType::Struct(fields) = reader.data_type {
                    fields.iter().for_each(|field| take(&field.name, Why::Taken));
                }
            }
        }
        names
    }
}
