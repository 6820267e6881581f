//! Reading the dead letters' table.

use crate::config::DeltaConfig;
use crate::error::Error;
use crate::letter_rows::{Letter, RowHead, Rows, columns};
use crate::load::with_snapshot;
use crate::scan::{Batches, Scan, between, scan};
use crate::store::TableStore;
use alluvium_core::{Partition, Place, Span, Standing};
use buoyant_kernel as kernel;
use kernel::{Engine, SnapshotRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Which letters: those that have all that is named here.
#[derive(Clone, Debug, Default)]
pub struct LetterFilter {
    pub reason: Option<String>,
    /// The beginning of a plugin's digest, with or without `sha256:`.
    pub plugin: Option<String>,
    pub partition: Option<Partition>,
    pub offsets: Option<Span>,
}

impl LetterFilter {
    fn matches(&self, head: &RowHead<'_>) -> bool {
        let (partition, offset) = head.place;
        let is_of_plugin = |wanted: &String| {
            let digest = head.plugin.unwrap_or_default();
            digest.starts_with(wanted) || digest.strip_prefix("sha256:").is_some_and(|hex| hex.starts_with(wanted))
        };
        self.reason.as_ref().is_none_or(|reason| reason == head.reason)
            && self.plugin.as_ref().is_none_or(is_of_plugin)
            && self.partition.is_none_or(|wanted| wanted == partition)
            && self.offsets.is_none_or(|span| span.contains(offset))
    }
}

/// What the table says of a record, and whether its newest letter passes the filter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub standing: Standing,
    pub matches: bool,
}

/// What a version of the table (or the newest) says of each record of the pipeline, from the offset `oldest`
/// on. Holds about 100 bytes a record in memory, and no record's value.
pub(crate) async fn standings(
    store: &TableStore,
    version: Option<u64>,
    config: &DeltaConfig,
    filter: &LetterFilter,
    oldest: i64,
) -> Result<HashMap<Place, Entry>, Error> {
    let (config, filter) = (config.clone(), filter.clone());
    let pipeline = config.pipeline.to_string();
    with_snapshot(store, version, move |snapshot, engine| {
        let mut found: HashMap<Place, Entry> = HashMap::new();
        for batch in open(snapshot, engine, false, (oldest, i64::MAX))? {
            let batch = batch?;
            let rows = Rows::new(&batch).ok_or_else(other_types)?;
            let own = (0..rows.len()).filter_map(|row| rows.own(row, &config, &pipeline));
            for head in own.filter(|head| head.place.1 >= oldest) {
                let entry = found.entry(head.place).or_default();
                if head.is_mark {
                    entry.standing.mark(head.number);
                } else if entry.standing.letter(head.number) {
                    entry.matches = filter.matches(&head);
                }
            }
        }
        Ok(found)
    })
    .await
}

/// The letters that `select` takes, by place and number, batch by batch and in no order. Those outside of
/// the offsets `[oldest, newest]` may be left out.
pub(crate) fn letters(
    store: &TableStore,
    config: &DeltaConfig,
    (oldest, newest): (i64, i64),
    mut select: impl FnMut(Place, i64) -> bool + Send + 'static,
) -> Scan<Letter> {
    let config = config.clone();
    let pipeline = config.pipeline.to_string();
    Scan::start(store, None, move |snapshot, engine, send| {
        for batch in open(snapshot, engine, true, (oldest, newest))? {
            let batch = batch?;
            let rows = Rows::new(&batch).ok_or_else(other_types)?;
            let mut found = Vec::new();
            for row in 0..rows.len() {
                let Some(head) = rows.own(row, &config, &pipeline) else { continue };
                if !head.is_mark && select(head.place, head.number) {
                    found.push(rows.letter(row, &head).ok_or_else(other_types)?);
                }
            }
            if !found.is_empty() && !send(found) {
                break;
            }
        }
        Ok(Ok(()))
    })
}

fn open(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    whole: bool,
    (oldest, newest): (i64, i64),
) -> kernel::DeltaResult<Batches> {
    // A table of an older version has no numbers yet.
    let names: Vec<_> = columns(whole).into_iter().filter(|name| snapshot.schema().contains(name)).collect();
    let schema = snapshot.schema().project(&names)?;
    scan(snapshot, engine, schema, Some(between("offset", oldest, newest)))
}

fn other_types() -> kernel::Error {
    kernel::Error::generic("columns of the dead letters are missing, or have other types than their schema")
}
