//! A plan made ready to run: the tree that the decoder walks, with a buffer at every leaf.

use super::columns::{Booleans, Bytes, Ends, Values};
use super::time::DateCache;
use crate::json::{Scanner, quote};
use crate::{Coercion, Derivation, OnConflict};
use arrow_array::types::{
    BinaryType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, Utf8Type,
};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray, new_null_array};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{ArrowError, DataType as ArrowType, FieldRef, Fields};
use std::collections::HashMap;
use std::sync::Arc;

/// The id of the record itself.
pub(super) const ROOT: u32 = 0;

/// Where a node stands, for what is said of it and of the values found there.
pub(super) struct Place {
    pub(super) parent: u32,
    pub(super) step: Step,
    /// What a value must be to fit, in words.
    pub(super) wanted: String,
    pub(super) on_conflict: OnConflict,
}

/// The way from a node to one below it.
pub(super) enum Step {
    Field {
        name: String,
        /// The name as a JSON string.
        key: Vec<u8>,
    },
    Element,
    Value,
}

impl Step {
    pub(super) fn field(name: &str) -> Self {
        let mut key = Vec::with_capacity(name.len() + 2);
        quote(name, &mut key);
        Self::Field { name: name.to_owned(), key }
    }
}

/// A place where values are read.
pub(super) struct Node {
    /// Ids number the nodes in preorder: those below have the ids up to `end`.
    pub(super) id: u32,
    pub(super) end: u32,
    /// How many notes there were before the value that was read last.
    pub(super) mark: u32,
    pub(super) coercion: Coercion,
    pub(super) sink: Sink,
}

/// Where a node's values go.
pub(super) enum Sink {
    Boolean(Booleans),
    TinyInt(Values<i8>),
    SmallInt(Values<i16>),
    Int(Values<i32>),
    BigInt(Values<i64>),
    Float(Values<f32>),
    Double(Values<f64>),
    Decimal {
        values: Values<i128>,
        precision: u8,
        scale: u8,
        max: i128,
    },
    String(Bytes),
    JsonText(Bytes),
    Binary(Bytes),
    Date(Values<i32>),
    EpochDays(Values<i32>),
    Timestamp {
        values: Values<i64>,
        cache: DateCache,
    },
    Epoch(Values<i64>),
    TimestampNtz {
        values: Values<i64>,
        cache: DateCache,
    },
    List(Box<List>),
    Map(Box<Map>),
    Struct(Box<Struct>),
    /// An object of which columns read parts; no column itself.
    Branch(Box<Object>),
    /// A value from which several columns are made.
    Twins(Vec<Twin>),
    /// A part of a string.
    Part(Box<Part>),
    /// The date of a timestamp.
    DateOf {
        values: Values<i32>,
        cache: DateCache,
    },
    /// What is left out, null in its column where there is one.
    Dropped {
        data_type: Option<ArrowType>,
        len: usize,
    },
    /// A type that no JSON value has: a map whose keys are not strings.
    Nothing {
        data_type: ArrowType,
        len: usize,
    },
}

pub(super) struct List {
    pub(super) ends: Ends,
    pub(super) item: Node,
    pub(super) field: FieldRef,
}

pub(super) struct Map {
    pub(super) ends: Ends,
    pub(super) keys: Bytes,
    pub(super) value: Node,
    pub(super) field: FieldRef,
}

pub(super) struct Struct {
    pub(super) object: Object,
    pub(super) validity: NullBufferBuilder,
    pub(super) fields: Fields,
}

/// One of the columns that are made from one value.
pub(super) struct Twin {
    pub(super) node: Node,
    pub(super) column: usize,
    pub(super) default: Option<Box<[u8]>>,
}

pub(super) struct Part {
    pub(super) derivation: Derivation,
    pub(super) inner: Node,
    /// The part as a JSON string, for `inner` to read.
    pub(super) json: Vec<u8>,
}

/// The fields that are read of an object.
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    /// Positions of the fields, kept when there are many.
    index: HashMap<Box<[u8]>, usize>,
    /// How many objects were read; each field has as many values.
    pub(super) len: usize,
    /// The field that came first in the objects read so far.
    pub(super) first: usize,
}

