//! A plain decoder to compare with: it parses a record as a whole with serde_json and converts
//! value by value, each rule written down once and nothing done for speed.

use super::sparse::is_sparse;
use alluvium_core::DataType;
use alluvium_schema::{Coercion, Column, Derivation, Evolve, OnConflict, Plan, path};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::fmt;

/// What a record becomes.
#[derive(Debug)]
pub enum Outcome {
    Malformed,
    Conflict,
    Stop,
    Row { columns: Map<String, Value>, rescued: Vec<(String, Kept)>, unknown: bool },
}

/// A member of the rescued object.
#[derive(Debug)]
pub enum Kept {
    /// The JSON text, byte for byte.
    Raw(String),
    Object(Vec<(String, Kept)>),
}

impl Kept {
    /// Whether a rescued text says the same.
    pub fn is_in(&self, found: &Json) -> bool {
        match self {
            Self::Raw(raw) => found.raw == *raw,
            Self::Object(members) => are_in(members, found),
        }
    }
}

/// Whether the members of an object are just these; their order does not matter.
pub fn are_in(members: &[(String, Kept)], found: &Json) -> bool {
    let Kind::Object(all) = &found.kind else { return false };
    all.len() == members.len()
        && members.iter().all(|(name, kept)| all.iter().any(|(key, value)| key == name && kept.is_in(value)))
}

/// A parsed value with its text.
#[derive(Debug)]
pub struct Json {
    pub raw: String,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Null,
    Boolean(bool),
    Number,
    String(String),
    List(Vec<Json>),
    /// With duplicate keys.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// None when malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if depth(text) > 128 {
            return None;
        }
        Self::of(serde_json::from_str(text).ok()?)
    }

    fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let kind = match text.as_bytes()[0] {
            b'n' => Kind::Null,
            b't' => Kind::Boolean(true),
            b'f' => Kind::Boolean(false),
            b'"' => Kind::String(serde_json::from_str(text).ok()?),
            b'[' => {
                let items: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
                Kind::List(items.iter().map(|item| Self::of(item)).collect::<Option<_>>()?)
            }
            b'{' => {
                let Members(members) = serde_json::from_str(text).ok()?;
                let member = |(key, value): (String, Box<RawValue>)| Some((key, Self::of(&value)?));
                Kind::Object(members.into_iter().map(member).collect::<Option<_>>()?)
            }
            _ => Kind::Number,
        };
        Some(Self { raw: text.to_owned(), kind })
    }

    fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }
}

/// How deep the brackets outside strings go.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The last member of each name.
pub fn last_of_each(members: &[(String, Json)]) -> Vec<(&str, &Json)> {
    let later = |at: usize, key: &String| members[at + 1..].iter().any(|(other, _)| other == key);
    let last = members.iter().enumerate().filter(|(at, (key, _))| !later(*at, key));
    last.map(|(_, (key, value))| (key.as_str(), value)).collect()
}

pub fn decode(plan: &Plan, record: &[u8]) -> Outcome {
    let Some(json) = Json::parse(record) else { return Outcome::Malformed };
    let Kind::Object(members) = &json.kind else { return Outcome::Malformed };
    if is_sparse(plan, members, record.len()) {
        return Outcome::Malformed;
    }
    let mut row = Row::default();
    let columns = plan.columns().iter().map(|column| (column, column.path.as_slice())).collect::<Vec<_>>();
    let drops = plan.drops().iter().map(Vec::as_slice).collect::<Vec<_>>();
    let rescued = row.read(&columns, &drops, members);
    if row.conflicts.contains(&OnConflict::Stop) {
        return Outcome::Stop;
    }
    if row.conflicts.contains(&OnConflict::Reject) {
        return Outcome::Conflict;
    }
    let unknown = row.unknown && (plan.evolve() == Evolve::Stop && plan.is_settled());
    Outcome::Row { columns: row.columns, rescued, unknown }
}

