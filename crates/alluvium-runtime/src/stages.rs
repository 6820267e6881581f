//! A chunk's way from bytes to rows, on one thread.

use crate::error::Error;
use crate::frame::Frame;
use crate::layout::Layout;
use crate::planner::Planner;
use alluvium_config::{Limits, Tombstones};
use alluvium_core::chunk::Record;
use alluvium_core::{Chunk, Counts, DeadLetter, Edge, Hook, Packed, PluginRef, Reason, Records, Stage};
use alluvium_schema::{Decoded, Decoder, Shape};
use alluvium_wasm::{
    CallError, ColumnPlugin, IsolateError, IsolatedEdit, IsolatedOutput, Isolation, MappingPlugin, RecordPlugin,
};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that a plugin may make out of one chunk by repeating rows.
const MOST_MULTIPLIED: usize = 256 << 20;

/// A pipeline's plugins, in the order in which records pass them.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    records: Vec<Arc<RecordPlugin>>,
    columns: Vec<Arc<ColumnPlugin>>,
    mapping: Option<Arc<MappingPlugin>>,
}

impl Plugins {
    pub fn new(records: Vec<Arc<RecordPlugin>>, columns: Vec<Arc<ColumnPlugin>>) -> Self {
        Self { records, columns, mapping: None }
    }

    /// The same with a plugin that decides on the mapping.
    pub fn with_mapping(self, mapping: Arc<MappingPlugin>) -> Self {
        Self { mapping: Some(mapping), ..self }
    }

    pub(crate) fn mapping(&self) -> Option<&Arc<MappingPlugin>> {
        self.mapping.as_ref()
    }

    pub fn columns(&self) -> &[Arc<ColumnPlugin>] {
        &self.columns
    }

    pub fn references(&self) -> Vec<PluginRef> {
        let records = self.records.iter().map(|plugin| plugin.reference());
        let mapping = self.mapping.iter().map(|plugin| plugin.reference());
        let columns = self.columns.iter().map(|plugin| plugin.reference());
        records.chain(mapping).chain(columns).cloned().collect()
    }

    /// Whether one record can make several rows.
    pub fn multiply(&self) -> bool {
        self.records.iter().any(|plugin| plugin.access().multiplies)
            || self.columns.iter().any(|plugin| plugin.access().multiplies)
    }
}

/// What became of a chunk.
#[derive(Debug)]
pub struct Processed {
    pub batch: RecordBatch,
    pub counts: Counts,
    pub dead_letters: Vec<DeadLetter>,
    pub layout: Arc<Layout>,
}

/// All stages of a pipeline, with their buffers: one for each thread.
pub struct Stages {
    plugins: Plugins,
    planner: Arc<Planner>,
    layout: Arc<Layout>,
    decoder: Decoder,
    tombstones: Tombstones,
    isolation: Isolation,
    pub(crate) hook: Hook,
}

/// Values on their way to the decoder, after the record plugins.
struct Raw<'a> {
    values: Cow<'a, Packed>,
    /// For each value the index of its record; `None`: they are the chunk's records one to one.
    records: Option<Vec<u32>>,
    rejections: Rejections,
}

/// Rejected records by index, each with its first reason.
type Rejections = BTreeMap<u32, (Stage, Reason, Option<String>)>;

