//! A column being written.

use super::batch::layout_of;
use super::views::Primitive;
use crate::bindings::column::{Layout, Node};
use crate::{Error, Result, Type};
use std::fmt;

/// Values in the contract's layout, growing at the end.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    name: String,
    layout: Layout,
    length: usize,
    /// Absent until the first null.
    validity: Option<Bits>,
    /// Those of layouts that have them; the first is 0.
    offsets: Vec<i32>,
    values: Vec<u8>,
    /// The values of a boolean.
    bits: Bits,
    children: Vec<Buffer>,
}

/// Bits, least significant first.
#[derive(Clone, Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    length: usize,
}

impl Bits {
    fn ones(length: usize) -> Self {
        let mut bits = Self { bytes: vec![0xff; length.div_ceil(8)], length };
        bits.truncate(length);
        bits
    }

    #[inline]
    fn push(&mut self, bit: bool) {
        let (byte, shift) = (self.length / 8, self.length % 8);
        match self.bytes.get_mut(byte) {
            Some(byte) => *byte |= u8::from(bit) << shift,
            None => self.bytes.push(u8::from(bit)),
        }
        self.length += 1;
    }

    fn get(&self, index: usize) -> bool {
        self.bytes.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    fn truncate(&mut self, length: usize) {
        let length = length.min(self.length);
        self.length = length;
        self.bytes.truncate(length.div_ceil(8));
        if let Some(last) = self.bytes.last_mut().filter(|_| !length.is_multiple_of(8)) {
            *last &= (1 << (length % 8)) - 1;
        }
    }

    fn take(&self, positions: &[u32]) -> Self {
        let mut taken = Self { bytes: Vec::with_capacity(positions.len().div_ceil(8)), length: 0 };
        for position in positions {
            taken.push(self.get(*position as usize));
        }
        taken
    }
}

impl Buffer {
    /// Room for `rows` values of a type.
    pub(crate) fn new(name: &str, data_type: &Type, rows: usize) -> Self {
        let (layout, _) = layout_of(data_type);
        let mut buffer = Self::empty(name, layout, rows);
        buffer.children = match data_type {
            Type::Array(element) => vec![Self::new("element", element, rows)],
            Type::Map(key, value) => {
                let mut entries = Self::empty("key_value", Layout::Struct, rows);
                entries.children = vec![Self::new("key", key, rows), Self::new("value", value, rows)];
                vec![entries]
            }
            Type::Struct(fields) => fields.iter().map(|(name, field)| Self::new(name, field, rows)).collect(),
            _ => Vec::new(),
        };
        buffer
    }

    fn empty(name: &str, layout: Layout, rows: usize) -> Self {
        let offsets = if has_offsets(layout) {
            let mut offsets = Vec::with_capacity(rows + 1);
            offsets.push(0);
            offsets
        } else {
            Vec::new()
        };
        // Texts are of unknown length; 16 bytes each spare most of the growing.
        let width = if has_bytes(layout) { 16 } else { width(layout) };
        Self {
            name: name.to_owned(),
            layout,
            length: 0,
            validity: None,
            offsets,
            values: Vec::with_capacity(rows * width),
            bits: Bits::default(),
            children: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing but a null was appended to the first `length` values.
    pub(crate) fn is_null_at_end(&self, length: usize) -> bool {
        self.length <= length || self.validity.as_ref().is_some_and(|validity| !validity.get(length))
    }

    pub(crate) fn children_mut(&mut self) -> &mut [Buffer] {
        &mut self.children
    }

    /// Counts one more value, there or null.
    #[inline]
    fn count(&mut self, there: bool) {
        match &mut self.validity {
            Some(validity) => validity.push(there),
            None if there => {}
            None => {
                let mut validity = Bits::ones(self.length);
                validity.push(false);
                self.validity = Some(validity);
            }
        }
        self.length += 1;
    }

    /// The value's bytes; `N` is the layout's width.
    #[inline]
    pub(crate) fn push_fixed<B: AsRef<[u8]>>(&mut self, value: B) {
        self.values.extend_from_slice(value.as_ref());
        self.count(true);
    }

    /// A date or timestamp, when it is one that can be written.
    #[inline]
    pub(crate) fn push_checked<T: Primitive + fmt::Display>(
        &mut self,
        writable: bool,
        value: T,
        path: &str,
    ) -> Result<()> {
        if !writable {
            return Err(out_of_range(&value, path));
        }
        self.push_fixed(value.store());
        Ok(())
    }

    #[inline]
    pub(crate) fn push_boolean(&mut self, value: bool) {
        self.bits.push(value);
        self.count(true);
    }

    #[inline]
    pub(crate) fn push_bytes(&mut self, value: &[u8]) -> Result<()> {
        self.values.extend_from_slice(value);
        self.close_bytes()
    }

    /// The buffer that the next value's bytes are appended to; [`Self::close_bytes`] ends it,
    /// [`Self::drop_bytes`] takes it back.
    #[inline]
    pub(crate) fn open_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.values
    }

    #[inline]
    pub(crate) fn close_bytes(&mut self) -> Result<()> {
        let end = self.values.len();
        self.close(end)
    }

    pub(crate) fn drop_bytes(&mut self) {
        self.values.truncate(self.end());
    }

    /// Ends a list or map whose elements were appended to the child.
    pub(crate) fn close_elements(&mut self) -> Result<()> {
        let end = self.children.first().map_or(0, Buffer::len);
        self.close(end)
    }

    /// Ends a struct whose fields were appended to the children; the others become null.
    pub(crate) fn close_fields(&mut self) {
        let length = self.length + 1;
        for child in self.children.iter_mut().filter(|child| child.length < length) {
            child.push_null();
        }
        self.count(true);
    }

    #[inline]
    fn close(&mut self, end: usize) -> Result<()> {
        let end = i32::try_from(end).map_err(|_| Error::fault(format!("column '{}' holds over 2 GiB", self.name)))?;
        self.offsets.push(end);
        self.count(true);
        Ok(())
    }

    /// Where the next value of a layout with offsets starts.
    fn end(&self) -> usize {
        self.offsets.last().map_or(0, |end| *end as usize)
    }

    pub(crate) fn push_null(&mut self) {
        match self.layout {
            Layout::Boolean => self.bits.push(false),
            Layout::Bytes | Layout::Utf8 | Layout::List | Layout::Map => self.offsets.push(self.end() as i32),
            Layout::Struct => self.children.iter_mut().for_each(Buffer::push_null),
            fixed => self.values.resize(self.values.len() + width(fixed), 0),
        }
        self.count(false);
    }

    /// Takes back all values past `length`, and what a broken-off value left behind.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = length;
        if let Some(validity) = &mut self.validity {
            validity.truncate(length);
        }
        match self.layout {
            Layout::Boolean => self.bits.truncate(length),
            Layout::Struct => self.children.iter_mut().for_each(|child| child.truncate(length)),
            layout if has_offsets(layout) => {
                self.offsets.truncate(length + 1);
                let end = self.end();
                self.values.truncate(end);
                self.children.iter_mut().for_each(|child| child.truncate(end));
            }
            fixed => self.values.truncate(length * width(fixed)),
        }
    }

