//! Why a configuration was not taken.

use super::{CallError, PluginLabel};
use alluvium_core::{Classified, ErrorClass};

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
    #[error("{path:?} and its type nest deeper than {limit} levels")]
    Deep { path: String, limit: usize },
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
            Self::Kind { .. } => {
                "record and column plugins are transforms, record plugins first; a mapping plugin makes the plan"
                    .to_owned()
            }
            Self::Refused { .. } => "correct the plugin's `with`".to_owned(),
            Self::Access { .. } => "correct what the plugin's `configure` returns, or its `with`".to_owned(),
            Self::Call { error } => return error.hint(),
        })
    }
}
