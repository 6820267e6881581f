//! The algebra of spans, counts, positions and commits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_core::audit::{FileChange, Finding, LogEntry, Scan, ScanFinding, audit, audit_letters};
use alluvium_core::chunk::{Header, NO_TIMESTAMP, Record, decode_headers, encode_headers};
use alluvium_core::commit::{Claim, Verdict, judge};
use alluvium_core::position::{Resume, Watermarks, resume, same_topic};
use alluvium_core::{
    AppId, Arrival, Chunk, CommitInfo, CommitKind, Counts, DataType, Packed, Partition, PartitionProgress, PipelineId,
    Records, Span, Standing, TopicId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn pipeline() -> PipelineId {
    PipelineId::new("acme", "orders", 1).unwrap()
}

fn rows_commit(version: u64, spans: &[(i32, i64, i64)]) -> LogEntry {
    let partitions: Vec<_> = spans
        .iter()
        .map(|(partition, from, to)| {
            let read = (to - from) as u64;
            PartitionProgress {
                partition: Partition(*partition),
                span: Span::new(*from, *to).unwrap(),
                counts: Counts { read, kept: read, rows: read, filtered: 0, rejected: 0 },
            }
        })
        .collect();
    let id = |p: &PartitionProgress| AppId::new(&pipeline(), "orders", p.partition).as_str().to_owned();
    LogEntry {
        version,
        transactions: partitions.iter().map(|p| (id(p), p.span.to())).collect(),
        adds: vec![file(&format!("file-{version}"), partitions.iter().map(|p| p.counts.rows).sum())],
        info: Some(CommitInfo {
            format: 1,
            kind: CommitKind::Rows,
            pipeline: "acme/orders".into(),
            generation: 1,
            topic: "orders".into(),
            topic_id: None,
            partitions,
            plugins: vec![],
            plan: None,
            replay: None,
        }),
        ..LogEntry::default()
    }
}

fn file(path: &str, rows: u64) -> FileChange {
    FileChange { path: path.to_owned(), data_change: true, rows: Some(rows), bytes: Some(1) }
}

#[test]
fn commit_info_reads_back_as_written() {
    let info = rows_commit(0, &[(0, 5, 9), (1, 0, 2)]).info.unwrap();
    let json = serde_json::to_string(&info).unwrap();
    assert!(json.contains(r#""partition":0,"from":5,"to":9,"read":4"#), "{json}");
    assert_eq!(serde_json::from_str::<CommitInfo>(&json).unwrap(), info);
}

#[test]
fn audit_holds_for_joined_spans_and_names_what_is_wrong() {
    let id = pipeline();
    let good = [rows_commit(0, &[(0, 0, 10), (1, 3, 4)]), rows_commit(1, &[(0, 10, 12)])];
    let stored = [(Partition(0), 12), (Partition(1), 4)];
    let report = audit(&id, "orders", &good, &stored);
    assert!(report.holds(), "{report:?}");
    assert_eq!(report.counts().read, 13);
    assert_eq!((report.partitions[1].from, report.partitions[1].to), (3, 4));

    let gap = [rows_commit(0, &[(0, 0, 10)]), rows_commit(1, &[(0, 11, 12)])];
    let report = audit(&id, "orders", &gap, &[(Partition(0), 12)]);
    assert_eq!(report.findings, [Finding::Gap { version: 1, partition: Partition(0), from: 10, to: 11 }]);

    let overlap = [rows_commit(0, &[(0, 0, 10)]), rows_commit(1, &[(0, 8, 12)])];
    let report = audit(&id, "orders", &overlap, &[(Partition(0), 12)]);
    assert_eq!(report.findings, [Finding::Overlap { version: 1, partition: Partition(0), from: 8, to: 10 }]);

    let mut doubled = good.clone();
    doubled[1].adds[0].rows = Some(4);
    let report = audit(&id, "orders", &doubled, &stored);
    assert_eq!(report.findings, [Finding::Rows { version: 1, said: 2, found: 4 }]);

    let foreign = LogEntry { version: 2, adds: vec![file("theirs", 7)], ..LogEntry::default() };
    let report = audit(&id, "orders", &[good[0].clone(), good[1].clone(), foreign], &stored);
    assert_eq!(report.findings, [Finding::ForeignRows { version: 2, operation: None, files: 1, rows: Some(7) }]);
    assert!(report.holds());

    let moved =
        LogEntry { version: 2, transactions: vec![("acme/orders/1/orders/0".into(), 99)], ..Default::default() };
    let report = audit(&id, "orders", &[good[0].clone(), good[1].clone(), moved], &[(Partition(0), 99)]);
    assert!(!report.holds());
    assert!(report.findings.iter().any(|finding| matches!(finding, Finding::ForeignPosition { to: 99, .. })));
}

/// Rows that another writer removed are known by the files they lay in, through what was made of those.
#[test]
fn a_scan_tells_what_others_removed_from_what_is_missing() {
    let rewritten = FileChange { data_change: false, ..file("both", 20) };
    let optimize = LogEntry {
        version: 2,
        adds: vec![rewritten.clone()],
        removes: ["file-0", "file-1"].map(|path| FileChange { data_change: false, ..file(path, 10) }).to_vec(),
        ..LogEntry::default()
    };
    let delete = LogEntry { version: 3, removes: vec![file("both", 20)], ..LogEntry::default() };
    let (one, two) = (rows_commit(0, &[(0, 0, 10)]), rows_commit(1, &[(0, 10, 20)]));
    let stored = [(Partition(0), 20)];
    let none = audit_letters(&pipeline(), "orders", &[], &audit(&pipeline(), "orders", &[], &[]));

    let entries = [one.clone(), two.clone(), optimize.clone()];
    let report = audit(&pipeline(), "orders", &entries, &stored);
    assert!(report.holds() && report.findings.is_empty(), "{report:?}");
    let scan = Scan::new(&report, &none).finish();
    assert_eq!((scan.missing, scan.removed), (20, 0), "nobody may have removed them");

    let entries = [one, two, optimize, delete, rows_commit(4, &[(0, 20, 22)])];
    let report = audit(&pipeline(), "orders", &entries, &[(Partition(0), 22)]);
    let mut scan = Scan::new(&report, &none);
    scan.row(Partition(0), 21, 0);
    scan.row(Partition(0), 21, 1);
    let scan = scan.finish();
    assert_eq!((scan.missing, scan.removed), (1, 20), "{scan:?}");
    let missing = ScanFinding::Records { version: 4, partition: Partition(0), from: 20, to: 22, said: 2, found: 1 };
    assert_eq!(scan.findings, [missing]);
}

/// What is said of records by letters at these offsets.
fn standings(letters: &[i64]) -> BTreeMap<i64, Standing> {
    let mut standings: BTreeMap<i64, Standing> = BTreeMap::new();
    for offset in letters {
        standings.entry(*offset).or_default().letter(0);
    }
    standings
}

#[test]
fn a_scan_names_what_is_there_twice_or_not_at_all() {
    let mut entry = rows_commit(0, &[(0, 0, 4)]);
    let counts = &mut entry.info.as_mut().unwrap().partitions[0].counts;
    *counts = Counts { read: 4, kept: 2, rows: 3, filtered: 1, rejected: 1 };
    let mut letters = rows_commit(0, &[(0, 0, 4)]);
    let info = letters.info.as_mut().unwrap();
    info.kind = CommitKind::DeadLetters;
    info.partitions[0].counts = Counts { read: 1, rejected: 1, ..Counts::default() };
    letters.adds[0].rows = Some(1);
    let report = audit(&pipeline(), "orders", &[entry], &[(Partition(0), 4)]);
    let letters = audit_letters(&pipeline(), "orders", &[letters], &report);
    let scan = |rows: &[(i64, i32)], offsets: &[i64]| {
        let mut scan = Scan::new(&report, &letters);
        rows.iter().for_each(|(offset, number)| scan.row(Partition(0), *offset, *number));
        standings(offsets).into_iter().for_each(|(offset, standing)| scan.letter((Partition(0), offset), standing));
        scan.finish()
    };
    // Whatever the order of the rows of one record.
    assert!(scan(&[(0, 1), (0, 0), (2, 0)], &[3]).holds());
    let (partition, version, from, to) = (Partition(0), 0, 0, 4);
    let cases = [
        (scan(&[(0, 0), (0, 0), (0, 1), (2, 0)], &[3]), ScanFinding::Doubled { partition, offset: 0, row: 0 }),
        (scan(&[(0, 0), (0, 1), (2, 0)], &[3, 3]), ScanFinding::LetterDoubled { partition, offset: 3 }),
        (scan(&[(0, 0), (0, 1), (2, 0)], &[2]), ScanFinding::Both { partition, offset: 2 }),
        (scan(&[(0, 0), (0, 1), (2, 0), (9, 0)], &[3]), ScanFinding::Stray { partition, offset: 9 }),
        (scan(&[(0, 0), (0, 1)], &[3]), ScanFinding::Records { version, partition, from, to, said: 2, found: 1 }),
        (scan(&[(0, 0), (2, 0)], &[3]), ScanFinding::Rows { version, partition, from, to, said: 3, found: 2 }),
        (
            scan(&[(0, 0), (0, 1), (2, 0)], &[]),
            ScanFinding::Letters { version, partition, from, to, said: 1, found: 0 },
        ),
        (
            scan(&[(0, 0), (1, 0), (2, 0)], &[3]),
            ScanFinding::Records { version, partition, from, to, said: 2, found: 3 },
        ),
    ];
    for (report, finding) in cases {
        assert!(!report.holds(), "{finding}");
        assert_eq!(report.findings, [finding]);
    }
}

/// A commit of rows that names letters, or the commit of those letters.
fn letters_commit(kind: CommitKind, version: u64, span: (i64, i64), mark: i64) -> LogEntry {
    let mut entry = rows_commit(version, &[(0, span.0, span.1)]);
    let id = AppId::dead_letters(&pipeline(), "orders").as_str().to_owned();
    entry.transactions.push((id, mark));
    let info = entry.info.as_mut().unwrap();
    info.kind = kind;
    let kept = if kind == CommitKind::Rows { (span.1 - span.0) as u64 - 1 } else { 0 };
    info.partitions[0].counts = Counts { read: kept + 1, kept, rows: kept, filtered: 0, rejected: 1 };
    entry.adds[0].rows = Some(if kind == CommitKind::Rows { kept } else { 1 });
    entry
}

#[test]
fn letters_are_there_or_owed() {
    let rows = [letters_commit(CommitKind::Rows, 0, (0, 4), 0), letters_commit(CommitKind::Rows, 1, (4, 7), 1)];
    let letters = [(0, (0, 4)), (1, (4, 7)), (2, (7, 9))]
        .map(|(mark, span)| letters_commit(CommitKind::DeadLetters, mark as u64, span, mark));
    let log = audit(&pipeline(), "orders", &rows, &[(Partition(0), 7)]);
    assert!(log.holds(), "{log:?}");
    let check = |letters: &[LogEntry]| audit_letters(&pipeline(), "orders", letters, &log);
    for (count, owed) in [(1, Some(1)), (2, None)] {
        let report = check(&letters[..count]);
        assert!(report.holds(), "{report:?}");
        assert_eq!((report.owed, report.partitions[0].owed), (owed, owed.map_or(0, |_| 1)));
    }
    // Written after the rows' log was read.
    let later = check(&letters);
    assert!(later.holds() && later.owed.is_none() && later.partitions[0].letters == 2, "{later:?}");
    // Only the newest commit's letters may still be on their way.
    assert_eq!(check(&[]).wrong().count(), 1);
    let mut second = letters[1].clone();
    second.version = 0;
    assert_eq!(check(&[second]).wrong().count(), 1);

    let scanned = |letters: &[LogEntry], offsets: &[i64]| {
        let letters = check(letters);
        let mut scan = Scan::new(&log, &letters);
        [0, 1, 2, 4, 5].iter().for_each(|offset| scan.row(Partition(0), *offset, 0));
        standings(offsets).into_iter().for_each(|(offset, standing)| scan.letter((Partition(0), offset), standing));
        scan.finish()
    };
    assert!(scanned(&letters[..1], &[3]).holds());
    assert!(scanned(&letters[..2], &[3, 6]).holds());
    assert!(!scanned(&letters[..2], &[3]).holds());
}

/// A replay of letters of partition 0, offsets [from, to).
fn replay_commit(version: u64, number: i64, (from, to): (i64, i64), counts: Counts) -> LogEntry {
    let mut entry = rows_commit(version, &[(0, from, to)]);
    let info = entry.info.as_mut().unwrap();
    (info.kind, info.replay) = (CommitKind::Replay, Some(number));
    info.partitions[0].counts = counts;
    entry.adds[0].rows = Some(counts.rows);
    let mark = AppId::dead_letters(&pipeline(), "orders").as_str().to_owned();
    entry.transactions = vec![(AppId::replay(&pipeline(), "orders").as_str().to_owned(), number), (mark, 10 + number)];
    entry
}

/// Ten records, four of them rejected, and their letters.
fn four_letters() -> [LogEntry; 2] {
    let mut rows = letters_commit(CommitKind::Rows, 0, (0, 10), 0);
    let counts = Counts { read: 10, kept: 6, rows: 6, filtered: 0, rejected: 4 };
    (rows.info.as_mut().unwrap().partitions[0].counts, rows.adds[0].rows) = (counts, Some(6));
    let mut letters = letters_commit(CommitKind::DeadLetters, 0, (0, 10), 0);
    letters.info.as_mut().unwrap().partitions[0].counts = Counts { read: 4, rejected: 4, ..Counts::default() };
    letters.adds[0].rows = Some(4);
    [rows, letters]
}

#[test]
fn replays_tell_what_became_of_the_records_in_the_end() {
    let [first, letters] = four_letters();
    let again = Counts { read: 4, kept: 2, rows: 5, filtered: 1, rejected: 1 };
    let audited = |entries: &[LogEntry]| audit(&pipeline(), "orders", entries, &[(Partition(0), 10)]);
    let log = audited(&[first.clone(), replay_commit(1, 3, (2, 9), again)]);
    assert!(log.holds(), "{log:?}");
    assert_eq!((log.replay, log.partitions[0].replayed), (Some(3), 4));
    assert_eq!(log.counts(), Counts { read: 10, kept: 8, rows: 11, filtered: 1, rejected: 1 });

    // Before its marks are written, and after.
    let mut marks = replay_commit(1, 3, (2, 9), again);
    marks.info.as_mut().unwrap().kind = CommitKind::DeadLetters;
    marks.adds[0].rows = Some(5);
    for (entries, owed) in [(vec![letters.clone()], Some(1)), (vec![letters.clone(), marks.clone()], None)] {
        let report = audit_letters(&pipeline(), "orders", &entries, &log);
        assert!(report.holds() && report.findings.is_empty() && report.owed == owed, "{report:?}");
    }
    let lost = LogEntry { adds: vec![file("marks", 4)], ..marks };
    assert!(!audit_letters(&pipeline(), "orders", &[letters, lost], &log).holds());

    let one = Counts { read: 1, kept: 1, rows: 1, filtered: 0, rejected: 0 };
    let changed = |change: fn(&mut LogEntry)| {
        let mut entry = replay_commit(1, 1, (2, 9), again);
        change(&mut entry);
        vec![entry]
    };
    let wrong = [
        ("more than was rejected", vec![replay_commit(1, 1, (0, 9), Counts { read: 6, kept: 6, rows: 6, ..one })]),
        ("not above the one before", vec![replay_commit(1, 2, (2, 3), one), replay_commit(2, 2, (3, 4), one)]),
        ("no number", changed(|entry| entry.transactions.clear())),
        ("other rows", changed(|entry| entry.adds[0].rows = Some(4))),
        ("a stranger's", changed(|entry| entry.info = None)),
    ];
    for (what, replays) in wrong {
        let entries: Vec<LogEntry> = std::iter::once(first.clone()).chain(replays).collect();
        assert!(!audited(&entries).holds(), "{what}");
    }
    // The letters' own flush was cleaned up with the old part of the log: nothing is said of them.
    let entries = [rows_commit(40, &[(0, 10, 12)]), replay_commit(41, 1, (2, 9), again)];
    let report = audit(&pipeline(), "orders", &entries, &[(Partition(0), 12)]);
    assert!(report.holds(), "{report:?}");
    assert_eq!((report.unplaced.kept, report.counts().kept), (2, 2));
}

/// The rows and letters of a table with a replay, and each way in which one can be wrong.
#[test]
fn a_scan_knows_replayed_letters() {
    let [first, letters] = four_letters();
    let again = Counts { read: 3, kept: 1, rows: 1, filtered: 1, rejected: 1 };
    let log = audit(&pipeline(), "orders", &[first, replay_commit(1, 1, (6, 9), again)], &[(Partition(0), 10)]);
    let owed = audit_letters(&pipeline(), "orders", std::slice::from_ref(&letters), &log);
    let mut marks = replay_commit(1, 1, (6, 9), again);
    marks.info.as_mut().unwrap().kind = CommitKind::DeadLetters;
    let done = audit_letters(&pipeline(), "orders", &[letters, marks], &log);
    // Letters were 6 to 9; of the replayed ones 6 is a row, 7 is filtered, 8 was rejected again.
    let standing = |letter: i64, mark: Option<i64>| {
        let mut standing = Standing::default();
        standing.letter(letter);
        mark.into_iter().for_each(|mark| standing.mark(mark));
        standing
    };
    let (open, taken, open_again) = (standing(0, None), standing(0, Some(1)), standing(1, Some(1)));
    let scan = |report, rows: &[i64], letters: [Standing; 4]| {
        let mut scan = Scan::new(&log, report);
        rows.iter().for_each(|offset| scan.row(Partition(0), *offset, 0));
        (6..10).zip(letters).for_each(|(offset, standing)| scan.letter((Partition(0), offset), standing));
        scan.finish()
    };
    let all = [0, 1, 2, 3, 4, 5, 6];
    let right = [taken, taken, open_again, open];
    for (report, letters) in [(&done, right), (&owed, [open; 4])] {
        let scan = scan(report, &all, letters);
        assert!(scan.holds(), "{scan:?}");
    }
    let wrong = [
        ("no row", scan(&done, &all[..6], right)),
        ("a row too many", scan(&done, &[0, 1, 2, 3, 4, 5, 6, 7], right)),
        ("a row of an open letter", scan(&done, &[0, 1, 2, 3, 4, 5, 8], right)),
        ("another row", scan(&done, &[0, 1, 2, 3, 4, 6], right)),
        ("a letter lost", scan(&done, &all, [taken, taken, open_again, Standing::default()])),
        ("a mark lost", scan(&done, &all, [open, taken, open_again, open])),
    ];
    for (what, report) in wrong {
        assert!(!report.holds(), "{what}: {report:?}");
    }
}

/// A letter is open until a mark, and again after the next rejection, in whatever order that is read.
#[test]
fn letters_stand_by_their_numbers() {
    let cases: [(&[(bool, i64)], bool); 6] = [
        (&[], false),
        (&[(false, 0)], true),
        (&[(false, 0), (true, 1)], false),
        (&[(false, 0), (true, 1), (false, 1)], true),
        (&[(false, 0), (true, 1), (false, 1), (true, 4)], false),
        (&[(false, 0), (true, 1), (false, 1), (true, 4), (false, 4)], true),
    ];
    for (rows, is_open) in cases {
        let of = |rows: &mut dyn Iterator<Item = &(bool, i64)>| {
            let mut standing = Standing::default();
            for (is_mark, number) in rows {
                if *is_mark {
                    standing.mark(*number);
                } else {
                    standing.letter(*number);
                }
            }
            standing
        };
        let standing = of(&mut rows.iter());
        assert_eq!(standing.is_open(), is_open, "{rows:?}");
        assert_eq!(standing, of(&mut rows.iter().rev()), "{rows:?}");
    }
    assert!(standings(&[3, 3])[&3].is_doubled());
}

#[test]
fn a_file_that_is_added_again_is_named() {
    let mut again = rows_commit(1, &[(0, 10, 20)]);
    again.adds[0].path = "file-0".to_owned();
    let report = audit(&pipeline(), "orders", &[rows_commit(0, &[(0, 0, 10)]), again], &[(Partition(0), 20)]);
    assert_eq!(report.findings, [Finding::FileAgain { version: 1, path: "file-0".to_owned(), first: 0 }]);
    assert!(!report.holds());
}

#[test]
fn audit_says_from_where_it_can_prove() {
    let entries = [rows_commit(40, &[(0, 100, 110)])];
    let report = audit(&pipeline(), "orders", &entries, &[(Partition(0), 110), (Partition(1), 7)]);
    assert!(report.holds(), "{report:?}");
    assert_eq!(report.first_version, 40);
    assert_eq!(report.partitions[0].from, 100);
    assert_eq!(report.partitions[1].from, 7);
}

#[test]
fn app_ids_keep_pipelines_apart() {
    assert_eq!(AppId::new(&pipeline(), "orders", Partition(3)).as_str(), "acme/orders/1/orders/3");
    for name in ["", "a/b", "a b", "ä"] {
        assert!(PipelineId::new("acme", name, 1).is_err(), "{name}");
    }
}

#[test]
fn types_read_back_as_written() {
    for text in [
        "bigint",
        "decimal(38,18)",
        "array<struct<sku:string,qty:int,price:decimal(10,2)>>",
        "map<string,array<timestamp_ntz>>",
        "struct<`a b`:binary,`c``d`:date>",
    ] {
        let parsed = DataType::parse(text).unwrap();
        assert_eq!(parsed.to_string(), text);
        assert_eq!(DataType::from_arrow(&parsed.to_arrow()), Some(parsed));
    }
    assert_eq!(DataType::parse(" ARRAY < LONG > ").unwrap().to_string(), "array<bigint>");
    for (text, at) in
        [("strin", 0), ("array<>", 6), ("decimal(39,1)", 0), ("struct<a:int,A:int>", 13), ("int int", 4), ("", 0)]
    {
        assert_eq!(DataType::parse(text).unwrap_err().at, at, "{text}");
    }
    let deep = "array<".repeat(200) + "int" + &">".repeat(200);
    assert!(DataType::parse(&deep).unwrap_err().message.contains("128"));
}

fn claim(from: i64, to: i64, stored: Option<i64>, may_be_absent: bool) -> Claim {
    Claim { partition: Partition(0), span: Span::new(from, to).unwrap(), stored, may_be_absent }
}

#[test]
fn judgement_of_single_partitions() {
    assert_eq!(judge(&[claim(5, 9, Some(5), false)]), Verdict::Proceed);
    assert_eq!(judge(&[claim(5, 9, Some(9), false)]), Verdict::AlreadyCommitted);
    assert_eq!(judge(&[claim(5, 9, None, true)]), Verdict::Proceed);
    assert_eq!(judge(&[claim(5, 5, None, true)]), Verdict::Proceed);
    assert_eq!(judge(&[claim(5, 5, Some(5), true)]), Verdict::AlreadyCommitted);
    assert_eq!(judge(&[claim(5, 5, Some(5), true), claim(3, 3, None, true)]), Verdict::Proceed);
    for stored in [None, Some(4), Some(6), Some(10)] {
        let found = vec![(Partition(0), stored)];
        assert_eq!(judge(&[claim(5, 9, stored, false)]), Verdict::Fenced { found });
    }
}

/// Two workers that may both believe they own a partition, each with a copy of an old position:
/// judged against the table's position, every offset is committed once and in order.
fn committed_once(steps: &[(bool, bool, u8)]) {
    let mut stored = 0i64;
    let mut committed = Vec::new();
    let mut workers = [0i64, 0i64];
    for (second, outcome_lost, length) in steps {
        let from = workers[usize::from(*second)];
        let span = Span::new(from, from + i64::from(*length)).unwrap();
        let judged = judge(&[Claim { partition: Partition(0), span, stored: Some(stored), may_be_absent: false }]);
        match judged {
            Verdict::Proceed => {
                stored = span.to();
                committed.push(span);
                if *outcome_lost {
                    continue; // It landed, but the worker does not know: it will offer the span again.
                }
                workers[usize::from(*second)] = span.to();
            }
            Verdict::AlreadyCommitted => workers[usize::from(*second)] = span.to(),
            Verdict::Fenced { found } => workers[usize::from(*second)] = found[0].1.unwrap(),
        }
    }
    let mut at = 0;
    for span in committed {
        assert_eq!(span.from(), at);
        at = span.to();
    }
    assert_eq!(at, stored);
}

proptest! {
    #[test]
    fn racing_workers_commit_each_offset_once(steps in prop::collection::vec(any::<(bool, bool, u8)>(), 0..60)) {
        committed_once(&steps);
    }

    #[test]
    fn spans_join_only_without_gap(a in 0i64..100, b in 0i64..100, c in 0i64..100, d in 0i64..100) {
        if let (Ok(first), Ok(second)) = (Span::new(a, b), Span::new(c, d)) {
            match first.join(second) {
                Ok(joined) => {
                    prop_assert_eq!(b, c);
                    for offset in 0..100 {
                        prop_assert_eq!(joined.contains(offset), first.contains(offset) || second.contains(offset));
                        prop_assert!(!(first.contains(offset) && second.contains(offset)));
                    }
                }
                Err(_) => prop_assert_ne!(b, c),
            }
        }
    }

    #[test]
    fn packed_reads_back(values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0..40)) {
        let packed: Packed = values.iter().map(|value| value.as_deref()).collect();
        prop_assert_eq!(packed.len(), values.len());
        for (index, value) in values.iter().enumerate() {
            prop_assert_eq!(packed.get(index), value.as_deref());
            prop_assert_eq!(packed.is_null(index), value.is_none());
            prop_assert_eq!(&packed.data()[packed.range(index)], value.as_deref().unwrap_or_default());
        }
        prop_assert_eq!(packed.get(values.len()), None);
    }

    #[test]
    fn headers_read_back_and_cut_ones_do_not_panic(
        headers in prop::collection::vec((".{0,5}", prop::option::of(prop::collection::vec(any::<u8>(), 0..9))), 0..6),
        cut in 0usize..60,
    ) {
        let mut packed = Vec::new();
        let borrowed = |(key, value): &(String, Option<Vec<u8>>)| (key.clone(), value.clone());
        let wanted: Vec<_> = headers.iter().map(borrowed).collect();
        encode_headers(wanted.iter().map(|(key, value)| Header { key, value: value.as_deref() }), &mut packed);
        let found: Vec<_> =
            decode_headers(&packed).iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect();
        prop_assert_eq!(found, wanted);
        decode_headers(&packed[..cut.min(packed.len())]);
    }

    #[test]
    fn chunks_hold_their_records_in_order(offsets in prop::collection::vec(0i64..30, 0..8), from in 0i64..30, length in 0i64..30) {
        let mut records = Records::default();
        for offset in &offsets {
            let record = Record { offset: *offset, timestamp: NO_TIMESTAMP, key: None, value: Some(b"x"), headers: None };
            records.push(record).unwrap();
        }
        let span = Span::new(from, from + length).unwrap();
        let rising = offsets.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = offsets.iter().all(|offset| span.contains(*offset));
        prop_assert_eq!(Chunk::new(Partition(0), span, records).is_ok(), rising && inside);
    }

    #[test]
    fn a_cut_chunk_holds_the_records_from_there_on(count in 0i64..8, from in 0i64..10, at in 0i64..25) {
        let mut records = Records::default();
        for offset in (0..count).map(|n| from + 2 * n) {
            records.push(Record { offset, timestamp: offset, key: None, value: Some(b"x"), headers: None }).unwrap();
        }
        let span = Span::new(from, from + 2 * count).unwrap();
        let chunk = Chunk::new(Partition(0), span, records).unwrap();
        let kept: Vec<i64> = chunk.records().offsets().iter().copied().filter(|offset| *offset >= at).collect();
        match chunk.arrive(at) {
            Arrival::Next(cut) => {
                prop_assert_eq!(cut.span(), Span::new(at, span.to()).unwrap());
                prop_assert_eq!(cut.records().offsets(), kept);
            }
            Arrival::Gap => prop_assert!(at < span.from()),
            Arrival::Known => prop_assert!(at >= span.to() && at > span.from()),
        }
    }

    #[test]
    fn resume_never_starts_outside_the_broker(stored in prop::option::of(0i64..50), low in 0i64..50, length in 0i64..50) {
        let watermarks = Watermarks { low, high: low + length };
        match resume(stored, watermarks) {
            Resume::At(at) => prop_assert!(Some(at) == stored && low <= at && at <= low + length),
            Resume::Choose => prop_assert_eq!(stored, None),
            Resume::Lost { stored, low } => prop_assert!(stored < low),
            Resume::Beyond { stored, high } => prop_assert!(stored > high),
        }
    }

    #[test]
    fn types_never_panic(text in ".{0,40}") {
        if let Ok(parsed) = DataType::parse(&text) {
            prop_assert_eq!(DataType::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }
}

#[test]
fn topic_ids_are_spelled_as_kafka_does_and_zero_is_none() {
    let id = |most, least| TopicId::from_halves(most, least).map(|id| id.to_string());
    assert_eq!(id(0, 0), None);
    assert_eq!(id(0, 1).as_deref(), Some("AAAAAAAAAAAAAAAAAAAAAQ"));
    assert_eq!(id(u64::MAX, u64::MAX).as_deref(), Some("_____________________w"));
    // The bytes 0, 1, … 15.
    assert_eq!(id(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f).as_deref(), Some("AAECAwQFBgcICQoLDA0ODw"));
}

#[test]
fn a_position_is_read_on_in_its_own_topic_alone() {
    let (one, two) = (TopicId::from_halves(1, 2).unwrap(), TopicId::from_halves(1, 3).unwrap());
    for (stored, found) in [(None, None), (None, Some(&one)), (Some(&one), None), (Some(&one), Some(&one))] {
        assert_eq!(same_topic("orders", stored, found), Ok(()));
    }
    let told = same_topic("orders", Some(&one), Some(&two)).unwrap_err().to_string();
    assert!(told.contains(&one.to_string()) && told.contains(&two.to_string()), "{told}");
}

#[test]
fn the_audit_names_commits_of_another_topic() {
    let id = |least| TopicId::from_halves(7, least);
    let mut entries: Vec<_> =
        (0..5).map(|version| rows_commit(version, &[(0, version as i64, version as i64 + 1)])).collect();
    for (entry, topic_id) in entries.iter_mut().zip([None, id(1), None, id(1), id(2)]) {
        entry.info.as_mut().unwrap().topic_id = topic_id;
    }
    let report = audit(&pipeline(), "orders", &entries[..4], &[(Partition(0), 4)]);
    assert_eq!(report.findings, []);
    let report = audit(&pipeline(), "orders", &entries, &[(Partition(0), 5)]);
    let finding = Finding::Topic { version: 4, before: id(1).unwrap(), after: id(2).unwrap() };
    assert!(finding.is_fault());
    assert_eq!(report.findings, [finding]);
}
