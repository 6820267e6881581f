//! TOML values as JSON, for plugins' configurations and tests' records.

use crate::ErrorKind;
use crate::report::{Problem, Report};
use crate::snippet::quoted;
use serde_json::{Number, Value};
use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeValue};

/// The value as JSON; dates and times become strings. What JSON does not have is reported, under the
/// name of the nearest `key`.
pub(crate) fn of(key: &str, value: &Spanned<DeValue<'_>>, report: &Report<'_>) -> Option<Value> {
    let number = |number: Option<Number>, allowed: &str| {
        if number.is_none() {
            let message = format!("{} holds a number that JSON does not have", quoted(key));
            report.add(Problem::new(ErrorKind::Value, value.span(), message).allowed(allowed));
        }
        number.map(Value::Number)
    };
    Some(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => number(integer_of(integer), "integers from -2^63 to 2^64 - 1")?,
        DeValue::Float(float) => number(float_of(float), "finite numbers")?,
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
        DeValue::Array(array) => {
            // All elements are read, so that all faults are found.
            let elements = array.iter().map(|element| of(key, element, report)).collect::<Vec<_>>();
            Value::Array(elements.into_iter().collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let fields =
                table.iter().map(|(key, value)| Some((key.get_ref().to_string(), of(key.get_ref(), value, report)?)));
            let fields = fields.collect::<Vec<_>>();
            Value::Object(fields.into_iter().collect::<Option<_>>()?)
        }
    })
}

fn integer_of(integer: &DeInteger<'_>) -> Option<Number> {
    let (digits, radix) = (integer.as_str(), integer.radix());
    let signed = i64::from_str_radix(digits, radix).ok().map(Number::from);
    signed.or_else(|| u64::from_str_radix(digits, radix).ok().map(Number::from))
}

fn float_of(float: &DeFloat<'_>) -> Option<Number> {
    float.as_str().parse().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn json(toml: &str) -> Option<Value> {
        let report = Report::new(toml);
        let value = DeValue::parse(toml).unwrap();
        let value = of("key", &value, &report);
        assert_eq!(value.is_none(), !report.is_empty());
        value
    }

    #[test]
    fn values_keep_their_meaning() {
        let toml = "{ a = [1, 0xff, -9223372036854775808, 18446744073709551615], b = 1_000.5, c = true, d.e = 'x', f = 2026-03-01T00:00:00.5+01:00, g = 07:30:00 }";
        let expected = serde_json::json!({
            "a": [1, 255, i64::MIN, u64::MAX], "b": 1000.5, "c": true, "d": {"e": "x"},
            "f": "2026-03-01T00:00:00.5+01:00", "g": "07:30:00",
        });
        assert_eq!(json(toml), Some(expected));
    }

    #[test]
    fn numbers_without_json_are_refused() {
        for toml in ["nan", "-inf", "1e999", "18446744073709551616", "{ a = [inf] }"] {
            assert_eq!(json(toml), None, "{toml}");
        }
    }
}
