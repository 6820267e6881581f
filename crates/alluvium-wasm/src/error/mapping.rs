//! Why a schema mapping gave no plan.

use super::{CallError, PluginLabel};
use crate::limits::Bytes;
use alluvium_core::{Classified, ErrorClass};
use std::fmt;

/// Why a schema mapping gave no plan that can be used. The plugin can be called again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error("plugin {} could not be asked for its plan", error.plugin())]
    Call {
        #[source]
        error: CallError,
    },
    /// The plugin answered that it has no plan, in its own words.
    #[error("plugin {plugin} has no plan for these records and this table: {message}")]
    Refused { plugin: PluginLabel, message: String },
    /// All that is wrong with the answer: the first of it, and how much more there is.
    #[error("plugin {plugin} returned from plan what cannot be used: {}", Problems(problems, *more))]
    Answer { plugin: PluginLabel, problems: Vec<MappingProblem>, more: usize },
}

/// Something that is wrong with a plan, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{fault}")]
pub struct MappingProblem {
    pub place: MappingPlace,
    pub fault: MappingFault,
}

/// A part of a plan. Texts are the plugin's own, cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingPlace {
    Plan,
    /// A column; the number is its place among them, from 1.
    Column {
        number: usize,
        name: String,
    },
    /// A path to drop.
    Drop {
        number: usize,
        path: String,
    },
}

/// What is wrong with a part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingFault {
    #[error("it {verb} {count} {what}; at most {limit} are allowed")]
    TooMany { verb: &'static str, what: &'static str, count: usize, limit: usize },
    #[error("its {what} is empty")]
    Empty { what: &'static str },
    #[error("its {what} has {}; at most {} are allowed", Bytes(*length), Bytes(*limit))]
    Long { what: &'static str, length: usize, limit: usize },
    #[error("its {what} holds {character:?}, which acts on what displays it")]
    Character { what: &'static str, character: char },
    #[error("its {what} {path:?} is not one: {problem}")]
    Path { what: &'static str, path: String, problem: &'static str },
    #[error("its type {data_type:?} is not one: {problem}")]
    Type { data_type: String, problem: String },
    #[error("its path and its type nest deeper than {limit} levels")]
    Deep { limit: usize },
    #[error("it has a coercion for {path:?} twice")]
    CoercionTwice { path: String },
    #[error("its default is not JSON: {problem}")]
    Default { problem: String },
}

impl fmt::Display for MappingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan => Ok(()),
            Self::Column { number, name } if name.is_empty() => write!(f, "column {number}, which has no name: "),
            Self::Column { name, .. } => write!(f, "column {name:?}: "),
            Self::Drop { number, .. } => write!(f, "drop {number}: "),
        }
    }
}

struct Problems<'a>(&'a [MappingProblem], usize);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problems, more) = self;
        for (index, problem) in problems.iter().enumerate() {
            let semicolon = if index > 0 { "; " } else { "" };
            write!(f, "{semicolon}{problem}")?;
        }
        if *more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
    }
}

impl MappingError {
    /// Stable, kebab-case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Call { error } => error.code(),
            Self::Refused { .. } => "plugin-failed",
            Self::Answer { .. } => "plugin-output",
        }
    }

    /// The plugin that gave no plan.
    pub fn plugin(&self) -> &PluginLabel {
        match self {
            Self::Call { error } => error.plugin(),
            Self::Refused { plugin, .. } | Self::Answer { plugin, .. } => plugin,
        }
    }
}

impl From<CallError> for MappingError {
    fn from(error: CallError) -> Self {
        Self::Call { error }
    }
}

impl Classified for MappingError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Call { error } => error.class(),
            Self::Refused { .. } | Self::Answer { .. } => ErrorClass::Plugin,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Call { error } => return error.hint(),
            Self::Refused { .. } => {
                "the plugin says so itself: change its `with`, or the records, or ask its author".to_owned()
            }
            Self::Answer { .. } => "correct what the plugin's `plan` returns, or its `with`".to_owned(),
        })
    }
}
