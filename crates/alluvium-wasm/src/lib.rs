//! Runs users' plugins: WebAssembly components, admitted, limited and called on wasmtime.
//!
//! - [`Host`]: one engine for all plugins of a process. [`Host::admit`] is the only way in.
//! - [`Plugin`]: an admitted component; [`Plugin::configure_column`], [`Plugin::configure_record`] and
//!   [`Plugin::configure_mapping`] hand it its configuration.
//! - [`ColumnPlugin`] and [`RecordPlugin`]: called once for each chunk.
//! - [`MappingPlugin`]: called once for each new shape of records.
//!   What plugins return is checked before anybody sees it.
//! - [`isolate`]: which inputs are at fault when a call fails.
//!
//! A plugin is a function of its input and its configuration: it imports nothing, and every call gets
//! a fresh instance. A call that loops, hoards, traps or lies ends in a [`CallError`] that names the
//! plugin and the limit; nothing of it reaches the host or another plugin.

mod access;
mod admit;
mod arrow;
mod column;
mod contract;
mod error;
mod host;
mod instance;
mod isolate;
mod limits;
mod mapping;
mod outcome;
mod output;
mod packing;
mod plugin;
mod record;

pub use access::{AccessField, ColumnAccess, join_path, split_path};
pub use admit::Kind;
pub use alluvium_core::{Coercion, Derivation, OnConflict};
pub use column::{ColumnPlugin, Edit, IsolatedEdit};
pub use contract::mapping::{Kinds, Seen, SourceShape, TableColumn};
pub use contract::{Description, Layout, RecordAccess};
pub use error::{
    AccessProblem, AdmitError, CallError, ConfigureError, DescriptionProblem, Error, Function, InputProblem,
    IsolateError, MappingError, MappingFault, MappingPlace, MappingProblem, PluginLabel,
};
pub use host::{Host, HostConfig};
pub use isolate::{Isolated, Isolation, isolate};
pub use limits::Limits;
pub use mapping::{MappedColumn, MappingAnswer, MappingPlugin};
pub use output::OutputError;
pub use plugin::{Plugin, digest};
pub use record::{IsolatedOutput, RecordOutput, RecordPlugin};
