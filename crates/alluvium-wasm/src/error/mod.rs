//! What can go wrong with plugins, told in the plugins' terms.

mod admit;
mod call;
mod configure;
mod mapping;

pub use admit::{AdmitError, DescriptionProblem};
pub use call::{CallError, InputProblem, IsolateError};
pub use configure::{AccessProblem, ConfigureError};
pub use mapping::{MappingError, MappingFault, MappingPlace, MappingProblem};

use crate::limits::Bytes;
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
    Plan,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "its start",
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Transform => "transform",
            Self::Plan => "plan",
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

/// `a`, `a or b`, `a, b or c`.
fn either(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        _ => names.join(""),
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
