//! What the notes on a record mean for it.

use super::columns::Bytes;
use super::notes::{Note, Notes, What, unescaped};
use super::tree::{Place, ROOT, Step};
use crate::json::Fault;
use crate::rescue::RescueWriter;
use crate::{OnConflict, Shape, path};
use alluvium_core::Reason;
use std::convert::Infallible;

/// How many characters of a value are told.
const TOLD: usize = 100;

pub(super) enum Verdict {
    Row,
    Reject(Reason),
    Stop { path: String, wanted: String, value: String },
}

/// A record that is well-formed, with the notes on it.
pub(super) struct Judge<'d> {
    pub(super) record: &'d [u8],
    pub(super) notes: &'d Notes,
    pub(super) places: &'d [Place],
}

impl<'d> Judge<'d> {
    /// Decides what becomes of the record. Of a row, which will be row number `row`, adds what is
    /// rescued to `rescued` and the unknown fields to `unknown`.
    pub(super) fn judge(&self, row: usize, rescued: &mut Bytes, unknown: Option<&mut Shape>) -> Verdict {
        let first = |policy| self.conflicts().find(|note| self.on_conflict(note) == Some(policy));
        if let Some(note) = first(OnConflict::Stop) {
            let (path, wanted, value) = self.cause(note);
            return Verdict::Stop { path, wanted: wanted.to_owned(), value };
        }
        if let Some(note) = first(OnConflict::Reject) {
            let (path, wanted, value) = self.cause(note);
            let message = conflict(&path, wanted, &value);
            return Verdict::Reject(Reason { code: "conflict", message });
        }
        self.rescue(row, rescued);
        if let Some(unknown) = unknown {
            self.add_unknown(unknown);
        }
        Verdict::Row
    }

    /// Adds what the values in conflict look like.
    pub(super) fn add_conflicts(&self, shape: &mut Shape) {
        for note in self.conflicts() {
            self.shape_at(note.id, shape).merge(Shape::of_value(note.value.of(self.record)));
        }
    }

    /// The shape at a place.
    fn shape_at<'s>(&self, id: u32, mut shape: &'s mut Shape) -> &'s mut Shape {
        for (_, place) in self.way(id) {
            shape = match &place.step {
                Step::Field { name, .. } => shape.field_mut(name),
                Step::Element => shape.element_mut(),
                // A map's values are of one type, whatever their keys.
                Step::Value => shape.field_mut("value"),
            };
        }
        shape
    }

    fn conflicts(&self) -> impl Iterator<Item = &'d Note> {
        self.notes.iter().filter(|note| note.what == What::Conflict)
    }

    fn place(&self, id: u32) -> Option<&'d Place> {
        self.places.get(id as usize)
    }

    fn on_conflict(&self, note: &Note) -> Option<OnConflict> {
        self.place(note.id).map(|place| place.on_conflict)
    }

    /// The places from below the record down to `id`.
    fn way(&self, id: u32) -> Vec<(u32, &'d Place)> {
        let mut way = Vec::new();
        let mut at = id;
        while let Some(place) = self.place(at).filter(|_| at != ROOT) {
            way.push((at, place));
            at = place.parent;
        }
        way.reverse();
        way
    }

    /// Of a conflict: the path, what was wanted, and the value found.
    fn cause(&self, note: &Note) -> (String, &'d str, String) {
        let mut text = String::new();
        for (_, place) in self.way(note.cause_id) {
            match &place.step {
                Step::Field { name, .. } => path::push(&mut text, name),
                Step::Element => text.push_str("[]"),
                Step::Value => text.push_str("{}"),
            }
        }
        let wanted = self.place(note.cause_id).map_or("", |place| &place.wanted);
        (text, wanted, told(note.cause.of(self.record)))
    }

    /// Writes the record's rescued value, if there is something to rescue.
    ///
    /// A list in its column whose objects have unknown fields is rescued as a whole as well: a
    /// field alone could not say which of the objects it is from.
    fn rescue(&self, row: usize, rescued: &mut Bytes) {
        let kept = |note: &&Note| matches!(note.what, What::Conflict | What::Unknown | What::Incomplete);
        if !self.notes.iter().any(|note| kept(&note)) {
            return;
        }
        rescued.push_nulls(row - rescued.len());
        let written = rescued.push_with(|out| {
            let mut writer = RescueWriter::new(out);
            let mut last = None;
            for note in self.notes.iter().filter(kept) {
                // Several columns can be made from one value.
                if last.replace(note.value) == Some(note.value) {
                    continue;
                }
                let mut parents = Vec::new();
                for (id, place) in self.way(note.id) {
                    if let Step::Field { key, .. } = &place.step {
                        parents.push((id, key.as_slice()));
                    }
                }
                let key = match note.what {
                    What::Unknown => Some(note.key.of(self.record)),
                    _ => parents.pop().map(|(_, key)| key),
                };
                writer.member(&parents, key.unwrap_or_default(), note.value.of(self.record));
            }
            writer.finish();
            Ok::<_, Infallible>(())
        });
        written.unwrap_or_else(|never| match never {});
    }

    fn add_unknown(&self, unknown: &mut Shape) {
        let is_unknown = |note: &&Note| matches!(note.what, What::Unknown | What::UnknownInside);
        for note in self.notes.iter().filter(is_unknown) {
            let shape = self.shape_at(note.id, unknown);
            let name = unescaped(note.key.of(self.record));
            shape.field_mut(&String::from_utf8_lossy(&name)).merge(Shape::of_value(note.value.of(self.record)));
        }
    }
}

/// Why a malformed record is rejected.
pub(super) fn malformed(record: &[u8], fault: Fault, at: usize) -> Reason {
    let message = match fault {
        Fault::Missing | Fault::Sparse | Fault::ChunkFull => fault.message().to_owned(),
        Fault::Utf8 => {
            let at = std::str::from_utf8(record).map_or_else(|error| error.valid_up_to(), str::len);
            format!("{} at byte {at}", fault.message())
        }
        _ => {
            let rest = record.get(at..).unwrap_or_default();
            let found = if rest.is_empty() { "the end".to_owned() } else { told_from(rest, 20) };
            format!("{} at byte {at}, found {found}", fault.message())
        }
    };
    Reason { code: "malformed", message }
}

pub(super) fn conflict(path: &str, wanted: &str, value: &str) -> String {
    format!("{path}: expected {wanted}, found {value}")
}

fn told(json: &[u8]) -> String {
    told_from(json, TOLD)
}

/// The first characters of a text.
fn told_from(text: &[u8], most: usize) -> String {
    // No character takes more than four bytes.
    let text = String::from_utf8_lossy(text.get(..4 * most + 4).unwrap_or(text));
    let mut told = text.chars().take(most).collect::<String>();
    if told.len() < text.len() {
        told.push('…');
    }
    told
}
