//! Scans of the tables' rows.

use crate::error::Error;
use crate::load::{LOG, with_snapshot};
use crate::store::TableStore;
use alluvium_core::{Partition, Place};
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
use std::collections::HashMap;
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

/// Rows of a table, read batch by batch on a thread of their own.
#[derive(Debug)]
pub struct Scan<T> {
    batches: mpsc::Receiver<Vec<T>>,
    worker: Option<JoinHandle<Result<(), Error>>>,
    table: String,
}

/// A scan of where rows came from.
pub type KafkaScan = Scan<KafkaRow>;

impl<T> Scan<T> {
    /// The next rows, in no order; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<Vec<T>, Error>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(Ok(batch));
        }
        match self.worker.take()?.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(error)),
            Err(source) => Some(Err(Error::Worker { table: self.table.clone(), source })),
        }
    }

    /// A scan of a table that is not there.
    pub(crate) fn empty(store: &TableStore) -> Self {
        Self { batches: mpsc::channel(1).1, worker: None, table: store.table() }
    }
}

impl<T: Send + 'static> Scan<T> {
    /// Scans a version or the newest; `work` hands on batches until nobody is listening any more.
    pub(crate) fn start(
        store: &TableStore,
        version: Option<u64>,
        work: impl FnOnce(SnapshotRef, Arc<dyn Engine>, &dyn Fn(Vec<T>) -> bool) -> kernel::DeltaResult<Result<(), Error>>
        + Send
        + 'static,
    ) -> Self {
        let (send, batches) = mpsc::channel(BATCHES_AHEAD);
        let (store, table) = (store.clone(), store.table());
        let worker = tokio::spawn(async move {
            let send = move |batch| send.blocking_send(batch).is_ok();
            let scanned = with_snapshot(&store, version, move |snapshot, engine| work(snapshot, engine, &send));
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
    let (table, column) = (store.table(), column.to_owned());
    Scan::start(store, version, move |snapshot, engine, send| {
        let wrong = Error::KafkaColumn { table, column: column.clone() };
        let Some(schema) = kafka_schema(&snapshot.schema(), &column)? else { return Ok(Err(wrong)) };
        for batch in scan(snapshot, engine, Arc::new(schema), None)? {
            let Some(rows) = kafka_rows(&batch?) else { return Ok(Err(wrong)) };
            if !send(rows) {
                break;
            }
        }
        Ok(Ok(()))
    })
}

/// A value of a column of text, and where its record was if the table tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRow {
    pub place: Option<Place>,
    pub text: String,
}

/// The values of a column of text that are not null. `kafka` is the metadata column, if there is one.
pub(crate) fn texts(store: &TableStore, column: &str, kafka: Option<&str>) -> Scan<TextRow> {
    let (table, column, kafka) = (store.table(), column.to_owned(), kafka.map(str::to_owned));
    Scan::start(store, None, move |snapshot, engine, send| {
        let schema = snapshot.schema();
        let text = schema.field(&column).filter(|field| *field.data_type() == DataType::STRING).cloned();
        let Some(text) = text else { return Ok(Err(Error::NoColumn { table, column })) };
        let kafka = kafka.map_or(Ok(None), |kafka| kafka_schema(&schema, &kafka))?;
        let kafka = kafka.iter().flat_map(|kafka| kafka.fields().cloned());
        let wanted = StructType::try_new([text].into_iter().chain(kafka))?;
        let filled = Predicate::is_not_null(Expression::from(ColumnName::new([column.as_str()])));
        for batch in scan(snapshot, engine, Arc::new(wanted), Some(filled))? {
            if !send(text_rows(&batch?)) {
                break;
            }
        }
        Ok(Ok(()))
    })
}

fn text_rows(batch: &RecordBatch) -> Vec<TextRow> {
    let Some(texts) = batch.columns().first().and_then(|column| column.as_string_opt::<i32>()) else {
        return Vec::new();
    };
    let places = batch.columns().get(1).and_then(|column| {
        let column = column.as_struct_opt()?;
        let partitions = column.column_by_name("partition")?.as_primitive_opt::<Int32Type>()?;
        let offsets = column.column_by_name("offset")?.as_primitive_opt::<Int64Type>()?;
        Some((column, partitions, offsets))
    });
    let place = |row: usize| {
        let (column, partitions, offsets) = places?;
        let is_there = column.is_valid(row) && partitions.is_valid(row) && offsets.is_valid(row);
        is_there.then(|| (Partition(partitions.value(row)), offsets.value(row)))
    };
    let row = |(row, text): (usize, Option<&str>)| Some(TextRow { place: place(row), text: text?.to_owned() });
    texts.iter().enumerate().filter_map(row).collect()
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

pub(crate) type Batches = Box<dyn Iterator<Item = kernel::DeltaResult<RecordBatch>>>;

/// All rows of a snapshot. Files that hold nothing that `predicate` is true of may be left out.
pub(crate) fn scan(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    schema: Arc<StructType>,
    predicate: Option<Predicate>,
) -> kernel::DeltaResult<Batches> {
    let scan = snapshot.scan_builder().with_schema(schema).with_predicate(predicate.map(Arc::new)).build()?;
    let data = scan.execute(engine)?;
    Ok(Box::new(data.map(|data| Ok(ArrowEngineData::try_from_engine_data(data?)?.into()))))
}

/// That a column of numbers lies within `[from, to]`.
pub(crate) fn between(column: &str, from: i64, to: i64) -> Predicate {
    let named = || Expression::from(ColumnName::new([column]));
    Predicate::and(Predicate::ge(named(), Expression::literal(from)), Predicate::le(named(), Expression::literal(to)))
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
