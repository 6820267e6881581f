//! Replays: open letters through the present plugins, and into the rows' table by one entry of its log.

use crate::actions::{Add, NamedLetters};
use crate::error::Error;
use crate::letter_rows::{Letter, letter_batches, mark_batches};
use crate::letter_scan::{LetterFilter, standings};
use crate::letters::grown;
use crate::log::TableLog;
use crate::scan::Scan;
use crate::sink::DeltaSink;
use crate::upload::upload;
use crate::writer::DataFile;
use alluvium_core::commit::Claim;
use alluvium_core::seam::{Flush, Outcome};
use alluvium_core::{AppId, Counts, DeadLetter, Edge, Partition, PartitionProgress, Place, ReplayNumber, Span};
use std::collections::HashMap;

/// Open letters for a replay, and what the replay is judged by.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub number: ReplayNumber,
    /// The replay before, whose number must still be the newest when this one is committed: as long as it
    /// is, nobody else has taken a letter.
    after: Option<ReplayNumber>,
    span: Span,
    /// The letters, with their numbers.
    letters: HashMap<Place, i64>,
    /// Open letters that were left: the table was set back behind them, and will be given their records anew.
    pub ahead: u64,
}

impl Chosen {
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.letters.keys().copied()
    }

    pub(crate) fn claim(&self, stored: Option<ReplayNumber>) -> Claim {
        // No partition is meant: the number is judged like a position.
        Claim { partition: Partition(-1), span: self.span, stored, may_be_absent: self.after.is_none() }
    }
}

/// A replay on its way into the tables.
pub(crate) struct Replay<'a> {
    pub chosen: &'a Chosen,
    /// Uploaded files of the letters' table: marks, and letters of records that were rejected again.
    pub files: Vec<DataFile>,
}

impl DeltaSink {
    /// The open letters that pass the filter, after what an interrupted commit owes was written.
    pub async fn choose(&self, filter: &LetterFilter) -> Result<Chosen, Error> {
        let mut rows = self.rows.lock().await;
        self.refresh(&mut rows).await?;
        while self.write_owed(&rows).await? {
            self.refresh(&mut rows).await?;
        }
        let after = self.replayed(&rows);
        let prefix = self.config.transaction_prefix();
        let positions: HashMap<Partition, i64> =
            rows.state().map(|state| state.partitions(&prefix)).unwrap_or_default().into_iter().collect();
        // Read after the rows' log: what is open here is not taken by any replay up to `after`.
        let mut log = self.letters.lock().await;
        log.refresh().await?;
        let found = match log.state() {
            Some(_) => standings(&log.store, None, &self.config, filter, 0).await?,
            None => HashMap::new(),
        };
        // A rows' table that is set back forgets replays, but their marks stay.
        let newest = found.values().filter_map(|entry| entry.standing.replayed_by()).max().max(after).unwrap_or(0);
        let open = found.into_iter().filter(|(_, entry)| entry.matches && entry.standing.is_open());
        let numbered = open.filter_map(|(place, entry)| Some((place, entry.standing.newest()?)));
        let is_behind =
            |((partition, offset), _): &(Place, i64)| positions.get(partition).is_some_and(|at| offset < at);
        let (letters, ahead): (HashMap<_, _>, HashMap<_, _>) = numbered.partition(is_behind);
        let number = newest.saturating_add(1);
        let span = Span::new(after.unwrap_or(0), number).unwrap_or(Span::empty(number));
        Ok(Chosen { number, after, span, letters, ahead: ahead.len() as u64 })
    }

    /// The chosen letters, whole, batch by batch.
    pub async fn chosen_letters(&self, chosen: &Chosen) -> Result<Scan<Letter>, Error> {
        self.reader().scan_letters(chosen.letters.clone()).await
    }

    /// Encodes and uploads letters of records that the replay rejected again, for its commit to name them.
    pub async fn upload_again(&self, chosen: &Chosen, again: &[DeadLetter]) -> Result<Vec<DataFile>, Error> {
        let log = self.letters.lock().await;
        let numbered: Vec<(&DeadLetter, i64)> = again.iter().map(|letter| (letter, chosen.number)).collect();
        let mut files = self.encode_letters(&log, letter_batches(&self.config, &numbered)).await?;
        upload(&log.store, &mut files, &self.hook).await?;
        Ok(files)
    }

    /// Commits the rows of a replay, whose counts speak of all chosen letters, with their marks and the
    /// letters in `again`. Anything but [`Outcome::Committed`] means that another replay took letters, or
    /// that the schema moved: choose anew.
    pub async fn commit_replay(
        &self,
        flush: &mut Flush<DataFile>,
        chosen: &Chosen,
        again: Vec<DataFile>,
    ) -> Result<Outcome, Error> {
        self.hook.before(Edge::Marks);
        let mut places: Vec<Place> = chosen.places().collect();
        places.sort_unstable();
        let mut files = {
            let log = self.letters.lock().await;
            let mut files = self.encode_letters(&log, mark_batches(&self.config, chosen.number, &places)).await?;
            upload(&log.store, &mut files, &self.hook).await?;
            files
        };
        self.hook.after(Edge::Marks);
        files.extend(again);
        self.commit_flush(flush, Some(&Replay { chosen, files })).await
    }

    /// What the entry of a replay's rows says of its letters. Refuses a table that could not take them.
    pub(crate) async fn name_replay(
        &self,
        rows: &TableLog,
        flush: &Flush<DataFile>,
        replay: &Replay<'_>,
    ) -> Result<NamedLetters, Error> {
        let mut log = self.letters.lock().await;
        log.refresh().await?;
        grown(&log)?;
        let progress = |progress: &PartitionProgress| {
            let Counts { read, rejected, .. } = progress.counts;
            let counts = Counts { read, rejected, filtered: read.saturating_sub(rejected), ..Counts::default() };
            PartitionProgress { counts, ..progress.clone() }
        };
        Ok(NamedLetters {
            mark: self.next_mark(rows, &log),
            partitions: flush.info.partitions.iter().map(progress).collect(),
            files: replay.files.iter().map(Add::from).collect(),
        })
    }

    /// The newest replay, by the rows' log.
    fn replayed(&self, rows: &TableLog) -> Option<ReplayNumber> {
        let id = AppId::replay(&self.config.pipeline, &self.config.topic);
        rows.state()?.positions.get(id.as_str()).copied()
    }
}