#[derive(Default)]
struct Row {
    columns: Map<String, Value>,
    conflicts: Vec<OnConflict>,
    unknown: bool,
}

impl Row {
    /// Reads the columns, each with what is left of its path, and passes over what is dropped; what is
    /// rescued of the object.
    fn read(
        &mut self,
        columns: &[(&Column, &[String])],
        drops: &[&[String]],
        members: &[(String, Json)],
    ) -> Vec<(String, Kept)> {
        let mut rescued = Vec::new();
        for (column, path) in columns {
            let there = members.iter().any(|(key, _)| *key == path[0]);
            let default = column.default.as_ref().filter(|_| !there);
            let value = default.map(|default| Json::parse(default.as_bytes()).unwrap());
            let value = value.and_then(|json| convert(&column.data_type, column, String::new(), &[], &json).value);
            self.columns.entry(column.name.clone()).or_insert(value.unwrap_or(Value::Null));
        }
        for (key, value) in last_of_each(members) {
            let inner_drops = below(drops, key);
            if inner_drops.contains(&[].as_slice()) {
                continue;
            }
            let below = columns.iter().filter(|(_, path)| path[0] == key);
            let below = below.map(|(column, path)| (*column, &path[1..])).collect::<Vec<_>>();
            match below.as_slice() {
                [] if value.is_null() => {}
                [] if inner_drops.is_empty() => {
                    self.unknown = true;
                    rescued.push((key.to_owned(), Kept::Raw(value.raw.clone())));
                }
                [(_, []), ..] => {
                    let mut whole = None;
                    for (column, _) in &below {
                        self.columns.insert(column.name.clone(), Value::Null);
                        let read = derive(column, value)
                            .unwrap_or_else(|| convert(&column.data_type, column, String::new(), &inner_drops, value));
                        if read.conflict {
                            self.conflicts.push(column.on_conflict);
                        }
                        self.unknown |= read.unknown;
                        let (converted, kept) = aside(read, value);
                        self.columns.insert(column.name.clone(), converted);
                        whole = kept.or(whole);
                    }
                    rescued.extend(whole.map(|kept| (key.to_owned(), kept)));
                }
                below => match &value.kind {
                    Kind::Null => {}
                    Kind::Object(members) => {
                        below.iter().for_each(|(column, _)| drop(self.columns.remove(&column.name)));
                        let inner = self.read(below, &inner_drops, members);
                        if !inner.is_empty() {
                            rescued.push((key.to_owned(), Kept::Object(inner)));
                        }
                    }
                    _ => {
                        self.conflicts.extend(below.iter().map(|(column, _)| column.on_conflict));
                        rescued.push((key.to_owned(), Kept::Raw(value.raw.clone())));
                    }
                },
            }
        }
        rescued
    }
}

/// What is left, below `key`, of the paths of what is dropped.
pub fn below<'p>(drops: &[&'p [String]], key: &str) -> Vec<&'p [String]> {
    drops.iter().filter(|path| path.first().is_some_and(|first| first == key)).map(|path| &path[1..]).collect()
}

/// What a column takes of a value; none when it takes the whole.
fn derive(column: &Column, json: &Json) -> Option<Read> {
    let derivation = column.derivation.as_ref()?;
    if json.is_null() {
        return Some(plain(Some(Value::Null)));
    }
    let coercion = column.coercions.get("").copied().unwrap_or_default();
    let text = match &json.kind {
        Kind::String(text) => Some(text.as_str()),
        _ => None,
    };
    let part = match derivation {
        Derivation::Date => {
            let time = scalar(&DataType::Timestamp, coercion, json);
            let date = time.map(|time| json!(time.as_str().unwrap()[..10]));
            return Some(plain(date));
        }
        Derivation::Before(separator) => text.and_then(|text| text.split_once(separator)).map(|(before, _)| before),
        Derivation::After(separator) => text.and_then(|text| text.split_once(separator)).map(|(_, after)| after),
    };
    let part = part.map(|part| Json { raw: String::new(), kind: Kind::String(part.to_owned()) });
    let lenient = Coercion::ParseString.applies_to(&column.data_type);
    let coercion = if lenient { Coercion::ParseString } else { Coercion::None };
    Some(plain(part.and_then(|part| scalar(&column.data_type, coercion, &part))))
}

