//! JSON records into a batch of a plan's columns.

mod columns;
mod compile;
mod judge;
mod map;
mod missing;
mod notes;
mod read;
mod time;
mod tree;

use crate::json::Fault;
use crate::{DecodeError, Evolve, Plan, Shape};
use alluvium_core::{Packed, Reason};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, types::Utf8Type};
use arrow_schema::SchemaRef;
use columns::Bytes;
use compile::compile;
use judge::{Judge, Verdict};
use read::{State, read_record};
use std::fmt;
use std::sync::Arc;
use tree::{Object, Place};

/// Runs a plan over records. Holds the buffers for the next batch; one per thread.
pub struct Decoder {
    plan: Arc<Plan>,
    schema: SchemaRef,
    root: Object,
    places: Vec<Place>,
    state: State,
    /// The rescued column, without the nulls since the last value.
    rescued: Bytes,
    /// Bytes of records that one batch can take.
    limit: usize,
}

/// What became of the records of one call.
#[derive(Debug)]
pub struct Decoded {
    /// A row for each record that is not rejected, in order, of the plan's schema.
    pub batch: RecordBatch,
    /// For each row the number of its record; rising.
    pub inputs: Vec<u32>,
    /// The records that became no row, in order.
    pub rejects: Vec<Reject>,
    /// Unknown fields in the rows: those that [`Plan::grow`] would add, or would stop for. None on
    /// the common path. Until the plan is grown and the records are decoded anew they are rescued.
    /// With a plan of a plugin: all unknown fields, and the values in conflict, of rejected records too.
    pub unknown: Option<Shape>,
    /// A value that stops the pipeline. Its record is neither row nor reject, and those after it
    /// were not read.
    pub stop: Option<Stop>,
}

/// A record that became no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The number of the record.
    pub input: u32,
    /// Its code is `malformed` or `conflict`.
    pub reason: Reason,
}

/// A value that is not of its column's type, in a column that stops the pipeline for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The number of the record.
    pub input: u32,
    /// The path in the record, with `[]` for the elements of a list and `{}` for the values of a map.
    pub path: String,
    /// What was wanted: a type, and how it is read.
    pub wanted: String,
    /// The JSON text found, cut when it is long.
    pub value: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&judge::conflict(&self.path, &self.wanted, &self.value))
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Decoder {
    pub fn new(plan: Arc<Plan>) -> Self {
        let (root, places) = compile(&plan);
        Self {
            schema: plan.schema(),
            root,
            places,
            state: State::new(),
            rescued: Bytes::empty(),
            limit: i32::MAX as usize,
            plan,
        }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Decodes records; a null is a record without a value, which is malformed.
    pub fn decode(&mut self, values: &Packed) -> Result<Decoded, DecodeError> {
        if u32::try_from(values.len()).is_err() {
            return Err(DecodeError::TooManyRecords { found: values.len(), max: u32::MAX });
        }
        self.root.truncate(0);
        self.rescued.truncate(0);
        self.state.shrink();
        // One check for all is much cheaper than one for each. It is enough: a character cut in two
        // by the end of a record can stand only where JSON's grammar has no place for it.
        let all_utf8 = simdutf8::basic::from_utf8(values.data()).is_ok();
        let mut inputs = Vec::with_capacity(values.len());
        let mut rejects = Vec::new();
        let mut unknown = self.wants_unknown().then(Shape::default);
        let mut stop = None;
        let mut taken = 0;
        for (input, value) in (0..=u32::MAX).zip(values.iter()) {
            let bytes = value.unwrap_or_default();
            let fault = match value {
                None => Err((Fault::Missing, 0)),
                Some(bytes) if bytes.len() > self.limit - taken => Err((Fault::ChunkFull, 0)),
                Some(bytes) if !all_utf8 && simdutf8::basic::from_utf8(bytes).is_err() => Err((Fault::Utf8, 0)),
                Some(bytes) => read_record(bytes, &mut self.root, &mut self.state),
            };
            let verdict = match fault {
                Err((fault, at)) => Verdict::Reject(judge::malformed(bytes, fault, at)),
                Ok(()) if self.state.notes.len() == 0 => Verdict::Row,
                Ok(()) => {
                    let judge = Judge { record: bytes, notes: &self.state.notes, places: &self.places };
                    if let Some(news) = unknown.as_mut().filter(|_| self.plan.wants_news()) {
                        judge.add_conflicts(news);
                    }
                    judge.judge(inputs.len(), &mut self.rescued, unknown.as_mut())
                }
            };
            match verdict {
                Verdict::Row => {
                    inputs.push(input);
                    taken += bytes.len();
                }
                Verdict::Reject(reason) => {
                    self.root.truncate(inputs.len());
                    rejects.push(Reject { input, reason });
                }
                Verdict::Stop { path, wanted, value } => {
                    self.root.truncate(inputs.len());
                    stop = Some(Stop { input, path, wanted, value });
                    break;
                }
            }
        }
        let unknown = unknown.filter(|unknown| self.is_news(unknown));
        let batch = self.finish(inputs.len()).map_err(|source| DecodeError::Assemble { source })?;
        Ok(Decoded { batch, inputs, rejects, unknown, stop })
    }

    fn wants_unknown(&self) -> bool {
        let held = matches!(self.plan.evolve(), Evolve::None | Evolve::Approve);
        !held || !self.plan.is_settled() || self.plan.wants_news()
    }

    /// Whether growth would not just pass over it.
    fn is_news(&self, unknown: &Shape) -> bool {
        !unknown.is_empty() && (self.plan.wants_news() || !matches!(self.plan.grow(unknown), Ok(None)))
    }

    fn finish(&mut self, rows: usize) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let mut columns = vec![None; self.plan.columns().len()];
        self.root.finish_columns(&mut columns)?;
        let mut columns = columns.into_iter().flatten().collect::<Vec<ArrayRef>>();
        if self.plan.can_rescue() {
            self.rescued.push_nulls(rows - self.rescued.len());
            columns.push(Arc::new(self.rescued.finish::<Utf8Type>()?));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ColumnSpec, PlanOptions};
    use alluvium_core::DataType;

    #[test]
    fn records_past_the_limit_are_rejected() {
        let plan = Plan::declared(vec![ColumnSpec::new("s", DataType::String)], PlanOptions::default()).unwrap();
        let mut decoder = Decoder::new(Arc::new(plan));
        decoder.limit = 20;
        let records: [&[u8]; 5] = [b"{\"s\":\"abc\"}", b"{\"s\":\"abcd\"}", b"xxxx", b"{\"s\":\"\"}", b"{}"];
        let values = records.into_iter().map(Some).collect::<Packed>();
        for _ in 0..2 {
            let decoded = decoder.decode(&values).unwrap();
            assert_eq!(decoded.inputs, [0, 3]);
            let messages = decoded.rejects.iter().map(|reject| (reject.input, reject.reason.message.as_str()));
            assert_eq!(
                messages.collect::<Vec<_>>(),
                [
                    (1, Fault::ChunkFull.message()),
                    (2, "expected a JSON object at byte 0, found xxxx"),
                    (4, Fault::ChunkFull.message()),
                ]
            );
        }
    }
}
