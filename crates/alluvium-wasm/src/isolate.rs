//! Which inputs are at fault when a call fails.

use crate::error::{CallError, IsolateError};
use std::ops::Range;
use std::time::Duration;

/// How far the search for inputs at fault goes before the plugin itself is held to be at fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Isolation {
    /// The share of a call's inputs that may be at fault, 0 to 1.
    pub share: f64,
    /// Inputs that may be at fault however few there are: with a chunk of one record, one bad record
    /// is no sign that the plugin is bad.
    pub at_least: usize,
    /// Time that failing calls may take together. A loop costs the whole time limit at every step of
    /// the search: about ten times for one looping record among a thousand.
    pub time: Duration,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { share: 0.1, at_least: 1, time: Duration::from_secs(60) }
    }
}

impl Isolation {
    /// The number of `inputs` that may be at fault.
    pub fn allowed(&self, inputs: usize) -> usize {
        // A share that is no number allows nothing beyond `at_least`.
        let share = (self.share.clamp(0.0, 1.0) * inputs as f64).floor() as usize;
        share.max(self.at_least)
    }
}

/// The outcome of a search: every input is in exactly one good range or is bad; both lists rise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolated<T> {
    pub good: Vec<(Range<usize>, T)>,
    pub bad: Vec<(usize, CallError)>,
}

/// Calls with all of `0..inputs`, and when that fails with halves of what failed, down to single
/// inputs. With `bad` inputs at fault this takes at most `1 + 2 · bad · (1 + log2 inputs)` calls.
///
/// `elapsed` is the time since some fixed moment. The search is given up when more inputs are at
/// fault than `isolation` allows, or failing calls have taken more time; and at once on a failure
/// that has nothing to do with the inputs.
pub fn isolate<T>(
    inputs: usize,
    isolation: &Isolation,
    mut elapsed: impl FnMut() -> Duration,
    mut call: impl FnMut(Range<usize>) -> Result<T, CallError>,
) -> Result<Isolated<T>, IsolateError> {
    let allowed = isolation.allowed(inputs);
    let mut found = Isolated { good: Vec::new(), bad: Vec::new() };
    let mut failing = Duration::ZERO;
    let mut calls = 0;
    // Ranges still to be tried, the first on top.
    let mut left = vec![0..inputs];
    while let Some(range) = left.pop() {
        let before = elapsed();
        calls += 1;
        let error = match call(range.clone()) {
            Ok(output) => {
                found.good.push((range, output));
                continue;
            }
            Err(error) if !error.depends_on_input() => return Err(IsolateError::Call { error }),
            Err(error) => error,
        };
        failing += elapsed().saturating_sub(before);
        let (start, end) = (range.start, range.end);
        let middle = start + (end - start) / 2;
        let split = middle > start;
        let failed = found.bad.len() + usize::from(!split);
        if failed > allowed || (failing > isolation.time && !left.is_empty()) || (failing > isolation.time && split) {
            return Err(IsolateError::TooMany { inputs, failed, calls, last: error });
        }
        if split {
            left.push(middle..end);
            left.push(start..middle);
        } else if start < end {
            found.bad.push((start, error));
        } else {
            // The plugin fails on nothing at all.
            return Err(IsolateError::TooMany { inputs, failed, calls, last: error });
        }
    }
    Ok(found)
}
