//! Every kind of commit against every kind of fault: each is settled from the log, once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Flush, Outcome, Table};
use alluvium_core::{Classified, ErrorClass, Hook};
use alluvium_delta::{DataFile, DeltaSink, Error, TableRole};
use common::faulty::{Fault, FaultyStore, On};
use common::*;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A commit with the log entry that the fault is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Creation,
    Data,
    LettersCreation,
    Letters,
    Schema,
    LettersSchema,
}

const KINDS: [Kind; 6] =
    [Kind::Creation, Kind::Data, Kind::LettersCreation, Kind::Letters, Kind::Schema, Kind::LettersSchema];

struct Case {
    store: Arc<FaultyStore>,
    sink: DeltaSink,
    flush: Flush<DataFile>,
    /// The entry that the fault is for.
    entry: &'static str,
    rows: Vec<(i32, i64, i64)>,
    letters: Vec<(i32, i64, i64)>,
}

impl Case {
    async fn new(kind: Kind) -> Self {
        let store = FaultyStore::new(Arc::new(InMemory::new()));
        let object_store: Arc<dyn ObjectStore> = store.clone();
        let sink = open(&object_store).await;
        let (rows_0, rows_1) = ("rows/_delta_log/00000000000000000000", "rows/_delta_log/00000000000000000001");
        let (letters_0, letters_1) =
            ("letters/_delta_log/00000000000000000000", "letters/_delta_log/00000000000000000001");
        let first = |sink: &DeltaSink| flush(sink, &[(0, 0, 3)]);
        match kind {
            Kind::Creation => {
                let flush = first(&sink);
                Self { store, sink, flush, entry: rows_0, rows: vec![(0, 0, 3)], letters: vec![] }
            }
            Kind::Data => {
                sink.commit(&mut first(&sink)).await.unwrap();
                let flush = flush(&sink, &[(0, 3, 5), (1, 0, 2)]);
                Self { store, sink, flush, entry: rows_1, rows: vec![(0, 0, 5), (1, 0, 2)], letters: vec![] }
            }
            Kind::LettersCreation => {
                let flush = with_letters(&sink, (0, 0, 3), &[2]);
                Self { store, sink, flush, entry: letters_0, rows: vec![(0, 0, 2)], letters: vec![(0, 2, 3)] }
            }
            Kind::Letters => {
                sink.commit(&mut with_letters(&sink, (0, 0, 3), &[2])).await.unwrap();
                let flush = with_letters(&sink, (0, 3, 6), &[5]);
                let letters = vec![(0, 2, 3), (0, 5, 6)];
                Self { store, sink, flush, entry: letters_1, rows: vec![(0, 0, 2), (0, 3, 5)], letters }
            }
            Kind::Schema => {
                sink.commit(&mut first(&sink)).await.unwrap();
                let flush = wider(&sink, (0, 3, 5));
                Self { store, sink, flush, entry: rows_1, rows: vec![(0, 0, 5)], letters: vec![] }
            }
            Kind::LettersSchema => {
                narrow_letters(&object_store).await;
                let flush = with_letters(&sink, (0, 0, 3), &[2]);
                Self { store, sink, flush, entry: letters_1, rows: vec![(0, 0, 2)], letters: vec![(0, 2, 3)] }
            }
        }
    }

    async fn check(&self, context: &str) {
        self.store.clear();
        assert_eq!(offsets(&self.sink).await, once(&self.rows), "{context}");
        assert_eq!(letters(&self.sink).await, once(&self.letters), "{context}");
        for role in [TableRole::Rows, TableRole::DeadLetters] {
            let history = self.sink.reader().history(role).await.unwrap();
            let mut seen = HashMap::new();
            for commit in &history {
                for (id, version) in &commit.entry.transactions {
                    let before = seen.insert(id.clone(), *version);
                    assert!(before.is_none_or(|before| before < *version), "{context}: {id} twice at {version}");
                }
            }
        }
    }
}

/// A flush whose rows have a column more than the table.
fn wider(sink: &DeltaSink, (partition, from, to): (i32, i64, i64)) -> Flush<DataFile> {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let columns = vec![kafka_column(partition, from, to), numbers];
    let batch = RecordBatch::try_new(schema(&[("number", "bigint")]), columns).unwrap();
    flush_of(sink, &[(partition, from, to)], &[batch])
}

