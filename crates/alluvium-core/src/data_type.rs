//! Column types, in Spark's DDL spelling.

use arrow_schema::{DataType as ArrowType, Field as ArrowField, Fields, TimeUnit};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The deepest nesting of a type that is accepted.
pub const MAX_DEPTH: usize = 128;

/// How deep the type of a column may nest, as levels of the JSON text that a table's schema is stored
/// as. Many readers of Delta tables, our own among them, take no more than 127: a table with a deeper
/// column could not be opened any more. Three are the schema's own, and one the metadata of a field.
pub const DEEPEST: usize = 127 - STRUCT_DEPTH - 1;

/// Levels that a struct stands for: itself, the list of its fields, a field.
pub const STRUCT_DEPTH: usize = 3;
/// Levels that a list or a map stands for.
pub const LIST_DEPTH: usize = 1;

/// A type of a Delta table's column. Text form: Spark's DDL, as in `array<struct<sku:string,qty:int>>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    /// Precision 1 to 38, scale 0 to precision.
    Decimal(u8, u8),
    String,
    Binary,
    Date,
    /// An instant, in microseconds.
    Timestamp,
    /// A wall clock reading, in microseconds.
    TimestampNtz,
    Array(Box<DataType>),
    Map(Box<DataType>, Box<DataType>),
    Struct(Vec<Field>),
}

/// A named field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: String,
    pub data_type: DataType,
}

/// A text that is not a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at position {at} of type {text:?}")]
pub struct TypeError {
    pub text: String,
    /// Byte position in `text`.
    pub at: usize,
    pub message: String,
}

