//! What can go wrong with plugins, told in the plugins' terms.

use crate::limits::Bytes;
use crate::output::OutputError;
use alluvium_core::{Classified, ErrorClass, PluginRef};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A plugin as errors name it: its name and the first digits of its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLabel(pub Arc<PluginRef>);

impl PluginLabel {
    pub fn new(name: &str, digest: String) -> Self {
        Self(Arc::new(PluginRef { name: name.to_owned(), digest }))
    }
}

impl fmt::Display for PluginLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = "sha256:".len() + 12;
        let digest = self.0.digest.get(..SHOWN).unwrap_or(&self.0.digest);
        write!(f, "'{}' ({digest})", self.0.name)
    }
}

/// The part of a plugin that was being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Its start, before any of its functions.
    Start,
    Describe,
    Configure,
    Transform,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "its start",
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Transform => "transform",
        })
    }
}

/// The engine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the plugin engine could not be set up for {instances} instances of at most {}", Bytes(*memory))]
    Engine {
        instances: u32,
        memory: usize,
        #[source]
        source: wasmtime::Error,
    },
    #[error("a plugin host needs at least one instance and 64 KiB of memory for each, up to 4 GiB")]
    Config,
    #[error("the thread that ends plugins' calls on time could not be started")]
    Ticker(#[source] std::io::Error),
}

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Engine { .. } | Self::Config => ErrorClass::User,
            Self::Ticker(_) => ErrorClass::External,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Engine { .. } => {
                "each instance reserves about 24 GiB of address space (not of memory): lift the limit on virtual memory, or allow fewer instances".to_owned()
            }
            Self::Config => "set the number of instances and their memory within these bounds".to_owned(),
            Self::Ticker(_) => "the machine is short of threads or memory".to_owned(),
        })
    }
}

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
    #[error("plugin {plugin} exports {}; a plugin exports {}", list(exports), supported.join(" or "))]
    World { plugin: PluginLabel, exports: Vec<String>, supported: Vec<String> },
    #[error("plugin {plugin} is built against {found}; supported are {}", list(supported))]
    Version { plugin: PluginLabel, found: String, supported: Vec<String> },
    #[error("plugin {plugin} exports both a column and a record transform; a plugin is one of them")]
    Both { plugin: PluginLabel },
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
            | Self::Both { plugin }
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
            Self::NotComponent { .. } => "`alluvium plugin build` makes components; a core module becomes one with `wasm-tools component new`".to_owned(),
            Self::Invalid { .. } => "allowed are WebAssembly 2.0 with extended constants, without threads, tail calls, exceptions, garbage collection, 64-bit or several memories, relaxed SIMD or asynchronous components; build it without them".to_owned(),
            Self::Imports { imports, .. } => {
                if imports.iter().any(|import| import.starts_with("wasi:")) {
                    "build it without WASI: Rust for wasm32-unknown-unknown, JavaScript with all features disabled, Python with --stub-wasi".to_owned()
                } else {
                    "a plugin is a function of its input and its configuration: put what it needs into `with`".to_owned()
                }
            }
            Self::World { .. } | Self::Both { .. } => {
                "build it for the world `column-plugin` or `record-plugin` of alluvium:plugin".to_owned()
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

/// Why a plugin did not take its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    #[error("plugin {plugin} is a {found} plugin; a {wanted} plugin is needed here")]
    Kind { plugin: PluginLabel, found: &'static str, wanted: &'static str },
    #[error("plugin {plugin} refuses its configuration: {message}")]
    Refused { plugin: PluginLabel, message: String },
    #[error("plugin {plugin} asks for columns that cannot be: {problem}")]
    Access { plugin: PluginLabel, problem: AccessProblem },
    #[error("plugin {} failed while it was configured", error.plugin())]
    Call {
        #[source]
        error: CallError,
    },
}

