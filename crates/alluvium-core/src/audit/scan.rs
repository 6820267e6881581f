//! Where rows and dead letters say they came from, beside what the log says.

use super::{Covered, LettersReport, PartitionProof, Report};
use crate::Partition;
use crate::letters::{Place, Standing};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Findings that are told one by one; all are counted.
const TOLD: usize = 20;
/// Offsets of a page of a [`Bitmap`].
const PAGE: i64 = 1 << 16;

/// What a scan finds wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum ScanFinding {
    /// The record at an offset became a row (or a row of this number) more than once.
    Doubled {
        partition: Partition,
        offset: i64,
        row: i32,
    },
    /// The record at an offset is among the dead letters more than once.
    LetterDoubled {
        partition: Partition,
        offset: i64,
    },
    /// The record at an offset is a row and a dead letter.
    Both {
        partition: Partition,
        offset: i64,
    },
    /// Offsets that no commit covers.
    Stray {
        partition: Partition,
        offset: i64,
    },
    /// Of the records at offsets `[from, to)`, other numbers became rows, or are dead letters, than
    /// the commit says.
    Records {
        version: u64,
        partition: Partition,
        from: i64,
        to: i64,
        said: u64,
        found: u64,
    },
    Rows {
        version: u64,
        partition: Partition,
        from: i64,
        to: i64,
        said: u64,
        found: u64,
    },
    Letters {
        version: u64,
        partition: Partition,
        from: i64,
        to: i64,
        said: u64,
        found: u64,
    },
}

impl fmt::Display for ScanFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doubled { partition, offset, row: 0 } => {
                write!(f, "partition {partition}: the record at offset {offset} is in the table twice")
            }
            Self::Doubled { partition, offset, row } => {
                write!(f, "partition {partition}: row {row} of the record at offset {offset} is in the table twice")
            }
            Self::LetterDoubled { partition, offset } => {
                write!(f, "partition {partition}: the record at offset {offset} is among the dead letters twice")
            }
            Self::Both { partition, offset } => {
                write!(f, "partition {partition}: the record at offset {offset} is a row and a dead letter")
            }
            Self::Stray { partition, offset } => {
                write!(f, "partition {partition}: no commit covers the row at offset {offset}")
            }
            Self::Records { version, partition, from, to, said, found } => write!(
                f,
                "version {version}: partition {partition}: of the records at offsets [{from}, {to}) {said} became rows, but {found} are in the table"
            ),
            Self::Rows { version, partition, from, to, said, found } => write!(
                f,
                "version {version}: partition {partition}: the records at offsets [{from}, {to}) became {said} rows, but {found} are in the table"
            ),
            Self::Letters { version, partition, from, to, said, found } => write!(
                f,
                "version {version}: partition {partition}: of the records at offsets [{from}, {to}) {said} were rejected, but {found} are among the dead letters"
            ),
        }
    }
}

/// What a scan came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScanReport {
    pub rows: u64,
    pub letters: u64,
    /// Rows and dead letters that are there more than once.
    pub doubled: u64,
    /// Rows at offsets that no commit covers.
    pub stray: u64,
    /// Records that became rows by the log, and rejected ones, that are not there.
    pub missing: u64,
    /// Records that are rows, or dead letters, although their commit counted them otherwise.
    pub extra: u64,
    /// Records and letters missing where another writer removed or rewrote some.
    pub removed: u64,
    /// The first of what is wrong.
    pub findings: Vec<ScanFinding>,
}

impl ScanReport {
    /// Whether nothing contradicts exactly once.
    pub fn holds(&self) -> bool {
        self.doubled == 0 && self.stray == 0 && self.missing == 0 && self.extra == 0
    }

    fn tell(&mut self, finding: ScanFinding) {
        if self.findings.len() < TOLD {
            self.findings.push(finding);
        }
    }
}

/// Gathers where rows and dead letters came from: a bit for each, whatever their order.
#[derive(Debug)]
pub struct Scan<'a> {
    log: &'a Report,
    letters_log: &'a LettersReport,
    report: ScanReport,
    /// By partition and number of the row among those of its record.
    rows: BTreeMap<(Partition, i32), Bitmap>,
    letters: BTreeMap<Partition, Bitmap>,
    replayed: BTreeMap<Partition, Bitmap>,
}