pub(super) struct Field {
    pub(super) key: Key,
    pub(super) node: Node,
    /// The field that came next in the objects read so far: records mostly have their keys in one
    /// order, whatever the order of the columns.
    pub(super) next: usize,
    /// The number of the object that had the field last, from 1.
    pub(super) seen: usize,
    /// The column of which this is the root, or one of those below a branch: unused inside columns.
    pub(super) column: usize,
    /// JSON for records that do not have the field.
    pub(super) default: Option<Box<[u8]>>,
    /// Whether there is such a default here or below.
    pub(super) has_default: bool,
}

/// A key, made ready to be recognised.
pub(super) struct Key {
    name: Box<[u8]>,
    /// The key as it mostly stands in records: quoted, with a colon right behind. Empty when it
    /// cannot be spelled without escapes.
    literal: Box<[u8]>,
    /// `literal` as one number, when it is short enough; `mask` has ones where it has bytes.
    pattern: u128,
    mask: u128,
}

impl Key {
    pub(super) fn new(name: &str) -> Self {
        let mut literal = Vec::with_capacity(name.len() + 3);
        quote(name, &mut literal);
        if literal.len() == name.len() + 2 {
            literal.push(b':');
        } else {
            literal.clear();
        }
        let (mut pattern, mut mask) = (0, 0);
        if literal.len() <= 16 {
            for byte in literal.iter().rev() {
                pattern = (pattern << 8) | u128::from(*byte);
                mask = (mask << 8) | 0xff;
            }
        }
        Self { name: name.as_bytes().into(), literal: literal.into(), pattern, mask }
    }

    /// Passes the key and its colon if they stand here in their usual spelling.
    #[inline(always)]
    pub(super) fn passes(&self, scanner: &mut Scanner<'_>) -> bool {
        let rest = scanner.bytes.get(scanner.at..).unwrap_or_default();
        let found = match rest.first_chunk::<16>() {
            Some(word) if self.mask != 0 => u128::from_le_bytes(*word) & self.mask == self.pattern,
            _ => !self.literal.is_empty() && rest.starts_with(&self.literal),
        };
        if found {
            scanner.at += self.literal.len();
        }
        found
    }
}

/// How many fields are looked through one by one.
const FEW: usize = 16;
const NEAR: usize = 4;

impl Object {
    pub(super) fn new(fields: Vec<Field>) -> Self {
        let mut index = HashMap::new();
        if fields.len() > FEW {
            index = fields.iter().enumerate().map(|(at, field)| (field.key.name.clone(), at)).collect();
        }
        Self { fields, index, len: 0, first: 0 }
    }

    /// The field of this name. Looks first behind the one that was likely to be next: it may have
    /// been left out.
    pub(super) fn find(&self, name: &[u8], likely: usize) -> Option<usize> {
        let is_named = |field: &Field| *field.key.name == *name;
        let ahead = self.fields.get(likely..).unwrap_or_default();
        if let Some(found) = ahead.iter().take(NEAR).position(is_named) {
            return Some(likely + found);
        }
        if self.index.is_empty() {
            return self.fields.iter().position(is_named);
        }
        self.index.get(name).copied()
    }

    /// Notes that field `at` came after field `before`, or first.
    pub(super) fn learn(&mut self, before: Option<usize>, at: usize) {
        match before {
            None => self.first = at,
            Some(before) => {
                if let Some(field) = self.fields.get_mut(before) {
                    field.next = at;
                }
            }
        }
    }

    pub(super) fn push_null(&mut self) {
        for field in &mut self.fields {
            field.node.push_null();
        }
        self.len += 1;
    }

    /// Cuts back to `len` objects, whatever the fields hold beyond that.
    pub(super) fn truncate(&mut self, len: usize) {
        for field in &mut self.fields {
            field.node.truncate(len);
            field.seen = field.seen.min(len);
        }
        self.len = self.len.min(len);
    }

