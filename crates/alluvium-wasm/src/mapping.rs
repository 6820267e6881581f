//! Schema mappings: a shape of records and a table's columns in, a plan out.

mod check;

use crate::contract::MappingContract;
use crate::contract::mapping::{SourceShape, TableColumn};
use crate::error::{Function, MappingError, said};
use crate::instance::Sandbox;
use crate::limits::{ANSWER_BYTES, PLAN_BYTES};
use crate::output::OutputError;
use alluvium_core::{Coercion, DataType, Derivation, OnConflict, PluginRef};
use std::fmt;
use std::sync::Arc;

/// A mapping plugin with its configuration. Can be called from several threads at once; clones share
/// everything.
#[derive(Clone)]
pub struct MappingPlugin {
    inner: Arc<Inner>,
}

struct Inner {
    sandbox: Sandbox,
    contract: MappingContract,
    config: String,
}

/// What a mapping plugin answered: each column and drop is sound for itself. Whether they go together,
/// with each other, with the shape and with the table, is not looked at here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingAnswer {
    /// The columns that records fill, in the plugin's order.
    pub columns: Vec<MappedColumn>,
    /// Paths of fields to leave out, through objects only.
    pub drops: Vec<Vec<String>>,
}

/// A column of a plan, as the plugin wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedColumn {
    /// The column of the table; not empty, without characters that act on what displays them.
    pub name: String,
    pub data_type: DataType,
    /// The path in the record, through objects only; at least one part. Parts can be empty: keys can.
    pub path: Vec<String>,
    /// How the value itself is read.
    pub coercion: Coercion,
    /// How values inside it are read, by the path inside the column as [`join_path`](crate::join_path)
    /// spells it; none twice.
    pub inner_coercions: Vec<(String, Coercion)>,
    /// What it takes of the value instead of the whole.
    pub derivation: Option<Derivation>,
    pub on_conflict: OnConflict,
    /// JSON text: the value where the record does not have the field.
    pub default: Option<String>,
    /// For readers of the table.
    pub comment: Option<String>,
}

impl MappingPlugin {
    pub(crate) fn new(sandbox: Sandbox, contract: MappingContract, config: String) -> Self {
        Self { inner: Arc::new(Inner { sandbox, contract, config }) }
    }

    /// The name it was admitted under, and its digest.
    pub fn reference(&self) -> &PluginRef {
        &self.inner.sandbox.plugin.0
    }

    /// Asks a fresh instance for the plan for records of this shape and a table of these columns;
    /// `None` when there is no table yet.
    ///
    /// Wasm runs on the calling thread's stack and uses up to 512 KiB of it.
    pub fn plan(&self, source: &SourceShape, table: Option<&[TableColumn]>) -> Result<MappingAnswer, MappingError> {
        let Inner { sandbox, contract, config } = self.inner.as_ref();
        let plan = sandbox.enter(|session| {
            let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
            let configured =
                session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, config))?;
            // It took the same configuration before.
            configured.map_err(|_| sandbox.output(Function::Configure, OutputError::ConfiguredAnew))?;
            session.call(Function::Plan, PLAN_BYTES, |store| instance.plan(store, source, table))
        })?;
        let plugin = || sandbox.plugin.clone();
        let raw = plan.map_err(|message| MappingError::Refused { plugin: plugin(), message: said(&message) })?;
        let checked = sandbox.guard(|| Ok(check::answer(raw)))?;
        checked.map_err(|found| MappingError::Answer { plugin: plugin(), problems: found.problems, more: found.more })
    }
}

impl fmt::Debug for MappingPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappingPlugin").field("plugin", &self.inner.sandbox.plugin).finish_non_exhaustive()
    }
}
