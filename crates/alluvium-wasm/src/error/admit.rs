//! Why a component was not admitted.

use super::{CallError, PluginLabel, either, list, seconds};
use crate::limits::Bytes;
use alluvium_core::{Classified, ErrorClass};
use std::time::Duration;

/// Why a component was not admitted. Each says what to change.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error("plugin {plugin} is {} large; at most {} are allowed", Bytes(*size), Bytes(*limit))]
    TooLarge { plugin: PluginLabel, size: usize, limit: usize },
    #[error("plugin {plugin} is not a WebAssembly component: it is {found}")]
    NotComponent { plugin: PluginLabel, found: &'static str },
    #[error("plugin {plugin} is not a valid component")]
    Invalid {
        plugin: PluginLabel,
        #[source]
        source: wasmparser::BinaryReaderError,
    },
    #[error("plugin {plugin} imports {}; a plugin may import nothing", list(imports))]
    Imports { plugin: PluginLabel, imports: Vec<String> },
    #[error("plugin {plugin} exports {}; a plugin exports {}", list(exports), either(supported))]
    World { plugin: PluginLabel, exports: Vec<String>, supported: Vec<String> },
    #[error("plugin {plugin} is built against {found}; supported are {}", list(supported))]
    Version { plugin: PluginLabel, found: String, supported: Vec<String> },
    #[error("plugin {plugin} exports {}; a plugin is one of them", list(exports))]
    Both { plugin: PluginLabel, exports: Vec<String> },
    #[error("plugin {plugin} exports {interface}, but with other functions or types than the contract's")]
    Contract {
        plugin: PluginLabel,
        interface: String,
        #[source]
        source: wasmtime::Error,
    },
    #[error("plugin {plugin} took longer than {} to compile", seconds(*limit))]
    CompileTime { plugin: PluginLabel, limit: Duration },
    #[error("plugin {plugin} cannot be compiled now: the host is still busy compiling other plugins")]
    CompileBusy { plugin: PluginLabel },
    #[error("plugin {plugin} cannot be compiled")]
    Compile {
        plugin: PluginLabel,
        #[source]
        source: wasmtime::Error,
    },
    #[error("the compiler failed on plugin {plugin}")]
    CompilerPanic { plugin: PluginLabel },
    #[error("plugin {plugin} needs {} of memory to start; its memory limit is {}", Bytes(*minimum), Bytes(*limit))]
    Memory { plugin: PluginLabel, minimum: usize, limit: usize },
    #[error("plugin {plugin} has a table of {elements} elements; at most {limit} are allowed")]
    Table { plugin: PluginLabel, elements: u64, limit: usize },
    #[error(
        "plugin {plugin} is to have a memory limit of {}; this host allows at most {}",
        Bytes(*limit),
        Bytes(*allowed)
    )]
    MemoryLimit { plugin: PluginLabel, limit: usize, allowed: usize },
    #[error("plugin {plugin} says of itself what cannot be used: {problem}")]
    Description { plugin: PluginLabel, problem: DescriptionProblem },
    #[error("plugin {} failed its first run", error.plugin())]
    FirstRun {
        #[source]
        error: CallError,
    },
}

/// What is wrong with a plugin's description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionProblem {
    #[error("its {field} has {length} bytes; at most {limit} are allowed")]
    TooLong { field: &'static str, length: usize, limit: usize },
    #[error("its {field} is empty")]
    Empty { field: &'static str },
    #[error("its {field} holds {character:?}, which acts on the terminal that shows it")]
    Character { field: &'static str, character: char },
    #[error("its configuration's schema is not JSON: {problem}")]
    Schema { problem: String },
}

impl AdmitError {
    /// The plugin that was not admitted.
    pub fn plugin(&self) -> &PluginLabel {
        match self {
            Self::TooLarge { plugin, .. }
            | Self::NotComponent { plugin, .. }
            | Self::Invalid { plugin, .. }
            | Self::Imports { plugin, .. }
            | Self::World { plugin, .. }
            | Self::Version { plugin, .. }
            | Self::Both { plugin, .. }
            | Self::Contract { plugin, .. }
            | Self::CompileTime { plugin, .. }
            | Self::CompileBusy { plugin }
            | Self::Compile { plugin, .. }
            | Self::CompilerPanic { plugin }
            | Self::Memory { plugin, .. }
            | Self::Table { plugin, .. }
            | Self::MemoryLimit { plugin, .. }
            | Self::Description { plugin, .. } => plugin,
            Self::FirstRun { error } => error.plugin(),
        }
    }
}

impl Classified for AdmitError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::CompileBusy { .. } => ErrorClass::External,
            Self::FirstRun { error } => match error.class() {
                ErrorClass::Record | ErrorClass::Plugin => ErrorClass::User,
                other => other,
            },
            _ => ErrorClass::User,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TooLarge { .. } => {
                "build it for size, strip debug sections, or leave data out of the component".to_owned()
            }
            Self::NotComponent { .. } => "plugins/README.md says how components are built; a core module becomes one with `wasm-tools component new`".to_owned(),
            Self::Invalid { .. } => "allowed are WebAssembly 2.0 with extended constants, without threads, tail calls, exceptions, garbage collection, 64-bit or several memories, relaxed SIMD or asynchronous components; build it without them".to_owned(),
            Self::Imports { imports, .. } => {
                if imports.iter().any(|import| import.starts_with("wasi:")) {
                    "build it without WASI: Rust for wasm32-unknown-unknown, JavaScript with all features disabled, Python with --stub-wasi".to_owned()
                } else {
                    "a plugin is a function of its input and its configuration: put what it needs into `with`".to_owned()
                }
            }
            Self::World { .. } | Self::Both { .. } => {
                "build it for the world `column-plugin`, `record-plugin` or `mapping-plugin` of alluvium:plugin".to_owned()
            }
            Self::Version { .. } => "build it against a supported version of the contract, or update alluvium".to_owned(),
            Self::Contract { .. } => "build it against the released plugin.wit, unchanged".to_owned(),
            Self::CompileTime { .. } => "make it smaller: few functions are worth that long".to_owned(),
            Self::CompileBusy { .. } => "try again in a moment".to_owned(),
            Self::Compile { .. } | Self::CompilerPanic { .. } => {
                "build it with another toolchain or less optimisation".to_owned()
            }
            Self::Memory { minimum, .. } => {
                format!("raise limits.memory to {} at least, or make its data smaller", Bytes(*minimum))
            }
            Self::Table { .. } => "build it with fewer functions whose address is taken".to_owned(),
            Self::MemoryLimit { .. } => "lower limits.memory".to_owned(),
            Self::Description { .. } => "correct what `describe` returns".to_owned(),
            Self::FirstRun { error } => return error.hint(),
        })
    }
}