/// A value that was read.
struct Read {
    /// None when the value is not of its type.
    value: Option<Value>,
    /// Whether it, or a value inside it, is not of its type.
    conflict: bool,
    /// Whether something inside it is unknown.
    unknown: bool,
    /// What is rescued of a struct.
    rescued: Vec<(String, Kept)>,
    /// Whether it is a list or map in which some structs have unknown fields.
    incomplete: bool,
}

fn plain(value: Option<Value>) -> Read {
    let conflict = value.is_none();
    Read { value, conflict, unknown: false, rescued: Vec::new(), incomplete: false }
}

/// The value for the column or field, and what is rescued of it.
fn aside(read: Read, from: &Json) -> (Value, Option<Kept>) {
    let whole = read.value.is_none() || read.incomplete;
    let kept = match read.rescued {
        _ if whole => Some(Kept::Raw(from.raw.clone())),
        rescued if rescued.is_empty() => None,
        rescued => Some(Kept::Object(rescued)),
    };
    (read.value.unwrap_or(Value::Null), kept)
}

fn convert(data_type: &DataType, column: &Column, at: String, drops: &[&[String]], json: &Json) -> Read {
    if json.is_null() {
        return plain(Some(Value::Null));
    }
    let inside = |name: &str| {
        let mut at = at.clone();
        path::push(&mut at, name);
        at
    };
    match (data_type, &json.kind) {
        (DataType::Struct(fields), Kind::Object(members)) => {
            let mut values = fields.iter().map(|field| (field.name.clone(), Value::Null)).collect::<Map<_, _>>();
            let mut all = plain(Some(Value::Null));
            for (key, member) in last_of_each(members) {
                let inner_drops = below(drops, key);
                if inner_drops.contains(&[].as_slice()) {
                    continue;
                }
                let Some(field) = fields.iter().find(|field| field.name == key) else {
                    match &member.kind {
                        Kind::Null => {}
                        Kind::Object(members) if !inner_drops.is_empty() => {
                            let mut row = Row::default();
                            let inner = row.read(&[], &inner_drops, members);
                            all.unknown |= row.unknown;
                            if !inner.is_empty() {
                                all.rescued.push((key.to_owned(), Kept::Object(inner)));
                            }
                        }
                        _ => {
                            all.unknown |= inner_drops.is_empty();
                            all.rescued.push((key.to_owned(), Kept::Raw(member.raw.clone())));
                        }
                    }
                    continue;
                };
                let read = convert(&field.data_type, column, inside(key), &inner_drops, member);
                all.conflict |= read.conflict;
                all.unknown |= read.unknown;
                let (value, kept) = aside(read, member);
                values.insert(key.to_owned(), value);
                all.rescued.extend(kept.map(|kept| (key.to_owned(), kept)));
            }
            Read { value: Some(Value::Object(values)), ..all }
        }
        (DataType::Array(element), Kind::List(items)) => {
            let items = items.iter().map(|item| convert(element, column, inside("element"), &[], item));
            contained(items, Value::Array)
        }
        (DataType::Map(key, value), Kind::Object(members)) if **key == DataType::String => {
            let members = last_of_each(members);
            let items = members.iter().map(|(_, member)| convert(value, column, inside("value"), &[], member));
            contained(items, |values| members.iter().zip(values).map(|((key, _), value)| json!([key, value])).collect())
        }
        _ => plain(scalar(data_type, column.coercions.get(&at).copied().unwrap_or_default(), json)),
    }
}

