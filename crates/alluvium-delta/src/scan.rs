//! Scans of the tables' rows.

use crate::config::DeltaConfig;
use crate::error::Error;
use crate::load::{LOG, with_snapshot};
use crate::store::TableStore;
use alluvium_core::Partition;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use buoyant_kernel as kernel;
use futures::TryStreamExt;
use kernel::engine::arrow_data::ArrowEngineData;
use kernel::expressions::{ColumnName, Expression, Predicate};
use kernel::schema::{DataType, StructField, StructType};
use kernel::{Engine, SnapshotRef};
use object_store::path::Path;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Batches of a scan that may wait to be taken.
const BATCHES_AHEAD: usize = 4;

/// Where a row came from, as the pipeline's metadata column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KafkaRow {
    pub partition: Partition,
    pub offset: i64,
    /// The number of the row among those of its record; `None` when the column has no such field.
    pub row: Option<i32>,
}

/// A scan of where rows or dead letters came from, batch by batch.
#[derive(Debug)]
pub struct KafkaScan {
    batches: mpsc::Receiver<Result<Vec<KafkaRow>, Error>>,
    worker: Option<JoinHandle<Result<(), Error>>>,
    table: String,
}

impl KafkaScan {
    /// The next rows, in no order; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<Vec<KafkaRow>, Error>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        match self.worker.take()?.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(error)),
            Err(source) => Some(Err(Error::Worker { table: self.table.clone(), source })),
        }
    }
}

impl KafkaScan {
    /// A scan of a table that is not there.
    pub(crate) fn empty(store: &TableStore) -> Self {
        Self { batches: mpsc::channel(1).1, worker: None, table: store.table() }
    }

    /// Scans these columns of a version; `rows` makes of a batch where its rows came from.
    fn start(
        store: &TableStore,
        version: Option<u64>,
        columns: impl FnOnce(&StructType) -> kernel::DeltaResult<Option<Arc<StructType>>> + Send + 'static,
        wrong: Error,
        rows: impl Fn(&RecordBatch) -> Option<Vec<KafkaRow>> + Send + 'static,
    ) -> Self {
        let (send, batches) = mpsc::channel(BATCHES_AHEAD);
        let (store, table) = (store.clone(), store.table());
        let worker = tokio::spawn(async move {
            let scanned = with_snapshot(&store, version, move |snapshot, engine| {
                let Some(schema) = columns(&snapshot.schema())? else { return Ok(Err(wrong)) };
                for batch in scan(snapshot, engine, schema, None)? {
                    let Some(rows) = rows(&batch?) else { return Ok(Err(wrong)) };
                    // Nobody is listening any more.
                    if send.blocking_send(Ok(rows)).is_err() {
                        break;
                    }
                }
                Ok(Ok(()))
            });
            scanned.await.map_err(|error| match error {
                Error::Load { table, source } => Error::Scan { table, source },
                error => error,
            })?
        });
        Self { batches, worker: Some(worker), table }
    }
}

/// Where every row of a table came from, by the pipeline's metadata column.
pub(crate) fn rows(store: &TableStore, version: Option<u64>, column: &str) -> KafkaScan {
    let wrong = Error::KafkaColumn { table: store.table(), column: column.to_owned() };
    let column = column.to_owned();
    let columns = move |table: &StructType| Ok(kafka_schema(table, &column)?.map(Arc::new));
    KafkaScan::start(store, version, columns, wrong, kafka_rows)
}

const LETTER_COLUMNS: [&str; 5] = ["pipeline", "topic", "generation", "partition", "offset"];

/// Where every dead letter of a pipeline came from.
pub(crate) fn letters(store: &TableStore, version: Option<u64>, config: &DeltaConfig) -> KafkaScan {
    let wrong = Error::DeadLettersSchema { table: store.table(), column: "offset".to_owned() };
    let columns = |table: &StructType| match LETTER_COLUMNS.iter().all(|name| table.contains(name)) {
        true => table.project(&LETTER_COLUMNS).map(Some),
        false => Ok(None),
    };
    let own = own_letters(config);
    KafkaScan::start(store, version, columns, wrong, own)
}

