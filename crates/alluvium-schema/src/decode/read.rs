//! Reading the values of one record into the tree, in one pass over its bytes.
//!
//! A value that does not fit, and a field that the plan does not know, leave a note; what they mean
//! for the record is judged when its end is reached. When reading fails, the tree holds parts of
//! the record and has to be cut back.

use super::columns::Values;
use super::map::{Members, read_map};
use super::missing::push_missing;
use super::notes::Notes;
use super::time;
use super::tree::{List, Node, Object, Part, ROOT, Sink, Twin};
use crate::json::{Fault, Number, Scanner, Text, quote};
use crate::{Coercion, Derivation};
use arrow_buffer::ArrowNativeType;
use base64::{Engine, engine::general_purpose::STANDARD};

/// How many bytes or entries of a buffer are kept from one chunk to the next.
pub(super) const KEPT: usize = 1 << 16;

/// What reading needs besides the tree.
pub(super) struct State {
    pub(super) notes: Notes,
    /// Strings without their escapes.
    scratch: Vec<u8>,
    /// Of the maps being read.
    pub(super) members: Members,
    /// How many lists and maps the value read stands in.
    pub(super) containers: u32,
    /// How many more values the record may make out of next to nothing.
    pub(super) spare: u64,
}

impl State {
    pub(super) fn new() -> Self {
        Self { notes: Notes::default(), scratch: Vec::new(), members: Members::default(), containers: 0, spare: 0 }
    }

    /// Gives back the room that an outsized record took.
    pub(super) fn shrink(&mut self) {
        self.notes.shrink();
        self.members.shrink();
        self.scratch.clear();
        self.scratch.shrink_to(KEPT);
    }

    fn start(&mut self, record: &[u8]) {
        self.notes.clear();
        self.members.clear();
        self.containers = 0;
        self.spare = (16 * 1024 + 64 * record.len() as u64).min(8 << 20);
    }

    /// Counts values that few bytes of JSON stand for: the nulls of what a struct inside a list has
    /// not, and those that a later value of the same key overtakes. A byte could otherwise stand for
    /// thousands of them.
    fn spend(&mut self, values: u32) -> Result<(), Fault> {
        self.spare = self.spare.checked_sub(u64::from(values)).ok_or(Fault::Sparse)?;
        Ok(())
    }

    /// The same for a null, which counts inside lists and maps only: elsewhere there is one for each
    /// row and column.
    fn spend_null(&mut self, node: &Node) -> Result<(), Fault> {
        if self.containers == 0 { Ok(()) } else { self.spend(node.end - node.id) }
    }
}

/// Reads a record, which is UTF-8. On a fault, also tells where.
pub(super) fn read_record(record: &[u8], root: &mut Object, state: &mut State) -> Result<(), (Fault, usize)> {
    state.start(record);
    let mut scanner = Scanner::new(record);
    if scanner.peek() != b'{' {
        return Err((Fault::NotObject, scanner.at));
    }
    read_object(&mut scanner, root, ROOT, 0, state).map_err(|fault| (fault, scanner.at))?;
    if scanner.peek() != 0 || scanner.at < record.len() {
        return Err((Fault::Trailing, scanner.at));
    }
    Ok(())
}

