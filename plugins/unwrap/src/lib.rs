//! Takes the payload out of a JSON envelope, byte for byte, and makes a record of each element
//! when it is an array.

use alluvium_plugin::Path;
use alluvium_plugin::record::{Access, Error, Output, Record, Result};
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The envelope's field that holds the payload; dots lead into nested objects.
    #[serde(default = "payload")]
    field: Path,
    /// Whether an array becomes one record for each element.
    #[serde(default = "yes")]
    split: bool,
}

fn payload() -> Path {
    Path::of("payload")
}

fn yes() -> bool {
    true
}

fn access(config: &Config, access: &mut Access) -> Result<()> {
    if config.split {
        access.multiplies();
    }
    Ok(())
}

fn transform(config: &Config, record: &Record, output: &mut Output) -> Result<()> {
    let payload = find(record.value, config.field.parts()).map_err(|error| format!("not JSON: {error}"))?;
    let payload = payload.ok_or_else(|| format!("no field '{}' in the envelope", config.field))?.get();
    if payload == "null" {
        return Err(Error::new(format!("field '{}' of the envelope is null", config.field)));
    }
    if config.split && payload.starts_with('[') {
        return Ok(serde_json::Deserializer::from_slice(payload.as_bytes()).deserialize_seq(Elements(output))?);
    }
    output.emit(payload.as_bytes());
    Ok(())
}

/// The value that the parts lead to; `None` when one of them leads nowhere.
fn find<'a>(json: &'a [u8], parts: &[String]) -> serde_json::Result<Option<&'a RawValue>> {
    let mut found = None;
    let mut rest = json;
    for part in parts {
        if rest.trim_ascii_start().first() != Some(&b'{') {
            // No object: what remains to be told is whether it is JSON at all.
            return serde_json::from_slice(rest).map(|IgnoredAny| None);
        }
        let mut deserializer = serde_json::Deserializer::from_slice(rest);
        found = deserializer.deserialize_map(Field(part))?;
        deserializer.end()?;
        let Some(value) = found else { return Ok(None) };
        rest = value.get().as_bytes();
    }
    Ok(found)
}

/// Takes a field's value out of an object: the last of that name.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alluvium_plugin::testing::{Input, Value, json, run_records};

    fn run(config: Value, values: &[&str]) -> (Vec<String>, Vec<(usize, String)>) {
        let records: Vec<_> = values.iter().map(|value| Input::from(*value)).collect();
        let outcome = run_records(&PLUGIN, config, &records).unwrap();
        (outcome.texts(), outcome.rejects)
    }

    #[test]
    fn the_payload_keeps_its_bytes() {
        let payload = r#"{ "b" : 1.50, "a":[ 1 ,2], "ä":"\u00e4", "n":123456789012345678901234567890 }"#;
        let envelope = format!(r#" {{ "meta": {{"payload":0}}, "payload" : {payload} , "x":null }} "#);
        assert_eq!(run(json!({}), &[&envelope]), (vec![payload.to_owned()], vec![]));
    }

    #[test]
    fn arrays_are_split_when_asked() {
        let value = r#"{"payload":[ {"id":1} , "two",null,[3],
            4 ]}"#;
        assert_eq!(run(json!({}), &[value]).0, [r#"{"id":1}"#, r#""two""#, "null", "[3]", "4"]);
        let whole = run(json!({ "split": false }), &[r#"{"payload":[1, 2]}"#]);
        assert_eq!(whole, (vec!["[1, 2]".to_owned()], vec![]));
        assert_eq!(run(json!({}), &[r#"{"payload":[]}"#]), (vec![], vec![]));
    }

    #[test]
    fn dots_lead_into_objects() {
        let config = || json!({ "field": "after.data" });
        assert_eq!(run(json!({ "field": "`after.data`.x" }), &[r#"{"after.data":{"x":5}}"#]).0, ["5"]);
        let values = [r#"{"after":{"data":{"x":1}}}"#, r#"{"after":[{"data":1}]}"#, r#"{"after.data":1}"#];
        let (texts, rejects) = run(config(), &values);
        assert_eq!(texts, [r#"{"x":1}"#]);
        let reason = "no field 'after.data' in the envelope".to_owned();
        assert_eq!(rejects, [(1, reason.clone()), (2, reason)]);
    }

    #[test]
    fn keys_are_compared_without_their_escapes_and_the_last_counts() {
        let value = r#"{"payload":1,"pa\u0079load":2,"payload ":3}"#;
        assert_eq!(run(json!({}), &[value]).0, ["2"]);
    }

    #[test]
    fn what_is_no_envelope_is_rejected() {
        let cases = [
            ("", "not JSON: EOF while parsing a value at line 1 column 0"),
            (r#"{"payload":{"#, "not JSON: EOF while parsing an object at line 1 column 12"),
            (r#"{"payload":1} x"#, "not JSON: trailing characters at line 1 column 15"),
            (r#"{"payload":[1,}"#, "not JSON: expected value at line 1 column 15"),
            ("[]", "no field 'payload' in the envelope"),
            ("7", "no field 'payload' in the envelope"),
            (r#"{"Payload":1}"#, "no field 'payload' in the envelope"),
            (r#"{"payload": null }"#, "field 'payload' of the envelope is null"),
        ];
        for (value, reason) in cases {
            assert_eq!(run(json!({}), &[value]), (vec![], vec![(0, reason.to_owned())]), "{value}");
        }
        let record = Input::from(&b"{\"payload\":\"\xff\"}"[..]);
        let outcome = run_records(&PLUGIN, json!({}), &[record]).unwrap();
        assert!(outcome.outputs.is_empty() && outcome.rejects[0].1.starts_with("not JSON"), "{outcome:?}");
    }

    #[test]
    fn nesting_has_no_limit_here() {
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        let value = format!(r#"{{"skipped":{deep},"payload":{{"x":{deep}}}}}"#);
        assert_eq!(run(json!({}), &[&value]).0, [format!(r#"{{"x":{deep}}}"#)]);
    }

    #[test]
    fn wrong_configurations() {
        for config in
            [json!({ "feild": "a" }), json!({ "field": "" }), json!({ "field": "a..b" }), json!({ "field": "`a" })]
        {
            assert!(run_records(&PLUGIN, config, &[]).is_err());
        }
    }

    #[test]
    fn the_schema_names_every_setting() {
        let schema: Value = alluvium_plugin::testing::parse(PLUGIN.about.config_schema).unwrap();
        assert_eq!(schema["properties"]["field"]["default"], payload().as_str());
        assert_eq!(schema["properties"]["split"]["default"], yes());
    }
}
