//! What a mapping answers.

use super::{Coercion, Derivation, OnConflict, Value};
use crate::bindings::mapping as contract;
use crate::path::{self, Step};
use crate::{Error, Path, Result, Type};
use std::collections::BTreeSet;

/// The plan under construction: columns, and fields to leave out.
///
/// A mistake in a name, a path or a type is reported when the function returns, all of them at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    columns: Vec<Column>,
    drops: Vec<String>,
}

/// A column of the plan. By default it takes the field of its own name whole, and rejects what does not
/// fit.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    data_type: String,
    path: String,
    coercion: Coercion,
    inner_coercions: Vec<(String, Coercion)>,
    derivation: Option<Derivation>,
    on_conflict: OnConflict,
    default: Option<Value>,
    comment: Option<String>,
}

impl Plan {
    /// A column of the table, with its type in Spark's DDL spelling, as in `decimal(10,2)` or
    /// `array<struct<sku:string,qty:int>>`. Columns that the table has not are added in this order.
    /// The type of one that it has cannot change, save that fields are added to a struct.
    pub fn column(&mut self, name: &str, data_type: &str) -> &mut Column {
        let column = Column {
            name: name.to_owned(),
            data_type: data_type.to_owned(),
            // A name with a dot in it is one key.
            path: Path::of(name).as_str().to_owned(),
            coercion: Coercion::default(),
            inner_coercions: Vec::new(),
            derivation: None,
            on_conflict: OnConflict::default(),
            default: None,
            comment: None,
        };
        let at = self.columns.len();
        self.columns.push(column);
        &mut self.columns[at]
    }

    /// The field at this path, through objects only, becomes no column and is not kept otherwise.
    pub fn drop(&mut self, path: &str) -> &mut Self {
        self.drops.push(path.to_owned());
        self
    }

    pub(crate) fn finish(self) -> Result<contract::MappingPlan> {
        let mut faults = Vec::new();
        let mut names = BTreeSet::new();
        for column in &self.columns {
            let mut fault = |text: String| faults.push(format!("column '{}': {text}", column.name));
            if column.name.is_empty() {
                fault("its name is empty".to_owned());
            } else if !names.insert(column.name.to_lowercase()) {
                fault("it is there twice (names are not case-sensitive)".to_owned());
            }
            column.check(fault);
        }
        faults.extend(self.drops.iter().filter_map(|path| through_objects(path).err()));
        if !faults.is_empty() {
            return Err(Error::fault(faults.join("; ")));
        }
        let columns = self.columns.into_iter().map(Column::into_contract).collect();
        Ok(contract::MappingPlan { columns, drops: self.drops })
    }
}

impl Column {
    /// Takes the field at this path, as in `customer.email`; a key that holds a dot stands in backticks.
    /// The path leads through objects only.
    pub fn from(&mut self, path: &str) -> &mut Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Takes the date in UTC of the timestamp at this path; for a column of type date.
    pub fn date_of(&mut self, path: &str) -> &mut Self {
        self.derivation = Some(Derivation::Date);
        self.from(path)
    }

    /// Takes what stands before the first `separator` in the string at this path, read as the column's
    /// type; a string without the separator does not fit.
    pub fn before(&mut self, path: &str, separator: &str) -> &mut Self {
        self.derivation = Some(Derivation::Before(separator.to_owned()));
        self.from(path)
    }

    /// Takes what stands after the first `separator` in the string at this path, read as the column's
    /// type; a string without the separator does not fit.
    pub fn after(&mut self, path: &str, separator: &str) -> &mut Self {
        self.derivation = Some(Derivation::After(separator.to_owned()));
        self.from(path)
    }

    /// Reads values more widely than the column's type does.
    pub fn coerce(&mut self, coercion: Coercion) -> &mut Self {
        self.coercion = coercion;
        self
    }

    /// The same for values inside the column: names of struct fields, `element` for a list's elements,
    /// `value` for a map's values, joined by dots.
    pub fn coerce_inner(&mut self, path: &str, coercion: Coercion) -> &mut Self {
        self.inner_coercions.push((path.to_owned(), coercion));
        self
    }

    /// What becomes of a value that does not fit.
    pub fn on_conflict(&mut self, on_conflict: OnConflict) -> &mut Self {
        self.on_conflict = on_conflict;
        self
    }

    /// The value where a record does not have the field; one that is null there stays null.
    pub fn default(&mut self, value: impl Into<Value>) -> &mut Self {
        self.default = Some(value.into());
        self
    }

    /// A comment for readers of the table.
    pub fn comment(&mut self, comment: &str) -> &mut Self {
        self.comment = Some(comment.to_owned());
        self
    }

    fn check(&self, mut fault: impl FnMut(String)) {
        if let Err(error) = Type::parse(&self.data_type) {
            fault(error);
        }
        if let Err(error) = through_objects(&self.path) {
            fault(error);
        }
        for (path, _) in &self.inner_coercions {
            if let Err(error) = path::split(path) {
                fault(error);
            }
        }
        if let Some(Derivation::Before(separator) | Derivation::After(separator)) = &self.derivation
            && separator.is_empty()
        {
            fault("its separator is empty".to_owned());
        }
    }

    fn into_contract(self) -> contract::Column {
        let inner = self.inner_coercions.into_iter();
        contract::Column {
            name: self.name,
            data_type: self.data_type,
            path: self.path,
            coercion: self.coercion.into_contract(),
            inner_coercions: inner
                .map(|(path, coercion)| contract::InnerCoercion { path, coercion: coercion.into_contract() })
                .collect(),
            derivation: self.derivation.map(|derivation| match derivation {
                Derivation::Date => contract::Derivation::Date,
                Derivation::Before(separator) => contract::Derivation::Before(separator),
                Derivation::After(separator) => contract::Derivation::After(separator),
            }),
            on_conflict: match self.on_conflict {
                OnConflict::Reject => contract::OnConflict::Reject,
                OnConflict::Rescue => contract::OnConflict::Rescue,
                OnConflict::Stop => contract::OnConflict::Stop,
            },
            default: self.default.map(|value| value.to_string()),
            comment: self.comment,
        }
    }
}

impl Coercion {
    fn into_contract(self) -> contract::Coercion {
        match self {
            Self::None => contract::Coercion::None,
            Self::ParseString => contract::Coercion::ParseString,
            Self::JsonText => contract::Coercion::JsonText,
            Self::EpochS => contract::Coercion::EpochS,
            Self::EpochMs => contract::Coercion::EpochMs,
            Self::EpochUs => contract::Coercion::EpochUs,
            Self::EpochNs => contract::Coercion::EpochNs,
            Self::EpochDays => contract::Coercion::EpochDays,
        }
    }
}

fn through_objects(path: &str) -> std::result::Result<(), String> {
    if path::steps(path)?.contains(&Step::Element) {
        return Err(format!("the path '{path}' leads into a list"));
    }
    Ok(())
}
