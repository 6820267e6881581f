//! What was found wrong or unknown while reading a record.

use super::read::KEPT;
use crate::json::{Scanner, Text};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// A stretch of the record's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    start: u32,
    end: u32,
}

impl From<Range<usize>> for Stretch {
    /// A record is shorter than 2 GiB.
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start as u32, end: range.end as u32 }
    }
}

impl Stretch {
    pub(super) fn of(self, record: &[u8]) -> &[u8] {
        record.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The value of node `id` is not of its type.
    Conflict,
    /// An object of node `id` has a field that the plan does not know.
    Unknown,
    /// The same inside a list or map, which is kept as a whole: for growth only.
    UnknownInside,
    /// The list or map of node `id` is in its column, but some of its objects have unknown fields.
    Incomplete,
    /// Overtaken by a later value of the same key.
    Void,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) what: What,
    pub(super) id: u32,
    /// The key of an unknown field as it stands in the record, with quotes and escapes.
    pub(super) key: Stretch,
    pub(super) value: Stretch,
    /// For a conflict: the innermost value that is not of its type, and its node.
    pub(super) cause: Stretch,
    pub(super) cause_id: u32,
}

/// The notes on one record, in the order of its bytes.
///
/// The notes made while a value is read lie together, and those made before it are not touched.
#[derive(Default)]
pub(super) struct Notes {
    notes: Vec<Note>,
}

impl Notes {
    pub(super) fn clear(&mut self) {
        self.notes.clear();
    }

    pub(super) fn shrink(&mut self) {
        self.notes.clear();
        self.notes.shrink_to(KEPT);
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.notes.len() as u32
    }

    /// The notes that stand.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Note> + Clone {
        self.notes.iter().filter(|note| note.what != What::Void)
    }

    /// Whether one of the notes from this one on stands.
    pub(super) fn any_since(&self, mark: u32) -> bool {
        let notes = self.notes.get(mark as usize..).unwrap_or_default();
        notes.iter().any(|note| note.what != What::Void)
    }

    /// Forgets the notes from this one on.
    #[cold]
    pub(super) fn truncate(&mut self, mark: u32) {
        self.notes.truncate(mark as usize);
    }

    pub(super) fn conflict(&mut self, id: u32, value: Range<usize>) {
        let value = value.into();
        let key = Stretch::default();
        self.notes.push(Note { what: What::Conflict, id, key, value, cause: value, cause_id: id });
    }

    pub(super) fn unknown(&mut self, id: u32, key: Range<usize>, value: Range<usize>) {
        let (key, value) = (key.into(), value.into());
        self.notes.push(Note { what: What::Unknown, id, key, value, cause: value, cause_id: id });
    }

    /// Voids the notes on a value that is overtaken: they start at `mark`, and are of these nodes.
    #[cold]
    pub(super) fn void(&mut self, mark: u32, ids: Range<u32>) {
        let from = self.notes.get_mut(mark as usize..).unwrap_or_default();
        for note in from.iter_mut().take_while(|note| ids.contains(&note.id)) {
            note.what = What::Void;
        }
    }

    /// Ends the object of node `id` whose notes start at `first`: of unknown fields with one key
    /// the last value counts, in the place of the first; and null is no value to keep.
    #[cold]
    pub(super) fn close_object(&mut self, record: &[u8], first: u32, id: u32) {
        let notes = self.notes.get_mut(first as usize..).unwrap_or_default();
        if let [note] = notes {
            // The usual case, quickly.
            if note.what == What::Unknown && note.id == id && note.value.of(record) == b"null" {
                note.what = What::Void;
            }
            return;
        }
        let mut firsts = HashMap::new();
        for at in 0..notes.len() {
            let (earlier, rest) = notes.split_at_mut(at);
            let Some(note) = rest.first_mut().filter(|note| note.what == What::Unknown && note.id == id) else {
                continue;
            };
            let first = *firsts.entry(unescaped(note.key.of(record))).or_insert(at);
            if let Some(first) = earlier.get_mut(first) {
                first.value = note.value;
                note.what = What::Void;
            }
        }
        for at in firsts.into_values() {
            if let Some(note) = notes.get_mut(at).filter(|note| note.value.of(record) == b"null") {
                note.what = What::Void;
            }
        }
    }

    /// Ends the outermost list or map of node `id` whose notes start at `first`. Returns whether
    /// something in it is in conflict: then it is in conflict as a whole.
    #[cold]
    pub(super) fn close_container(&mut self, first: u32, id: u32, value: Range<usize>) -> bool {
        let value = Stretch::from(value);
        let notes = self.notes.get_mut(first as usize..).unwrap_or_default();
        let conflict = notes.iter().find(|note| note.what == What::Conflict).copied();
        let mut incomplete = false;
        for note in notes {
            match note.what {
                What::Unknown => {
                    note.what = What::UnknownInside;
                    incomplete = true;
                }
                What::Conflict => note.what = What::Void,
                _ => {}
            }
        }
        let key = Stretch::default();
        if let Some(Note { cause, cause_id, .. }) = conflict {
            self.notes.push(Note { what: What::Conflict, id, key, value, cause, cause_id });
        } else if incomplete {
            self.notes.push(Note { what: What::Incomplete, id, key, value, cause: value, cause_id: id });
        }
        conflict.is_some()
    }
}

/// The name that a key stands for.
pub(super) fn unescaped(key: &[u8]) -> Cow<'_, [u8]> {
    match Scanner::new(key).string() {
        Ok(text @ Text::Escaped(_)) => {
            let mut name = Vec::with_capacity(key.len());
            text.append_to(&mut name);
            Cow::Owned(name)
        }
        Ok(Text::Plain(name)) => Cow::Borrowed(name),
        Err(_) => Cow::Borrowed(key),
    }
}
