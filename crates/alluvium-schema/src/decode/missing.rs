//! What stands for a field that the record does not have.

use super::read::{State, read_value};
use super::tree::{Field, Node, Object, Sink};
use crate::json::Scanner;

/// Adds the default where there is one, and null elsewhere. A field is missing too when the object is
/// that it stands in.
#[cold]
#[inline(never)]
pub(super) fn push_missing(field: &mut Field, state: &mut State) {
    match &mut field.node.sink {
        Sink::Branch(object) => push_object(object, state),
        Sink::Twins(twins) => {
            twins.iter_mut().for_each(|twin| push_default(&mut twin.node, twin.default.as_deref(), state));
        }
        _ => push_default(&mut field.node, field.default.as_deref(), state),
    }
}

fn push_object(object: &mut Object, state: &mut State) {
    object.fields.iter_mut().for_each(|field| push_missing(field, state));
    object.len += 1;
}

fn push_default(node: &mut Node, default: Option<&[u8]>, state: &mut State) {
    let Some(json) = default else { return node.push_null() };
    let (rows, notes) = (node.len(), state.notes.len());
    // What a default makes out of little is the plan's doing, not the record's.
    let spare = std::mem::replace(&mut state.spare, u64::MAX);
    let read = read_value(&mut Scanner::new(json), node, 1, state);
    state.spare = spare;
    // That a default fits was checked with the plan. If it did not, the columns must stay in line.
    let fits = read.is_ok() && !state.notes.any_since(notes);
    state.notes.truncate(notes);
    if !fits {
        node.truncate(rows);
        node.push_null();
    }
}