/// What is wrong with the columns a plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessProblem {
    #[error("it {verb} {count} columns; at most {limit} are allowed")]
    TooMany { verb: &'static str, count: usize, limit: usize },
    #[error("it names a path of {length} bytes; at most {limit} are allowed")]
    LongPath { length: usize, limit: usize },
    #[error("the path {path:?} is not one: {problem}")]
    Path { path: String, problem: &'static str },
    #[error("the type of {path:?} has {length} bytes; at most {limit} are allowed")]
    LongType { path: String, length: usize, limit: usize },
    #[error("the type of {path:?} is not one: {problem}")]
    Type { path: String, problem: String },
    #[error("it {verb} {path:?} twice (names are not case-sensitive)")]
    Twice { verb: &'static str, path: String },
    #[error("it writes {outer:?} and, inside it, {inner:?}")]
    Overlap { outer: String, inner: String },
}

impl Classified for ConfigureError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Kind { .. } | Self::Refused { .. } | Self::Access { .. } => ErrorClass::User,
            Self::Call { error } => match error.class() {
                ErrorClass::Record | ErrorClass::Plugin => ErrorClass::User,
                other => other,
            },
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Kind { .. } => "record plugins come before column plugins".to_owned(),
            Self::Refused { .. } => "correct the plugin's `with`".to_owned(),
            Self::Access { .. } => "correct what the plugin's `configure` returns, or its `with`".to_owned(),
            Self::Call { error } => return error.hint(),
        })
    }
}

/// Why a call gave no answer that can be used. The instance is gone; the plugin can be called again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("plugin {plugin} trapped in {function}: {trap}")]
    Trap { plugin: PluginLabel, function: Function, trap: String },
    #[error("plugin {plugin} took longer than its time limit of {} in {function}", seconds(*limit))]
    Timeout { plugin: PluginLabel, function: Function, limit: Duration },
    #[error(
        "plugin {plugin} asked for {} in {function}, more than its memory limit of {}",
        Bytes(*wanted),
        Bytes(*limit)
    )]
    Memory { plugin: PluginLabel, function: Function, wanted: usize, limit: usize },
    #[error("plugin {plugin} returned from {function} what cannot be used: {problem}")]
    Output { plugin: PluginLabel, function: Function, problem: OutputError },
    #[error("plugin {plugin} failed: {message}")]
    Failed { plugin: PluginLabel, message: String },
    /// The host had no instance to spare, or could not give memory that the limits allow.
    #[error("plugin {plugin} cannot be run now: {problem}")]
    Unavailable { plugin: PluginLabel, problem: String },
    /// The caller handed in something else than the plugin's access asks for.
    #[error("plugin {plugin} was to be given what its access does not say: {problem}")]
    Input { plugin: PluginLabel, problem: InputProblem },
    #[error("alluvium failed while it ran plugin {plugin}: {message}")]
    Panicked { plugin: PluginLabel, message: String },
}

/// What does not fit in a call's input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    #[error("{found} columns instead of {expected}")]
    Columns { expected: usize, found: usize },
    #[error("column {column} has type {found} instead of {expected}")]
    Type { column: String, expected: String, found: String },
    #[error("column {column} has {found} values instead of {expected}")]
    Length { column: String, expected: usize, found: usize },
    #[error("more than {} inputs or bytes at once", u32::MAX)]
    TooMany,
    #[error("record {record} is selected, but there are {records}")]
    Selection { record: u32, records: usize },
    #[error("record {record} follows {before} in the selection")]
    Order { record: u32, before: u32 },
    #[error("record {record} has no value")]
    NoValue { record: u32 },
}

impl CallError {
    /// Stable, kebab-case; what a dead letter's reason says.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "plugin-trap",
            Self::Timeout { .. } => "plugin-timeout",
            Self::Memory { .. } => "plugin-memory",
            Self::Output { .. } => "plugin-output",
            Self::Failed { .. } => "plugin-failed",
            Self::Unavailable { .. } => "plugin-unavailable",
            Self::Input { .. } | Self::Panicked { .. } => "internal",
        }
    }

    pub fn plugin(&self) -> &PluginLabel {
        match self {
            Self::Trap { plugin, .. }
            | Self::Timeout { plugin, .. }
            | Self::Memory { plugin, .. }
            | Self::Output { plugin, .. }
            | Self::Failed { plugin, .. }
            | Self::Unavailable { plugin, .. }
            | Self::Input { plugin, .. }
            | Self::Panicked { plugin, .. } => plugin,
        }
    }

    /// Whether fewer or other inputs could give another outcome.
    pub fn depends_on_input(&self) -> bool {
        match self {
            Self::Trap { function, .. }
            | Self::Timeout { function, .. }
            | Self::Memory { function, .. }
            | Self::Output { function, .. } => *function == Function::Transform,
            Self::Failed { .. } => true,
            Self::Unavailable { .. } | Self::Input { .. } | Self::Panicked { .. } => false,
        }
    }
}

