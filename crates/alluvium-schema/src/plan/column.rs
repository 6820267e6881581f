//! The columns of a plan.

use alluvium_core::DataType;
use arrow_schema::Field;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

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
                !separator.is_empty() && reads_text && is_simple(data_type)
            }
        }
    }
}

/// Whether values of this type hold no others.
pub(crate) fn is_simple(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Array(_) | DataType::Map(..) | DataType::Struct(_))
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
    /// Coercions of what lies inside the column, by path: see [`Column::coercions`].
    pub inner_coercions: BTreeMap<String, Coercion>,
    pub derivation: Option<Derivation>,
    /// JSON: the value where the record does not have the field.
    pub default: Option<String>,
    /// For readers of the table.
    pub comment: Option<String>,
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
            inner_coercions: BTreeMap::new(),
            derivation: None,
            default: None,
            comment: None,
        }
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Derivation>,
    /// JSON: the value where the record does not have the field; one that is null there stays null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// For readers of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Key of a column's comment in Arrow and Delta schemas, where other engines look for it.
const COMMENT: &str = "comment";

impl Column {
    /// A column for the field of its name, rescuing what does not fit: as inference makes them.
    pub(crate) fn inferred(name: &str, data_type: DataType, coercions: BTreeMap<String, Coercion>) -> Self {
        let path = vec![name.to_owned()];
        let on_conflict = OnConflict::Rescue;
        let name = name.to_owned();
        Self { name, data_type, path, on_conflict, coercions, derivation: None, default: None, comment: None }
    }

    pub(super) fn to_arrow(&self) -> Field {
        let field = Field::new(&self.name, self.data_type.to_arrow(), true);
        let mut metadata = HashMap::new();
        // Only these cannot be told from the type, and change the meaning of what is stored.
        let mut json_text = self.coercions.clone();
        json_text.retain(|_, coercion| *coercion == Coercion::JsonText);
        if let Ok(text) = serde_json::to_string(&json_text)
            && !json_text.is_empty()
        {
            metadata.insert(COERCIONS.to_owned(), text);
        }
        metadata.extend(self.comment.iter().map(|comment| (COMMENT.to_owned(), comment.clone())));
        field.with_metadata(metadata)
    }

    /// The coercion of the value itself.
    pub(crate) fn coercion(&self) -> Coercion {
        self.coercions.get("").copied().unwrap_or_default()
    }
}

impl From<ColumnSpec> for Column {
    fn from(spec: ColumnSpec) -> Self {
        let ColumnSpec { name, data_type, from, on_conflict, coercion, .. } = spec;
        let path = from.unwrap_or_else(|| vec![name.clone()]);
        let mut coercions = spec.inner_coercions;
        if coercion != Coercion::None {
            coercions.insert(String::new(), coercion);
        }
        let ColumnSpec { derivation, default, comment, .. } = spec;
        Self { name, data_type, path, on_conflict, coercions, derivation, default, comment }
    }
}
