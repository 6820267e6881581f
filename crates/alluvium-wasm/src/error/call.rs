//! Why a call, or the search for the inputs at fault, failed.

use super::{Function, PluginLabel, seconds};
use crate::limits::Bytes;
use crate::output::OutputError;
use alluvium_core::{Classified, ErrorClass};
use std::time::Duration;

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
            | Self::Output { function, .. } => matches!(function, Function::Transform | Function::Plan),
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