impl Classified for CallError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Trap { .. }
            | Self::Timeout { .. }
            | Self::Memory { .. }
            | Self::Output { .. }
            | Self::Failed { .. } => ErrorClass::Plugin,
            Self::Unavailable { .. } => ErrorClass::External,
            Self::Input { .. } | Self::Panicked { .. } => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Trap { .. } => "correct the plugin; `alluvium try` runs it over a file of records".to_owned(),
            Self::Timeout { .. } => "make the plugin faster, or raise limits.time".to_owned(),
            Self::Memory { .. } => "make the plugin use less memory, or raise limits.memory".to_owned(),
            Self::Output { problem, .. } => return problem.hint(),
            Self::Failed { .. } => "the plugin says so itself; its author knows what it means".to_owned(),
            Self::Unavailable { .. } => {
                "it is tried again; allow more instances or give the machine more memory when it stays".to_owned()
            }
            Self::Input { .. } | Self::Panicked { .. } => "please report it".to_owned(),
        })
    }
}

/// Why the records at fault in a call could not be told from the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsolateError {
    /// The plugin itself is at fault, rather than single records.
    #[error("plugin {} failed on too many of {inputs} inputs: {failed} found at fault after {calls} calls", last.plugin())]
    TooMany {
        inputs: usize,
        /// Inputs found at fault until the search was given up.
        failed: usize,
        calls: usize,
        /// The failure seen last.
        #[source]
        last: CallError,
    },
    /// The failure has nothing to do with the inputs.
    #[error("plugin {} could not be called", error.plugin())]
    Call {
        #[source]
        error: CallError,
    },
}

impl IsolateError {
    /// The failure behind it.
    pub fn call(&self) -> &CallError {
        match self {
            Self::TooMany { last: error, .. } | Self::Call { error } => error,
        }
    }
}

impl Classified for IsolateError {
    fn class(&self) -> ErrorClass {
        self.call().class()
    }

    fn hint(&self) -> Option<String> {
        self.call().hint()
    }
}

/// `a`, `a and b`, `a, b and c`, or `nothing`; of many the first, and how many more.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.get(..SHOWN).unwrap_or(names);
    match shown {
        [] => "nothing".to_owned(),
        _ if more > 0 => format!("{} and {more} more", shown.join(", ")),
        [name] => name.clone(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// A text of a plugin's own, fit for a terminal, a log line or a dead letter: cut, and without
/// characters that would move the cursor, break the line or turn the direction of writing.
pub(crate) fn tame(text: &str) -> String {
    const KEPT: usize = 1000;
    let mut tamed = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == KEPT {
            tamed.push('…');
            break;
        }
        if is_wild(character) {
            tamed.extend(character.escape_default());
        } else {
            tamed.push(character);
        }
    }
    tamed
}

/// What a plugin gives as its reason.
pub(crate) fn said(text: &str) -> String {
    if text.trim().is_empty() { "no reason given".to_owned() } else { tame(text) }
}

/// Whether a character acts on what displays it.
pub(crate) fn is_wild(character: char) -> bool {
    let turns_direction =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns_direction || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_texts_are_tamed() {
        assert_eq!(tame("plain, é, 𝄞"), "plain, é, 𝄞");
        assert_eq!(tame("a\x1b[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(tame(&"ä".repeat(1001)), format!("{}…", "ä".repeat(1000)));
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<_> = (1..=9).map(|number| format!("n{number}")).collect();
        assert_eq!(list(&[]), "nothing");
        assert_eq!(list(&names[..1]), "n1");
        assert_eq!(list(&names[..3]), "n1, n2 and n3");
        assert_eq!(list(&names), "n1, n2, n3, n4, n5, n6 and 3 more");
    }
}
