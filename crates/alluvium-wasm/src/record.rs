//! Record plugins: raw bytes in, raw bytes out.

use crate::contract::{ChunkView, HeadersView, RawOutput, RecordAccess, RecordContract};
use crate::error::{CallError, Function, InputProblem, IsolateError, said};
use crate::instance::Sandbox;
use crate::isolate::{Isolation, isolate};
use crate::limits::ANSWER_BYTES;
use crate::outcome::{Held, check_inputs, check_rejects};
use crate::output::OutputError;
use crate::packing::{Packer, Packing, Selection, pack_run, unpack};
use alluvium_core::chunk::decode_headers;
use alluvium_core::{Packed, PluginRef, Records};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A record plugin with its configuration. Can be called from several threads at once; clones share
/// everything.
#[derive(Clone)]
pub struct RecordPlugin {
    inner: Arc<Inner>,
}

struct Inner {
    sandbox: Sandbox,
    contract: RecordContract,
    config: String,
    access: RecordAccess,
}

/// What a record plugin made of its records, checked. A record is kept (it has outputs), rejected, or
/// filtered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOutput {
    /// For each output the index of its record, rising; one given twice made two outputs.
    pub inputs: Vec<u32>,
    /// The outputs; none is null.
    pub values: Packed,
    /// New keys of the outputs; `None`: they keep their records' keys.
    pub keys: Option<Packed>,
    /// Indexes of records, rising, each with the plugin's reason.
    pub rejects: Vec<(u32, String)>,
}

/// A [`RecordOutput`] with the records that the plugin failed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IsolatedOutput {
    pub output: RecordOutput,
    /// Indexes of records, rising, each with the failure; they are not in `output`.
    pub bad: Vec<(u32, CallError)>,
}

impl RecordOutput {
    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        let inputs = self.inputs.len() * size_of::<u32>();
        let rejects = self.rejects.iter().map(|(_, reason)| reason.len() + size_of::<(u32, String)>()).sum::<usize>();
        inputs + rejects + self.values.memory() + self.keys.as_ref().map_or(0, Packed::memory)
    }
}

impl RecordPlugin {
    pub(crate) fn new(sandbox: Sandbox, contract: RecordContract, config: String, access: RecordAccess) -> Self {
        Self { inner: Arc::new(Inner { sandbox, contract, config, access }) }
    }

    pub fn access(&self) -> &RecordAccess {
        &self.inner.access
    }

    pub fn reference(&self) -> &PluginRef {
        &self.inner.sandbox.plugin.0
    }

    /// Calls the plugin once with the records at `select` (rising indexes), or with all. Each must
    /// have a value: tombstones do not reach plugins.
    ///
    /// Wasm runs on the calling thread's stack and uses up to 512 KiB of it.
    pub fn transform(&self, records: &Records, select: Option<&[u32]>) -> Result<RecordOutput, CallError> {
        let selection = self.inner.selection(records, select)?;
        self.inner.call(records, &selection, 0..selection.len())
    }

    /// Calls the plugin, and when it fails finds the records at fault.
    pub fn transform_isolating(
        &self,
        records: &Records,
        select: Option<&[u32]>,
        isolation: &Isolation,
    ) -> Result<IsolatedOutput, IsolateError> {
        let selection = self.inner.selection(records, select).map_err(|error| IsolateError::Call { error })?;
        let start = Instant::now();
        let mut held = Held::new(&self.inner.sandbox);
        let found = isolate(
            selection.len(),
            isolation,
            || start.elapsed(),
            |range| {
                let output = self.inner.call(records, &selection, range)?;
                held.add(output.memory())?;
                Ok(output)
            },
        )?;
        let bad = found.bad.into_iter().map(|(at, error)| (selection.index(at), error)).collect();
        let outputs = found.good.into_iter().map(|(_, output)| output).collect();
        let output = self.inner.merge(records, outputs).map_err(|error| IsolateError::Call { error })?;
        Ok(IsolatedOutput { output, bad })
    }
}

impl std::fmt::Debug for RecordPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordPlugin")
            .field("plugin", &self.inner.sandbox.plugin)
            .field("access", &self.inner.access)
            .finish_non_exhaustive()
    }
}

struct Headers {
    counts: Vec<u32>,
    names: Packing<'static>,
    values: Packing<'static>,
}

impl Headers {
    fn view(&self) -> HeadersView<'_> {
        HeadersView { counts: &self.counts, names: self.names.view(), values: self.values.view() }
    }
}

impl Inner {
    fn input(&self, problem: InputProblem) -> CallError {
        CallError::Input { plugin: self.sandbox.plugin.clone(), problem }
    }

