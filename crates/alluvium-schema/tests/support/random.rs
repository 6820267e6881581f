//! Plans and records made from a string of random bytes, so that a failing case shrinks to few
//! choices: an exhausted string always chooses the first.

use alluvium_core::{DataType, data_type};
use alluvium_schema::{Coercion, ColumnSpec, Derivation, Evolve, OnConflict, Plan, PlanOptions};

pub struct Choices<'b> {
    bytes: &'b [u8],
}

const NAMES: [&str; 12] = ["a", "b", "c", "id", "e.f", "é", "long_name_of_a_field", "A", "q\"k", "a b", "", "_rescued"];
/// Of those, the names that a column can have.
const COLUMN_NAMES: [&str; 9] = ["a", "b", "c", "id", "e.f", "é", "long_name_of_a_field", "B", "q\"k"];

const NUMBERS: [&str; 46] = [
    "0",
    "9",
    "-99",
    "9.9",
    "0.9",
    "-1.5",
    "-1e-9",
    "1",
    "-1",
    "1.0",
    "1.5",
    "127",
    "128",
    "-128",
    "-129",
    "32767",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999",
    "100000000000000000000",
    "12345678901234567890123456789012345678",
    "123456789012345678901234567890123456789",
    "0.1",
    "19.99",
    "1.999",
    "1e2",
    "1E-2",
    "-0",
    "-0.0",
    "0e400",
    "1e400",
    "-1e400",
    "5e-324",
    "1e-400",
    "9007199254740993",
    "1.7976931348623157e308",
    "3.5e38",
    "1e999999999",
    "1767323045.123456789",
    "0.00000000000000000000000000000000000001",
];

