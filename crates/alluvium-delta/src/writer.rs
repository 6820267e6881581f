//! Rows to data files, on the calling thread and in memory.

use crate::actions::now_ms;
use crate::error::Error;
use crate::partition::{Divider, Key, as_url, directory};
use crate::properties::writer_properties;
use crate::schema;
use crate::stats::{Gathered, StatsColumns, StatsPlan, stats};
use alluvium_core::seam::RowWriter;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::properties::WriterProperties;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A finished Parquet file, in memory until it is uploaded.
#[derive(Clone, Debug)]
pub struct DataFile {
    path: String,
    partition_values: BTreeMap<String, Option<String>>,
    rows: u64,
    size: u64,
    modified: i64,
    stats: String,
    /// Columns that are null in some row, or whose partition value is.
    nulls: BTreeSet<String>,
    /// `None` once the file is uploaded.
    bytes: Option<Bytes>,
}

impl DataFile {
    /// Its path below the table's root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its path as the log spells it: a relative URL.
    pub fn url(&self) -> String {
        as_url(&self.path)
    }

    /// Values of the partition columns, by their names.
    pub fn partition_values(&self) -> &BTreeMap<String, Option<String>> {
        &self.partition_values
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Encoded bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was finished, in milliseconds since the epoch.
    pub(crate) fn modified(&self) -> i64 {
        self.modified
    }

    /// The statistics of its columns, as JSON in the form of Delta's log.
    pub fn stats(&self) -> &str {
        &self.stats
    }

    pub(crate) fn may_be_null(&self, column: &str) -> bool {
        self.nulls.contains(column)
    }

    /// The bytes still to be uploaded.
    pub(crate) fn pending(&self) -> Option<&Bytes> {
        self.bytes.as_ref()
    }

    pub(crate) fn uploaded(&mut self) {
        self.bytes = None;
    }
}

/// What a table wants of its files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub partition_by: Vec<String>,
    pub stats: StatsColumns,
    /// Encoded bytes at which a file is closed.
    pub file_size: u64,
}

/// Encodes rows into Parquet files, one open file per partition of the table.
#[derive(Debug)]
pub struct DeltaFileWriter {
    shared: Arc<Shared>,
    divider: Divider,
    open: HashMap<Key, OpenFile>,
    finished: Vec<DataFile>,
}

/// What all files of a writer have in common.
#[derive(Debug)]
struct Shared {
    schema: SchemaRef,
    layout: Layout,
    /// The columns that a file holds: all but the partition columns.
    columns: Vec<usize>,
    file_schema: SchemaRef,
    properties: WriterProperties,
    stats: StatsPlan,
}

#[derive(Debug)]
struct OpenFile {
    encoder: ArrowWriter<Vec<u8>>,
    gathered: Gathered,
    nulls: BTreeSet<String>,
}

impl DeltaFileWriter {
    pub(crate) fn new(schema: SchemaRef, layout: Layout) -> Result<Self, Error> {
        schema::columns(&schema)?;
        let divider = Divider::new(&schema, &layout.partition_by)?;
        let columns: Vec<usize> = (0..schema.fields().len())
            .filter(|index| !layout.partition_by.contains(schema.field(*index).name()))
            .collect();
        if columns.is_empty() {
            return Err(Error::NothingButPartitions);
        }
        let file_schema = Arc::new(schema.project(&columns).map_err(|source| Error::Divide { source })?);
        let parquet = ArrowSchemaConverter::new().convert(&file_schema).map_err(|source| Error::Encode { source })?;
        let stats = StatsPlan::new(&file_schema, &layout.stats);
        let properties = writer_properties(&parquet);
        let shared = Shared { schema, layout, columns, file_schema, properties, stats };
        Ok(Self { shared: Arc::new(shared), divider, open: HashMap::new(), finished: Vec::new() })
    }

    fn close(&mut self, key: &Key) -> Result<(), Error> {
        if let Some(file) = self.open.remove(key) {
            self.finished.push(file.close(&self.shared, key)?);
        }
        Ok(())
    }
}

