//! What was produced, and its comparison with the tables.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use std::collections::{HashMap, HashSet};

/// So many orders after the other, a new field appears in place of the one before.
const GROWTH: u64 = 10_000;
/// Findings of one kind that are told.
const TOLD: usize = 10;

/// What must become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Row,
    Filtered,
    /// With the code of its reason.
    DeadLetter(&'static str),
}

/// The fate of the order of this number.
pub fn fate(number: u64) -> Fate {
    match number {
        n if n % 43 == 7 => Fate::DeadLetter("tombstone"),
        n if n % 37 == 5 => Fate::DeadLetter("malformed"),
        n if n % 211 == 11 => Fate::DeadLetter("plugin-trap"),
        n if n % 10 == 3 => Fate::Filtered,
        _ => Fate::Row,
    }
}

/// The order of this number as a record's value: its content follows from the number alone.
pub fn value(number: u64) -> Option<Vec<u8>> {
    let text = text(number);
    let value = match fate(number) {
        Fate::DeadLetter("tombstone") => return None,
        Fate::DeadLetter("malformed") => format!(r#"{{"id":{number},"text":"{text}"#),
        _ => format!(
            r#"{{"id":{number},"event_time":"2026-03-01T00:00:{:02}Z","customer":{{"email":"user{number}@example.com"}},"amount":{},"test":{},"text":"{text}","f{}":{number}}}"#,
            number % 60,
            if rescued(number) { "\"much\"".to_owned() } else { format!("{number}.25") },
            number % 10 == 3,
            number / GROWTH,
        ),
    };
    Some(value.into_bytes())
}

/// Whether the order's amount is none. Not among those that the first columns are inferred from.
fn rescued(number: u64) -> bool {
    number > 3 * GROWTH && number % 101 == 60
}

fn text(number: u64) -> String {
    if let Fate::DeadLetter("plugin-trap") = fate(number) {
        return "boom".to_owned();
    }
    let noise = (number ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{noise:016x}").repeat((noise >> 61) as usize)
}

/// What the producers know of their records, which are numbered through.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Acknowledged ones, by partition and offset.
    pub committed: HashMap<(i32, i64), u64>,
    /// Those of transactions that were aborted.
    pub aborted: HashSet<u64>,
    /// Those whose producer was never told: they are in the topic once, or not at all.
    pub unknown: HashSet<u64>,
    pub findings: Findings,
}

/// What is wrong, with how often.
#[derive(Debug, Default)]
pub struct Findings(Vec<(&'static str, Vec<String>, u64)>);

impl Findings {
    pub fn add(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        let at = self.0.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            self.0.push((kind, Vec::new(), 0));
            self.0.len() - 1
        });
        let (_, told, count) = &mut self.0[at];
        *count += 1;
        if told.len() < TOLD {
            told.push(what());
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let kind = |(kind, told, count): &(&str, Vec<String>, u64)| {
            let mut lines = vec![format!("{kind}: {count}")];
            lines.extend(told.iter().map(|what| format!("    {what}")));
            lines
        };
        self.0.iter().flat_map(kind).collect()
    }
}

impl Ledger {
    pub fn acknowledged(&mut self, place: (i32, i64), number: u64) {
        if let Some(other) = self.committed.insert(place, number) {
            self.findings.add("offsets that the broker gave twice", || format!("{place:?}: {other} and {number}"));
        }
    }

    /// Compares with all rows and all dead letters.
    pub fn compare(&mut self, rows: &RecordBatch, letters: &RecordBatch) {
        let mut seen = HashMap::new();
        self.rows(rows, &mut seen);
        self.letters(letters, &mut seen);
        let Self { committed, findings, .. } = self;
        for (place, number) in committed {
            match (fate(*number), seen.get(place).copied().unwrap_or(0)) {
                (Fate::Filtered, 0) | (Fate::Row | Fate::DeadLetter(_), 1) => {}
                (fate, 0) => findings.add("missing", || format!("{place:?}: order {number}, {fate:?}")),
                (fate, times) => {
                    findings.add("doubled", || format!("{place:?}: order {number}, {fate:?}, {times} times"))
                }
            }
        }
    }

    /// Which order must be at a place: an acknowledged one, or one whose producer was never told.
    fn expected(&mut self, place: (i32, i64), found: u64) -> bool {
        if let Some(number) = self.committed.get(&place) {
            return *number == found;
        }
        // From here on it is an acknowledged one, at this place and no other.
        let known = self.unknown.remove(&found);
        if known {
            self.committed.insert(place, found);
        }
        known
    }

    fn rows(&mut self, rows: &RecordBatch, seen: &mut HashMap<(i32, i64), u32>) {
        if rows.num_rows() == 0 {
            return;
        }
        let places = rows.column_by_name("_kafka").expect("_kafka").as_struct();
        let partitions = places.column_by_name("partition").unwrap().as_primitive::<Int32Type>();
        let offsets = places.column_by_name("offset").unwrap().as_primitive::<Int64Type>();
        let ids = rows.column_by_name("id").expect("id").as_primitive::<Int64Type>();
        for row in 0..rows.num_rows() {
            let place = (partitions.value(row), offsets.value(row));
            let number = ids.value(row) as u64;
            *seen.entry(place).or_default() += 1;
            if !self.expected(place, number) {
                let kind = if self.aborted.contains(&number) { "rows of aborted records" } else { "stray rows" };
                self.findings.add(kind, || format!("{place:?}: order {number}"));
            } else if fate(number) != Fate::Row {
                self.findings.add("rows that should be none", || format!("{place:?}: {number}, {:?}", fate(number)));
            } else if let Some(wrong) = wrong_content(rows, row, number) {
                self.findings.add("rows of wrong content", || format!("{place:?}: order {number}: {wrong}"));
            }
        }
    }

    fn letters(&mut self, letters: &RecordBatch, seen: &mut HashMap<(i32, i64), u32>) {
        if letters.num_rows() == 0 {
            return;
        }
        let column = |name: &str| letters.column_by_name(name).expect("a column of the dead letters");
        let (partitions, offsets) =
            (column("partition").as_primitive::<Int32Type>(), column("offset").as_primitive::<Int64Type>());
        let (values, reasons) = (column("value").as_binary::<i32>(), column("reason").as_string::<i32>());
        let keys = column("key").as_binary::<i32>();
        for row in 0..letters.num_rows() {
            let place = (partitions.value(row), offsets.value(row));
            *seen.entry(place).or_default() += 1;
            let number: u64 = std::str::from_utf8(keys.value(row)).unwrap().parse().expect("the key is the number");
            let found = values.is_valid(row).then(|| values.value(row).to_vec());
            if !self.expected(place, number) {
                let kind = if self.aborted.contains(&number) { "letters of aborted records" } else { "stray letters" };
                self.findings.add(kind, || format!("{place:?}: order {number}"));
            } else if fate(number) != Fate::DeadLetter(leak(reasons.value(row))) {
                let reason = reasons.value(row);
                self.findings
                    .add("letters of a wrong reason", || format!("{place:?}: {number}, {:?}: {reason}", fate(number)));
            } else if found != value(number) {
                self.findings.add("letters of wrong content", || format!("{place:?}: order {number}"));
            }
        }
    }
}

/// The fates' own spelling of a reason.
fn leak(reason: &str) -> &'static str {
    ["tombstone", "malformed", "plugin-trap"].into_iter().find(|known| *known == reason).unwrap_or("another")
}

fn wrong_content(rows: &RecordBatch, row: usize, number: u64) -> Option<String> {
    let column = |name: &str| rows.column_by_name(name).filter(|column| column.is_valid(row));
    let string = |name: &str| column(name).map(|column| column.as_string::<i32>().value(row).to_owned());
    if string("text") != Some(text(number)) {
        return Some(format!("text {:?}", string("text")));
    }
    let amount = column("amount").map(|column| column.as_primitive::<Float64Type>().value(row));
    let wanted = (!rescued(number)).then_some(number as f64 + 0.25);
    let kept = rescued(number).then(|| r#"{"amount":"much"}"#.to_owned());
    if amount != wanted || string("_rescued") != kept {
        return Some(format!("amount {amount:?}, rescued {:?}", string("_rescued")));
    }
    let customer = column("customer")?.as_struct().column_by_name("email")?.as_string::<i32>().value(row);
    if customer != "***@example.com" {
        return Some(format!("email {customer}"));
    }
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        let Some(part) = field.name().strip_prefix('f').and_then(|digits| digits.parse::<u64>().ok()) else { continue };
        let found = column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row) as u64);
        if found != (part == number / GROWTH).then_some(number) {
            return Some(format!("{}: {found:?}", field.name()));
        }
    }
    rows.column_by_name(&format!("f{}", number / GROWTH)).is_none().then(|| "a field is missing".to_owned())
}

