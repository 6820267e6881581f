//! From a plan's columns to the tree that reads them.

use super::columns::{Booleans, Bytes, Ends, Values};
use super::time::DateCache;
use super::tree::{Field, Key, List, Map, Node, Object, Place, ROOT, Sink, Step, Struct};
use crate::{Coercion, Column, OnConflict, path};
use alluvium_core::DataType;
use arrow_buffer::NullBufferBuilder;
use arrow_schema::DataType as ArrowType;

/// The tree that reads these columns, and the places of its nodes by id.
pub(super) fn compile(columns: &[Column]) -> (Object, Vec<Place>) {
    let mut sources = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        Source::insert(&mut sources, &column.path, column, at);
    }
    // Of the record itself.
    let root = Place { parent: ROOT, step: Step::Element, data_type: None, on_conflict: OnConflict::Reject };
    let mut compiler = Compiler { places: vec![root] };
    let root = compiler.branch(&sources, ROOT);
    (root, compiler.places)
}

/// The paths of all columns as a tree.
enum Source<'p> {
    Column(&'p Column, usize),
    Branch(Vec<(&'p str, Source<'p>)>),
}

impl<'p> Source<'p> {
    fn insert(sources: &mut Vec<(&'p str, Self)>, path: &'p [String], column: &'p Column, at: usize) {
        match path {
            [] => {}
            [name] => sources.push((name, Self::Column(column, at))),
            [name, rest @ ..] => {
                let known =
                    sources.iter().position(|(known, source)| known == name && matches!(source, Self::Branch(_)));
                let known = known.unwrap_or_else(|| {
                    sources.push((name, Self::Branch(Vec::new())));
                    sources.len() - 1
                });
                if let Some((_, Self::Branch(inner))) = sources.get_mut(known) {
                    Self::insert(inner, rest, column, at);
                }
            }
        }
    }

    /// What a conflict here asks for: the strictest of the columns below.
    fn on_conflict(&self) -> OnConflict {
        let strictness = |on_conflict: &OnConflict| match on_conflict {
            OnConflict::Rescue => 0,
            OnConflict::Reject => 1,
            OnConflict::Stop => 2,
        };
        match self {
            Self::Column(column, _) => column.on_conflict,
            Self::Branch(inner) => {
                let all = inner.iter().map(|(_, source)| source.on_conflict());
                all.max_by_key(strictness).unwrap_or(OnConflict::Rescue)
            }
        }
    }
}

struct Compiler {
    places: Vec<Place>,
}

impl Compiler {
    fn next_id(&self) -> u32 {
        self.places.len() as u32
    }

    fn branch(&mut self, sources: &[(&str, Source<'_>)], parent: u32) -> Object {
        let mut fields = Vec::with_capacity(sources.len());
        for (name, source) in sources {
            let (node, column) = match source {
                Source::Column(column, at) => {
                    let inside = Inside { column, at: String::new() };
                    (self.node(&inside, &column.data_type, parent, Step::field(name)), *at)
                }
                Source::Branch(inner) => {
                    let id = self.next_id();
                    let on_conflict = source.on_conflict();
                    self.places.push(Place { parent, step: Step::field(name), data_type: None, on_conflict });
                    let object = Box::new(self.branch(inner, id));
                    let end = self.next_id();
                    (Node { id, end, mark: 0, coercion: Coercion::None, sink: Sink::Branch(object) }, 0)
                }
            };
            fields.push(Field { key: Key::new(name), node, next: fields.len() + 1, column });
        }
        Object::new(fields)
    }

    fn node(&mut self, inside: &Inside<'_>, data_type: &DataType, parent: u32, step: Step) -> Node {
        let id = self.next_id();
        let on_conflict = inside.column.on_conflict;
        self.places.push(Place { parent, step, data_type: Some(data_type.clone()), on_conflict });
        let coercion = inside.coercion();
        let sink = self.sink(inside, data_type, coercion, id);
        Node { id, end: self.next_id(), mark: 0, coercion, sink }
    }

    fn sink(&mut self, inside: &Inside<'_>, data_type: &DataType, coercion: Coercion, id: u32) -> Sink {
        match data_type {
            DataType::Boolean => Sink::Boolean(Booleans::new()),
            DataType::TinyInt => Sink::TinyInt(Values::new()),
            DataType::SmallInt => Sink::SmallInt(Values::new()),
            DataType::Int => Sink::Int(Values::new()),
            DataType::BigInt => Sink::BigInt(Values::new()),
            DataType::Float => Sink::Float(Values::new()),
            DataType::Double => Sink::Double(Values::new()),
            DataType::Decimal(precision, scale) => {
                let max = 10i128.checked_pow(u32::from(*precision)).map_or(i128::MAX, |power| power - 1);
                Sink::Decimal { values: Values::new(), precision: *precision, scale: *scale, max }
            }
            DataType::String if coercion == Coercion::JsonText => Sink::JsonText(Bytes::new()),
            DataType::String => Sink::String(Bytes::new()),
            DataType::Binary => Sink::Binary(Bytes::new()),
            DataType::Date if coercion == Coercion::EpochDays => Sink::EpochDays(Values::new()),
            DataType::Date => Sink::Date(Values::new()),
            DataType::Timestamp if coercion != Coercion::None => Sink::Epoch(Values::new()),
            DataType::Timestamp => Sink::Timestamp { values: Values::new(), cache: DateCache::default() },
            DataType::TimestampNtz => Sink::TimestampNtz { values: Values::new(), cache: DateCache::default() },
            DataType::Array(element) => {
                let ArrowType::List(field) = data_type.to_arrow() else { return nothing(data_type) };
                let item = self.node(&inside.below("element"), element, id, Step::Element);
                Sink::List(Box::new(List { ends: Ends::new(), item, field }))
            }
            DataType::Map(key, value) => {
                let ArrowType::Map(field, _) = data_type.to_arrow() else { return nothing(data_type) };
                if **key != DataType::String {
                    return nothing(data_type);
                }
                let value = self.node(&inside.below("value"), value, id, Step::Value);
                Sink::Map(Box::new(Map { ends: Ends::new(), keys: Bytes::new(), value, field }))
            }
            DataType::Struct(inner) => {
                let ArrowType::Struct(fields) = data_type.to_arrow() else { return nothing(data_type) };
                let mut nodes = Vec::with_capacity(inner.len());
                for field in inner {
                    let step = Step::field(&field.name);
                    let node = self.node(&inside.below(&field.name), &field.data_type, id, step);
                    nodes.push(Field { key: Key::new(&field.name), node, next: nodes.len() + 1, column: 0 });
                }
                let object = Object::new(nodes);
                Sink::Struct(Box::new(Struct { object, validity: NullBufferBuilder::new(1024), fields }))
            }
        }
    }
}

fn nothing(data_type: &DataType) -> Sink {
    Sink::Nothing { data_type: data_type.to_arrow(), len: 0 }
}

/// A place inside a column.
struct Inside<'p> {
    column: &'p Column,
    /// The path inside it, as the plan spells it.
    at: String,
}

impl Inside<'_> {
    fn below(&self, name: &str) -> Self {
        let mut at = self.at.clone();
        path::push(&mut at, name);
        Self { column: self.column, at }
    }

    fn coercion(&self) -> Coercion {
        self.column.coercions.get(&self.at).copied().unwrap_or_default()
    }
}
