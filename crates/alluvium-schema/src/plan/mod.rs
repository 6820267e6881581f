//! Mapping plans.

mod check;
mod table;

use crate::{PlanError, path};
use alluvium_core::DataType;
use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Key of a column's metadata in Arrow and Delta schemas: a JSON object from paths inside the
/// column to the coercions that cannot be told from the type. An inferred plan that is made anew
/// from the table finds them there.
pub const COERCIONS: &str = "alluvium.coercions";

/// What to do with a value that is not of its column's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnConflict {
    /// The record goes to the dead letters.
    #[default]
    Reject,
    /// Null in the column; the value is kept in the rescued column.
    Rescue,
    /// The pipeline stops.
    Stop,
}

/// What to do with a field that the plan does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evolve {
    /// It becomes a new nullable column, or a field of a struct.
    #[default]
    Add,
    /// It is rescued.
    None,
    /// The pipeline stops, naming it.
    Stop,
}

/// A wider reading of a value than its type's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coercion {
    #[default]
    None,
    /// Numbers and booleans may stand in a string, spelled as JSON spells them.
    ParseString,
    /// A string column takes the JSON text of any value as it was written, strings with their quotes.
    JsonText,
    /// A timestamp is a number of seconds since the epoch; finer than a microsecond is truncated
    /// towards the past.
    EpochS,
    EpochMs,
    EpochUs,
    EpochNs,
    /// A date is a whole number of days since the epoch.
    EpochDays,
}

impl Coercion {
    /// Its spelling in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ParseString => "parse-string",
            Self::JsonText => "json-text",
            Self::EpochS => "epoch-s",
            Self::EpochMs => "epoch-ms",
            Self::EpochUs => "epoch-us",
            Self::EpochNs => "epoch-ns",
            Self::EpochDays => "epoch-days",
        }
    }

    /// Whether a column of this type can ask for it.
    pub fn applies_to(self, data_type: &DataType) -> bool {
        match self {
            Self::None => true,
            Self::ParseString => matches!(
                data_type,
                DataType::Boolean
                    | DataType::TinyInt
                    | DataType::SmallInt
                    | DataType::Int
                    | DataType::BigInt
                    | DataType::Float
                    | DataType::Double
                    | DataType::Decimal(..)
            ),
            Self::JsonText => *data_type == DataType::String,
            Self::EpochS | Self::EpochMs | Self::EpochUs | Self::EpochNs => *data_type == DataType::Timestamp,
            Self::EpochDays => *data_type == DataType::Date,
        }
    }
}

/// A column as its owner declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    pub name: String,
    pub data_type: DataType,
    /// The path in the record; the name when absent. A name with a dot is one key, not a path.
    pub from: Option<Vec<String>>,
    pub on_conflict: OnConflict,
    pub coercion: Coercion,
}

impl ColumnSpec {
    /// A column read from the field of its name, rejecting what does not fit.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self {
            name: name.into(),
            data_type,
            from: None,
            on_conflict: OnConflict::default(),
            coercion: Coercion::default(),
        }
    }
}

/// What a plan does besides its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    pub evolve: Evolve,
    /// How many columns growth may reach, counting each field of a struct that holds values.
    pub max_columns: usize,
    /// Name of the rescued column.
    pub rescued: String,
    /// Names of metadata columns: no field of a record becomes a column of that name.
    pub reserved: Vec<String>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { evolve: Evolve::Add, max_columns: 1000, rescued: "_rescued".to_owned(), reserved: Vec::new() }
    }
}

/// A column of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: DataType,
    /// The path in the record; at least one part.
    pub path: Vec<String>,
    pub on_conflict: OnConflict,
    /// Coercions by the path inside the column, as [`path::join`] spells it: empty for the value
    /// itself, `element` for a list's elements, `value` for a map's values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub coercions: BTreeMap<String, Coercion>,
}

/// Where a plan's columns come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    Declared,
    Inferred,
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
}

impl Plan {
    /// A plan of declared columns; all that is wrong with them at once.
    pub fn declared(columns: Vec<ColumnSpec>, options: PlanOptions) -> Result<Self, Vec<PlanError>> {
        let columns = columns.into_iter().map(Column::from).collect();
        let plan = Self { settled: true, columns, ..Self::new(Origin::Declared, options) };
        let errors = plan.problems();
        if errors.is_empty() { Ok(plan) } else { Err(errors) }
    }

    /// A plan without columns: they come from the table ([`Plan::with_table`]), from plugins
    /// ([`Plan::require`]) and from the records ([`Plan::grow`]).
    pub fn inferred(options: PlanOptions) -> Self {
        Self::new(Origin::Inferred, options)
    }

    fn new(origin: Origin, options: PlanOptions) -> Self {
        let PlanOptions { evolve, max_columns, rescued, reserved } = options;
        Self {
            origin,
            evolve,
            max_columns,
            rescued,
            reserved,
            settled: false,
            columns: Vec::new(),
            undeclared: Vec::new(),
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn evolve(&self) -> Evolve {
        self.evolve
    }

    /// Name of the rescued column, whether the plan can rescue or not.
    pub fn rescued(&self) -> &str {
        &self.rescued
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

impl Column {
    /// A column for the field of its name, rescuing what does not fit: as inference makes them.
    pub(crate) fn inferred(name: &str, data_type: DataType, coercions: BTreeMap<String, Coercion>) -> Self {
        let path = vec![name.to_owned()];
        Self { name: name.to_owned(), data_type, path, on_conflict: OnConflict::Rescue, coercions }
    }

    fn to_arrow(&self) -> Field {
        let field = Field::new(&self.name, self.data_type.to_arrow(), true);
        // Only these cannot be told from the type, and change the meaning of what is stored.
        let mut json_text = self.coercions.clone();
        json_text.retain(|_, coercion| *coercion == Coercion::JsonText);
        match serde_json::to_string(&json_text) {
            Ok(text) if !json_text.is_empty() => field.with_metadata(HashMap::from([(COERCIONS.to_owned(), text)])),
            _ => field,
        }
    }
}

impl From<ColumnSpec> for Column {
    fn from(spec: ColumnSpec) -> Self {
        let ColumnSpec { name, data_type, from, on_conflict, coercion } = spec;
        let path = from.unwrap_or_else(|| vec![name.clone()]);
        let coercions = match coercion {
            Coercion::None => BTreeMap::new(),
            coercion => BTreeMap::from([(path::join::<&str>(&[]), coercion)]),
        };
        Self { name, data_type, path, on_conflict, coercions }
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