    /// The values at these positions, in this order.
    pub(crate) fn take(&self, positions: &[u32]) -> Self {
        let mut taken = Self::empty(&self.name, self.layout, 0);
        taken.length = positions.len();
        taken.validity = self.validity.as_ref().map(|validity| validity.take(positions));
        match self.layout {
            Layout::Boolean => taken.bits = self.bits.take(positions),
            Layout::Struct => taken.children = self.children.iter().map(|child| child.take(positions)).collect(),
            layout if has_offsets(layout) => {
                let mut elements = Vec::new();
                let mut end = 0;
                for position in positions.iter().map(|position| *position as usize) {
                    let bounds = self.offsets.get(position).zip(self.offsets.get(position + 1));
                    let (from, to) = bounds.map_or((0, 0), |(from, to)| (*from as usize, *to as usize));
                    if has_bytes(layout) {
                        taken.values.extend_from_slice(self.values.get(from..to).unwrap_or_default());
                    } else {
                        elements.extend(from as u32..to as u32);
                    }
                    end += to - from;
                    taken.offsets.push(end as i32);
                }
                taken.children = self.children.iter().map(|child| child.take(&elements)).collect();
            }
            fixed => {
                let width = width(fixed);
                taken.values.reserve(positions.len() * width);
                for position in positions.iter().map(|position| *position as usize) {
                    let value = self.values.get(position * width..(position + 1) * width);
                    taken.values.extend_from_slice(value.unwrap_or_default());
                }
            }
        }
        taken
    }

    /// The contract's nodes, in preorder.
    pub(crate) fn into_nodes(self, nodes: &mut Vec<Node>) -> Result<()> {
        let too_many = |_| Error::fault(format!("column '{}' has too many values", self.name));
        nodes.push(Node {
            layout: self.layout,
            children: u32::try_from(self.children.len()).map_err(too_many)?,
            length: u32::try_from(self.length).map_err(too_many)?,
            validity: self.validity.map(|validity| validity.bytes),
            offsets: has_offsets(self.layout).then_some(self.offsets),
            values: if self.layout == Layout::Boolean { self.bits.bytes } else { self.values },
            name: self.name,
        });
        self.children.into_iter().try_for_each(|child| child.into_nodes(nodes))
    }
}

#[cold]
fn out_of_range(value: &dyn fmt::Display, path: &str) -> Error {
    Error::new(format!("column '{path}': {value} is not within the years 1 to 9999"))
}

fn has_offsets(layout: Layout) -> bool {
    matches!(layout, Layout::Bytes | Layout::Utf8 | Layout::List | Layout::Map)
}

fn has_bytes(layout: Layout) -> bool {
    matches!(layout, Layout::Bytes | Layout::Utf8)
}

fn width(layout: Layout) -> usize {
    match layout {
        Layout::Fixed1 => 1,
        Layout::Fixed2 => 2,
        Layout::Fixed4 => 4,
        Layout::Fixed8 => 8,
        Layout::Fixed16 => 16,
        _ => 0,
    }
}