/// The letters of a batch that are the pipeline's; `None` when its columns have other types.
fn own_letters(config: &DeltaConfig) -> impl Fn(&RecordBatch) -> Option<Vec<KafkaRow>> + Send + 'static {
    let (pipeline, topic) = (config.pipeline.to_string(), config.topic.clone());
    let generation = i32::try_from(config.pipeline.generation()).unwrap_or(i32::MAX);
    move |batch| {
        let text = |index: usize| batch.column(index).as_string_opt::<i32>();
        let number = |index: usize| batch.column(index).as_primitive_opt::<Int32Type>();
        let offsets = batch.column(4).as_primitive_opt::<Int64Type>()?;
        let (pipelines, topics, generations, partitions) = (text(0)?, text(1)?, number(2)?, number(3)?);
        let own = |row: &usize| {
            let (pipeline, topic) = (pipelines.value(*row) == pipeline, topics.value(*row) == topic);
            pipeline && topic && generations.value(*row) == generation
        };
        let row = |row: usize| KafkaRow {
            partition: Partition(partitions.value(row)),
            offset: offsets.value(row),
            row: None,
        };
        Some((0..batch.num_rows()).filter(own).map(row).collect())
    }
}

/// Offsets from `oldest` on of the pipeline's letters in the dead letters' table.
pub(crate) async fn letters_from(
    store: &TableStore,
    config: &DeltaConfig,
    oldest: i64,
) -> Result<HashSet<(Partition, i64)>, Error> {
    let own = own_letters(config);
    with_snapshot(store, None, move |snapshot, engine| {
        let schema = snapshot.schema().project(&LETTER_COLUMNS)?;
        let mut found = HashSet::new();
        for batch in scan(snapshot, engine, schema, Some(oldest))? {
            let Some(letters) = own(&batch?) else {
                return Err(kernel::Error::generic("columns of the dead letters have other types than their schema"));
            };
            found.extend(letters.iter().filter(|letter| letter.offset >= oldest).map(|l| (l.partition, l.offset)));
        }
        Ok(found)
    })
    .await
}

/// Up to `limit` rows with these columns or all; the newest files' first.
pub(crate) async fn some_rows(
    store: &TableStore,
    columns: Option<&[String]>,
    limit: usize,
) -> Result<RecordBatch, Error> {
    let wanted = columns.map(<[String]>::to_vec);
    let table = store.table();
    let scanned = with_snapshot(store, None, move |snapshot, engine| {
        let schema = match &wanted {
            Some(names) => match names.iter().find(|name| !snapshot.schema().contains(name)) {
                Some(column) => return Ok(Err(Error::NoColumn { table, column: column.clone() })),
                None => snapshot.schema().project(names)?,
            },
            None => snapshot.schema(),
        };
        first_rows(snapshot, engine, schema, limit).map(Ok)
    });
    scanned.await?
}

/// A data file of a table that its store does not hold as the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    pub path: String,
    /// Bytes that the log says it has.
    pub said: u64,
    /// Bytes that it has; `None` when it is missing.
    pub found: Option<u64>,
}

/// The data files of a version that are missing, or of another size than the log says.
pub(crate) async fn file_faults(store: &TableStore, version: Option<u64>) -> Result<Vec<FileFault>, Error> {
    let files = with_snapshot(store, version, |snapshot, engine| {
        let mut files: Vec<(String, i64)> = Vec::new();
        for data in snapshot.scan_builder().build()?.scan_metadata(engine.as_ref())? {
            files = data?.visit_scan_files(files, |files, file| files.push((file.path, file.size)))?;
        }
        Ok(files)
    });
    let files = files.await?;
    let list = |source| Error::ListFiles { table: store.table(), source };
    let mut listed: HashMap<Path, u64> = HashMap::new();
    let mut objects = store.store.list(None);
    while let Some(meta) = objects.try_next().await.map_err(list)? {
        if !meta.location.as_ref().starts_with(LOG) {
            listed.insert(meta.location, meta.size);
        }
    }
    // Files of another table, which a shallow clone names by their URLs, are not looked for.
    let own = files.into_iter().filter(|(path, _)| !path.contains("://"));
    let fault = |(path, size): (String, i64)| {
        let said = u64::try_from(size).unwrap_or_default();
        let found = Path::from_url_path(&path).ok().and_then(|path| listed.get(&path).copied());
        (found != Some(said)).then_some(FileFault { path, said, found })
    };
    let mut faults: Vec<_> = own.filter_map(fault).collect();
    faults.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(faults)
}

