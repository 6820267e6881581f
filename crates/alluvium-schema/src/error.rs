//! What can be wrong with a plan, and with running one.

use alluvium_core::{Classified, DataType, ErrorClass};
use arrow_schema::ArrowError;

/// A plan that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("column '{column}': Delta cannot hold a name with {character:?}")]
    NameCharacter { column: String, character: char },
    #[error("a column's name is empty")]
    NameEmpty,
    #[error("column '{column}' is there twice, as '{other}' (names are not case-sensitive)")]
    NameTwice { column: String, other: String },
    #[error("column '{column}' has the name of the pipeline's own column '{reserved}'")]
    NameReserved { column: String, reserved: String },
    #[error("column '{column}' reads an empty path")]
    PathEmpty { column: String },
    #[error(
        "column '{column}' reads {path}, but only columns that are declared read another field than that of their name"
    )]
    PathForeign { column: String, path: String },
    #[error(
        "column '{column}' reads {path}, but column '{other}' reads {other_path}, which is the same value or holds it"
    )]
    PathOverlap { column: String, path: String, other: String, other_path: String },
    #[error("column '{column}' has the type {data_type}, which is not one: {reason}")]
    Type { column: String, data_type: DataType, reason: &'static str },
    #[error(
        "the type of column '{column}' nests deeper than the schema of a Delta table may: 41 structs in each other, or 123 lists"
    )]
    TypeDepth { column: String },
    #[error("column '{column}' is a map with keys of type {key}, but keys of JSON objects are strings")]
    MapKey { column: String, key: DataType },
    #[error("column '{column}': {coercion} does not apply to the type {data_type}")]
    Coercion { column: String, coercion: &'static str, data_type: String },
    #[error("column '{column}': a column of type {data_type} cannot be made by `{derivation}`")]
    Derivation { column: String, derivation: &'static str, data_type: DataType },
    #[error("column '{column}' takes a part of a value, and has a default")]
    DerivedDefault { column: String },
    #[error("column '{column}' cannot take the default {default}: {reason}")]
    Default { column: String, default: String, reason: String },
    #[error("the path of a field to drop is empty")]
    DropEmpty,
    #[error("{path} is dropped, but column '{column}' reads it")]
    Dropped { path: String, column: String },
    #[error("{path} is dropped, but column '{column}' takes what is around it whole, as {data_type}")]
    DroppedInside { path: String, column: String, data_type: DataType },
    #[error("the plan has {columns} columns, counting the fields of structs, but at most {max} are allowed")]
    TooMany { columns: usize, max: usize },
    #[error("column '{column}' has the type {planned} in the plan, but {table} in the table")]
    TableType { column: String, planned: DataType, table: DataType },
    #[error("column '{column}' of the table has the type {found}, which is none of Delta's")]
    TableColumn { column: String, found: String },
    #[error("a plugin reads {path} as {wanted}, but it is {found}")]
    Required { path: String, wanted: DataType, found: DataType },
    #[error("a plugin reads {path}, but the plan has '{found}' (keys of records are case-sensitive, columns are not)")]
    RequiredCase { path: String, found: String },
    #[error("a plugin reads {path} as {wanted}, but no such column is declared")]
    RequiredUndeclared { path: String, wanted: DataType },
}

impl Classified for PlanError {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NameCharacter { .. } | Self::NameEmpty => {
                "give the column a plain name, and name the record's field with 'from'".to_owned()
            }
            Self::NameTwice { .. } => "rename one of them".to_owned(),
            Self::NameReserved { .. } => {
                "rename it: metadata and what column plugins add have names of their own".to_owned()
            }
            Self::PathEmpty { .. } => "name the record's field that the column is made from".to_owned(),
            Self::PathForeign { .. } => "declare the column".to_owned(),
            Self::PathOverlap { .. } => "read each value by one column: the whole, or its parts".to_owned(),
            Self::Type { .. } => "write the type as Spark's DDL does, as in decimal(10,2)".to_owned(),
            Self::TypeDepth { .. } => "declare fewer fields: those that lie deeper are rescued".to_owned(),
            Self::MapKey { .. } => "declare it as map<string,…>".to_owned(),
            Self::Coercion { .. } => "remove the coercion, or change the column's type".to_owned(),
            Self::Derivation { derivation: "date", .. } => {
                "declare it as date; a number is read as a timestamp with one of the epoch coercions".to_owned()
            }
            Self::Derivation { .. } => {
                "give a separator, and a type that is neither a list nor a map nor a struct".to_owned()
            }
            Self::DerivedDefault { .. } => "remove the default".to_owned(),
            Self::Default { .. } => "write it as JSON, as in \"0\" or \"\\\"none\\\"\"".to_owned(),
            Self::DropEmpty => "name the record's field that is left out".to_owned(),
            Self::Dropped { .. } => "drop it, or read it".to_owned(),
            Self::DroppedInside { .. } => "read it as a struct, or drop all of it".to_owned(),
            Self::TooMany { .. } => "declare fewer columns, or raise max_columns".to_owned(),
            Self::TableType { table, .. } => format!("declare it as {table}, or write to another column"),
            Self::TableColumn { .. } => "write to another table".to_owned(),
            Self::Required { found, .. } => format!("change the plugin's configuration to read it as {found}"),
            Self::RequiredCase { found, .. } => format!("change the plugin's configuration to read '{found}'"),
            Self::RequiredUndeclared { path, wanted } => format!("declare the column {path} as {wanted}"),
        })
    }
}

/// Growth that the plan forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    #[error("the records have fields that the table has not: {}", listed(.fields))]
    Unknown { fields: Vec<String> },
}

impl Classified for GrowError {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hint(&self) -> Option<String> {
        Some("declare the fields, leave them out with `drop`, or set evolve to \"add\" or \"none\"".to_owned())
    }
}

/// Decoding that failed as a whole. Records that do not fit are no errors: see
/// [`crate::Decoded`].
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("one call can decode at most {max} records, but {found} were given")]
    TooManyRecords { found: usize, max: u32 },
    #[error("the columns do not make a batch of the plan's schema")]
    Assemble {
        #[source]
        source: ArrowError,
    },
}

impl Classified for DecodeError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Bug
    }
}

const LISTED: usize = 20;
/// How many characters of a path are told.
const LONGEST: usize = 300;

/// Paths as records spell them, each on one line and not endless.
fn listed(fields: &[String]) -> String {
    let told = |field: &String| {
        let mut told = String::new();
        for c in field.chars().take(LONGEST) {
            if c.is_control() { told.extend(c.escape_unicode()) } else { told.push(c) }
        }
        if field.chars().nth(LONGEST).is_some() {
            told.push('…');
        }
        told
    };
    let mut text = fields.iter().take(LISTED).map(told).collect::<Vec<_>>().join(", ");
    if fields.len() > LISTED {
        text.push_str(&format!(" and {} more", fields.len() - LISTED));
    }
    text
}