const STRINGS: [&str; 30] = [
    "\"\"",
    "\"a\"",
    "\"é\"",
    "\"\\u0061\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"tab\\t\\\"quote\\\"\"",
    "\"\\u0000\"",
    "\"a longer string that does not fit eight bytes\"",
    "\"19.99\"",
    "\"12\"",
    "\" 12\"",
    "\"true\"",
    "\"1e5\"",
    "\"aGk=\"",
    "\"aGk\"",
    "\"aGl=\"",
    "\"2024-02-29\"",
    "\"2023-02-29\"",
    "\"0000-01-01\"",
    "\"2026-01-02T03:04:05Z\"",
    "\"2026-01-02T03:04:05.123456789+02:00\"",
    "\"1969-12-31 23:59:59.9999999z\"",
    "\"2026-01-02T03:04:05\"",
    "\"2026-01-02T03:04:60Z\"",
    "\"0001-01-01T00:00:00+00:01\"",
    "\"2026-01-02T03:04:05.1-23:59\"",
    "\"2026-01-02t03:04:05.-01:00\"",
    "\"\\u00e9\\/\"",
    "\"2026\\u002d01-02\"",
];

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// A number below `count`.
    pub fn pick(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % count
    }

    pub fn of<'c, T: ?Sized>(&mut self, choices: &[&'c T]) -> &'c T {
        choices[self.pick(choices.len())]
    }

    /// True once in `count` times.
    pub fn rarely(&mut self, count: usize) -> bool {
        self.pick(count) == count - 1
    }

    pub fn is_exhausted(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn data_type(&mut self, depth: usize) -> DataType {
        let kinds = if depth == 0 { 14 } else { 20 };
        match self.pick(kinds) {
            0 => DataType::BigInt,
            1 | 2 => DataType::String,
            3 => DataType::Boolean,
            4 => DataType::TinyInt,
            5 => DataType::SmallInt,
            6 => DataType::Int,
            7 => DataType::Float,
            8 => DataType::Double,
            9 => {
                let precision = 1 + self.pick(38) as u8;
                DataType::Decimal(precision, self.pick(usize::from(precision) + 1) as u8)
            }
            10 => DataType::Binary,
            11 => DataType::Date,
            12 => DataType::Timestamp,
            13 => DataType::TimestampNtz,
            14 | 15 => DataType::Array(Box::new(self.data_type(depth - 1))),
            16 => DataType::Map(Box::new(DataType::String), Box::new(self.data_type(depth - 1))),
            _ => {
                let mut fields: Vec<data_type::Field> = Vec::new();
                for _ in 0..1 + self.pick(4) {
                    let name = self.of(&COLUMN_NAMES).to_owned();
                    if !fields.iter().any(|field| field.name.to_lowercase() == name.to_lowercase()) {
                        fields.push(data_type::Field { name, data_type: self.data_type(depth - 1) });
                    }
                }
                DataType::Struct(fields)
            }
        }
    }

    /// A declared plan; the columns that would make it wrong are left out.
    pub fn plan(&mut self) -> Plan {
        let evolve = [Evolve::None, Evolve::Add, Evolve::Stop, Evolve::Approve][self.pick(4)];
        let mut drops = Vec::new();
        while self.rarely(3) {
            let parts = 1 + self.pick(3);
            drops.push((0..parts).map(|_| self.of(&NAMES).to_owned()).collect());
        }
        let options = PlanOptions { evolve, drops, ..PlanOptions::default() };
        let mut columns: Vec<ColumnSpec> = Vec::new();
        let mut plan = Plan::declared(columns.clone(), options.clone()).unwrap();
        for _ in 0..1 + self.pick(6) {
            let mut column = self.column();
            if self.rarely(4) && !columns.is_empty() {
                // One more of the same value.
                column.from = Some(plan.columns()[self.pick(plan.columns().len())].path.clone());
            }
            columns.push(column);
            match Plan::declared(columns.clone(), options.clone()) {
                Ok(better) => plan = better,
                Err(_) => drop(columns.pop()),
            }
        }
        plan
    }

    fn column(&mut self) -> ColumnSpec {
        let mut column = ColumnSpec::new(self.of(&COLUMN_NAMES), self.data_type(3));
        if self.rarely(3) {
            let parts = 1 + self.pick(3);
            column.from = Some((0..parts).map(|_| self.of(&NAMES).to_owned()).collect());
        }
        column.on_conflict =
            [OnConflict::Rescue, OnConflict::Rescue, OnConflict::Reject, OnConflict::Stop][self.pick(4)];
        if self.rarely(3) {
            let coercions = [
                Coercion::ParseString,
                Coercion::JsonText,
                Coercion::EpochS,
                Coercion::EpochMs,
                Coercion::EpochUs,
                Coercion::EpochNs,
                Coercion::EpochDays,
            ];
            let fitting =
                coercions.iter().filter(|coercion| coercion.applies_to(&column.data_type)).collect::<Vec<_>>();
            if !fitting.is_empty() {
                column.coercion = *fitting[self.pick(fitting.len())];
            }
        }
        if self.rarely(4) {
            let separator = self.of(&["-", ".", "1", "T", "é"]).to_owned();
            let derivations = [Derivation::Date, Derivation::Before(separator.clone()), Derivation::After(separator)];
            let coercions = [Coercion::None, Coercion::EpochMs, Coercion::ParseString];
            let fits =
                |(derivation, coercion): &(&Derivation, Coercion)| derivation.applies_to(&column.data_type, *coercion);
            let all = derivations.iter().flat_map(|derivation| coercions.map(|coercion| (derivation, coercion)));
            let fitting = all.filter(fits).collect::<Vec<_>>();
            if !fitting.is_empty() {
                let (derivation, coercion) = fitting[self.pick(fitting.len())];
                (column.derivation, column.coercion) = (Some(derivation.clone()), coercion);
            }
        } else if self.rarely(4) {
            let mut default = String::new();
            self.value(&column.data_type, 2, &mut default);
            column.default = Some(default);
        }
        column
    }

    /// A record, mostly one that the plan is for.
    pub fn record(&mut self, plan: &Plan) -> Vec<u8> {
        let paths = plan.columns().iter().map(|column| (column.path.as_slice(), &column.data_type)).collect::<Vec<_>>();
        let mut json = String::new();
        self.object(&paths, 3, &mut json);
        let mut record = json.into_bytes();
        if self.rarely(6) {
            self.mutate(&mut record);
        }
        record
    }

    fn object(&mut self, paths: &[(&[String], &DataType)], depth: usize, json: &mut String) {
        let mut members: Vec<(String, String)> = Vec::new();
        for (path, data_type) in paths {
            if self.rarely(6) {
                continue;
            }
            let below = paths.iter().filter(|(other, _)| other[0] == path[0] && other.len() > 1);
            let below = below.map(|(path, data_type)| (&path[1..], *data_type)).collect::<Vec<_>>();
            let mut value = String::new();
            if path.len() > 1 && !self.rarely(6) {
                self.object(&below, depth, &mut value);
            } else {
                self.value(data_type, depth, &mut value);
            }
            members.push((path[0].clone(), value));
        }
        while self.rarely(4) {
            let mut value = String::new();
            self.any_value(depth.min(2), &mut value);
            let at = self.pick(members.len() + 1);
            members.insert(at, (self.of(&NAMES).to_owned(), value));
        }
        while self.rarely(3) && !members.is_empty() {
            let (one, other) = (self.pick(members.len()), self.pick(members.len()));
            members.swap(one, other);
        }
        self.write_object(&members, json);
    }

    fn write_object(&mut self, members: &[(String, String)], json: &mut String) {
        json.push('{');
        for (at, (key, value)) in members.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            self.space(json);
            if self.rarely(8) {
                json.push('"');
                key.encode_utf16().for_each(|unit| json.push_str(&format!("\\u{unit:04x}")));
                json.push('"');
            } else {
                json.push_str(&serde_json::to_string(key).unwrap());
            }
            self.space(json);
            json.push(':');
            self.space(json);
            json.push_str(value);
            self.space(json);
        }
        json.push('}');
    }

    fn space(&mut self, json: &mut String) {
        if self.rarely(10) {
            json.push_str(self.of(&[" ", "\t", "\r\n", "   "]));
        }
    }

    /// A value, mostly of this type.
    fn value(&mut self, data_type: &DataType, depth: usize, json: &mut String) {
        if self.rarely(8) {
            return self.any_value(depth, json);
        }
        if self.rarely(8) {
            return json.push_str("null");
        }
        match data_type {
            DataType::Boolean => json.push_str(self.of(&["true", "false"])),
            DataType::String | DataType::Binary | DataType::Date | DataType::Timestamp | DataType::TimestampNtz => {
                json.push_str(self.of(&STRINGS));
            }
            DataType::Array(element) => {
                json.push('[');
                for at in 0..self.pick(4) {
                    if at > 0 {
                        json.push(',');
                    }
                    self.space(json);
                    self.value(element, depth, json);
                }
                json.push(']');
            }
            DataType::Map(_, value) => {
                let mut members = Vec::new();
                for _ in 0..self.pick(4) {
                    let mut json = String::new();
                    self.value(value, depth, &mut json);
                    members.push((self.of(&NAMES).to_owned(), json));
                }
                self.write_object(&members, json);
            }
            DataType::Struct(fields) => {
                let paths = fields.iter().map(|field| (std::slice::from_ref(&field.name), &field.data_type));
                self.object(&paths.collect::<Vec<_>>(), depth, json);
            }
            _ => json.push_str(self.of(&NUMBERS)),
        }
    }

    pub fn any_value(&mut self, depth: usize, json: &mut String) {
        match self.pick(if depth == 0 { 5 } else { 8 }) {
            0 => json.push_str("null"),
            1 => json.push_str(self.of(&["true", "false"])),
            2 | 3 => json.push_str(self.of(&NUMBERS)),
            4 => json.push_str(self.of(&STRINGS)),
            5 | 6 => {
                json.push('[');
                for at in 0..self.pick(4) {
                    if at > 0 {
                        json.push(',');
                    }
                    self.any_value(depth - 1, json);
                }
                json.push(']');
            }
            _ => {
                let mut members = Vec::new();
                for _ in 0..self.pick(4) {
                    let mut json = String::new();
                    self.any_value(depth - 1, &mut json);
                    members.push((self.of(&NAMES).to_owned(), json));
                }
                self.write_object(&members, json);
            }
        }
    }

    /// Any object, for inference.
    pub fn any_record(&mut self) -> String {
        let mut members = Vec::new();
        for _ in 0..self.pick(6) {
            let mut json = String::new();
            self.any_value(3, &mut json);
            members.push((self.of(&NAMES).to_owned(), json));
        }
        let mut json = String::new();
        self.write_object(&members, &mut json);
        json
    }

    fn mutate(&mut self, record: &mut Vec<u8>) {
        if record.is_empty() {
            return;
        }
        let at = (self.pick(256) * 256 + self.pick(256)) % record.len();
        match self.pick(5) {
            0 => record.truncate(at),
            1 => drop(record.remove(at)),
            2 => record.insert(at, b"\"{}[],\\\x80\xc3\0 1"[self.pick(12)]),
            3 => record[at] = self.pick(256) as u8,
            _ => {
                let end = (at + self.pick(20)).min(record.len());
                let copy = record[at..end].to_vec();
                record.splice(at..at, copy);
            }
        }
    }
}
