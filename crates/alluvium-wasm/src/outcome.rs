//! What both kinds of plugins share: which inputs were kept and which rejected, and how much is held.

use crate::contract::RawReject;
use crate::error::{CallError, Function, said};
use crate::instance::Sandbox;
use crate::output::OutputError;

/// The inputs of outputs must rise, lie below `inputs`, and repeat only if the plugin multiplies.
pub(crate) fn check_inputs(kept: &[u32], inputs: usize, multiplies: bool) -> Result<(), OutputError> {
    let mut before = None;
    for (output, input) in kept.iter().copied().enumerate() {
        if input as usize >= inputs {
            return Err(OutputError::InputOutside { output, input, inputs });
        }
        match before {
            Some(before) if input < before => return Err(OutputError::InputOrder { output, input, before }),
            Some(before) if input == before && !multiplies => return Err(OutputError::Multiplied { input }),
            _ => before = Some(input),
        }
    }
    Ok(())
}

/// Each input is rejected at most once, and not kept as well. `kept` rises; `None` is all.
pub(crate) fn check_rejects(
    rejects: Vec<RawReject>,
    inputs: usize,
    kept: Option<&[u32]>,
) -> Result<Vec<(u32, String)>, OutputError> {
    let mut checked: Vec<(u32, String)> =
        rejects.into_iter().map(|reject| (reject.input, said(&reject.reason))).collect();
    checked.sort_by_key(|(input, _)| *input);
    for pair in checked.windows(2) {
        if let [(first, _), (second, _)] = pair
            && first == second
        {
            return Err(OutputError::RejectTwice { input: *first });
        }
    }
    for (input, _) in &checked {
        if *input as usize >= inputs {
            return Err(OutputError::RejectOutside { input: *input, inputs });
        }
        if kept.is_none_or(|kept| kept.binary_search(input).is_ok()) {
            return Err(OutputError::RejectKept { input: *input });
        }
    }
    Ok(checked)
}

/// What the calls of one search returned together. A search makes many calls, each with an output
/// of its own: without a bound on the sum they could fill the host's memory.
pub(crate) struct Held<'a> {
    sandbox: &'a Sandbox,
    bytes: usize,
}

impl<'a> Held<'a> {
    /// Outputs of a chunk in parts may be larger than that of one call: that can be why it was parted.
    const TIMES: usize = 4;

    pub fn new(sandbox: &'a Sandbox) -> Self {
        Self { sandbox, bytes: 0 }
    }

    /// Counts a call's output in.
    pub fn add(&mut self, bytes: usize) -> Result<(), CallError> {
        let limit = self.sandbox.limits.output.saturating_mul(Self::TIMES);
        let total = self.bytes.saturating_add(bytes);
        if total > limit {
            return Err(self.sandbox.output(Function::Transform, OutputError::TooLarge { limit }));
        }
        self.bytes = total;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rejects(inputs: &[u32]) -> Vec<RawReject> {
        inputs.iter().map(|input| RawReject { input: *input, reason: "bad".to_owned() }).collect()
    }

    #[test]
    fn inputs_rise_within_bounds() {
        assert_eq!(check_inputs(&[0, 2, 3], 4, false), Ok(()));
        assert_eq!(check_inputs(&[0, 0, 3], 4, true), Ok(()));
        assert_eq!(check_inputs(&[0, 0], 4, false), Err(OutputError::Multiplied { input: 0 }));
        assert_eq!(check_inputs(&[1, 0], 4, true), Err(OutputError::InputOrder { output: 1, input: 0, before: 1 }));
        assert_eq!(check_inputs(&[4], 4, true), Err(OutputError::InputOutside { output: 0, input: 4, inputs: 4 }));
    }

    #[test]
    fn an_input_has_one_fate() {
        let checked = check_rejects(rejects(&[3, 1]), 4, Some(&[0, 2])).unwrap();
        assert_eq!(checked, [(1, "bad".to_owned()), (3, "bad".to_owned())]);
        assert_eq!(check_rejects(rejects(&[1, 1]), 4, Some(&[])), Err(OutputError::RejectTwice { input: 1 }));
        assert_eq!(check_rejects(rejects(&[2]), 4, Some(&[0, 2])), Err(OutputError::RejectKept { input: 2 }));
        assert_eq!(check_rejects(rejects(&[2]), 4, None), Err(OutputError::RejectKept { input: 2 }));
        assert_eq!(check_rejects(rejects(&[4]), 4, Some(&[])), Err(OutputError::RejectOutside { input: 4, inputs: 4 }));
    }

    #[test]
    fn reasons_are_cut() {
        let long = vec![RawReject { input: 0, reason: "ä".repeat(2000) }];
        let checked = check_rejects(long, 1, Some(&[])).unwrap();
        assert_eq!(checked[0].1.chars().count(), 1001);
    }
}
