//! How dead letters get into their table exactly once, although it is another table than the rows'.
//!
//! No commit spans two tables, so one of them must decide. The rows' log does: the entry that moves the
//! positions names the files of its dead letters, already uploaded, and sets a mark. Whoever looks at
//! the log next and finds a mark that the letters' own log does not have appends those files there,
//! with the mark. A record is thereby a row or a dead letter as one atomic entry says, however often it
//! was tried and whatever a plugin made of it in other tries; and no letter is lost, because nothing is
//! committed past an entry whose letters are still owed.
//!
//! A replay runs letters through the present plugins. It is one entry of the rows' log too: it adds the
//! rows, sets the replay's number, and names what is to be added to the letters' table, the letters of
//! records that were rejected again and a mark for each letter that it took. That table is only ever
//! appended to, so that those who follow it as a stream see each letter, and each mark, once.

use crate::Partition;

/// How far dead letters are, by marks that rise with every commit that names some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// In the rows' log: the newest commit that names letters.
    pub named: Option<i64>,
    /// In the letters' log: the newest commit whose letters were written.
    pub written: Option<i64>,
}

impl Marks {
    /// The mark whose letters are named, but not written.
    pub fn owed(&self) -> Option<i64> {
        self.named.filter(|named| self.written.is_none_or(|written| written < *named))
    }

    /// The mark of a commit that names letters and becomes this version of the rows' log. A version is
    /// given once, also where a restored table brings back an older mark, so that letters which somebody
    /// is slow to write never pass for those of another commit. It lies above both marks, since a rows'
    /// table can be made anew beside old letters.
    pub fn next(&self, version: i64) -> i64 {
        self.named.max(self.written).map_or(version, |newest| version.max(newest.saturating_add(1)))
    }
}

/// A dead letter's place: its partition and offset.
pub type Place = (Partition, i64);

/// The number of a replay, from 1: the version of the pipeline's replay transaction in the rows' log.
pub type ReplayNumber = i64;

/// What the letters' table says of one record, told in any order.
///
/// Numbers put letters and replays' marks in order: a mark has the number of its replay, a letter that of
/// the mark before it, 0 when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    letter: Option<i64>,
    mark: Option<ReplayNumber>,
    doubled: bool,
}

impl Standing {
    /// Takes in a letter; whether it is the newest so far.
    pub fn letter(&mut self, number: i64) -> bool {
        let is_newest = self.letter.is_none_or(|known| known <= number);
        self.doubled = if self.letter == Some(number) { true } else { self.doubled && !is_newest };
        self.letter = self.letter.max(Some(number));
        is_newest
    }

    /// Takes in a replay's mark.
    pub fn mark(&mut self, number: ReplayNumber) {
        self.mark = self.mark.max(Some(number));
    }

    /// Whether the newest letter waits for a replay.
    pub fn is_open(&self) -> bool {
        self.letter.is_some() && self.mark <= self.letter
    }

    /// Whether a replay took the newest letter.
    pub fn is_replayed(&self) -> bool {
        self.letter.is_some() && !self.is_open()
    }

    /// Whether the newest letter is there twice.
    pub fn is_doubled(&self) -> bool {
        self.doubled
    }

    /// The number of the newest letter.
    pub fn newest(&self) -> Option<i64> {
        self.letter
    }

    /// The newest replay that took a letter of the record.
    pub fn replayed_by(&self) -> Option<ReplayNumber> {
        self.mark
    }

    /// The number of a letter that is written now.
    pub fn next_letter(&self) -> i64 {
        self.mark.unwrap_or(0)
    }
}

/// The lowest offset whose letter may be in the table from before, where `stored` are the ends of the
/// spans whose letters were written; `None` when there can be none, as long as no position went back.
/// It can: a rows' table that is restored with its positions reads offsets again whose letters stay.
pub fn in_doubt(letters: impl IntoIterator<Item = Place>, stored: impl Fn(Partition) -> Option<i64>) -> Option<i64> {
    let before = |(partition, offset): &Place| stored(*partition).is_some_and(|stored| *offset < stored);
    letters.into_iter().filter(before).map(|(_, offset)| offset).min()
}

/// The indices of the letters that the table does not hold. `present` are the places of open letters,
/// from the offset in doubt on: what is there decides, not a position, since a record before it may have
/// been a row the last time.
pub fn missing(letters: impl IntoIterator<Item = Place>, present: impl Fn(Place) -> bool) -> Vec<usize> {
    let letters = letters.into_iter().enumerate();
    letters.filter(|(_, place)| !present(*place)).map(|(index, _)| index).collect()
}