impl std::fmt::Debug for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages").field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl Stages {
    pub fn new(plugins: Plugins, planner: Arc<Planner>, tombstones: Tombstones, limits: &Limits, hook: Hook) -> Self {
        let layout = planner.layout();
        let decoder = Decoder::new(layout.plan().clone());
        let isolation = Isolation { share: limits.trapping_share, hook: hook.clone(), ..Isolation::default() };
        Self { plugins, planner, layout, decoder, tombstones, isolation, hook }
    }

    /// Takes a chunk through all stages.
    pub fn process(&mut self, chunk: &Chunk) -> Result<Processed, Error> {
        self.follow(self.planner.layout());
        let raw = self.raw(chunk)?;
        let decoded = self.decode(chunk, &raw)?;
        let mut rejections = raw.rejections;
        let record_of = |value: u32| match &raw.records {
            Some(records) => records.get(value as usize).copied().unwrap_or(value),
            None => value,
        };
        for reject in decoded.rejects {
            let entry = (Stage::Mapping, reject.reason, None);
            rejections.entry(record_of(reject.input)).or_insert(entry);
        }
        let names = decoded.batch.schema();
        let columns = names.fields().iter().map(|field| field.name().clone()).zip(decoded.batch.columns().to_vec());
        let records = decoded.inputs.iter().map(|input| record_of(*input)).collect();
        let mut frame = Frame::new(columns.collect(), records);
        self.column_plugins(chunk, &mut frame, &mut rejections)?;
        self.finish(chunk, frame, rejections)
    }

    /// Adds what the chunk's values look like to `shape`, as the decoder will see them.
    pub fn observe(&mut self, chunk: &Chunk, shape: &mut Shape) -> Result<(), Error> {
        let raw = self.raw(chunk)?;
        raw.values.iter().flatten().for_each(|value| shape.observe(value));
        Ok(())
    }

    fn follow(&mut self, layout: Arc<Layout>) {
        if !Arc::ptr_eq(&layout, &self.layout) {
            self.decoder = Decoder::new(layout.plan().clone());
            self.layout = layout;
        }
    }

    /// Tombstones and record plugins.
    fn raw<'a>(&self, chunk: &'a Chunk) -> Result<Raw<'a>, Error> {
        let records = chunk.records();
        let mut rejections = Rejections::new();
        let mut present: Option<Vec<u32>> = None;
        let count = records.len() as u32;
        if (0..records.len()).any(|index| records.values().is_null(index)) {
            let (null, there): (Vec<u32>, Vec<u32>) = (0..count).partition(|i| records.values().is_null(*i as usize));
            if self.tombstones == Tombstones::DeadLetter {
                let reason = || Reason { code: "tombstone", message: "the record has no value".to_owned() };
                rejections.extend(null.into_iter().map(|index| (index, (Stage::Source, reason(), None))));
            }
            present = Some(there);
        }
        if self.plugins.records.is_empty() {
            let values = match &present {
                None => Cow::Borrowed(records.values()),
                Some(there) => Cow::Owned(there.iter().map(|index| records.values().get(*index as usize)).collect()),
            };
            return Ok(Raw { values, records: present, rejections });
        }
        let (values, indices) = self.record_plugins(chunk, present, &mut rejections)?;
        Ok(Raw { values: Cow::Owned(values), records: Some(indices), rejections })
    }

    fn record_plugins(
        &self,
        chunk: &Chunk,
        present: Option<Vec<u32>>,
        rejections: &mut Rejections,
    ) -> Result<(Packed, Vec<u32>), Error> {
        let mut input: Cow<'_, Records> = Cow::Borrowed(chunk.records());
        let mut select = present;
        // For each value the index of its record; at first they are one to one.
        let mut indices: Option<Vec<u32>> = None;
        for plugin in &self.plugins.records {
            self.hook.before(Edge::Plugin);
            let isolated = plugin.transform_isolating(&input, select.as_deref(), &self.isolation);
            self.hook.after(Edge::Plugin);
            let IsolatedOutput { output, bad } =
                isolated.map_err(|error| plugin_error(chunk, plugin.reference(), error))?;
            let record_of = |input: u32| match &indices {
                Some(indices) => indices.get(input as usize).copied().unwrap_or(input),
                None => input,
            };
            let digest = &plugin.reference().digest;
            for (value, reason) in output.rejects {
                reject(rejections, record_of(value), Stage::RecordPlugin, "plugin-reject", reason, digest);
            }
            for (value, error) in bad {
                reject(rejections, record_of(value), Stage::RecordPlugin, error.code(), full_message(&error), digest);
            }
            let mut next = Records::with_capacity(output.inputs.len(), output.values.data().len());
            let mut next_indices = Vec::with_capacity(output.inputs.len());
            for (position, value) in output.inputs.iter().enumerate() {
                let record = record_of(*value);
                let Some(source) = input.get(*value as usize).filter(|_| !rejections.contains_key(&record)) else {
                    continue;
                };
                let key = output.keys.as_ref().map_or(source.key, |keys| keys.get(position));
                let pushed = next.push(Record { value: output.values.get(position), key, ..source });
                if pushed.is_err() {
                    let message = "the outputs of a chunk pass 2 GiB".to_owned();
                    reject(rejections, record, Stage::RecordPlugin, "plugin-output", message, digest);
                    continue;
                }
                next_indices.push(record);
            }
            input = Cow::Owned(next);
            indices = Some(next_indices);
            select = None;
        }
        Ok((input.into_owned().into_values(), indices.unwrap_or_default()))
    }

    /// Decodes with the current plan, and again with a grown one where new fields appeared.
    fn decode(&mut self, chunk: &Chunk, raw: &Raw<'_>) -> Result<Decoded, Error> {
        let failed = |source| Error::Decode { partition: chunk.partition(), span: chunk.span(), source };
        let mut decoded = self.decoder.decode(&raw.values).map_err(failed)?;
        if let Some(shape) = &decoded.unknown {
            let grown = self.planner.grow(shape).map_err(|error| error.of([(chunk.partition(), chunk.span())]))?;
            if !Arc::ptr_eq(&grown, &self.layout) {
                self.follow(grown);
                decoded = self.decoder.decode(&raw.values).map_err(failed)?;
            }
        }
        if let Some(stop) = decoded.stop {
            let value = stop.input as usize;
            let record =
                raw.records.as_ref().map_or(value, |records| records.get(value).map_or(value, |r| *r as usize));
            let offset = chunk.records().offsets().get(record).copied().unwrap_or(chunk.span().from());
            return Err(Error::Stop { partition: chunk.partition(), offset, conflict: stop.to_string() });
        }
        Ok(decoded)
    }

    fn column_plugins(&self, chunk: &Chunk, frame: &mut Frame, rejections: &mut Rejections) -> Result<(), Error> {
        let rows_error = |source| Error::Rows { partition: chunk.partition(), span: chunk.span(), source };
        for plugin in &self.plugins.columns {
            let access = plugin.access();
            let read = |field: &alluvium_wasm::AccessField| frame.read(&field.path, &field.data_type.to_arrow());
            let columns: Vec<_> = access.reads.iter().map(read).collect::<Result<_, _>>().map_err(rows_error)?;
            self.hook.before(Edge::Plugin);
            let isolated = plugin.transform_isolating(frame.rows(), &columns, &self.isolation);
            self.hook.after(Edge::Plugin);
            let IsolatedEdit { edit, bad } =
                isolated.map_err(|error| plugin_error(chunk, plugin.reference(), error))?;
            let digest = &plugin.reference().digest;
            let record_of = |row: u32| frame.records().get(row as usize).copied().unwrap_or(row);
            for (row, reason) in edit.rejects {
                reject(rejections, record_of(row), Stage::ColumnPlugin, "plugin-reject", reason, digest);
            }
            for (row, error) in bad {
                reject(rejections, record_of(row), Stage::ColumnPlugin, error.code(), full_message(&error), digest);
            }
            if let Some(rows) = &edit.rows {
                check_multiplied(chunk, frame, rows, plugin.reference())?;
                frame.keep(rows).map_err(rows_error)?;
            }
            for (field, column) in access.writes.iter().zip(edit.columns) {
                frame.write(&field.path, column).map_err(rows_error)?;
            }
        }
        Ok(())
    }

    fn finish(&self, chunk: &Chunk, mut frame: Frame, rejections: Rejections) -> Result<Processed, Error> {
        let (partition, span) = (chunk.partition(), chunk.span());
        let rows_error = |source: ArrowError| Error::Rows { partition, span, source };
        // A record is rejected as a whole: rows that it made elsewhere go too.
        if frame.records().iter().any(|record| rejections.contains_key(record)) {
            frame.drop_records(|record| rejections.contains_key(&record)).map_err(rows_error)?;
        }
        let batch = self.layout.rows(chunk, &frame).map_err(rows_error)?;
        let read = chunk.records().len() as u64;
        let kept = distinct(frame.records());
        let rejected = rejections.len() as u64;
        let filtered = read.saturating_sub(kept + rejected);
        let counts = Counts { read, kept, rows: frame.rows() as u64, filtered, rejected };
        if !counts.balance() {
            return Err(Error::Unbalanced { partition, span, counts });
        }
        let letter = |(record, (stage, reason, plugin)): (u32, (Stage, Reason, Option<String>))| {
            DeadLetter::of(chunk, record as usize, stage, reason, plugin)
        };
        let dead_letters = rejections.into_iter().filter_map(letter).collect();
        Ok(Processed { batch, counts, dead_letters, layout: self.layout.clone() })
    }
}

