//! Column types, in Spark's DDL spelling.

use std::fmt;

/// The deepest nesting of a type that is accepted.
const MAX_DEPTH: usize = 128;

/// A column's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `boolean`
    Boolean,
    /// `tinyint`, 8 bits
    TinyInt,
    /// `smallint`, 16 bits
    SmallInt,
    /// `int`, 32 bits
    Int,
    /// `bigint`, 64 bits
    BigInt,
    /// `float`, 32 bits
    Float,
    /// `double`, 64 bits
    Double,
    /// `decimal(precision,scale)`
    Decimal(u8, u8),
    /// `string`
    String,
    /// `binary`
    Binary,
    /// `date`
    Date,
    /// `timestamp`, an instant in microseconds
    Timestamp,
    /// `timestamp_ntz`, a wall clock reading in microseconds
    TimestampNtz,
    /// `array<element>`
    Array(Box<Type>),
    /// `map<key,value>`
    Map(Box<Type>, Box<Type>),
    /// `struct<name:type,…>`
    Struct(Vec<(String, Type)>),
}

impl Type {
    /// Reads a type; its names are not case-sensitive.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, rest: text };
        let parsed = parser.data_type(0)?;
        parser.space();
        if parser.rest.is_empty() { Ok(parsed) } else { Err(parser.wrong("unexpected text after the type")) }
    }
}

impl fmt::Display for Type {
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
                for (index, (name, data_type)) in fields.iter().enumerate() {
                    f.write_str(if index == 0 { "struct<" } else { "," })?;
                    if name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                        write!(f, "{name}:{data_type}")?;
                    } else {
                        write!(f, "`{}`:{data_type}", name.replace('`', "``"))?;
                    }
                }
                f.write_str(">")
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn wrong(&self, what: &str) -> String {
        format!("{what} at position {} of type '{}'", self.text.len() - self.rest.len(), self.text)
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, symbol: char) -> bool {
        self.space();
        let after = self.rest.strip_prefix(symbol);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, symbol: char) -> Result<(), String> {
        if self.eat(symbol) { Ok(()) } else { Err(self.wrong(&format!("expected '{symbol}'"))) }
    }

    fn word(&mut self) -> &'a str {
        self.space();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn name(&mut self) -> Result<String, String> {
        if !self.eat('`') {
            let word = self.word();
            return if word.is_empty() { Err(self.wrong("expected a field's name")) } else { Ok(word.to_owned()) };
        }
        let mut name = String::new();
        loop {
            let Some((inside, after)) = self.rest.split_once('`') else {
                return Err(self.wrong("a backtick that is not closed"));
            };
            name.push_str(inside);
            self.rest = after;
            if !self.eat_here('`') {
                return if name.is_empty() { Err(self.wrong("an empty field's name")) } else { Ok(name) };
            }
            name.push('`');
        }
    }

    /// As [`Self::eat`], without skipping space before.
    fn eat_here(&mut self, symbol: char) -> bool {
        let after = self.rest.strip_prefix(symbol);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn number(&mut self) -> Result<u8, String> {
        self.word().parse().map_err(|_| self.wrong("expected a number from 0 to 38"))
    }

    fn data_type(&mut self, depth: usize) -> Result<Type, String> {
        if depth > MAX_DEPTH {
            return Err(format!("a type nested deeper than {MAX_DEPTH} levels"));
        }
        let word = self.word();
        Ok(match word.to_ascii_lowercase().as_str() {
            "boolean" => Type::Boolean,
            "tinyint" | "byte" => Type::TinyInt,
            "smallint" | "short" => Type::SmallInt,
            "int" | "integer" => Type::Int,
            "bigint" | "long" => Type::BigInt,
            "float" | "real" => Type::Float,
            "double" => Type::Double,
            "string" => Type::String,
            "binary" => Type::Binary,
            "date" => Type::Date,
            "timestamp" | "timestamp_ltz" => Type::Timestamp,
            "timestamp_ntz" => Type::TimestampNtz,
            "decimal" | "dec" | "numeric" => self.decimal()?,
            "array" => {
                self.expect('<')?;
                let element = self.data_type(depth + 1)?;
                self.expect('>')?;
                Type::Array(Box::new(element))
            }
            "map" => {
                self.expect('<')?;
                let key = self.data_type(depth + 1)?;
                self.expect(',')?;
                let value = self.data_type(depth + 1)?;
                self.expect('>')?;
                Type::Map(Box::new(key), Box::new(value))
            }
            "struct" => Type::Struct(self.fields(depth)?),
            "" => return Err(self.wrong("expected a type")),
            _ => return Err(format!("unknown type '{word}' in '{}'", self.text)),
        })
    }

    fn decimal(&mut self) -> Result<Type, String> {
        if !self.eat('(') {
            return Ok(Type::Decimal(10, 0));
        }
        let precision = self.number()?;
        let scale = if self.eat(',') { self.number()? } else { 0 };
        self.expect(')')?;
        if precision == 0 || precision > 38 || scale > precision {
            return Err(format!("'{}': a decimal's precision is 1 to 38 and its scale 0 to the precision", self.text));
        }
        Ok(Type::Decimal(precision, scale))
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<(String, Type)>, String> {
        self.expect('<')?;
        let mut fields: Vec<(String, Type)> = Vec::new();
        loop {
            let name = self.name()?;
            if fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
                return Err(self.wrong(&format!("the field '{name}' is there twice")));
            }
            self.expect(':')?;
            let data_type = self.data_type(depth + 1)?;
            fields.push((name, data_type));
            if self.eat('>') {
                return Ok(fields);
            }
            self.expect(',')?;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Type;

    #[test]
    fn every_type_survives_its_text() {
        for text in [
            "boolean",
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "float",
            "double",
            "decimal(38,18)",
            "string",
            "binary",
            "date",
            "timestamp",
            "timestamp_ntz",
            "array<array<int>>",
            "map<string,decimal(10,2)>",
            "struct<a:int,`b.c`:array<struct<`d``e`:date>>>",
        ] {
            assert_eq!(Type::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Type::parse(" Array < LONG > ").unwrap().to_string(), "array<bigint>");
        assert_eq!(Type::parse("decimal").unwrap(), Type::Decimal(10, 0));
        assert_eq!(Type::parse("decimal( 5 )").unwrap(), Type::Decimal(5, 0));
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "strng",
            "array",
            "array<int",
            "array<>",
            "map<int>",
            "struct<>",
            "struct<a>",
            "struct<a:int,A:int>",
            "struct<``:int>",
            "struct<`a:int>",
            "decimal(0)",
            "decimal(39,2)",
            "decimal(5,6)",
            "decimal(999)",
            "int int",
        ] {
            assert!(Type::parse(text).is_err(), "{text}");
        }
        let deep = format!("{}int{}", "array<".repeat(200), ">".repeat(200));
        assert!(Type::parse(&deep).unwrap_err().contains("128"));
    }
}