/// Reads an object whose node is `id`, the scanner being at its opening bracket.
#[inline(always)]
fn read_object(
    scanner: &mut Scanner<'_>,
    object: &mut Object,
    id: u32,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    let row = object.len;
    let first_note = state.notes.len();
    let mut missing = object.fields.len();
    scanner.enter(depth)?;
    if scanner.peek() == b'}' {
        scanner.at += 1;
    } else {
        let mut likely = object.first;
        let mut before = None;
        loop {
            let expected = object.fields.get(likely).is_some_and(|field| field.key.passes(scanner));
            let found = if expected { Some(likely) } else { read_key(scanner, object, likely, id, depth, state)? };
            if let Some(at) = found.filter(|_| !expected) {
                object.learn(before, at);
            }
            if let Some(at) = found
                && let Some(field) = object.fields.get_mut(at)
            {
                before = found;
                likely = field.next;
                let node = &mut field.node;
                if field.seen > row {
                    // The key was there before: the last one counts.
                    state.spend(node.end - node.id)?;
                    state.notes.void(node.mark, node.id..node.end);
                    node.truncate(row);
                } else {
                    missing -= 1;
                    field.seen = row + 1;
                }
                node.mark = state.notes.len();
                read_value(scanner, node, depth + 1, state)?;
            }
            if scanner.object_ends()? {
                break;
            }
            scanner.peek();
        }
    }
    if missing > 0 {
        for field in &mut object.fields {
            if field.seen <= row {
                state.spend_null(&field.node)?;
                if field.has_default { push_missing(field, state) } else { field.node.push_null() }
            }
        }
    }
    if state.notes.len() > first_note {
        state.notes.close_object(scanner.bytes, first_note, id);
    }
    object.len += 1;
    Ok(())
}

/// Reads a key that is not the expected one, and the colon. Passes the value of a field that is not
/// known, leaving a note.
fn read_key(
    scanner: &mut Scanner<'_>,
    object: &Object,
    likely: usize,
    id: u32,
    depth: u32,
    state: &mut State,
) -> Result<Option<usize>, Fault> {
    let key_start = scanner.at;
    let key = scanner.string()?;
    let key_end = scanner.at;
    scanner.colon()?;
    let found = object.find(key.unescaped(&mut state.scratch), likely);
    if found.is_none() {
        scanner.peek();
        let start = scanner.at;
        scanner.skip_value(depth + 1)?;
        state.notes.unknown(id, key_start..key_end, start..scanner.at);
    }
    Ok(found)
}