/// Copies of rows are made of all columns, also of those that the plugin does not see: refuses what
/// would fill the memory. A row is taken to be as large as its record's value.
fn check_multiplied(chunk: &Chunk, frame: &Frame, rows: &[u32], plugin: &PluginRef) -> Result<(), Error> {
    if rows.len() <= frame.rows() {
        return Ok(());
    }
    let size = |row: &u32| {
        let record = frame.records().get(*row as usize).copied().unwrap_or_default();
        chunk.records().values().range(record as usize).len()
    };
    let bytes = rows.iter().map(size).sum();
    if bytes > MOST_MULTIPLIED {
        let (partition, span, plugin) = (chunk.partition(), chunk.span(), plugin.name.clone());
        return Err(Error::Multiplied { partition, span, plugin, bytes });
    }
    Ok(())
}

fn reject(to: &mut Rejections, record: u32, stage: Stage, code: &'static str, message: String, digest: &str) {
    to.entry(record).or_insert_with(|| (stage, Reason { code, message }, Some(digest.to_owned())));
}

/// The number of different records in a rising list.
fn distinct(records: &[u32]) -> u64 {
    let changes = records.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    if records.is_empty() { 0 } else { changes + 1 }
}

/// An error with all its causes, for a dead letter.
fn full_message(error: &CallError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        message = format!("{message}: {source}");
        cause = source.source();
    }
    message
}

fn plugin_error(chunk: &Chunk, plugin: &PluginRef, error: IsolateError) -> Error {
    let (partition, span, plugin) = (chunk.partition(), chunk.span(), plugin.name.clone());
    let too_many = matches!(error, IsolateError::TooMany { .. });
    let source = alluvium_core::Fault::new(error);
    match too_many {
        true => Error::TooManyFailures { partition, span, plugin, source },
        false => Error::Plugin { partition, span, plugin, source },
    }
}
