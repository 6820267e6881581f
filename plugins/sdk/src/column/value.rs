//! Values being written, of any type.

use super::buffer::Buffer;
use super::views::Primitive;
use crate::{Date, Decimal, Error, Result, Timestamp, Type};
use std::fmt;

/// Text being written: it goes straight into the column's buffer.
#[derive(Debug)]
pub struct Text<'a>(pub(super) &'a mut Vec<u8>);

impl Text<'_> {
    /// Appends a text.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends a character.
    #[inline]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }
}

/// `write!(text, …)` formats into it.
impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// The place of one value; writing it takes the place. A place that is left without a value holds null.
#[derive(Debug)]
pub struct Value<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) data_type: &'a Type,
    pub(super) path: &'a str,
}

impl<'a> Value<'a> {
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn new(buffer: &'a mut Buffer, data_type: &'a Type, path: &'a str) -> Self {
        Self { buffer, data_type, path }
    }

    /// The type of the place.
    pub fn data_type(&self) -> &'a Type {
        self.data_type
    }

    fn is_a(&self, fits: bool, method: &str) -> Result<()> {
        if fits {
            return Ok(());
        }
        let message = format!("column '{}': `{method}` cannot write a {}", self.path, self.data_type);
        Err(Error::fault(message))
    }

    fn fixed<T: Primitive>(self, fits: bool, method: &str, value: T) -> Result<()> {
        self.is_a(fits, method)?;
        self.buffer.push_fixed(value.store());
        Ok(())
    }

    /// Null.
    pub fn null(self) -> Result<()> {
        self.buffer.push_null();
        Ok(())
    }

    /// A `boolean`.
    pub fn boolean(self, value: bool) -> Result<()> {
        self.is_a(matches!(self.data_type, Type::Boolean), "boolean")?;
        self.buffer.push_boolean(value);
        Ok(())
    }

    /// A `tinyint`.
    pub fn tinyint(self, value: i8) -> Result<()> {
        let fits = matches!(self.data_type, Type::TinyInt);
        self.fixed(fits, "tinyint", value)
    }

    /// A `smallint`.
    pub fn smallint(self, value: i16) -> Result<()> {
        let fits = matches!(self.data_type, Type::SmallInt);
        self.fixed(fits, "smallint", value)
    }

    /// An `int`.
    pub fn int(self, value: i32) -> Result<()> {
        let fits = matches!(self.data_type, Type::Int);
        self.fixed(fits, "int", value)
    }

    /// A `bigint`.
    pub fn bigint(self, value: i64) -> Result<()> {
        let fits = matches!(self.data_type, Type::BigInt);
        self.fixed(fits, "bigint", value)
    }

    /// A `float`.
    pub fn float(self, value: f32) -> Result<()> {
        let fits = matches!(self.data_type, Type::Float);
        self.fixed(fits, "float", value)
    }

    /// A `double`.
    pub fn double(self, value: f64) -> Result<()> {
        let fits = matches!(self.data_type, Type::Double);
        self.fixed(fits, "double", value)
    }

    /// A `decimal`, brought to the column's scale; an error when digits would be lost.
    pub fn decimal(self, value: Decimal) -> Result<()> {
        let Type::Decimal(precision, scale) = *self.data_type else { return self.is_a(false, "decimal") };
        let fitting = value.rescale(scale).filter(|value| value.fits(precision));
        let fitting = fitting.ok_or_else(|| {
            Error::new(format!("column '{}': {value} does not fit into a {}", self.path, self.data_type))
        })?;
        self.buffer.push_fixed(fitting.unscaled().store());
        Ok(())
    }

    /// A `date` within the years 1 to 9999.
    pub fn date(self, value: Date) -> Result<()> {
        self.is_a(matches!(self.data_type, Type::Date), "date")?;
        self.buffer.push_checked(value.is_writable(), value, self.path)
    }

    /// A `timestamp` or `timestamp_ntz` within the years 1 to 9999.
    pub fn timestamp(self, value: Timestamp) -> Result<()> {
        self.is_a(matches!(self.data_type, Type::Timestamp | Type::TimestampNtz), "timestamp")?;
        self.buffer.push_checked(value.is_writable(), value, self.path)
    }

    /// A `string`.
    pub fn string(self, value: &str) -> Result<()> {
        self.is_a(matches!(self.data_type, Type::String), "string")?;
        self.buffer.push_bytes(value.as_bytes())
    }

    /// A `binary`.
    pub fn binary(self, value: &[u8]) -> Result<()> {
        self.is_a(matches!(self.data_type, Type::Binary), "binary")?;
        self.buffer.push_bytes(value)
    }

    /// An `array`, whose elements `fill` appends.
    pub fn list(self, fill: impl FnOnce(&mut Items<'_>) -> Result<()>) -> Result<()> {
        let Type::Array(element) = self.data_type else { return self.is_a(false, "list") };
        let filled = match self.buffer.children_mut().first_mut() {
            Some(buffer) => fill(&mut Items { buffer, element, path: self.path }),
            None => Ok(()),
        };
        close(self.buffer, filled, Buffer::close_elements)
    }

    /// A `map`, whose entries `fill` appends.
    pub fn map(self, fill: impl FnOnce(&mut Entries<'_>) -> Result<()>) -> Result<()> {
        let Type::Map(key, value) = self.data_type else { return self.is_a(false, "map") };
        let filled = match self.buffer.children_mut().first_mut() {
            Some(buffer) => fill(&mut Entries { buffer, key, value, path: self.path }),
            None => Ok(()),
        };
        close(self.buffer, filled, Buffer::close_elements)
    }

    /// A `struct`, whose fields `fill` writes, in any order; those that it does not write are null.
    pub fn fields(self, fill: impl FnOnce(&mut Fields<'_>) -> Result<()>) -> Result<()> {
        let Type::Struct(types) = self.data_type else { return self.is_a(false, "fields") };
        let length = self.buffer.len();
        let filled = fill(&mut Fields { buffer: self.buffer, types, path: self.path, length });
        close(self.buffer, filled, |buffer| {
            buffer.close_fields();
            Ok(())
        })
    }
}

/// Ends a nested value; one that failed leaves nothing behind.
fn close(buffer: &mut Buffer, filled: Result<()>, end: impl FnOnce(&mut Buffer) -> Result<()>) -> Result<()> {
    match filled {
        Ok(()) => end(buffer),
        Err(error) => {
            buffer.truncate(buffer.len());
            Err(error)
        }
    }
}

/// The elements of a list being written.
#[derive(Debug)]
pub struct Items<'a> {
    buffer: &'a mut Buffer,
    element: &'a Type,
    path: &'a str,
}

impl Items<'_> {
    /// The place of the next element; one that is left without a value is no element.
    pub fn item(&mut self) -> Value<'_> {
        Value { buffer: self.buffer, data_type: self.element, path: self.path }
    }
}

