//! Column plugins: typed columns in, an edit out.

use crate::access::{AccessField, ColumnAccess};
use crate::arrow::{Nodes, concat, lift_column, lower_column};
use crate::contract::{ColumnContract, ColumnInstance, Node, RawColumnAccess, RawEdit};
use crate::error::{CallError, Function, InputProblem, IsolateError, said};
use crate::instance::{Sandbox, Session};
use crate::isolate::{Isolation, isolate};
use crate::limits::ANSWER_BYTES;
use crate::outcome::{Held, check_inputs, check_rejects};
use crate::output::OutputError;
use alluvium_core::PluginRef;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType as ArrowType;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A column plugin with its configuration. Can be called from several threads at once; clones share
/// everything.
#[derive(Clone)]
pub struct ColumnPlugin {
    inner: Arc<Inner>,
}

struct Inner {
    sandbox: Sandbox,
    contract: ColumnContract,
    config: String,
    /// What `configure` answered first: every instance must answer the same.
    raw: RawColumnAccess,
    access: ColumnAccess,
    /// Of `access.reads` and `access.writes`: the paths' texts and the Arrow types.
    read_names: Vec<String>,
    read_types: Vec<ArrowType>,
    write_names: Vec<String>,
    write_types: Vec<ArrowType>,
}

/// What a column plugin made of its rows, checked. An input is kept (`rows`), rejected, or filtered.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The input rows that are kept, rising; one given twice became two rows. `None`: all, once each.
    pub rows: Option<Vec<u32>>,
    /// The columns written, in the order of the access's `writes`, with a value for each row kept.
    pub columns: Vec<ArrayRef>,
    /// Input rows, rising, each with the plugin's reason.
    pub rejects: Vec<(u32, String)>,
}

/// An [`Edit`] with the input rows that the plugin failed on.
#[derive(Clone, Debug, PartialEq)]
pub struct IsolatedEdit {
    pub edit: Edit,
    /// Input rows, rising, each with the failure; they are not in `edit`.
    pub bad: Vec<(u32, CallError)>,
}

impl Edit {
    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, Vec::len) * size_of::<u32>();
        let columns = self.columns.iter().map(|column| column.get_array_memory_size()).sum::<usize>();
        let rejects = self.rejects.iter().map(|(_, reason)| reason.len() + size_of::<(u32, String)>()).sum::<usize>();
        rows + columns + rejects
    }
}