/// Reads a value that stands inside `depth` objects and lists.
#[inline(always)]
pub(super) fn read_value(
    scanner: &mut Scanner<'_>,
    node: &mut Node,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    let first = scanner.peek();
    let start = scanner.at;
    if first == b'n' {
        scanner.literal(b"null")?;
        state.spend_null(node)?;
        node.push_null();
        return Ok(());
    }
    let in_string = node.coercion == Coercion::ParseString;
    let scratch = &mut state.scratch;
    let fits = match &mut node.sink {
        Sink::BigInt(values) => {
            let value = read_number(scanner, first, in_string, scratch)?.and_then(Number::to_i64);
            values.push_some(value)
        }
        Sink::Int(values) => {
            let value = read_number(scanner, first, in_string, scratch)?.and_then(Number::to_i64);
            values.push_some(value.and_then(|value| value.try_into().ok()))
        }
        Sink::SmallInt(values) => {
            read_numeric(scanner, first, in_string, scratch, values, |number| number.to_i64()?.try_into().ok())?
        }
        Sink::TinyInt(values) => {
            read_numeric(scanner, first, in_string, scratch, values, |number| number.to_i64()?.try_into().ok())?
        }
        Sink::Double(values) => {
            let value = read_number(scanner, first, in_string, scratch)?.and_then(Number::to_f64);
            values.push_some(value)
        }
        Sink::Float(values) => read_numeric(scanner, first, in_string, scratch, values, |number| number.to_f32())?,
        Sink::Decimal { values, scale, max, .. } => {
            // Decimals often travel as strings to stay exact.
            let value = match read_number(scanner, first, true, scratch)? {
                Some(number) => number.to_decimal(*scale, *max),
                None => None,
            };
            values.push_some(value)
        }
        Sink::String(bytes) => match read_text(scanner, first)? {
            Some(Text::Plain(raw)) => {
                bytes.push(raw);
                true
            }
            Some(text) => {
                bytes.push(text.unescaped(scratch));
                true
            }
            None => false,
        },
        Sink::Timestamp { values, cache } => {
            let value = match read_text(scanner, first)? {
                Some(text) => time::timestamp(text.unescaped(scratch), cache),
                None => None,
            };
            values.push_some(value)
        }
        Sink::Boolean(values) => match read_boolean(scanner, first, in_string, scratch)? {
            Some(value) => {
                values.push(value);
                true
            }
            None => false,
        },
        Sink::Struct(inner) => {
            let fits = first == b'{';
            if fits {
                read_nested(scanner, &mut inner.object, node.id, depth, state)?;
                inner.validity.append_non_null();
            }
            fits
        }
        Sink::List(list) => {
            let fits = first == b'[';
            if fits {
                read_list(scanner, list, node.id, depth, state)?;
            }
            fits
        }
        Sink::Date(values) => read_textual(scanner, first, scratch, values, time::date)?,
        Sink::TimestampNtz { values, cache } => {
            read_textual(scanner, first, scratch, values, |text| time::wall_clock(text, cache))?
        }
        Sink::Epoch(values) => {
            read_numeric(scanner, first, false, scratch, values, |number| time::epoch(number, node.coercion))?
        }
        Sink::EpochDays(values) => read_numeric(scanner, first, false, scratch, values, time::epoch_days)?,
        Sink::Binary(bytes) => {
            let text = read_text(scanner, first)?;
            let decode = |text: Text<'_>| bytes.push_with(|out| STANDARD.decode_vec(text.unescaped(scratch), out)).ok();
            text.and_then(decode).is_some()
        }
        Sink::JsonText(bytes) => {
            scanner.skip_value(depth)?;
            bytes.push(scanner.slice(start, scanner.at));
            true
        }
        Sink::Map(map) => {
            let fits = first == b'{';
            if fits {
                read_map(scanner, map, node.id, depth, state)?;
            }
            fits
        }
        Sink::Branch(object) => {
            let fits = first == b'{';
            if fits {
                read_nested(scanner, object, node.id, depth, state)?;
            }
            fits
        }
        Sink::Twins(twins) => {
            read_twins(scanner, twins, start, depth, state)?;
            true
        }
        Sink::Part(part) => read_part(scanner, part, first, depth, state)?,
        Sink::DateOf { values, cache } if node.coercion == Coercion::None => {
            let date = |text: &[u8]| time::date_of(time::timestamp(text, cache)?);
            read_textual(scanner, first, scratch, values, date)?
        }
        Sink::DateOf { values, .. } => {
            let date = |number: Number<'_>| time::date_of(time::epoch(number, node.coercion)?);
            read_numeric(scanner, first, false, scratch, values, date)?
        }
        Sink::Dropped { len, .. } => {
            scanner.skip_value(depth)?;
            *len += 1;
            true
        }
        Sink::Nothing { .. } => false,
    };
    if fits { Ok(()) } else { read_conflict(scanner, node, start, depth, state) }
}

#[cold]
#[inline(never)]
fn read_conflict(
    scanner: &mut Scanner<'_>,
    node: &mut Node,
    start: usize,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    scanner.at = start;
    scanner.skip_value(depth)?;
    state.spend_null(node)?;
    node.push_null();
    state.notes.conflict(node.id, start..scanner.at);
    Ok(())
}

/// A number, or one in a string where that is wanted; none when the value is something else, which
/// is then not passed as a whole.
#[inline(always)]
fn read_number<'a: 's, 's>(
    scanner: &mut Scanner<'a>,
    first: u8,
    in_string: bool,
    scratch: &'s mut Vec<u8>,
) -> Result<Option<Number<'s>>, Fault> {
    Ok(match first {
        b'-' | b'0'..=b'9' => Some(scanner.number()?),
        b'"' if in_string => Number::parse(scanner.string()?.unescaped(scratch)),
        _ => None,
    })
}

#[inline(always)]
fn read_text<'s>(scanner: &mut Scanner<'s>, first: u8) -> Result<Option<Text<'s>>, Fault> {
    Ok(if first == b'"' { Some(scanner.string()?) } else { None })
}

