//! The columns of a plan.

use alluvium_core::{Coercion, DataType, Derivation, OnConflict};
use arrow_schema::Field;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Key of a column's metadata in Arrow and Delta schemas: a JSON object from paths inside the
/// column to the coercions that cannot be told from the type. An inferred plan that is made anew
/// from the table finds them there.
pub const COERCIONS: &str = "alluvium.coercions";

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