impl RowWriter for DeltaFileWriter {
    type File = DataFile;
    type Error = Error;

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        check_schema(&self.shared.schema, batch.schema_ref())?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        for (key, rows) in self.divider.divide(batch)? {
            let file = match self.open.get_mut(&key) {
                Some(file) => file,
                None => self.open.entry(key.clone()).or_insert(OpenFile::new(&self.shared)?),
            };
            file.write(&self.shared, &rows)?;
            if file.encoded() >= self.shared.layout.file_size {
                self.close(&key)?;
            }
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        let open: usize = self.open.values().map(OpenFile::memory).sum();
        let finished: usize = self.finished.iter().filter_map(|file| file.pending()).map(Bytes::len).sum();
        open + finished
    }

    fn finish(mut self) -> Result<Vec<DataFile>, Error> {
        let mut keys: Vec<Key> = self.open.keys().cloned().collect();
        keys.sort();
        keys.iter().try_for_each(|key| self.close(key))?;
        Ok(self.finished)
    }
}

fn check_schema(writer: &Schema, batch: &Schema) -> Result<(), Error> {
    if std::ptr::eq(writer, batch) {
        return Ok(());
    }
    let (expected, found) = (writer.fields().len(), batch.fields().len());
    if expected != found {
        return Err(Error::BatchSchema { problem: format!("{found} columns instead of {expected}") });
    }
    let differs = |(writer, batch): &(&Arc<arrow_schema::Field>, &Arc<arrow_schema::Field>)| {
        writer.name() != batch.name() || writer.data_type() != batch.data_type()
    };
    match writer.fields().iter().zip(batch.fields()).find(differs) {
        Some((writer, batch)) => Err(Error::BatchSchema {
            problem: format!(
                "column {} of type {} instead of {} of type {}",
                batch.name(),
                batch.data_type(),
                writer.name(),
                writer.data_type()
            ),
        }),
        None => Ok(()),
    }
}

impl OpenFile {
    fn new(shared: &Shared) -> Result<Self, Error> {
        let options =
            ArrowWriterOptions::new().with_properties(shared.properties.clone()).with_skip_arrow_metadata(true);
        let encoder = ArrowWriter::try_new_with_options(Vec::new(), shared.file_schema.clone(), options);
        Ok(Self {
            encoder: encoder.map_err(|source| Error::Encode { source })?,
            gathered: Gathered::new(&shared.stats),
            nulls: BTreeSet::new(),
        })
    }

    fn write(&mut self, shared: &Shared, rows: &RecordBatch) -> Result<(), Error> {
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if column.logical_null_count() > 0 && !self.nulls.contains(field.name()) {
                self.nulls.insert(field.name().clone());
            }
        }
        let columns = rows.project(&shared.columns).map_err(|source| Error::Divide { source })?;
        self.gathered.add(&shared.stats, &columns);
        // The file's schema decides over what may be null; a batch may promise more.
        let columns = RecordBatch::try_new(shared.file_schema.clone(), columns.columns().to_vec());
        let columns = columns.map_err(|source| Error::Divide { source })?;
        self.encoder.write(&columns).map_err(|source| Error::Encode { source })
    }

    fn encoded(&self) -> u64 {
        (self.encoder.bytes_written() + self.encoder.in_progress_size()) as u64
    }

    fn memory(&self) -> usize {
        self.encoder.inner().capacity() + self.encoder.memory_size()
    }

    fn close(mut self, shared: &Shared, key: &Key) -> Result<DataFile, Error> {
        let encode = |source| Error::Encode { source };
        let metadata = self.encoder.finish().map_err(encode)?;
        let mut bytes = std::mem::take(self.encoder.inner_mut());
        bytes.shrink_to_fit();
        let bytes = Bytes::from(bytes);
        let partition_by = &shared.layout.partition_by;
        let null_partitions = partition_by.iter().zip(key).filter(|(_, value)| value.is_none());
        self.nulls.extend(null_partitions.map(|(name, _)| name.clone()));
        Ok(DataFile {
            path: format!("{}part-{}.zstd.parquet", directory(partition_by, key), Uuid::new_v4()),
            partition_values: partition_by.iter().cloned().zip(key.iter().cloned()).collect(),
            rows: u64::try_from(metadata.file_metadata().num_rows()).unwrap_or_default(),
            size: bytes.len() as u64,
            modified: now_ms(),
            stats: stats(&shared.stats, &self.gathered, &metadata),
            nulls: self.nulls,
            bytes: Some(bytes),
        })
    }
}