impl ColumnPlugin {
    pub(crate) fn new(
        sandbox: Sandbox,
        contract: ColumnContract,
        config: String,
        raw: RawColumnAccess,
        access: ColumnAccess,
    ) -> Self {
        let names = |fields: &[AccessField]| fields.iter().map(AccessField::name).collect();
        let types = |fields: &[AccessField]| fields.iter().map(|field| field.data_type.to_arrow()).collect();
        let inner = Inner {
            read_names: names(&access.reads),
            read_types: types(&access.reads),
            write_names: names(&access.writes),
            write_types: types(&access.writes),
            sandbox,
            contract,
            config,
            raw,
            access,
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn access(&self) -> &ColumnAccess {
        &self.inner.access
    }

    pub fn reference(&self) -> &PluginRef {
        &self.inner.sandbox.plugin.0
    }

    /// Calls the plugin once. `columns` are the access's `reads` in their order, each of `rows` values
    /// and of the type `data_type.to_arrow()`.
    ///
    /// Wasm runs on the calling thread's stack and uses up to 512 KiB of it.
    pub fn transform(&self, rows: usize, columns: &[ArrayRef]) -> Result<Edit, CallError> {
        self.inner.check_input(rows, columns)?;
        self.inner.call(0..rows, columns)
    }

    /// Calls one instance several times over: what a call would cost if instances lived on. For
    /// measurements only, `instance.rs` says why they do not.
    #[doc(hidden)]
    pub fn transform_repeatedly(&self, rows: usize, columns: &[ArrayRef], times: usize) -> Result<(), CallError> {
        self.inner.check_input(rows, columns)?;
        self.inner.sandbox.enter(|session| {
            let instance = self.inner.ready(session)?;
            for _ in 0..times {
                let nodes = self.inner.lower(columns)?;
                self.inner.apply(session, &instance, rows, &nodes)?;
            }
            Ok(())
        })
    }

    /// Calls the plugin, and when it fails finds the rows at fault.
    pub fn transform_isolating(
        &self,
        rows: usize,
        columns: &[ArrayRef],
        isolation: &Isolation,
    ) -> Result<IsolatedEdit, IsolateError> {
        self.inner.check_input(rows, columns).map_err(|error| IsolateError::Call { error })?;
        let start = Instant::now();
        let mut held = Held::new(&self.inner.sandbox);
        let found = isolate(
            rows,
            isolation,
            || start.elapsed(),
            |range| {
                let edit = self.inner.call(range, columns)?;
                held.add(edit.memory())?;
                Ok(edit)
            },
        )?;
        let bad = found.bad.into_iter().map(|(row, error)| (row as u32, error)).collect();
        let merge = || self.inner.merge(rows, found.good);
        let edit = self.inner.sandbox.guard(merge).map_err(|error| IsolateError::Call { error })?;
        Ok(IsolatedEdit { edit, bad })
    }
}

impl std::fmt::Debug for ColumnPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColumnPlugin")
            .field("plugin", &self.inner.sandbox.plugin)
            .field("access", &self.inner.access)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn input(&self, problem: InputProblem) -> CallError {
        CallError::Input { plugin: self.sandbox.plugin.clone(), problem }
    }

    fn check_input(&self, rows: usize, columns: &[ArrayRef]) -> Result<(), CallError> {
        let expected = self.access.reads.len();
        if columns.len() != expected {
            return Err(self.input(InputProblem::Columns { expected, found: columns.len() }));
        }
        for (name, column) in self.read_names.iter().zip(columns) {
            if column.len() != rows {
                let (column, found) = (name.clone(), column.len());
                return Err(self.input(InputProblem::Length { column, expected: rows, found }));
            }
        }
        if u32::try_from(rows).is_err() {
            return Err(self.input(InputProblem::TooMany));
        }
        Ok(())
    }

    /// Calls the plugin with the rows of `range`; the edit counts from the range's start.
    fn call(&self, range: Range<usize>, columns: &[ArrayRef]) -> Result<Edit, CallError> {
        let columns: Vec<_> = columns.iter().map(|column| column.slice(range.start, range.len())).collect();
        self.sandbox.enter(|session| {
            let nodes = self.lower(&columns)?;
            let instance = self.ready(session)?;
            self.apply(session, &instance, range.len(), &nodes)
        })
    }

    fn lower<'a>(&'a self, columns: &[ArrayRef]) -> Result<Vec<Node<'a>>, CallError> {
        let mut nodes = Vec::with_capacity(columns.len());
        let reads = self.access.reads.iter().zip(&self.read_names).zip(&self.read_types);
        for (((field, name), arrow), column) in reads.zip(columns) {
            let lowered = lower_column(name, &field.data_type, arrow, column, &mut nodes);
            lowered.map_err(|problem| self.input(problem))?;
        }
        Ok(nodes)
    }

    /// A fresh instance that has its configuration.
    fn ready(&self, session: &mut Session<'_>) -> Result<ColumnInstance, CallError> {
        let contract = &self.contract;
        let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
        let access =
            session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, &self.config))?;
        if access.as_ref() != Ok(&self.raw) {
            return Err(self.sandbox.output(Function::Configure, OutputError::ConfiguredAnew));
        }
        Ok(instance)
    }

    fn apply(
        &self,
        session: &mut Session<'_>,
        instance: &ColumnInstance,
        rows: usize,
        nodes: &[Node<'_>],
    ) -> Result<Edit, CallError> {
        let count = u32::try_from(rows).map_err(|_| self.input(InputProblem::TooMany))?;
        let output = self.sandbox.limits.output;
        let edit = session.call(Function::Transform, output, |store| instance.transform(store, count, nodes))?;
        let plugin = || self.sandbox.plugin.clone();
        let edit = edit.map_err(|message| CallError::Failed { plugin: plugin(), message: said(&message) })?;
        self.check(rows, edit).map_err(|problem| self.sandbox.output(Function::Transform, problem))
    }

    fn check(&self, rows: usize, raw: RawEdit) -> Result<Edit, OutputError> {
        let kept = raw.rows.as_ref().map_or(rows, Vec::len);
        let limit = self.sandbox.limits.rows.max(rows);
        if kept > limit {
            return Err(OutputError::TooManyOutputs { outputs: kept, limit });
        }
        if let Some(kept) = &raw.rows {
            check_inputs(kept, rows, self.access.multiplies)?;
        }
        let rejects = check_rejects(raw.rejects, rows, raw.rows.as_deref())?;
        let mut nodes = Nodes::new(raw.nodes);
        let mut columns = Vec::with_capacity(self.access.writes.len());
        for ((field, name), arrow) in self.access.writes.iter().zip(&self.write_names).zip(&self.write_types) {
            columns.push(lift_column(name, &field.data_type, arrow, kept, &mut nodes)?);
        }
        nodes.finish()?;
        Ok(Edit { rows: raw.rows, columns, rejects })
    }

    /// One edit out of those of ranges of the rows.
    fn merge(&self, rows: usize, good: Vec<(Range<usize>, Edit)>) -> Result<Edit, CallError> {
        if let [(range, _)] = good.as_slice()
            && *range == (0..rows)
        {
            // One call with all rows: the usual case.
            let edit = good.into_iter().next().map(|(_, edit)| edit);
            return edit.ok_or_else(|| self.input(InputProblem::TooMany));
        }
        let mut kept = Vec::new();
        let mut rejects = Vec::new();
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.access.writes.len()];
        for (range, edit) in good {
            let start = range.start as u32;
            match edit.rows {
                Some(rows) => kept.extend(rows.into_iter().map(|row| start + row)),
                None => kept.extend(range.map(|row| row as u32)),
            }
            rejects.extend(edit.rejects.into_iter().map(|(row, reason)| (start + row, reason)));
            for (parts, column) in parts.iter_mut().zip(edit.columns) {
                parts.push(column);
            }
        }
        let mut columns = Vec::with_capacity(parts.len());
        for ((parts, name), arrow) in parts.iter().zip(&self.write_names).zip(&self.write_types) {
            columns.push(match parts.as_slice() {
                [] => arrow_array::new_empty_array(arrow),
                parts => concat(parts).map_err(|problem| {
                    let problem = OutputError::Array { column: name.clone(), problem };
                    self.sandbox.output(Function::Transform, problem)
                })?,
            });
        }
        Ok(Edit { rows: Some(kept), columns, rejects })
    }
}