    /// Takes the columns that hang below, each to its place in `columns`.
    pub(super) fn finish_columns(&mut self, columns: &mut [Option<ArrayRef>]) -> Result<(), ArrowError> {
        self.len = 0;
        for field in &mut self.fields {
            match &mut field.node.sink {
                Sink::Branch(object) => object.finish_columns(columns)?,
                Sink::Twins(twins) => {
                    for twin in twins {
                        if let Some(column) = columns.get_mut(twin.column) {
                            *column = Some(twin.node.finish()?);
                        }
                    }
                }
                Sink::Dropped { data_type: None, len } => *len = 0,
                _ => {
                    if let Some(column) = columns.get_mut(field.column) {
                        *column = Some(field.node.finish()?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Node {
    pub(super) fn len(&self) -> usize {
        match &self.sink {
            Sink::Boolean(values) => values.len(),
            Sink::TinyInt(values) => values.len(),
            Sink::SmallInt(values) => values.len(),
            Sink::Int(values) | Sink::Date(values) | Sink::EpochDays(values) => values.len(),
            Sink::BigInt(values) | Sink::Epoch(values) => values.len(),
            Sink::Timestamp { values, .. } | Sink::TimestampNtz { values, .. } => values.len(),
            Sink::Float(values) => values.len(),
            Sink::Double(values) => values.len(),
            Sink::Decimal { values, .. } => values.len(),
            Sink::String(bytes) | Sink::JsonText(bytes) | Sink::Binary(bytes) => bytes.len(),
            Sink::List(list) => list.ends.len(),
            Sink::Map(map) => map.ends.len(),
            Sink::Struct(inner) => inner.object.len,
            Sink::Branch(object) => object.len,
            Sink::Twins(twins) => twins.first().map_or(0, |twin| twin.node.len()),
            Sink::Part(part) => part.inner.len(),
            Sink::DateOf { values, .. } => values.len(),
            Sink::Nothing { len, .. } | Sink::Dropped { len, .. } => *len,
        }
    }

    pub(super) fn push_null(&mut self) {
        match &mut self.sink {
            Sink::Boolean(values) => values.push_null(),
            Sink::TinyInt(values) => values.push_null(),
            Sink::SmallInt(values) => values.push_null(),
            Sink::Int(values) | Sink::Date(values) | Sink::EpochDays(values) => values.push_null(),
            Sink::BigInt(values) | Sink::Epoch(values) => values.push_null(),
            Sink::Timestamp { values, .. } | Sink::TimestampNtz { values, .. } => values.push_null(),
            Sink::Float(values) => values.push_null(),
            Sink::Double(values) => values.push_null(),
            Sink::Decimal { values, .. } => values.push_null(),
            Sink::String(bytes) | Sink::JsonText(bytes) | Sink::Binary(bytes) => bytes.push_null(),
            Sink::List(list) => list.ends.push_null(),
            Sink::Map(map) => map.ends.push_null(),
            Sink::Struct(inner) => {
                inner.object.push_null();
                inner.validity.append_null();
            }
            Sink::Branch(object) => object.push_null(),
            Sink::Twins(twins) => twins.iter_mut().for_each(|twin| twin.node.push_null()),
            Sink::Part(part) => part.inner.push_null(),
            Sink::DateOf { values, .. } => values.push_null(),
            Sink::Nothing { len, .. } | Sink::Dropped { len, .. } => *len += 1,
        }
    }

    /// Cuts back to `len` values. What hangs below is cut back even when there are fewer: a record
    /// that turned out malformed leaves values of lists and structs that were never finished.
    pub(super) fn truncate(&mut self, to: usize) {
        match &mut self.sink {
            Sink::Boolean(values) => values.truncate(to),
            Sink::TinyInt(values) => values.truncate(to),
            Sink::SmallInt(values) => values.truncate(to),
            Sink::Int(values) | Sink::Date(values) | Sink::EpochDays(values) => values.truncate(to),
            Sink::BigInt(values) | Sink::Epoch(values) => values.truncate(to),
            Sink::Timestamp { values, .. } | Sink::TimestampNtz { values, .. } => values.truncate(to),
            Sink::Float(values) => values.truncate(to),
            Sink::Double(values) => values.truncate(to),
            Sink::Decimal { values, .. } => values.truncate(to),
            Sink::String(bytes) | Sink::JsonText(bytes) | Sink::Binary(bytes) => bytes.truncate(to),
            Sink::List(list) => {
                list.ends.truncate(to);
                list.item.truncate(list.ends.last());
            }
            Sink::Map(map) => {
                map.ends.truncate(to);
                map.keys.truncate(map.ends.last());
                map.value.truncate(map.ends.last());
            }
            Sink::Struct(inner) => {
                inner.object.truncate(to);
                inner.validity.truncate(to);
            }
            Sink::Branch(object) => object.truncate(to),
            Sink::Twins(twins) => twins.iter_mut().for_each(|twin| twin.node.truncate(to)),
            Sink::Part(part) => part.inner.truncate(to),
            Sink::DateOf { values, .. } => values.truncate(to),
            Sink::Nothing { len, .. } | Sink::Dropped { len, .. } => *len = to.min(*len),
        }
    }

    /// Takes the values as an array.
    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match &mut self.sink {
            Sink::Boolean(values) => Arc::new(values.finish()),
            Sink::TinyInt(values) => Arc::new(values.finish::<Int8Type>()?),
            Sink::SmallInt(values) => Arc::new(values.finish::<Int16Type>()?),
            Sink::Int(values) => Arc::new(values.finish::<Int32Type>()?),
            Sink::BigInt(values) => Arc::new(values.finish::<Int64Type>()?),
            Sink::Float(values) => Arc::new(values.finish::<Float32Type>()?),
            Sink::Double(values) => Arc::new(values.finish::<Float64Type>()?),
            Sink::Decimal { values, precision, scale, .. } => {
                let array = values.finish::<Decimal128Type>()?;
                Arc::new(array.with_precision_and_scale(*precision, *scale as i8)?)
            }
            Sink::String(bytes) | Sink::JsonText(bytes) => Arc::new(bytes.finish::<Utf8Type>()?),
            Sink::Binary(bytes) => Arc::new(bytes.finish::<BinaryType>()?),
            Sink::Date(values) | Sink::EpochDays(values) => Arc::new(values.finish::<Date32Type>()?),
            Sink::Timestamp { values, .. } | Sink::Epoch(values) => {
                Arc::new(values.finish::<TimestampMicrosecondType>()?.with_timezone("UTC"))
            }
            Sink::TimestampNtz { values, .. } => Arc::new(values.finish::<TimestampMicrosecondType>()?),
            Sink::List(list) => {
                let (offsets, nulls) = list.ends.finish();
                Arc::new(ListArray::try_new(list.field.clone(), offsets, list.item.finish()?, nulls)?)
            }
            Sink::Map(map) => Arc::new(map.finish()?),
            Sink::Struct(inner) => Arc::new(inner.finish()?),
            Sink::Part(part) => part.inner.finish()?,
            Sink::DateOf { values, .. } => Arc::new(values.finish::<Date32Type>()?),
            // These are no column themselves.
            Sink::Branch(_) | Sink::Twins(_) | Sink::Dropped { data_type: None, .. } => {
                new_null_array(&ArrowType::Null, 0)
            }
            Sink::Nothing { data_type, len } | Sink::Dropped { data_type: Some(data_type), len } => {
                new_null_array(data_type, std::mem::take(len))
            }
        })
    }
}

impl Map {
    fn finish(&mut self) -> Result<MapArray, ArrowError> {
        let ArrowType::Struct(fields) = self.field.data_type() else {
            return Err(ArrowError::SchemaError("the entries of a map are no struct".to_owned()));
        };
        let columns: Vec<ArrayRef> = vec![Arc::new(self.keys.finish::<Utf8Type>()?), self.value.finish()?];
        let entries = StructArray::try_new(fields.clone(), columns, None)?;
        let (offsets, nulls) = self.ends.finish();
        MapArray::try_new(self.field.clone(), offsets, entries, nulls, false)
    }
}

impl Struct {
    fn finish(&mut self) -> Result<StructArray, ArrowError> {
        let len = std::mem::take(&mut self.object.len);
        let mut columns = Vec::with_capacity(self.fields.len());
        for field in &mut self.object.fields {
            match &mut field.node.sink {
                Sink::Dropped { data_type: None, len } => *len = 0,
                // Around what is dropped; there are no columns below.
                Sink::Branch(object) => object.finish_columns(&mut [])?,
                _ => columns.push(field.node.finish()?),
            }
        }
        StructArray::try_new_with_length(self.fields.clone(), columns, self.validity.finish(), len)
    }
}