/// A dead letters' table that lacks the last columns.
async fn narrow_letters(store: &Arc<dyn ObjectStore>) {
    use deltalake::kernel::{DataType, PrimitiveType};
    use deltalake::logstore::{StorageConfig, logstore_with};
    let url = url::Url::parse(LETTERS).unwrap();
    let log = logstore_with(store.clone(), &url, StorageConfig::default()).unwrap();
    let columns =
        [("topic", PrimitiveType::String), ("partition", PrimitiveType::Integer), ("offset", PrimitiveType::Long)];
    let mut create = deltalake::operations::create::CreateBuilder::new().with_log_store(log);
    for (name, data_type) in columns {
        create = create.with_column(name, DataType::Primitive(data_type), true, None);
    }
    create.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_commit_is_settled_after_every_fault() {
    for kind in KINDS {
        for fault in Fault::OF_AN_ENTRY {
            let context = format!("{kind:?}, {fault:?}");
            let mut case = Case::new(kind).await;
            case.store.fail_puts(case.entry, fault, 1);
            let first = case.sink.commit(&mut case.flush).await;
            let landed = !matches!(fault, Fault::Fails | Fault::Hangs | Fault::FailsThenLands);
            match first {
                Ok(outcome) => {
                    assert!(landed && matches!(outcome, Outcome::Committed { .. }), "{context}: {outcome:?}")
                }
                Err(error) => {
                    assert!(!landed, "{context}: {error:?}");
                    assert_eq!(error.class(), ErrorClass::External, "{context}: {error:?}");
                    let outcome = case.sink.commit(&mut case.flush).await.unwrap();
                    // The rows are in before their letters fail.
                    let rows_are_in = matches!(kind, Kind::LettersCreation | Kind::Letters | Kind::LettersSchema);
                    let expected = matches!(outcome, Outcome::AlreadyCommitted) == rows_are_in;
                    assert!(expected && outcome.holds(), "{context}: {outcome:?}");
                }
            }
            // What was on its way lands now, or finds its place taken.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(case.sink.commit(&mut case.flush).await.unwrap(), Outcome::AlreadyCommitted, "{context}");
            case.check(&context).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_lands_after_its_error_is_found_by_the_next_try() {
    for kind in KINDS {
        let context = format!("{kind:?}");
        let mut case = Case::new(kind).await;
        case.store.fail_puts(case.entry, Fault::FailsThenLands, 1);
        let error = case.sink.commit(&mut case.flush).await.unwrap_err();
        assert!(matches!(error, Error::WriteLog { .. }), "{context}: {error:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let outcome = case.sink.commit(&mut case.flush).await.unwrap();
        assert!(is_committed(&outcome), "{context}: {outcome:?}");
        case.check(&context).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_read_yet_is_told_as_such_and_settled_later() {
    for kind in KINDS {
        let context = format!("{kind:?}");
        let mut case = Case::new(kind).await;
        let entry = case.entry;
        let mut put = false;
        // The entry lands; from then on nothing can be read.
        case.store.set_rule(move |on, path| {
            let hit = on == On::Put && path.as_ref().contains(entry);
            put |= hit;
            if hit { Some(Fault::LandsThenFails) } else { (put && on != On::Put).then_some(Fault::Fails) }
        });
        let error = case.sink.commit(&mut case.flush).await.unwrap_err();
        assert!(matches!(error, Error::Unsettled { .. }), "{context}: {error:?}");
        case.store.clear();
        let outcome = case.sink.commit(&mut case.flush).await.unwrap();
        assert!(is_committed(&outcome), "{context}: {outcome:?}");
        case.check(&context).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_writer_in_the_unsettled_place_decides_by_its_positions() {
    // Our entry hangs and never lands; meanwhile another owner commits the same partition.
    let mut case = Case::new(Kind::Data).await;
    let object_store: Arc<dyn ObjectStore> = case.store.clone();
    let other = open(&object_store).await;
    let mut theirs = flush(&other, &[(0, 3, 4)]);
    case.store.fail_puts(case.entry, Fault::Hangs, 1);
    let (ours, theirs) = tokio::join!(case.sink.commit(&mut case.flush), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.commit(&mut theirs).await
    });
    assert!(matches!(theirs.unwrap(), Outcome::Committed { .. }));
    assert!(matches!(ours.unwrap(), Outcome::Fenced { .. }));
    assert_eq!(offsets(&case.sink).await, once(&[(0, 0, 4)]));
}

#[tokio::test]
async fn files_are_uploaded_once_however_often_a_flush_is_tried() {
    let store = FaultyStore::new(Arc::new(InMemory::new()));
    let object_store: Arc<dyn ObjectStore> = store.clone();
    let mut config = memory_config();
    config.file_size = 1;
    let sink = DeltaSink::open_with_store(object_store, config).await.unwrap();
    let mut flush = flush(&sink, &[(0, 0, 2), (1, 0, 2), (2, 0, 2)]);
    assert_eq!(flush.files.len(), 3);
    let mut files = 0;
    store.set_rule(move |on, path| {
        let file = on == On::Put && path.as_ref().ends_with(".parquet");
        files += usize::from(file);
        (file && files == 2).then_some(Fault::Fails)
    });
    let error = sink.commit(&mut flush).await.unwrap_err();
    assert!(matches!(error, Error::Upload { .. }), "{error:?}");
    store.clear();
    store.fail_puts("_delta_log", Fault::Fails, 3);
    assert!(is_committed(&commit_until_settled(&sink, &mut flush).await));
    let mut puts: HashMap<String, usize> = HashMap::new();
    for (on, path) in store.requests.lock().unwrap().iter().filter(|(_, path)| path.ends_with(".parquet")) {
        if *on == On::Put {
            *puts.entry(path.clone()).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = puts.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2], "only the file that failed is put again");
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 2), (1, 0, 2), (2, 0, 2)]));
}

/// Text that compression cannot make small.
fn large_rows(partition: i32, from: i64, to: i64) -> arrow_array::RecordBatch {
    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    let mut state = 1u64;
    let mut text = || -> String {
        let mut character = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b' ' + (state >> 58) as u8)
        };
        (0..12_000_000).map(|_| character()).collect()
    };
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|_| text())));
    RecordBatch::try_new(schema(&[("name", "string")]), vec![kafka_column(partition, from, to), names]).unwrap()
}