    fn selection<'a>(&self, records: &Records, select: Option<&'a [u32]>) -> Result<Selection<'a>, CallError> {
        if u32::try_from(records.len()).is_err() {
            return Err(self.input(InputProblem::TooMany));
        }
        let selection = match select {
            None => Selection::All(records.len()),
            Some(indexes) => Selection::These(indexes),
        };
        let mut before = None;
        for at in 0..selection.len() {
            let record = selection.index(at);
            if record as usize >= records.len() {
                return Err(self.input(InputProblem::Selection { record, records: records.len() }));
            }
            if let Some(before) = before.filter(|before| *before >= record) {
                return Err(self.input(InputProblem::Order { record, before }));
            }
            if records.values().is_null(record as usize) {
                return Err(self.input(InputProblem::NoValue { record }));
            }
            before = Some(record);
        }
        Ok(selection)
    }

    /// The strings of the records at `range` of the selection.
    fn pack<'a>(
        &self,
        packed: &'a Packed,
        selection: &Selection<'_>,
        range: Range<usize>,
    ) -> Result<Packing<'a>, CallError> {
        let (Some(last), first) = (range.end.checked_sub(1), selection.index(range.start)) else {
            return Ok(Packer::default().finish());
        };
        let consecutive = !range.is_empty() && (selection.index(last) - first) as usize == last - range.start;
        if consecutive {
            return Ok(pack_run(packed, first as usize..first as usize + range.len()));
        }
        let mut packer = Packer::default();
        for at in range {
            packer.push(packed.get(selection.index(at) as usize)).map_err(|problem| self.input(problem))?;
        }
        Ok(packer.finish())
    }

    fn headers(&self, records: &Records, selection: &Selection<'_>, range: Range<usize>) -> Result<Headers, CallError> {
        let mut counts = Vec::with_capacity(range.len());
        let (mut names, mut values) = (Packer::default(), Packer::default());
        for at in range {
            let packed = records.headers().get(selection.index(at) as usize).unwrap_or_default();
            let headers = decode_headers(packed);
            counts.push(u32::try_from(headers.len()).map_err(|_| self.input(InputProblem::TooMany))?);
            for header in headers {
                let name = names.push(Some(header.key.as_bytes()));
                name.and_then(|()| values.push(header.value)).map_err(|problem| self.input(problem))?;
            }
        }
        Ok(Headers { counts, names: names.finish(), values: values.finish() })
    }

    /// Calls the plugin with the records at `range` of the selection; the output has the records' own
    /// indexes.
    fn call(
        &self,
        records: &Records,
        selection: &Selection<'_>,
        range: Range<usize>,
    ) -> Result<RecordOutput, CallError> {
        self.sandbox.enter(|session| {
            let values = self.pack(records.values(), selection, range.clone())?;
            let keys = match self.access.keys {
                true => Some(self.pack(records.keys(), selection, range.clone())?),
                false => None,
            };
            let headers = match self.access.headers {
                true => Some(self.headers(records, selection, range.clone())?),
                false => None,
            };
            let timestamps: Option<Vec<i64>> = self.access.timestamps.then(|| {
                let timestamp = |at| records.timestamps().get(selection.index(at) as usize).copied();
                range.clone().map(|at| timestamp(at).unwrap_or(alluvium_core::chunk::NO_TIMESTAMP)).collect()
            });
            let chunk = ChunkView {
                count: u32::try_from(range.len()).map_err(|_| self.input(InputProblem::TooMany))?,
                values: values.view(),
                keys: keys.as_ref().map(Packing::view),
                headers: headers.as_ref().map(Headers::view),
                timestamps: timestamps.as_deref(),
            };
            let contract = &self.contract;
            let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
            let access =
                session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, &self.config))?;
            if access != Ok(self.access) {
                return Err(self.sandbox.output(Function::Configure, OutputError::ConfiguredAnew));
            }
            let limit = self.sandbox.limits.output;
            let output = session.call(Function::Transform, limit, |store| instance.transform(store, &chunk))?;
            let output = output.map_err(|message| CallError::Failed {
                plugin: self.sandbox.plugin.clone(),
                message: said(&message),
            })?;
            let checked = self.check(range.len(), output);
            let mut checked = checked.map_err(|problem| self.sandbox.output(Function::Transform, problem))?;
            for input in &mut checked.inputs {
                *input = selection.index(range.start + *input as usize);
            }
            for (input, _) in &mut checked.rejects {
                *input = selection.index(range.start + *input as usize);
            }
            Ok(checked)
        })
    }

    fn check(&self, records: usize, raw: RawOutput) -> Result<RecordOutput, OutputError> {
        let outputs = raw.inputs.len();
        let limit = self.sandbox.limits.rows.max(records);
        if outputs > limit {
            return Err(OutputError::TooManyOutputs { outputs, limit });
        }
        check_inputs(&raw.inputs, records, self.access.multiplies)?;
        let rejects = check_rejects(raw.rejects, records, Some(&raw.inputs))?;
        let limit = self.sandbox.limits.output;
        let values = unpack("values", raw.values, outputs, limit)?;
        if let Some(output) = (0..outputs).find(|output| values.is_null(*output)) {
            return Err(OutputError::NullValue { output });
        }
        let keys = raw.keys.map(|keys| unpack("keys", keys, outputs, limit)).transpose()?;
        Ok(RecordOutput { inputs: raw.inputs, values, keys, rejects })
    }

    /// One output out of those of ranges of the selection.
    fn merge(&self, records: &Records, outputs: Vec<RecordOutput>) -> Result<RecordOutput, CallError> {
        if outputs.len() == 1 {
            return Ok(outputs.into_iter().next().unwrap_or_default());
        }
        let new_keys = outputs.iter().any(|output| output.keys.is_some());
        let mut merged = RecordOutput { keys: new_keys.then(Packed::default), ..RecordOutput::default() };
        let full = |_| {
            let limit = self.sandbox.limits.output;
            self.sandbox.output(Function::Transform, OutputError::TooLarge { limit })
        };
        for output in outputs {
            for value in output.values.iter() {
                merged.values.push(value).map_err(full)?;
            }
            if let Some(keys) = &mut merged.keys {
                for (at, input) in output.inputs.iter().enumerate() {
                    let key = match &output.keys {
                        Some(new) => new.get(at),
                        None => records.keys().get(*input as usize),
                    };
                    keys.push(key).map_err(full)?;
                }
            }
            merged.inputs.extend(output.inputs);
            merged.rejects.extend(output.rejects);
        }
        Ok(merged)
    }
}