/// A list or map of these values: in conflict as a whole when one of them is.
fn contained(items: impl Iterator<Item = Read>, value: impl FnOnce(Vec<Value>) -> Value) -> Read {
    let items = items.collect::<Vec<_>>();
    let conflict = items.iter().any(|item| item.conflict);
    let incomplete = items.iter().any(|item| item.incomplete || !item.rescued.is_empty());
    let unknown = items.iter().any(|item| item.unknown);
    let values = if conflict { None } else { items.into_iter().map(|item| item.value).collect::<Option<Vec<_>>>() };
    Read { incomplete, unknown, ..plain(values.map(value)) }
}

/// A value that is no list, map or struct; none when it is not of its type.
pub fn scalar(data_type: &DataType, coercion: Coercion, json: &Json) -> Option<Value> {
    let lenient = coercion == Coercion::ParseString;
    let number = match &json.kind {
        Kind::Number => Exact::parse(&json.raw),
        Kind::String(text) if lenient || matches!(data_type, DataType::Decimal(..)) => Exact::parse(text),
        _ => None,
    };
    let integer = |least: i128, most: i128| {
        let value = number.as_ref()?.scaled(0)?;
        (least..=most).contains(&value).then(|| json!(value.to_string()))
    };
    let text = match &json.kind {
        Kind::String(text) => Some(text.as_str()),
        _ => None,
    };
    match data_type {
        DataType::String if coercion == Coercion::JsonText => Some(json!(json.raw)),
        DataType::String => text.map(|text| json!(text)),
        DataType::Boolean => match (&json.kind, text) {
            (Kind::Boolean(value), _) => Some(json!(value.to_string())),
            (_, Some("true" | "false")) if lenient => Some(json!(text)),
            _ => None,
        },
        DataType::TinyInt => integer(i128::from(i8::MIN), i128::from(i8::MAX)),
        DataType::SmallInt => integer(i128::from(i16::MIN), i128::from(i16::MAX)),
        DataType::Int => integer(i128::from(i32::MIN), i128::from(i32::MAX)),
        DataType::BigInt => integer(i128::from(i64::MIN), i128::from(i64::MAX)),
        DataType::Float => {
            let value: f32 = number?.text.parse().unwrap();
            value.is_finite().then(|| json!(format!("{value:?}")))
        }
        DataType::Double => {
            let value: f64 = number?.text.parse().unwrap();
            value.is_finite().then(|| json!(format!("{value:?}")))
        }
        DataType::Decimal(precision, scale) => {
            let value = number?.scaled(i64::from(*scale))?;
            let most = 10i128.pow(u32::from(*precision)) - 1;
            (-most..=most).contains(&value).then(|| json!(super::decimal(value, *scale as usize)))
        }
        DataType::Binary => STANDARD
            .decode(text?)
            .ok()
            .map(|bytes| json!(format!("hex:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))),
        DataType::Date if coercion == Coercion::EpochDays => {
            let days = number?.scaled(0)?;
            (-719_162..=2_932_896).contains(&days).then(|| json!(super::date(days as i64)))
        }
        DataType::Date => days(text?).and(text).map(|date| json!(date)),
        DataType::Timestamp if coercion != Coercion::None => {
            let shift = match coercion {
                Coercion::EpochS => 6,
                Coercion::EpochMs => 3,
                Coercion::EpochUs => 0,
                _ => -3,
            };
            instant(number?.floor(shift)?, "Z")
        }
        DataType::Timestamp => {
            let (micros, zone) = clock(text?)?;
            let offset = match zone {
                "Z" | "z" => 0,
                _ => {
                    let (sign, rest) = zone.split_at_checked(1)?;
                    let (hours, minutes) = rest.split_once(':')?;
                    let seconds = two(hours, 23)? * 3600 + two(minutes, 59)? * 60;
                    match sign {
                        "+" => seconds,
                        "-" => -seconds,
                        _ => return None,
                    }
                }
            };
            instant(i128::from(micros) - i128::from(offset) * 1_000_000, "Z")
        }
        DataType::TimestampNtz => {
            let (micros, zone) = clock(text?)?;
            if zone.is_empty() { instant(i128::from(micros), "") } else { None }
        }
        DataType::Array(_) | DataType::Map(..) | DataType::Struct(_) => None,
    }
}

/// A number as sign, digits and power of ten, with no zero at either end of the digits.
struct Exact<'t> {
    text: &'t str,
    negative: bool,
    digits: String,
    power: i64,
}

impl<'t> Exact<'t> {
    /// None when the text is no JSON number.
    fn parse(text: &'t str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        let starts = raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit());
        if raw.get().len() != text.len() || !starts {
            return None;
        }
        let lower = text.to_lowercase();
        let (mantissa, power) = lower.split_once('e').unwrap_or((&lower, "0"));
        let sign = if power.starts_with('-') { -1 } else { 1 };
        let power = power.trim_start_matches(['+', '-']).trim_start_matches('0');
        let power =
            sign * if power.len() > 12 { 1_000_000_000_000 } else { format!("0{power}").parse::<i64>().unwrap() };
        let negative = mantissa.starts_with('-');
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        let power = power - fraction.len() as i64 + (all.len() - digits.len()) as i64;
        Some(Self { text, negative, digits: digits.trim_start_matches('0').to_owned(), power })
    }

    /// Its value times ten to the power of `shift`, if that is an integer of at most 38 digits.
    fn scaled(&self, shift: i64) -> Option<i128> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let zeros = usize::try_from(self.power + shift).ok()?;
        if self.digits.len() + zeros > 38 {
            return None;
        }
        let value: i128 = format!("{}{}", self.digits, "0".repeat(zeros)).parse().unwrap();
        Some(if self.negative { -value } else { value })
    }

    /// The same, rounded down.
    fn floor(&self, shift: i64) -> Option<i128> {
        let power = self.power + shift;
        if power >= 0 || self.digits.is_empty() {
            return self.scaled(shift);
        }
        let whole = self.digits.len() as i64 + power;
        if whole > 38 {
            return None;
        }
        let whole = &self.digits[..whole.max(0) as usize];
        let value: i128 = format!("0{whole}").parse().unwrap();
        Some(if self.negative { -value - 1 } else { value })
    }
}

fn two(text: &str, most: i64) -> Option<i64> {
    let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap()).filter(|value| *value <= most)
}