impl<'a> Scan<'a> {
    /// A scan of the tables whose logs were audited.
    pub fn new(log: &'a Report, letters_log: &'a LettersReport) -> Self {
        let (rows, letters, replayed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { log, letters_log, report: ScanReport::default(), rows, letters, replayed }
    }

    /// A row of the record at `offset`; `number` tells it from others of that record.
    pub fn row(&mut self, partition: Partition, offset: i64, number: i32) {
        self.report.rows += 1;
        if !self.rows.entry((partition, number)).or_default().set(offset) {
            self.report.doubled += 1;
            self.report.tell(ScanFinding::Doubled { partition, offset, row: number });
        }
        let known = self.log.partition(partition);
        // What an old part of the log covered is not known any more.
        let before = self.log.first_version > 0 && known.is_none_or(|proof| offset < proof.from);
        if !before && !known.is_some_and(|proof| (proof.from..proof.to).contains(&offset)) {
            self.report.stray += 1;
            self.report.tell(ScanFinding::Stray { partition, offset });
        }
    }

    /// What the dead letters' table says of the record at `offset`.
    pub fn letter(&mut self, (partition, offset): Place, standing: Standing) {
        if standing.newest().is_none() {
            return;
        }
        self.report.letters += 1;
        let of = if standing.is_open() { &mut self.letters } else { &mut self.replayed };
        of.entry(partition).or_default().set(offset);
        if standing.is_doubled() {
            self.report.doubled += 1;
            self.report.tell(ScanFinding::LetterDoubled { partition, offset });
        }
    }

    /// Compares what was seen with what the log says.
    pub fn finish(mut self) -> ScanReport {
        let log = self.log;
        for proof in &log.partitions {
            self.finish_partition(proof);
        }
        self.report
    }

    fn finish_partition(&mut self, proof: &PartitionProof) {
        let partition = proof.partition;
        let (none, mut records) = (Bitmap::default(), Bitmap::default());
        for (_, rows) in self.rows.range((partition, i32::MIN)..=(partition, i32::MAX)) {
            records.unite(rows);
        }
        let letters = self.letters.remove(&partition).unwrap_or_default();
        let replayed = self.replayed.remove(&partition).unwrap_or(none);
        // The rows of a replay that still owes its marks.
        let owed = proof.newest_replay.filter(|(version, _)| self.letters_log.owed == Some(*version));
        let owed = owed.map_or(0, |(_, counts)| counts.kept);
        let both: Vec<i64> = records.common(&letters).collect();
        for offset in both.iter().copied().skip(usize::try_from(owed).unwrap_or(usize::MAX)) {
            self.report.extra += 1;
            self.report.tell(ScanFinding::Both { partition, offset });
        }
        let wrong = self.report.missing + self.report.extra;
        for covered in &proof.covered {
            let Covered { version, span, counts, touched } = *covered;
            let (from, to) = (span.from(), span.to());
            let numbers = self.rows.range((partition, i32::MIN)..=(partition, i32::MAX));
            let found_rows: u64 = numbers.map(|(_, rows)| rows.count(from, to)).sum();
            let (said, found) = (counts.kept, records.count(from, to));
            // A replay tells what it made of its letters, not of those of each commit.
            let replays = replayed.count(from, to) + owed;
            let may_be_replayed = replays > 0 && (said..=said + replays).contains(&found);
            if said != found && !may_be_replayed {
                self.miss(said, found, touched, ScanFinding::Records { version, partition, from, to, said, found });
            } else if counts.rows != found_rows && !may_be_replayed {
                let (said, found) = (counts.rows, found_rows);
                self.miss(said, found, touched, ScanFinding::Rows { version, partition, from, to, said, found });
            }
            let (said, found) = (counts.rejected, letters.count(from, to) + replayed.count(from, to));
            let owed = found == 0 && self.letters_log.owed == Some(version);
            if said != found && !owed {
                let touched = self.letters_log.is_touched();
                self.miss(said, found, touched, ScanFinding::Letters { version, partition, from, to, said, found });
            }
        }
        // Nothing is told twice.
        if wrong == self.report.missing + self.report.extra {
            self.finish_replays(proof, &records);
        }
    }

    /// With replays, the rows of a partition are counted as a whole.
    fn finish_replays(&mut self, proof: &PartitionProof, records: &Bitmap) {
        let (partition, counts, from, to) = (proof.partition, proof.counts, proof.from, proof.to);
        let Some((version, _)) = proof.newest_replay else { return };
        let numbers = self.rows.range((partition, i32::MIN)..=(partition, i32::MAX));
        let found_rows: u64 = numbers.map(|(_, rows)| rows.count(from, to)).sum();
        let found = records.count(from, to);
        let touched = self.log.replays_touched || proof.covered.iter().any(|covered| covered.touched);
        let unplaced = self.log.unplaced;
        if !(counts.kept..=counts.kept + unplaced.kept).contains(&found) {
            let said = counts.kept;
            self.miss(said, found, touched, ScanFinding::Records { version, partition, from, to, said, found });
        } else if !(counts.rows..=counts.rows + unplaced.rows).contains(&found_rows) {
            let (said, found) = (counts.rows, found_rows);
            self.miss(said, found, touched, ScanFinding::Rows { version, partition, from, to, said, found });
        }
    }

    fn miss(&mut self, said: u64, found: u64, touched: bool, finding: ScanFinding) {
        let missing = said.saturating_sub(found);
        if touched && missing > 0 {
            self.report.removed += missing;
            return;
        }
        self.report.missing += missing;
        self.report.extra += found.saturating_sub(said);
        self.report.tell(finding);
    }
}

/// A set of offsets; takes room where there are some, however far apart.
#[derive(Clone, Debug, Default)]
struct Bitmap(HashMap<i64, Box<[u64; (PAGE / 64) as usize]>>);

impl Bitmap {
    /// Adds an offset; whether it is new.
    fn set(&mut self, offset: i64) -> bool {
        let (page, bit) = (offset.div_euclid(PAGE), offset.rem_euclid(PAGE) as usize);
        let words = self.0.entry(page).or_insert_with(|| Box::new([0; (PAGE / 64) as usize]));
        let Some(word) = words.get_mut(bit / 64) else { return false };
        let new = *word & (1 << (bit % 64)) == 0;
        *word |= 1 << (bit % 64);
        new
    }