impl DataType {
    /// Reads a type in Spark's DDL spelling; names of types are not case-sensitive.
    pub fn parse(text: &str) -> Result<Self, TypeError> {
        let mut parser = Parser { text, at: 0 };
        let parsed = parser.data_type(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error("unexpected text after the type"));
        }
        Ok(parsed)
    }

    /// Whether the type holds others.
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::Array(_) | Self::Map(..) | Self::Struct(_))
    }

    /// Whether it nests deeper than the schema of a table may.
    pub fn is_too_deep(&self) -> bool {
        self.is_deeper_than(DEEPEST)
    }

    fn is_deeper_than(&self, levels: usize) -> bool {
        let own = match self {
            Self::Array(_) | Self::Map(..) => LIST_DEPTH,
            Self::Struct(_) => STRUCT_DEPTH,
            _ => 0,
        };
        let Some(below) = levels.checked_sub(own) else { return true };
        match self {
            Self::Array(element) => element.is_deeper_than(below),
            Self::Map(key, value) => key.is_deeper_than(below) || value.is_deeper_than(below),
            Self::Struct(fields) => fields.iter().any(|field| field.data_type.is_deeper_than(below)),
            _ => false,
        }
    }

    /// The Arrow type that holds it; every nested field is nullable, map keys excepted.
    pub fn to_arrow(&self) -> ArrowType {
        match self {
            Self::Boolean => ArrowType::Boolean,
            Self::TinyInt => ArrowType::Int8,
            Self::SmallInt => ArrowType::Int16,
            Self::Int => ArrowType::Int32,
            Self::BigInt => ArrowType::Int64,
            Self::Float => ArrowType::Float32,
            Self::Double => ArrowType::Float64,
            Self::Decimal(precision, scale) => ArrowType::Decimal128(*precision, *scale as i8),
            Self::String => ArrowType::Utf8,
            Self::Binary => ArrowType::Binary,
            Self::Date => ArrowType::Date32,
            Self::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::TimestampNtz => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            Self::Array(element) => ArrowType::List(Arc::new(ArrowField::new("element", element.to_arrow(), true))),
            Self::Map(key, value) => {
                let entries = Fields::from(vec![
                    ArrowField::new("key", key.to_arrow(), false),
                    ArrowField::new("value", value.to_arrow(), true),
                ]);
                ArrowType::Map(Arc::new(ArrowField::new("key_value", ArrowType::Struct(entries), false)), false)
            }
            Self::Struct(fields) => ArrowType::Struct(fields.iter().map(Field::to_arrow).collect()),
        }
    }

    /// The type that an Arrow type stands for; `None` for those that Delta does not have.
    pub fn from_arrow(arrow: &ArrowType) -> Option<Self> {
        Some(match arrow {
            ArrowType::Boolean => Self::Boolean,
            ArrowType::Int8 => Self::TinyInt,
            ArrowType::Int16 => Self::SmallInt,
            ArrowType::Int32 => Self::Int,
            ArrowType::Int64 => Self::BigInt,
            ArrowType::Float32 => Self::Float,
            ArrowType::Float64 => Self::Double,
            ArrowType::Decimal128(precision, scale) => Self::Decimal(*precision, u8::try_from(*scale).ok()?),
            ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => Self::String,
            ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView => Self::Binary,
            ArrowType::Date32 => Self::Date,
            ArrowType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::Timestamp,
            ArrowType::Timestamp(TimeUnit::Microsecond, None) => Self::TimestampNtz,
            ArrowType::List(element) | ArrowType::LargeList(element) => {
                Self::Array(Box::new(Self::from_arrow(element.data_type())?))
            }
            ArrowType::Map(entries, _) => {
                let ArrowType::Struct(fields) = entries.data_type() else { return None };
                let [key, value] = fields.as_ref() else { return None };
                Self::Map(Box::new(Self::from_arrow(key.data_type())?), Box::new(Self::from_arrow(value.data_type())?))
            }
            ArrowType::Struct(fields) => {
                let fields = fields.iter().map(|field| {
                    Some(Field { name: field.name().clone(), data_type: Self::from_arrow(field.data_type())? })
                });
                Self::Struct(fields.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

impl Field {
    /// A nullable Arrow field.
    pub fn to_arrow(&self) -> ArrowField {
        ArrowField::new(&self.name, self.data_type.to_arrow(), true)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::TinyInt => f.write_str("tinyint"),
            Self::SmallInt => f.write_str("smallint"),
            Self::Int => f.write_str("int"),
            Self::BigInt => f.write_str("bigint"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Decimal(precision, scale) => write!(f, "decimal({precision},{scale})"),
            Self::String => f.write_str("string"),
            Self::Binary => f.write_str("binary"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::TimestampNtz => f.write_str("timestamp_ntz"),
            Self::Array(element) => write!(f, "array<{element}>"),
            Self::Map(key, value) => write!(f, "map<{key},{value}>"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (index, field) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{}:{}", quoted(&field.name), field.data_type)?;
                }
                f.write_str(">")
            }
        }
    }
}

/// A name as DDL spells it: in backticks unless it is a plain word.
pub fn quoted(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}

impl Serialize for DataType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DataType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, message: impl Into<String>) -> TypeError {
        TypeError { text: self.text.to_owned(), at: self.at, message: message.into() }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, symbol: char) -> bool {
        self.space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn expect(&mut self, symbol: char) -> Result<(), TypeError> {
        if self.eat(symbol) { Ok(()) } else { Err(self.error(format!("expected '{symbol}'"))) }
    }

    fn word(&mut self) -> &'a str {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn name(&mut self) -> Result<String, TypeError> {
        if !self.eat('`') {
            let word = self.word();
            return if word.is_empty() { Err(self.error("expected a field's name")) } else { Ok(word.to_owned()) };
        }
        let mut name = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find('`') else {
                return Err(self.error("the backtick is not closed"));
            };
            name.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('`') {
                return if name.is_empty() { Err(self.error("a field's name is empty")) } else { Ok(name) };
            }
            self.at += 1;
            name.push('`');
        }
    }

    fn number(&mut self) -> Result<u8, TypeError> {
        let word = self.word();
        word.parse().map_err(|_| self.error("expected a number from 0 to 38"))
    }

    fn data_type(&mut self, depth: usize) -> Result<DataType, TypeError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.space();
        let start = self.at;
        let word = self.word().to_ascii_lowercase();
        Ok(match word.as_str() {
            "boolean" => DataType::Boolean,
            "tinyint" | "byte" => DataType::TinyInt,
            "smallint" | "short" => DataType::SmallInt,
            "int" | "integer" => DataType::Int,
            "bigint" | "long" => DataType::BigInt,
            "float" | "real" => DataType::Float,
            "double" => DataType::Double,
            "string" => DataType::String,
            "binary" => DataType::Binary,
            "date" => DataType::Date,
            "timestamp" | "timestamp_ltz" => DataType::Timestamp,
            "timestamp_ntz" => DataType::TimestampNtz,
            "decimal" | "dec" | "numeric" => self.decimal(start)?,
            "array" => {
                self.expect('<')?;
                let element = self.data_type(depth + 1)?;
                self.expect('>')?;
                DataType::Array(Box::new(element))
            }
            "map" => {
                self.expect('<')?;
                let key = self.data_type(depth + 1)?;
                self.expect(',')?;
                let value = self.data_type(depth + 1)?;
                self.expect('>')?;
                DataType::Map(Box::new(key), Box::new(value))
            }
            "struct" => DataType::Struct(self.fields(depth)?),
            _ => {
                self.at = start;
                let message =
                    if word.is_empty() { "expected a type".to_owned() } else { format!("unknown type '{word}'") };
                return Err(self.error(message));
            }
        })
    }

    fn decimal(&mut self, start: usize) -> Result<DataType, TypeError> {
        if !self.eat('(') {
            return Ok(DataType::Decimal(10, 0));
        }
        let precision = self.number()?;
        let scale = if self.eat(',') { self.number()? } else { 0 };
        self.expect(')')?;
        if precision == 0 || precision > 38 || scale > precision {
            self.at = start;
            return Err(self.error("a decimal's precision is 1 to 38 and its scale 0 to the precision"));
        }
        Ok(DataType::Decimal(precision, scale))
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<Field>, TypeError> {
        self.expect('<')?;
        let mut fields: Vec<Field> = Vec::new();
        let mut names = HashSet::new();
        if self.eat('>') {
            return Err(self.error("a struct needs at least one field"));
        }
        loop {
            let start = self.at;
            let name = self.name()?;
            if !names.insert(name.to_lowercase()) {
                self.at = start;
                return Err(self.error(format!("the field '{name}' is there twice (names are not case-sensitive)")));
            }
            self.expect(':')?;
            let data_type = self.data_type(depth + 1)?;
            fields.push(Field { name, data_type });
            if self.eat('>') {
                return Ok(fields);
            }
            self.expect(',')?;
        }
    }
}