#[tokio::test]
async fn an_upload_that_breaks_in_the_middle_is_given_up_and_made_anew() {
    let store = FaultyStore::new(Arc::new(InMemory::new()));
    let object_store: Arc<dyn ObjectStore> = store.clone();
    let sink = open(&object_store).await;
    let mut flush = flush_of(&sink, &[(0, 0, 3)], &[large_rows(0, 0, 3)]);
    let mut parts = 0;
    store.set_rule(move |on, _| {
        parts += usize::from(on == On::Part);
        (on == On::Part && parts == 2).then_some(Fault::Fails)
    });
    let error = sink.commit(&mut flush).await.unwrap_err();
    assert!(matches!(error, Error::Upload { .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::External);
    let requests = |wanted| store.requests.lock().unwrap().iter().filter(|(on, _)| *on == wanted).count();
    assert_eq!((requests(On::Part), requests(On::Abort)), (2, 1), "what was uploaded is given up");
    assert!(is_committed(&sink.commit(&mut flush).await.unwrap()));
    assert_eq!((requests(On::Part), requests(On::Abort)), (4, 1));
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 3)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_only_takes_time() {
    for kind in KINDS {
        let context = format!("{kind:?}");
        let mut case = Case::new(kind).await;
        case.store.set_rule(|_, _| Some(Fault::Slow));
        assert!(is_committed(&case.sink.commit(&mut case.flush).await.unwrap()), "{context}");
        case.check(&context).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_refusals_is_waited_out() {
    for kind in KINDS {
        let context = format!("{kind:?}");
        let mut case = Case::new(kind).await;
        let mut refused = 0;
        case.store.set_rule(move |_, _| {
            refused += 1;
            (refused <= 15).then_some(Fault::Fails)
        });
        assert!(is_committed(&commit_until_settled(&case.sink, &mut case.flush).await), "{context}");
        case.check(&context).await;
    }
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_refused_at_the_door() {
    let store = FaultyStore::new(Arc::new(InMemory::new()));
    store.fail_puts("_alluvium_probe", Fault::IgnoresCondition, 100);
    let object_store: Arc<dyn ObjectStore> = store.clone();
    let error = DeltaSink::open_with_store(object_store.clone(), memory_config()).await.unwrap_err();
    assert!(matches!(error, Error::ConditionalPutIgnored { .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::User);
    assert!(error.hint().unwrap().contains("conditional"));

    // A retry inside the client that meets its own first put is no reason to refuse.
    store.fail_puts("_alluvium_probe", Fault::LandsThenConflicts, 1);
    DeltaSink::open_with_store(object_store, memory_config()).await.unwrap();
    use futures::TryStreamExt;
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_failing_list_or_read_leaves_the_sink_usable() {
    let mut case = Case::new(Kind::Data).await;
    let object_store: Arc<dyn ObjectStore> = case.store.clone();
    let other = open(&object_store).await;
    other.commit(&mut flush(&other, &[(7, 0, 2)])).await.unwrap();
    for on in [On::List, On::Get] {
        case.store
            .set_rule(move |found, path| (found == on && path.as_ref().contains("_delta_log")).then_some(Fault::Fails));
        let error = DeltaSink::open_with_store(object_store.clone(), memory_config()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::External, "{error:?}");
    }
    let error = case.sink.commit(&mut case.flush).await.unwrap_err();
    assert!(matches!(error, Error::ReadLog { version: 0 | 1, .. }), "{error:?}");
    case.store.clear();
    assert!(is_committed(&case.sink.commit(&mut case.flush).await.unwrap()));
    case.rows.push((7, 0, 2));
    case.check("after failing reads").await;
}

/// A flush with dead letters and a new column, so that it passes every point.
fn full_flush(sink: &DeltaSink) -> Flush<DataFile> {
    let mut flush = wider(sink, (0, 3, 6));
    flush.dead_letters = vec![letter(0, 6)];
    flush.info = info(alluvium_core::CommitKind::Rows, &[(0, 3, 7)]);
    let counts = &mut flush.info.partitions[0].counts;
    (counts.kept, counts.rows, counts.rejected) = (3, 3, 1);
    flush
}

const POINTS: [&str; 10] = [
    "upload:before",
    "upload:after",
    "schema:before",
    "schema:after",
    // The dead letters' file, which the rows' entry names.
    "upload:before",
    "upload:after",
    "commit:before",
    "commit:after",
    "dead-letters:before",
    "dead-letters:after",
];

#[tokio::test]
async fn a_commit_passes_its_points_in_order() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let passed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = passed.clone();
    let sink = sink.with_hook(Hook::new(move |point| seen.lock().unwrap().push(point.to_string())));
    assert!(is_committed(&sink.commit(&mut full_flush(&sink)).await.unwrap()));
    assert_eq!(*passed.lock().unwrap(), POINTS);
}

/// The record at offset 6 is rejected in one try and kept in the next, of another process.
#[tokio::test]
async fn a_record_that_turns_out_otherwise_is_in_one_place() {
    for end in POINTS {
        let (store, position) = ended_at(end).await;
        let again = open(&store).await;
        if position == 3 {
            let mut kept = flush_of(&again, &[(0, 3, 7)], &[rows(0, 3, 7)]);
            assert!(is_committed(&again.commit(&mut kept).await.unwrap()), "{end}");
        }
        again.load().await.unwrap();
        let (kept, rejected) = if position == 3 { (7, 0) } else { (6, 1) };
        assert_eq!(offsets(&again).await, once(&[(0, 0, kept)]), "{end}");
        assert_eq!(letters(&again).await, once(&[(0, 6, 6 + rejected)]), "{end}");
    }
}

/// Whoever commits next pays what an interrupted commit owes, without being asked.
#[tokio::test]
async fn letters_that_are_owed_are_written_before_anything_else() {
    let (store, position) = ended_at("dead-letters:before").await;
    assert_eq!(position, 7);
    let again = open(&store).await;
    assert!(letters(&again).await.is_empty());
    again.reader().state().await.unwrap();
    assert!(letters(&again).await.is_empty(), "looking writes nothing");
    assert!(is_committed(&again.commit(&mut wider(&again, (0, 7, 8))).await.unwrap()));
    assert_eq!(letters(&again).await, once(&[(0, 6, 7)]));
    again.load().await.unwrap();
    assert_eq!(letters(&again).await, once(&[(0, 6, 7)]));
}

/// Approved columns are no rows, but an entry all the same.
#[tokio::test]
async fn growth_by_itself_moves_nothing_and_writes_what_is_owed_first() {
    let (store, position) = ended_at("dead-letters:before").await;
    let again = open(&store).await;
    let info = wider(&again, (0, position, position + 1)).info;
    let approved = schema(&[("approved", "string")]);
    let version = again.grow(&info, &approved).await.unwrap().unwrap();
    assert_eq!(letters(&again).await, once(&[(0, 6, 7)]));
    let state = again.load().await.unwrap();
    assert_eq!(state.positions.first().map(|(_, at)| *at), Some(position));
    assert!(state.schema.as_ref().unwrap().field_with_name("approved").is_ok(), "{state:?}");
    assert_eq!(state.schema, again.known_schema());
    assert_eq!(again.grow(&info, &approved).await.unwrap(), None, "twice changes nothing");
    let outcome = again.commit(&mut wider(&again, (0, position, position + 1))).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { version: version + 1 });

    // What is there under another type stays; a table that is not there is not made.
    let error = again.grow(&info, &schema(&[("approved", "date")])).await.unwrap_err();
    assert!(matches!(&error, Error::Moved { column, .. } if column == "approved"), "{error:?}");
    let absent: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let error = open(&absent).await.grow(&info, &approved).await.unwrap_err();
    assert!(matches!(&error, Error::NoTable { .. }), "{error:?}");
}

#[tokio::test]
async fn owed_letters_whose_file_is_gone_stop_the_pipeline() {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    let (store, _) = ended_at("dead-letters:before").await;
    let files: Vec<_> = store.list(Some(&"letters".into())).try_collect().await.unwrap();
    for file in files.iter().filter(|file| file.location.as_ref().ends_with(".parquet")) {
        store.delete(&file.location).await.unwrap();
    }
    let error = open(&store).await.load().await.unwrap_err();
    assert!(matches!(&error, Error::LettersGone { missing, .. } if missing.contains(".parquet")), "{error:?}");
    assert_eq!(error.class(), ErrorClass::User);
}

/// The rows' table is made anew beside the letters of the one before: its marks start behind theirs.
#[tokio::test]
async fn letters_of_a_new_table_beside_old_ones_are_written() {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    for from in [0, 3, 6] {
        sink.commit(&mut with_letters(&sink, (0, from, from + 3), &[from + 1])).await.unwrap();
    }
    let files: Vec<_> = store.list(Some(&"rows".into())).try_collect().await.unwrap();
    for file in files {
        store.delete(&file.location).await.unwrap();
    }
    let again = open(&store).await;
    for from in [0, 3] {
        again.commit(&mut with_letters(&again, (0, from, from + 3), &[from + 1, from + 2])).await.unwrap();
    }
    let all = [1, 2, 4, 5, 7].map(|offset| (0, offset, offset + 1));
    assert_eq!(letters(&again).await, once(&all));
}

/// A store in which a process ended at this point of a commit, and the position it left.
async fn ended_at(end: &'static str) -> (Arc<dyn ObjectStore>, i64) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let sink = sink.with_hook(Hook::new(move |point| assert_ne!(point.to_string(), end)));
    let ended = tokio::spawn(async move {
        let mut flush = full_flush(&sink);
        sink.commit(&mut flush).await
    });
    assert!(ended.await.unwrap_err().is_panic(), "{end}");
    let position = open(&store).await.reader().state().await.unwrap().positions[0].1;
    let landed = end == "commit:after" || end.starts_with("dead-letters");
    assert_eq!(position, if landed { 7 } else { 3 }, "{end}");
    (store, position)
}

#[tokio::test]
async fn a_process_that_ends_at_any_point_loses_and_doubles_nothing() {
    for end in POINTS {
        let (store, position) = ended_at(end).await;
        let again = open(&store).await;
        if position == 3 {
            assert!(is_committed(&again.commit(&mut full_flush(&again)).await.unwrap()), "{end}");
        }
        assert_eq!(positions(&again).await, [(0, 7)], "{end}");
        assert_eq!(offsets(&again).await, once(&[(0, 0, 6)]), "{end}");
        assert_eq!(letters(&again).await, once(&[(0, 6, 7)]), "{end}");
    }
}
