//! Writing a checkpoint of any size in little memory.
//!
//! The kernel's own writer holds all of it, as one row group and not compressed, until its last action.

use crate::engine::Wait;
use crate::error::Source;
use crate::load::LogFile;
use crate::store::TableStore;
use crate::upload::{abort, in_time};
use arrow_array::RecordBatch;
use buoyant_kernel as kernel;
use kernel::checkpoint::LastCheckpointHintStats;
use kernel::engine::arrow_data::ArrowEngineData;
use kernel::{ActionReconciliationIterator, Engine, SnapshotRef};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::io::{self, Write};
use std::sync::Arc;

/// Actions of a row group: what is in memory at once, for who writes and for who reads.
const ROW_GROUP: usize = 2048;
/// A larger checkpoint goes to the store in parts of this many bytes.
const PART: usize = 8 * 1024 * 1024;

/// Writes the checkpoint of a snapshot, unless it has one, and points `_last_checkpoint` to it. Blocks.
pub(crate) fn write(
    store: &TableStore,
    snapshot: &SnapshotRef,
    engine: &dyn Engine,
    wait: &Wait,
) -> Result<(), Source> {
    if snapshot.log_segment().checkpoint_version == Some(snapshot.version()) {
        return Ok(());
    }
    let writer = snapshot.clone().create_checkpoint_writer(engine)?;
    let actions = writer.checkpoint_data(engine)?;
    let counts = actions.state();
    let mut file = Upload::new(store, LogFile::checkpoint(snapshot.version()), wait);
    let written = write_actions(actions, &mut file).and_then(|()| Ok(file.finish()?));
    let size = written.inspect_err(|_| file.abort())?;
    let counts = Arc::into_inner(counts).ok_or("a checkpoint's actions are still being read")?;
    writer.finalize(engine, &LastCheckpointHintStats::from_reconciliation_state(counts, size, 0)?)?;
    Ok(())
}

fn write_actions(actions: ActionReconciliationIterator, file: &mut Upload) -> Result<(), Source> {
    let mut actions = actions.map(|actions| -> kernel::DeltaResult<RecordBatch> {
        Ok(ArrowEngineData::try_from_engine_data(actions?.apply_selection_vector()?)?.into())
    });
    let first = actions.next().ok_or("a table without any action")??;
    let mut writer = ArrowWriter::try_new_with_options(file, first.schema(), options())?;
    writer.write(&first)?;
    for batch in actions {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

/// As the kernel's, without a schema of Arrow's, but compressed and in row groups.
fn options() -> ArrowWriterOptions {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build();
    ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true)
}

/// A file on its way to the store: whole if it is small, else in equal parts, which some stores ask for.
struct Upload<'a> {
    store: &'a TableStore,
    path: Path,
    wait: &'a Wait,
    /// What is not sent yet; less than a part.
    rest: Vec<u8>,
    sent: u64,
    parts: Option<Box<dyn MultipartUpload>>,
}

impl<'a> Upload<'a> {
    fn new(store: &'a TableStore, path: Path, wait: &'a Wait) -> Self {
        Self { store, path, wait, rest: Vec::new(), sent: 0, parts: None }
    }

    fn send_part(&mut self) -> object_store::Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let begun = self.wait.until(in_time(self.store.store.put_multipart(&self.path)))?;
                none.insert(begun)
            }
        };
        let part = PutPayload::from(std::mem::take(&mut self.rest));
        self.sent += part.content_length() as u64;
        self.wait.until(in_time(parts.put_part(part)))
    }

    /// Sends what is left; the size of the whole file.
    fn finish(&mut self) -> object_store::Result<u64> {
        if self.parts.is_none() {
            let whole = PutPayload::from(std::mem::take(&mut self.rest));
            self.sent += whole.content_length() as u64;
            self.wait.until(in_time(self.store.store.put(&self.path, whole)))?;
            return Ok(self.sent);
        }
        if !self.rest.is_empty() {
            self.send_part()?;
        }
        if let Some(parts) = &mut self.parts {
            self.wait.until(in_time(parts.complete()))?;
        }
        Ok(self.sent)
    }

    fn abort(&mut self) {
        if let Some(parts) = &mut self.parts {
            self.wait.until(abort(self.store, &self.path, parts.as_mut()));
        }
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = &bytes[..bytes.len().min(PART - self.rest.len())];
        self.rest.extend_from_slice(taken);
        if self.rest.len() == PART {
            self.send_part()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
