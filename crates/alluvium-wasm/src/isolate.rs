//! Which inputs are at fault when a call fails.

use crate::error::{CallError, IsolateError};
use alluvium_core::{Edge, Hook};
use std::ops::Range;
use std::time::Duration;

/// How far the search for inputs at fault goes before the plugin itself is held to be at fault.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// The share of a call's inputs that may be at fault, 0 to 1.
    pub share: f64,
    /// Inputs that may be at fault however few there are: with a chunk of one record, one bad record
    /// is no sign that the plugin is bad.
    pub at_least: usize,
    /// Time that failing calls may take together. A loop costs the whole time limit at every step of
    /// the search: about ten times for one looping record among a thousand.
    pub time: Duration,
    /// Told when a search begins and when it has found what it was for.
    pub hook: Hook,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { share: 0.1, at_least: 1, time: Duration::from_secs(60), hook: Hook::NONE }
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
    let mut left = Vec::new();
    left.push(0..inputs);
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
        if calls == 1 {
            isolation.hook.before(Edge::Bisection);
        }
        let failed = found.bad.len() + usize::from(!split);
        let unfinished = split || !left.is_empty();
        if failed > allowed || (failing > isolation.time && unfinished) {
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
    if calls > 1 {
        isolation.hook.after(Edge::Bisection);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::error::{Function, PluginLabel};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    fn plugin() -> PluginLabel {
        PluginLabel::new("p", "sha256:0".to_owned())
    }

    fn trap() -> CallError {
        CallError::Trap { plugin: plugin(), function: Function::Transform, trap: "unreachable".to_owned() }
    }

    const UNBOUNDED: Isolation = Isolation { share: 1.0, at_least: 0, time: Duration::MAX, hook: Hook::NONE };

    fn never() -> Duration {
        Duration::ZERO
    }

    proptest! {
        #[test]
        fn finds_exactly_the_inputs_at_fault(inputs in 0_usize..600, faults in prop::collection::btree_set(0_usize..600, 0..20)) {
            let faults: BTreeSet<_> = faults.into_iter().filter(|fault| *fault < inputs).collect();
            let mut calls = 0;
            let found = isolate(inputs, &UNBOUNDED, never, |range| {
                calls += 1;
                let bad = faults.range(range.clone()).next().is_some();
                if bad { Err(trap()) } else { Ok(range.collect::<Vec<_>>()) }
            });
            let found = found.unwrap();
            let bad: Vec<_> = found.bad.iter().map(|(input, _)| *input).collect();
            prop_assert_eq!(&bad, &faults.iter().copied().collect::<Vec<_>>());
            let good: Vec<_> = found.good.iter().flat_map(|(_, inputs)| inputs.clone()).collect();
            let expected: Vec<_> = (0..inputs).filter(|input| !faults.contains(input)).collect();
            prop_assert_eq!(good, expected);
            let depth = inputs.max(1).ilog2() as usize + 1;
            prop_assert!(calls <= 1 + 2 * faults.len() * depth, "{calls} calls");
        }

        #[test]
        fn failures_of_groups_lose_no_input(inputs in 1_usize..200, most in 1_usize..50) {
            // As when a chunk needs more memory than there is: every input is fine by itself.
            let call = |range: Range<usize>| if range.len() > most { Err(trap()) } else { Ok(range) };
            let found = isolate(inputs, &UNBOUNDED, never, call).unwrap();
            prop_assert!(found.bad.is_empty());
            let good: Vec<_> = found.good.into_iter().flat_map(|(_, range)| range).collect();
            prop_assert_eq!(good, (0..inputs).collect::<Vec<_>>());
        }

        #[test]
        fn gives_up_past_the_share(inputs in 1_usize..500, share in 0.0..1.0_f64) {
            let isolation = Isolation { share, at_least: 1, ..UNBOUNDED };
            let mut calls = 0;
            let found = isolate::<()>(inputs, &isolation, never, |_| { calls += 1; Err(trap()) });
            let allowed = isolation.allowed(inputs);
            if inputs <= allowed {
                prop_assert_eq!(found.unwrap().bad.len(), inputs);
            } else {
                let depth = inputs.max(1).ilog2() as usize + 2;
                prop_assert!(calls <= 2 * (allowed + 1) + depth, "{calls} calls for {allowed} allowed");
                match found {
                    Err(IsolateError::TooMany { failed, .. }) => prop_assert_eq!(failed, allowed + 1),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_plugin_that_always_loops_costs_a_bounded_time() {
        let clock = Cell::new(Duration::ZERO);
        let isolation = Isolation { time: Duration::from_secs(60), ..UNBOUNDED };
        let found = isolate::<()>(
            100_000,
            &isolation,
            || clock.get(),
            |_| {
                clock.set(clock.get() + Duration::from_secs(2));
                Err(trap())
            },
        );
        assert!(matches!(found, Err(IsolateError::TooMany { calls: 31, .. })), "{found:?}");
        assert_eq!(clock.get(), Duration::from_secs(62));
    }

    #[test]
    fn only_failing_calls_use_up_the_time() {
        let clock = Cell::new(Duration::ZERO);
        let isolation = Isolation { time: Duration::from_secs(20), ..UNBOUNDED };
        let found = isolate(
            1024,
            &isolation,
            || clock.get(),
            |range| {
                clock.set(clock.get() + Duration::from_secs(1));
                if range.contains(&1000) { Err(trap()) } else { Ok(()) }
            },
        );
        assert_eq!(found.unwrap().bad.len(), 1);
    }

    #[test]
    fn what_is_not_the_inputs_fault_ends_the_search() {
        let mut calls = 0;
        let unavailable = CallError::Unavailable { plugin: plugin(), problem: "busy".to_owned() };
        let found = isolate::<()>(1000, &UNBOUNDED, never, |_| {
            calls += 1;
            Err(unavailable.clone())
        });
        assert_eq!((found, calls), (Err(IsolateError::Call { error: unavailable.clone() }), 1));
    }

    #[test]
    fn a_plugin_that_fails_on_nothing_is_at_fault_itself() {
        let found = isolate::<()>(0, &UNBOUNDED, never, |_| Err(trap()));
        assert!(matches!(found, Err(IsolateError::TooMany { inputs: 0, calls: 1, .. })), "{found:?}");
    }

    #[test]
    fn one_bad_record_alone_is_no_bad_plugin() {
        let isolation = Isolation::default();
        assert_eq!([0, 1, 9, 20, 1000].map(|inputs| isolation.allowed(inputs)), [1, 1, 1, 2, 100]);
        assert_eq!(Isolation { share: f64::NAN, ..isolation }.allowed(1000), 1);
    }
}
