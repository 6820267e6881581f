//! The words in which a mapping is told, in pipeline files, by plugins and in plans.

use crate::DataType;
use serde::{Deserialize, Serialize};

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
    /// It is rescued until the owner adds it to the table; nothing else adds columns to a table that
    /// is there.
    Approve,
}

impl Evolve {
    /// Its spelling in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::None => "none",
            Self::Stop => "stop",
            Self::Approve => "approve",
        }
    }
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
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::ParseString,
        Self::JsonText,
        Self::EpochS,
        Self::EpochMs,
        Self::EpochUs,
        Self::EpochNs,
        Self::EpochDays,
    ];

    /// Its spelling in plans and pipeline files.
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

/// What a column takes of a value instead of the whole. Columns that do may read one path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Derivation {
    /// Of a timestamp, the date in UTC.
    Date,
    /// Of a string, what stands before the first occurrence of the separator, read as the column's
    /// type; a string without the separator does not fit.
    Before(String),
    /// The same, what stands after it.
    After(String),
}

impl Derivation {
    /// Its spelling in pipeline files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Before(_) => "before",
            Self::After(_) => "after",
        }
    }

    /// Whether a column of this type can be made so, with this coercion of the value.
    pub fn applies_to(&self, data_type: &DataType, coercion: Coercion) -> bool {
        match self {
            Self::Date => {
                *data_type == DataType::Date
                    && (coercion == Coercion::None || coercion.applies_to(&DataType::Timestamp))
            }
            Self::Before(separator) | Self::After(separator) => {
                let reads_text =
                    coercion == Coercion::None || (coercion == Coercion::ParseString && coercion.applies_to(data_type));
                !separator.is_empty() && reads_text && !data_type.is_nested()
            }
        }
    }
}