/// Reads a number into one of the rarer columns, kept out of the way of the usual ones; whether it fits.
#[inline(never)]
fn read_numeric<T: ArrowNativeType>(
    scanner: &mut Scanner<'_>,
    first: u8,
    in_string: bool,
    scratch: &mut Vec<u8>,
    values: &mut Values<T>,
    convert: impl FnOnce(Number<'_>) -> Option<T>,
) -> Result<bool, Fault> {
    let number = read_number(scanner, first, in_string, scratch)?;
    Ok(values.push_some(number.and_then(convert)))
}

/// The same for a string.
#[inline(never)]
fn read_textual<T: ArrowNativeType>(
    scanner: &mut Scanner<'_>,
    first: u8,
    scratch: &mut Vec<u8>,
    values: &mut Values<T>,
    convert: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<bool, Fault> {
    let text = read_text(scanner, first)?;
    Ok(values.push_some(text.and_then(|text| convert(text.unescaped(scratch)))))
}

#[inline(always)]
fn read_boolean(
    scanner: &mut Scanner<'_>,
    first: u8,
    in_string: bool,
    scratch: &mut Vec<u8>,
) -> Result<Option<bool>, Fault> {
    Ok(match first {
        b't' => {
            scanner.literal(b"true")?;
            Some(true)
        }
        b'f' => {
            scanner.literal(b"false")?;
            Some(false)
        }
        b'"' if in_string => match scanner.string()?.unescaped(scratch) {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        },
        _ => None,
    })
}

/// Reads one value once for each column that is made from it.
#[inline(never)]
fn read_twins(
    scanner: &mut Scanner<'_>,
    twins: &mut [Twin],
    start: usize,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    for twin in twins {
        scanner.at = start;
        read_value(scanner, &mut twin.node, depth, state)?;
    }
    Ok(())
}

/// Reads a part of a string; whether it fits.
#[inline(never)]
fn read_part(
    scanner: &mut Scanner<'_>,
    part: &mut Part,
    first: u8,
    depth: u32,
    state: &mut State,
) -> Result<bool, Fault> {
    let Some(text) = read_text(scanner, first)? else { return Ok(false) };
    let Ok(text) = std::str::from_utf8(text.unescaped(&mut state.scratch)) else { return Ok(false) };
    let found = match &part.derivation {
        Derivation::Before(separator) => text.split_once(separator.as_str()).map(|(before, _)| before),
        Derivation::After(separator) => text.split_once(separator.as_str()).map(|(_, after)| after),
        Derivation::Date => None,
    };
    let Some(found) = found else { return Ok(false) };
    part.json.clear();
    quote(found, &mut part.json);
    let (rows, notes) = (part.inner.len(), state.notes.len());
    read_value(&mut Scanner::new(&part.json), &mut part.inner, depth, state)?;
    let fits = state.notes.len() == notes;
    if !fits {
        // The place of the note is in the part, not in the record.
        state.notes.truncate(notes);
        part.inner.truncate(rows);
    }
    Ok(fits)
}

#[inline(never)]
fn read_nested(
    scanner: &mut Scanner<'_>,
    object: &mut Object,
    id: u32,
    depth: u32,
    state: &mut State,
) -> Result<(), Fault> {
    read_object(scanner, object, id, depth, state)
}

#[inline(never)]
fn read_list(scanner: &mut Scanner<'_>, list: &mut List, id: u32, depth: u32, state: &mut State) -> Result<(), Fault> {
    let start = scanner.at;
    let first_note = state.notes.len();
    scanner.enter(depth)?;
    state.containers += 1;
    if scanner.peek() == b']' {
        scanner.at += 1;
    } else {
        loop {
            read_value(scanner, &mut list.item, depth + 1, state)?;
            if scanner.list_ends()? {
                break;
            }
        }
    }
    state.containers -= 1;
    if state.conflicts(first_note, id, start..scanner.at) {
        list.item.truncate(list.ends.last());
        list.ends.push_null();
    } else {
        list.ends.push(list.item.len());
    }
    Ok(())
}

impl State {
    /// Closes a list or map whose notes start at `first_note`: whether it is in conflict.
    #[inline(always)]
    pub(super) fn conflicts(&mut self, first_note: u32, id: u32, value: std::ops::Range<usize>) -> bool {
        self.containers == 0 && self.notes.len() > first_note && self.notes.close_container(first_note, id, value)
    }
}
