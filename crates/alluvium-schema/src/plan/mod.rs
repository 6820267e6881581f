//! Mapping plans.

mod check;
mod column;
mod default;
mod table;
mod text;

use crate::PlanError;
use alluvium_core::{DataType, Evolve, OnConflict};
use arrow_schema::{Field, Schema, SchemaRef};
pub use column::{COERCIONS, Column, ColumnSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What a plan does besides its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    pub evolve: Evolve,
    /// How many columns growth may reach, counting each field of a struct that holds values.
    pub max_columns: usize,
    /// Name of the rescued column.
    pub rescued: String,
    /// Names of the pipeline's own columns, metadata and what column plugins add: no field of a record
    /// becomes a column of that name.
    pub reserved: Vec<String>,
    /// Paths, through objects only, of fields that are left out: no columns, and not rescued either.
    pub drops: Vec<Vec<String>>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            evolve: Evolve::Add,
            max_columns: 1000,
            rescued: "_rescued".to_owned(),
            reserved: Vec::new(),
            drops: Vec::new(),
        }
    }
}

/// Where a plan's columns come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    Declared,
    Inferred,
    /// A schema-mapping plugin, which wants to hear of every shape that is new.
    Mapped,
}

/// A mapping plan: how JSON objects become rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "check::Draft")]
pub struct Plan {
    pub(crate) origin: Origin,
    pub(crate) evolve: Evolve,
    pub(crate) max_columns: usize,
    pub(crate) rescued: String,
    pub(crate) reserved: Vec<String>,
    /// Whether the columns stand, so that `evolve` decides on unknown fields. An inferred plan
    /// without a table takes the first fields that it meets whatever `evolve` says.
    pub(crate) settled: bool,
    pub(crate) columns: Vec<Column>,
    /// Columns of the table that are not declared: an unknown field of that name can become no
    /// column of another type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) undeclared: Vec<Column>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) drops: Vec<Vec<String>>,
}

impl Plan {
    /// A plan of declared columns; all that is wrong with them at once.
    pub fn declared(columns: Vec<ColumnSpec>, options: PlanOptions) -> Result<Self, Vec<PlanError>> {
        Self::of_columns(Origin::Declared, columns, options)
    }

    /// A plan as a schema-mapping plugin made it; all that is wrong with it at once. It does what a
    /// declared plan does, and tells of every shape that it was not made for ([`crate::Decoded::unknown`]).
    pub fn mapped(columns: Vec<ColumnSpec>, options: PlanOptions) -> Result<Self, Vec<PlanError>> {
        Self::of_columns(Origin::Mapped, columns, options)
    }

    fn of_columns(origin: Origin, columns: Vec<ColumnSpec>, options: PlanOptions) -> Result<Self, Vec<PlanError>> {
        let columns = columns.into_iter().map(Column::from).collect();
        let plan = Self { settled: true, columns, ..Self::new(origin, options) };
        let errors = plan.problems();
        if errors.is_empty() { Ok(plan) } else { Err(errors) }
    }

    /// A plan without columns: they come from the table ([`Plan::with_table`]), from plugins
    /// ([`Plan::require`]) and from the records ([`Plan::grow`]).
    pub fn inferred(options: PlanOptions) -> Self {
        Self::new(Origin::Inferred, options)
    }

    fn new(origin: Origin, options: PlanOptions) -> Self {
        let PlanOptions { evolve, max_columns, rescued, reserved, drops } = options;
        Self {
            origin,
            evolve,
            max_columns,
            rescued,
            reserved,
            settled: false,
            columns: Vec::new(),
            undeclared: Vec::new(),
            drops,
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The table's columns that no record fills: they are not declared, and growth cannot take them up.
    pub fn unfilled(&self) -> impl Iterator<Item = &str> {
        let grows = self.evolve == Evolve::Add;
        let is_read =
            |undeclared: &Column| self.columns.iter().any(|column| column.path.first() == undeclared.path.first());
        self.undeclared.iter().filter(move |column| !grows || is_read(column)).map(|column| column.name.as_str())
    }

    pub fn evolve(&self) -> Evolve {
        self.evolve
    }

    /// Paths of the fields that are left out.
    pub fn drops(&self) -> &[Vec<String>] {
        &self.drops
    }

    /// Whether a schema-mapping plugin made the plan, so that every shape it was not made for is news.
    pub(crate) fn wants_news(&self) -> bool {
        self.origin == Origin::Mapped
    }

    /// Name of the rescued column, whether the plan can rescue or not.
    pub fn rescued(&self) -> &str {
        &self.rescued
    }

    /// How many more columns there may be, counting each field of a struct that holds values.
    pub fn room(&self) -> usize {
        let used = self.columns.iter().map(|column| leaves(&column.data_type)).sum();
        self.max_columns.saturating_sub(used)
    }

    /// Whether the columns stand, so that `evolve` decides on unknown fields: not so for an
    /// inferred plan before the first table or the first growth.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// The plan with its columns as they stand, after a first batch was seen.
    pub fn settle(mut self) -> Self {
        self.settled = true;
        self
    }

    /// Whether a value can end up in the rescued column.
    pub fn can_rescue(&self) -> bool {
        self.origin == Origin::Inferred
            || self.evolve != Evolve::Stop
            || self.columns.iter().any(|column| column.on_conflict == OnConflict::Rescue)
            // What should be an object and is not.
            || self.drops.iter().any(|path| path.len() > 1)
    }

    /// Type of a column, or of a field of a struct column; names match exactly.
    pub fn data_type_of(&self, path: &[String]) -> Option<DataType> {
        let (name, fields) = path.split_first()?;
        let column = self.columns.iter().find(|column| column.name == *name)?;
        let mut found = &column.data_type;
        for name in fields {
            let DataType::Struct(inner) = found else { return None };
            found = &inner.iter().find(|field| field.name == *name)?.data_type;
        }
        Some(found.clone())
    }

    /// Schema of decoded batches: the columns in order, then the rescued column if the plan can
    /// rescue. All nullable.
    pub fn schema(&self) -> SchemaRef {
        let mut fields = self.columns.iter().map(Column::to_arrow).collect::<Vec<_>>();
        if self.can_rescue() {
            fields.push(Field::new(&self.rescued, DataType::String.to_arrow(), true));
        }
        Arc::new(Schema::new(fields))
    }

    /// `sha256:` and the hash of the plan's JSON form, in hexadecimal.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("sha256:{:x}", Sha256::digest(json))
    }
}

/// Whether Delta takes two names for one.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}

/// The first character that Delta cannot hold in a name, without column mapping, or that readers of
/// the table choke on: control characters.
pub(crate) fn forbidden(name: &str) -> Option<char> {
    name.chars().find(|character| character.is_control() || " ,;{}()=".contains(*character))
}

/// How many columns of values a type makes.
pub(crate) fn leaves(data_type: &DataType) -> usize {
    match data_type {
        DataType::Array(element) => leaves(element),
        DataType::Map(key, value) => leaves(key) + leaves(value),
        DataType::Struct(fields) => fields.iter().map(|field| leaves(&field.data_type)).sum(),
        _ => 1,
    }
}
