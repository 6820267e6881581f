//! The contract with plugins: values as every version of it means them, and one adapter for each
//! released version.
//!
//! A new version gets a directory under `wit/`, a module here with its bindings and conversions,
//! and a variant in [`Version`], [`ColumnContract`], [`RecordContract`], [`MappingContract`] and their
//! instances. Nothing
//! outside this module knows what differs between versions.

pub(crate) mod mapping;
mod v0_1_0;

use crate::instance::StoreData;
use arrow_buffer::{Buffer, ScalarBuffer};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

pub(crate) use mapping::MappingContract;

/// The interface of column plugins, without its version.
pub(crate) const COLUMN: &str = "alluvium:plugin/column-transform";
/// The interface of record plugins, without its version.
pub(crate) const RECORD: &str = "alluvium:plugin/record-transform";
/// The interface of schema mappings, without its version.
pub(crate) const MAPPING: &str = "alluvium:plugin/schema-mapping";

/// A version of the contract that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V0_1_0,
}

impl Version {
    /// All of them, newest first.
    pub const ALL: &[Self] = &[Self::V0_1_0];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
        }
    }
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// JSON Schema of the configuration; empty when it takes none.
    pub config_schema: String,
}

/// How a node's values lie in its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Boolean,
    Fixed1,
    Fixed2,
    Fixed4,
    Fixed8,
    Fixed16,
    Bytes,
    Utf8,
    List,
    Map,
    Struct,
}

/// A node on its way to a plugin.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub name: &'a str,
    pub layout: Layout,
    pub children: u32,
    pub length: u32,
    pub validity: Option<Buffer>,
    pub offsets: Option<ScalarBuffer<i32>>,
    pub values: Buffer,
}

/// A node as a plugin returned it: nothing of it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawNode {
    pub name: String,
    pub layout: Layout,
    pub children: u32,
    pub length: u32,
    pub validity: Option<Vec<u8>>,
    pub offsets: Option<Vec<i32>>,
    pub values: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawField {
    pub path: String,
    pub data_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawColumnAccess {
    pub reads: Vec<RawField>,
    pub writes: Vec<RawField>,
    pub multiplies: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawReject {
    pub input: u32,
    pub reason: String,
}

#[derive(Clone, Debug)]
pub(crate) struct RawEdit {
    pub rows: Option<Vec<u32>>,
    pub nodes: Vec<RawNode>,
    pub rejects: Vec<RawReject>,
}

/// What a configured record plugin wants to see besides the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAccess {
    pub keys: bool,
    pub headers: bool,
    pub timestamps: bool,
    /// Whether one record can become several.
    pub multiplies: bool,
}

/// Byte strings on their way to a plugin, back to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedView<'a> {
    pub ends: &'a [u32],
    pub data: &'a [u8],
    pub validity: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadersView<'a> {
    pub counts: &'a [u32],
    pub names: PackedView<'a>,
    pub values: PackedView<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkView<'a> {
    pub count: u32,
    pub values: PackedView<'a>,
    pub keys: Option<PackedView<'a>>,
    pub headers: Option<HeadersView<'a>>,
    pub timestamps: Option<&'a [i64]>,
}

#[derive(Clone, Debug)]
pub(crate) struct RawPacked {
    pub ends: Vec<u32>,
    pub data: Vec<u8>,
    pub validity: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct RawOutput {
    pub inputs: Vec<u32>,
    pub values: RawPacked,
    pub keys: Option<RawPacked>,
    pub rejects: Vec<RawReject>,
}

/// The outcome of a call: the engine's failure outside, the plugin's own answer inside.
pub(crate) type Answer<T> = wasmtime::Result<Result<T, String>>;

/// A component linked as a column plugin, by the version of the contract it is built against.
#[derive(Clone)]
pub(crate) enum ColumnContract {
    V0_1_0(v0_1_0::ColumnLinked),
}

impl ColumnContract {
    pub fn link(version: Version, component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        match version {
            Version::V0_1_0 => v0_1_0::ColumnLinked::new(component).map(Self::V0_1_0),
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
    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<ColumnInstance> {
        match self {
            Self::V0_1_0(linked) => linked.load(store, instance).map(ColumnInstance::V0_1_0),
        }
    }
}

/// A column plugin's instance in a store.
pub(crate) enum ColumnInstance {
    V0_1_0(v0_1_0::ColumnRunning),
}

impl ColumnInstance {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        match self {
            Self::V0_1_0(running) => running.describe(store),
        }
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<RawColumnAccess> {
        match self {
            Self::V0_1_0(running) => running.configure(store, config),
        }
    }

    pub fn transform(&self, store: &mut Store<StoreData>, rows: u32, nodes: &[Node<'_>]) -> Answer<RawEdit> {
        match self {
            Self::V0_1_0(running) => running.transform(store, rows, nodes),
        }
    }
}

/// A component linked as a record plugin, by the version of the contract it is built against.
#[derive(Clone)]
pub(crate) enum RecordContract {
    V0_1_0(v0_1_0::RecordLinked),
}

impl RecordContract {
    pub fn link(version: Version, component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        match version {
            Version::V0_1_0 => v0_1_0::RecordLinked::new(component).map(Self::V0_1_0),
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
    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<RecordInstance> {
        match self {
            Self::V0_1_0(linked) => linked.load(store, instance).map(RecordInstance::V0_1_0),
        }
    }
}

/// A record plugin's instance in a store.
pub(crate) enum RecordInstance {
    V0_1_0(v0_1_0::RecordRunning),
}

impl RecordInstance {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        match self {
            Self::V0_1_0(running) => running.describe(store),
        }
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<RecordAccess> {
        match self {
            Self::V0_1_0(running) => running.configure(store, config),
        }
    }

    pub fn transform(&self, store: &mut Store<StoreData>, chunk: &ChunkView<'_>) -> Answer<RawOutput> {
        match self {
            Self::V0_1_0(running) => running.transform(store, chunk),
        }
    }
}
