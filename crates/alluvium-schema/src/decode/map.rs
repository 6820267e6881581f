//! Reading objects into map columns.

use super::read::{KEPT, State, read_value};
use super::tree::Map;
use crate::json::{Fault, Scanner};
use std::collections::HashMap;

/// Members of objects, those of an inner one behind those of the outer.
#[derive(Default)]
pub(super) struct Members {
    members: Vec<Member>,
    /// The keys without their escapes, back to back.
    keys: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Member {
    key_start: usize,
    key_end: usize,
    /// Where the value starts in the record.
    value: usize,
}

impl Members {
    pub(super) fn clear(&mut self) {
        self.members.clear();
        self.keys.clear();
    }

    pub(super) fn shrink(&mut self) {
        self.clear();
        self.members.shrink_to(KEPT);
        self.keys.shrink_to(KEPT);
    }

    /// Passes an object, adding its members.
    fn find(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Fault> {
        scanner.enter(depth)?;
        if scanner.peek() == b'}' {
            scanner.at += 1;
            return Ok(());
        }
        loop {
            scanner.peek();
            let key_start = self.keys.len();
            scanner.string()?.append_to(&mut self.keys);
            scanner.colon()?;
            scanner.peek();
            self.members.push(Member { key_start, key_end: self.keys.len(), value: scanner.at });
            scanner.skip_value(depth + 1)?;
            if scanner.object_ends()? {
                return Ok(());
            }
        }
    }

    fn key(&self, member: Member) -> &[u8] {
        self.keys.get(member.key_start..member.key_end).unwrap_or_default()
    }

    /// The members from `first` on that no later one replaces, in order.
    fn last_of_each(&self, first: usize) -> Vec<Member> {
        let members = self.members.get(first..).unwrap_or_default();
        let mut last = HashMap::with_capacity(members.len());
        for (at, member) in members.iter().enumerate() {
            last.insert(self.key(*member), at);
        }
        let is_last = |at: usize, member: Member| last.get(self.key(member)) == Some(&at);
        let last_ones = members.iter().enumerate().filter(|(at, member)| is_last(*at, **member));
        last_ones.map(|(_, member)| *member).collect()
    }
}

/// Reads an object as a map: its members are found first, so that of duplicate keys only the last
/// one is read.
#[inline(never)]
pub(super) fn read_map(
    scanner: &mut Scanner<'_>,
    map: &mut Map,
    id: u32,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    let start = scanner.at;
    let first_note = state.notes.len();
    let (first_member, first_key) = (state.members.members.len(), state.members.keys.len());
    state.members.find(scanner, depth)?;
    let end = scanner.at;
    state.containers += 1;
    for member in state.members.last_of_each(first_member) {
        map.keys.push(state.members.key(member));
        scanner.at = member.value;
        read_value(scanner, &mut map.value, depth + 1, state)?;
    }
    state.containers -= 1;
    scanner.at = end;
    state.members.members.truncate(first_member);
    state.members.keys.truncate(first_key);
    if state.conflicts(first_note, id, start..end) {
        map.keys.truncate(map.ends.last());
        map.value.truncate(map.ends.last());
        map.ends.push_null();
    } else {
        map.ends.push(map.value.len());
    }
    Ok(())
}
