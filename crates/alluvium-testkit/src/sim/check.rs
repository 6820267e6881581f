//! What must hold when a world has come to rest.

use super::processes::Stage;
use super::records::{Fate, Row, counts, difference, fate, rows};
use super::store::Role;
use alluvium_core::audit::{Finding, PartitionProof, audit, audit_letters};
use alluvium_core::position::StartPolicy;
use alluvium_core::{CommitInfo, CommitKind, Partition};
use std::collections::{BTreeMap, BTreeSet};

/// Checks rows, dead letters and log against the topic. When lost data `stopped` the pipeline, not all
/// of the topic was read.
pub fn check(stage: &Stage, stopped: bool) {
    let (world, store) = (&stage.world, &stage.store);
    let pipeline = &stage.scenario.pipeline;
    let mut stored: BTreeMap<Partition, i64> = BTreeMap::new();
    let history = store.history(Role::Rows);
    for (id, version) in history.iter().flat_map(|entry| &entry.transactions) {
        if let Some(partition) = id.rsplit('/').next().and_then(|number| number.parse().ok()) {
            stored.insert(Partition(partition), *version);
        }
    }
    let positions: Vec<_> = stored.iter().map(|(partition, at)| (*partition, *at)).collect();
    let report = audit(&pipeline.id, &pipeline.source.topic, &history, &positions);
    for finding in report.findings.iter().filter(|finding| finding.is_fault()) {
        world.violation(format!("the log: {finding}"));
    }
    let foreign = report.findings.iter().filter(|finding| matches!(finding, Finding::ForeignRows { .. })).count();
    if foreign > 0 {
        world.violation(format!("{foreign} commits of ours are not told as ours"));
    }
    for (partition, position) in stage.published() {
        if stored.get(&partition).is_none_or(|stored| position > *stored) {
            world.violation(format!("partition {partition}: {position} was published before it was committed"));
        }
    }
    let found = Found::of(stage);
    for (place, count) in &found.letters {
        if *count > 1 {
            world.violation(format!("{place:?} is a dead letter {count} times"));
        }
    }
    let mut skipped: Vec<(Partition, i64, i64)> = Vec::new();
    for info in found.commits.iter().filter(|info| info.kind == CommitKind::Skip) {
        skipped.extend(info.partitions.iter().map(|p| (p.partition, p.span.from(), p.span.to())));
    }
    for partition in stage.broker.partitions() {
        let proof = report.partitions.iter().find(|proof| proof.partition == partition);
        check_partition(stage, partition, proof, &skipped, &found, stopped);
    }
    let letters = audit_letters(&pipeline.id, &pipeline.source.topic, &store.history(Role::Letters), &report);
    if !letters.holds() || letters.owed.is_some() {
        world.violation(format!("the dead letters' log: {letters:?}"));
    }
    world.note(format_args!("{:?} in {} commits", report.counts(), report.commits));
}

/// What was ever written to the tables, by partition and offset.
struct Found {
    rows: BTreeMap<(i32, i64), Vec<Row>>,
    letters: BTreeMap<(i32, i64), usize>,
    /// What the commits of rows say of themselves.
    commits: Vec<CommitInfo>,
}

impl Found {
    fn of(stage: &Stage) -> Self {
        let mut found = Self { rows: BTreeMap::new(), letters: BTreeMap::new(), commits: Vec::new() };
        for entry in stage.store.log(Role::Rows).iter() {
            found.commits.extend(entry.info.clone());
            for row in entry.files.iter().flat_map(|file| &file.batches).flat_map(rows) {
                found.rows.entry((row.partition, row.offset)).or_default().push(row);
            }
        }
        for letter in stage.store.log(Role::Letters).iter().flat_map(|entry| &entry.letters) {
            *found.letters.entry((letter.partition.0, letter.offset)).or_default() += 1;
        }
        found
    }
}

fn check_partition(
    stage: &Stage,
    partition: Partition,
    proof: Option<&PartitionProof>,
    skipped: &[(Partition, i64, i64)],
    found: &Found,
    stopped: bool,
) {
    let (world, scenario) = (&stage.world, &stage.scenario);
    let Some(log) = stage.broker.log(partition) else { return };
    let (from, to) = proof.map_or((log.low, log.low), |proof| (proof.from, proof.to));
    if to != log.high && !stopped {
        world.violation(format!("partition {partition} was read to {to}, but it ends at {}", log.high));
    }
    // Only what the start policy or retention left out is not there.
    let earliest = scenario.pipeline.source.start == StartPolicy::Earliest;
    if earliest && !scenario.loses && from != 0 {
        world.violation(format!("partition {partition} was read from {from}"));
    }
    // A choice that a crash could make anew is in the log before the first record is read.
    let of_partition = |info: &&CommitInfo| info.partitions.iter().any(|progress| progress.partition == partition);
    let first = found.commits.iter().find(of_partition).map(|info| info.kind);
    if !earliest && !scenario.loses && from != 0 && first != Some(CommitKind::Start) {
        world.violation(format!("partition {partition} was read from {from}, and the log begins with {first:?}"));
    }
    let is_skipped = |offset| skipped.iter().any(|(p, from, to)| *p == partition && (*from..*to).contains(&offset));
    let mut fates = Vec::new();
    for record in &log.records {
        let offset = record.offset;
        let place = (partition.0, offset);
        let rows = found.rows.get(&place).map_or(&[][..], Vec::as_slice);
        let letters = found.letters.get(&place).copied().unwrap_or(0);
        let expected = match fate(record.value.as_deref(), scenario.treatment) {
            _ if offset < from || offset >= to || is_skipped(offset) => None,
            fate => Some(fate),
        };
        fates.extend(expected);
        let is = (rows.len(), letters);
        let is_right = match expected {
            Some(Fate::Row) => is == (1, 0),
            Some(Fate::Filtered) => is == (0, 0),
            Some(Fate::DeadLetter) => is == (0, 1),
            None => is == (0, 0),
        };
        if !is_right {
            world.violation(format!(
                "{place:?} should be {expected:?}, but there are {} rows and {letters} dead letters",
                rows.len()
            ));
        }
        for row in rows {
            if let Some(difference) = difference(record.value.as_deref().unwrap_or_default(), row) {
                world.violation(format!("{place:?}: {difference}"));
            }
        }
    }
    let offsets: BTreeSet<i64> = log.records.iter().map(|record| record.offset).collect();
    let strangers = found.rows.keys().chain(found.letters.keys());
    for place in strangers.filter(|(of, offset)| *of == partition.0 && !offsets.contains(offset)) {
        world.violation(format!("{place:?} is in a table, but not in the topic"));
    }
    let said = proof.map(|proof| proof.counts).unwrap_or_default();
    if said != counts(fates.into_iter()) {
        world.violation(format!("partition {partition}: the log counts {said:?}, which is not what was there"));
    }
}