    fn unite(&mut self, other: &Self) {
        for (page, words) in &other.0 {
            let own = self.0.entry(*page).or_insert_with(|| Box::new([0; (PAGE / 64) as usize]));
            own.iter_mut().zip(words.iter()).for_each(|(own, other)| *own |= other);
        }
    }

    /// Offsets in both, in no order.
    fn common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = i64> + 'a {
        let pages =
            self.0.iter().filter_map(|(page, words)| Some((*page, words.iter().zip(other.0.get(page)?.iter()))));
        pages.flat_map(|(page, words)| {
            words.enumerate().flat_map(move |(index, (one, other))| {
                let both = one & other;
                (0..64).filter(move |bit| both & (1 << bit) != 0).map(move |bit| page * PAGE + index as i64 * 64 + bit)
            })
        })
    }

    /// How many offsets of `[from, to)` are in it.
    fn count(&self, from: i64, to: i64) -> u64 {
        if to <= from {
            return 0;
        }
        let (first, last) = (from.div_euclid(PAGE), (to - 1).div_euclid(PAGE));
        // A wide span over few pages, or a narrow one over many.
        if usize::try_from(last - first).is_ok_and(|pages| pages < self.0.len()) {
            (first..=last).filter_map(|page| Some(count_page(page, self.0.get(&page)?, from, to))).sum()
        } else {
            let within = self.0.iter().filter(|(page, _)| (first..=last).contains(*page));
            within.map(|(page, words)| count_page(*page, words, from, to)).sum()
        }
    }
}

fn count_page(page: i64, words: &[u64; (PAGE / 64) as usize], from: i64, to: i64) -> u64 {
    let start = page * PAGE;
    let (low, high) = ((from - start).max(0), (to - start).min(PAGE));
    let mask = |index: i64| -> u64 {
        let (below, above) = ((low - index * 64).clamp(0, 64), (high - index * 64).clamp(0, 64));
        let up_to = |bits: i64| if bits >= 64 { u64::MAX } else { (1u64 << bits) - 1 };
        up_to(above) & !up_to(below)
    };
    words.iter().enumerate().map(|(index, word)| u64::from((word & mask(index as i64)).count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(
            offsets in prop::collection::vec(prop_oneof![0..300i64, 65_000..66_000i64, Just(i64::MAX - 1)], 0..200),
            from in 0..70_000i64, length in 0..70_000i64,
        ) {
            let (mut bitmap, mut set) = (Bitmap::default(), BTreeSet::new());
            for offset in &offsets {
                prop_assert_eq!(bitmap.set(*offset), set.insert(*offset));
            }
            prop_assert_eq!(bitmap.count(from, from + length) as usize, set.range(from..from + length).count());
            prop_assert_eq!(bitmap.count(0, i64::MAX) as usize, set.len());
            let (mut half, mut other) = (Bitmap::default(), Bitmap::default());
            for (index, offset) in set.iter().enumerate() {
                if index % 2 == 0 { half.set(*offset) } else { other.set(*offset) };
            }
            prop_assert_eq!(half.common(&other).count(), 0);
            half.unite(&other);
            let common: BTreeSet<i64> = half.common(&bitmap).collect();
            prop_assert_eq!(common, set);
        }
    }
}
