//! Takes the payload out of a JSON envelope, byte for byte, and makes a record of each element
//! when it is an array.

use alluvium_plugin::record::{Access, Error, Output, Record, Result};
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// The envelope's field that holds the payload; dots lead into nested objects.
    field: String,
    /// Whether an array becomes one record for each element.
    split: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { field: "payload".to_owned(), split: true }
    }
}

fn access(config: &Config, access: &mut Access) -> Result<()> {
    if config.field.split('.').any(str::is_empty) {
        return Err(Error::new(format!("field '{}' has an empty part", config.field)));
    }
    if config.split {
        access.multiplies();
    }
    Ok(())
}

fn transform(config: &Config, record: &Record, output: &mut Output) -> Result<()> {
    let mut value: &RawValue = serde_json::from_slice(record.value).map_err(|error| format!("not JSON: {error}"))?;
    for part in config.field.split('.') {
        value = field(value, part).ok_or_else(|| format!("no field '{}' in the envelope", config.field))?;
    }
    if value.get() == "null" {
        return Err(Error::new(format!("field '{}' of the envelope is null", config.field)));
    }
    if config.split && value.get().starts_with('[') {
        let elements = Elements(output);
        return Ok(serde_json::Deserializer::from_str(value.get()).deserialize_seq(elements)?);
    }
    output.emit(value.get().as_bytes());
    Ok(())
}

/// A field of an object, the last of that name; `None` when there is none, or no object.
fn field<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    if !value.get().starts_with('{') {
        return None;
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_map(Field(name)).ok()?
}

struct Field<'n>(&'n str);

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Is(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a key, escapes resolved, without keeping it.
struct Is<'n>(&'n str);

impl<'de> serde::de::DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> std::result::Result<bool, E> {
        Ok(key == self.0)
    }
}

struct Elements<'o, 'a>(&'o mut Output<'a>);

impl<'de> Visitor<'de> for Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> std::result::Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            self.0.emit(element.get().as_bytes());
        }
        Ok(())
    }
}

alluvium_plugin::record_plugin! {
    config: Config,
    access: access,
    transform: transform,
    config_schema: include_str!("config.schema.json"),
}