#[test]
fn the_comparison_finds_what_is_wrong() {
    use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, StringArray};
    use std::sync::Arc;
    let letters = |rows: &[(i64, u64, &str)]| {
        let columns: [(&str, ArrayRef); 5] = [
            ("partition", Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| 0)))),
            ("offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
            ("value", Arc::new(BinaryArray::from_iter(rows.iter().map(|row| value(row.1))))),
            ("reason", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2)))),
            ("key", Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| row.1.to_string())))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let told = |ledger: &mut Ledger, found: &[(i64, u64, &str)]| {
        ledger.compare(&RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty())), &letters(found));
        ledger.findings.lines().join("\n")
    };
    // 5 and 42 are malformed, 7 is a tombstone.
    let ledger = || {
        let mut ledger = Ledger::default();
        ledger.acknowledged((0, 0), 5);
        ledger.acknowledged((0, 1), 7);
        ledger.aborted.insert(42);
        ledger.unknown.insert(79);
        ledger
    };
    let good = [(0, 5, "malformed"), (1, 7, "tombstone")];
    assert_eq!(told(&mut ledger(), &good), "");
    assert_eq!(told(&mut ledger(), &[good[0], good[1], (2, 79, "malformed")]), "");
    let twice = [good[0], good[1], (2, 79, "malformed"), (3, 79, "malformed")];
    assert!(told(&mut ledger(), &twice).contains("stray letters: 1"));
    assert!(told(&mut ledger(), &[good[0]]).contains("missing: 1"));
    assert!(told(&mut ledger(), &[good[0], good[0], good[1]]).contains("doubled: 1"));
    assert!(told(&mut ledger(), &[(0, 7, "tombstone"), good[1]]).contains("stray letters: 1"));
    assert!(told(&mut ledger(), &[good[0], good[1], (2, 42, "malformed")]).contains("aborted records: 1"));
    assert!(told(&mut ledger(), &[(0, 5, "conflict"), good[1]]).contains("wrong reason: 1"));
}