/// The entries of a map being written.
#[derive(Debug)]
pub struct Entries<'a> {
    buffer: &'a mut Buffer,
    key: &'a Type,
    value: &'a Type,
    path: &'a str,
}

impl Entries<'_> {
    /// Appends an entry. The key must not be null.
    pub fn entry(
        &mut self,
        key: impl FnOnce(Value<'_>) -> Result<()>,
        value: impl FnOnce(Value<'_>) -> Result<()>,
    ) -> Result<()> {
        let length = self.buffer.len();
        let fill = || {
            let [keys, values] = self.buffer.children_mut() else { return Ok(()) };
            key(Value { buffer: keys, data_type: self.key, path: self.path })?;
            if keys.is_null_at_end(length) {
                return Err(Error::new(format!("column '{}': a map's key is null", self.path)));
            }
            value(Value { buffer: values, data_type: self.value, path: self.path })
        };
        let filled = fill();
        close(self.buffer, filled, |buffer| {
            buffer.close_fields();
            Ok(())
        })
    }
}

/// The fields of a struct being written.
#[derive(Debug)]
pub struct Fields<'a> {
    buffer: &'a mut Buffer,
    types: &'a [(String, Type)],
    path: &'a str,
    /// How many structs stand before this one.
    length: usize,
}

impl Fields<'_> {
    /// The place of a field's value.
    pub fn field(&mut self, name: &str) -> Result<Value<'_>> {
        let index = self.types.iter().position(|(field, _)| field == name);
        let found =
            index.and_then(|index| Some((self.buffer.children_mut().get_mut(index)?, &self.types.get(index)?.1)));
        let Some((buffer, data_type)) = found else {
            return Err(Error::fault(format!("column '{}' has no field '{name}'", self.path)));
        };
        if buffer.len() > self.length {
            return Err(Error::fault(format!("column '{}': field '{name}' is written twice", self.path)));
        }
        Ok(Value { buffer, data_type, path: self.path })
    }
}