type Batches = Box<dyn Iterator<Item = kernel::DeltaResult<RecordBatch>>>;

/// All rows of a snapshot. With `oldest`, files whose offsets all lie below may be left out.
fn scan(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    schema: Arc<StructType>,
    oldest: Option<i64>,
) -> kernel::DeltaResult<Batches> {
    let recent = oldest.map(|oldest| {
        let offset = Expression::from(ColumnName::new(["offset"]));
        Arc::new(Predicate::ge(offset, Expression::literal(oldest)))
    });
    let scan = snapshot.scan_builder().with_schema(schema).with_predicate(recent).build()?;
    let data = scan.execute(engine)?;
    Ok(Box::new(data.map(|data| Ok(ArrowEngineData::try_from_engine_data(data?)?.into()))))
}

fn first_rows(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    schema: Arc<StructType>,
    limit: usize,
) -> kernel::DeltaResult<RecordBatch> {
    use kernel::engine::arrow_conversion::TryIntoArrow;
    let arrow: Schema = schema.as_ref().try_into_arrow()?;
    let (mut batches, mut rest) = (Vec::new(), limit);
    if rest > 0 {
        for batch in scan(snapshot, engine, schema, None)? {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(rest));
            rest -= batch.num_rows();
            batches.push(batch);
            if rest == 0 {
                break;
            }
        }
    }
    let schema = batches.first().map_or_else(|| Arc::new(arrow), RecordBatch::schema);
    if schema.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema, Vec::new(), &options)?);
    }
    Ok(concat_batches(&schema, &batches)?)
}

/// The part of a table's schema that tells where rows came from.
fn kafka_schema(table: &StructType, column: &str) -> kernel::DeltaResult<Option<StructType>> {
    let Some(field) = table.field(column) else { return Ok(None) };
    let DataType::Struct(inner) = field.data_type() else { return Ok(None) };
    let wanted = [("partition", DataType::INTEGER), ("offset", DataType::LONG), ("row", DataType::INTEGER)];
    let there =
        |(name, data_type): &(&str, DataType)| inner.field(name).is_some_and(|field| field.data_type() == data_type);
    let fields: Vec<StructField> =
        wanted.iter().filter(|wanted| there(wanted)).filter_map(|(name, _)| inner.field(name).cloned()).collect();
    if !fields.iter().any(|field| field.name() == "partition") || !fields.iter().any(|field| field.name() == "offset") {
        return Ok(None);
    }
    let inner = StructType::try_new(fields)?;
    let field = StructField::new(field.name().clone(), DataType::from(inner), field.is_nullable());
    StructType::try_new([field]).map(Some)
}

/// The rows of a batch of one metadata column; rows without one are left out.
fn kafka_rows(batch: &RecordBatch) -> Option<Vec<KafkaRow>> {
    let column = batch.columns().first()?.as_struct_opt()?;
    let partitions = column.column_by_name("partition")?.as_primitive_opt::<Int32Type>()?;
    let offsets = column.column_by_name("offset")?.as_primitive_opt::<Int64Type>()?;
    let numbers = match column.column_by_name("row") {
        Some(numbers) => Some(numbers.as_primitive_opt::<Int32Type>()?),
        None => None,
    };
    let there = |row: &usize| column.is_valid(*row) && partitions.is_valid(*row) && offsets.is_valid(*row);
    let row = |row: usize| KafkaRow {
        partition: Partition(partitions.value(row)),
        offset: offsets.value(row),
        row: numbers.filter(|numbers| numbers.is_valid(row)).map(|numbers| numbers.value(row)),
    };
    Some((0..column.len()).filter(there).map(row).collect())
}