/// Days since the epoch of a date, found by trying.
fn days(text: &str) -> Option<i64> {
    let year = text.get(..4).filter(|year| year.bytes().all(|byte| byte.is_ascii_digit()))?;
    let year: i64 = year.parse().unwrap();
    if year == 0 {
        return None;
    }
    let near = (year - 1970) * 365;
    let leap_days = (year - 1970) / 4;
    (near + leap_days - 80..near + leap_days + 400).find(|days| super::date(*days) == text)
}

/// Microseconds and the text after the fraction.
fn clock(text: &str) -> Option<(i64, &str)> {
    let days = days(text.get(..10)?)?;
    let rest = text[10..].strip_prefix(['T', 't', ' '])?;
    let time = rest.get(..8)?;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let seconds = two(hour, 23)? * 3600 + two(minute, 59)? * 60 + two(second, 59)?;
    let rest = &rest[8..];
    let (fraction, rest) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(digits) => {
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if end == 0 {
                return None;
            }
            let six = format!("{:0<6}", &digits[..end]);
            (six[..6].parse().unwrap(), &digits[end..])
        }
    };
    Some(((days * 86_400 + seconds) * 1_000_000 + fraction, rest))
}

fn instant(micros: i128, zone: &str) -> Option<Value> {
    let years = -62_135_596_800_000_000..=253_402_300_799_999_999;
    years.contains(&micros).then(|| json!(super::timestamp(micros as i64, zone)))
}
