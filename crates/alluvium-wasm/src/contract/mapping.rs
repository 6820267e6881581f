//! Schema mappings: what they are told of the records and the table, and what they answer.

use super::{Answer, Description, Version, v0_1_0};
use crate::instance::StoreData;
use alluvium_core::{Coercion, DataType, Derivation, OnConflict};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

/// What was seen of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceShape {
    /// `json`.
    pub format: String,
    /// The id of the records' schema, where a registry gives one.
    pub schema_id: Option<String>,
    /// All paths, each before those below it.
    pub fields: Vec<Seen>,
}

/// What was seen at a path of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Parts joined by dots as [`join_path`](crate::join_path) spells them; a part `[]` without
    /// backticks leads to the elements of a list.
    pub path: String,
    pub kinds: Kinds,
    /// The type that inference would give it, in Spark's DDL spelling; `None` while it is not known.
    pub inferred: Option<String>,
}

/// The kinds of values seen at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds {
    pub null: bool,
    pub boolean: bool,
    /// A number without a fraction or an exponent.
    pub integer: bool,
    /// A number with one.
    pub fraction: bool,
    pub string: bool,
    pub object: bool,
    pub list: bool,
}

/// A column that the table has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableColumn {
    pub name: String,
    pub data_type: DataType,
}

/// A plan as a plugin returned it: nothing of its texts is checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawMapping {
    pub columns: Vec<RawColumn>,
    pub drops: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RawColumn {
    pub name: String,
    pub data_type: String,
    pub path: String,
    pub coercion: Coercion,
    pub inner_coercions: Vec<(String, Coercion)>,
    pub derivation: Option<Derivation>,
    pub on_conflict: OnConflict,
    pub default: Option<String>,
    pub comment: Option<String>,
}

/// A component linked as a mapping plugin, by the version of the contract it is built against.
#[derive(Clone)]
pub(crate) enum MappingContract {
    V0_1_0(v0_1_0::MappingLinked),
}

impl MappingContract {
    pub fn link(version: Version, component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        match version {
            Version::V0_1_0 => v0_1_0::MappingLinked::new(component).map(Self::V0_1_0),
        }
    }

    /// Makes an instance; the component's start functions run here.
    pub fn start(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Instance> {
        match self {
            Self::V0_1_0(linked) => linked.start(store),
        }
    }

    /// Finds the contract's functions in an instance. Fails when one is missing or of another type;
    /// nothing of the component runs.
    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<MappingInstance> {
        match self {
            Self::V0_1_0(linked) => linked.load(store, instance).map(MappingInstance::V0_1_0),
        }
    }
}

/// A mapping plugin's instance in a store.
pub(crate) enum MappingInstance {
    V0_1_0(v0_1_0::MappingRunning),
}

impl MappingInstance {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        match self {
            Self::V0_1_0(running) => running.describe(store),
        }
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<()> {
        match self {
            Self::V0_1_0(running) => running.configure(store, config),
        }
    }

    pub fn plan(
        &self,
        store: &mut Store<StoreData>,
        source: &SourceShape,
        table: Option<&[TableColumn]>,
    ) -> Answer<RawMapping> {
        match self {
            Self::V0_1_0(running) => running.plan(store, source, table),
        }
    }
}
