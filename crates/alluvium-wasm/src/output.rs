//! What can be wrong with what a plugin returned.

use crate::contract::Layout;
use crate::limits::Bytes;
use std::fmt;

/// What is wrong with what a plugin returned. Columns are named by path; `row` counts the values of
/// the named column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("it is larger than its output limit of {}", Bytes(*limit))]
    TooLarge { limit: usize },
    /// The bytes in the plugin's memory are no value of the contract: wild pointers, text that is not
    /// UTF-8, cases that do not exist.
    #[error("it cannot be read from the plugin's memory: {problem}")]
    Unreadable { problem: String },
    #[error("the same configuration gave another answer than the first time")]
    ConfiguredAnew,
    #[error("it has {outputs} outputs; at most {limit} are allowed")]
    TooManyOutputs { outputs: usize, limit: usize },
    #[error("output {output} comes from input {input}, but there are {inputs} inputs")]
    InputOutside { output: usize, input: u32, inputs: usize },
    #[error("output {output} comes from input {input}, after an output from input {before}: they must rise")]
    InputOrder { output: usize, input: u32, before: u32 },
    #[error("input {input} has several outputs, but the plugin did not say in `access` that it multiplies")]
    Multiplied { input: u32 },
    #[error("input {input} is rejected, but there are {inputs} inputs")]
    RejectOutside { input: u32, inputs: usize },
    #[error("input {input} is rejected twice")]
    RejectTwice { input: u32 },
    #[error("input {input} is both kept and rejected")]
    RejectKept { input: u32 },
    #[error("column {column} is missing: there are too few nodes")]
    NodeMissing { column: String },
    #[error("there are {left} more nodes than the columns it writes need")]
    NodesLeft { left: usize },
    #[error("column {column} has the layout {found}; its type needs {expected}")]
    Layout { column: String, expected: Layout, found: Layout },
    #[error("column {column} has {found} children; its type needs {expected}")]
    Children { column: String, expected: usize, found: u32 },
    #[error("column {column} stands where field {expected} is expected")]
    Name { column: String, expected: String },
    #[error("column {column} has {found} values instead of {expected}")]
    Length { column: String, expected: usize, found: u32 },
    #[error("column {column} has a validity bitmap of {found} bytes instead of {expected}")]
    Validity { column: String, expected: usize, found: usize },
    #[error("column {column} has no offsets; its type needs them")]
    OffsetsMissing { column: String },
    #[error("column {column} has offsets; its type has none")]
    OffsetsUnexpected { column: String },
    #[error("column {column} has {found} offsets instead of {expected}")]
    OffsetsLength { column: String, expected: usize, found: usize },
    #[error("column {column} has offset {offset} at row {row}, outside 0 to {end} or below the one before")]
    Offset { column: String, row: usize, offset: i32, end: usize },
    #[error("column {column} has {found} bytes of values instead of {expected}")]
    Values { column: String, expected: usize, found: usize },
    #[error("column {column} is not UTF-8 at row {row}")]
    Utf8 { column: String, row: usize },
    #[error("column {column} has a null entry or key at row {row}; a map has none")]
    NullKey { column: String, row: usize },
    #[error("column {column} has at row {row} a number that does not fit decimal({precision},{scale})")]
    Decimal { column: String, row: usize, precision: u8, scale: u8 },
    #[error("column {column} has at row {row} a {what} outside the years 1 to 9999")]
    Range { column: String, row: usize, what: &'static str },
    #[error("column {column} does not make an array: {problem}")]
    Array { column: String, problem: String },
    #[error("its {what} hold {found} byte strings instead of {expected}")]
    PackedLength { what: &'static str, expected: usize, found: usize },
    #[error("its {what} end at {end} at output {output}: below the one before or past {bytes} bytes")]
    PackedEnd { what: &'static str, output: usize, end: u32, bytes: usize },
    #[error("its {what} hold {bytes} bytes, but the last ends at {end}")]
    PackedRest { what: &'static str, end: usize, bytes: usize },
    #[error("its {what} have a validity bitmap of {found} bytes instead of {expected}")]
    PackedValidity { what: &'static str, expected: usize, found: usize },
    #[error("output {output} has no value")]
    NullValue { output: usize },
}

impl OutputError {
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TooLarge { .. } | Self::TooManyOutputs { .. } => {
                "make the plugin return less for each input".to_owned()
            }
            Self::Multiplied { .. } => "set `multiplies` in what `configure` returns".to_owned(),
            Self::ConfiguredAnew => "`configure` must depend on nothing but the configuration".to_owned(),
            _ => "the plugin breaks the contract in plugin.wit; its SDK, if it has one, would not".to_owned(),
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::Fixed1 => "fixed1",
            Self::Fixed2 => "fixed2",
            Self::Fixed4 => "fixed4",
            Self::Fixed8 => "fixed8",
            Self::Fixed16 => "fixed16",
            Self::Bytes => "bytes",
            Self::Utf8 => "utf8",
            Self::List => "list",
            Self::Map => "map",
            Self::Struct => "struct",
        })
    }
}
