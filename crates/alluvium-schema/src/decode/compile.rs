//! From a plan's columns to the tree that reads them.

use super::columns::{Booleans, Bytes, Ends, Values};
use super::time::DateCache;
use super::tree::{Field, Key, List, Map, Node, Object, Part, Place, ROOT, Sink, Step, Struct, Twin};
use crate::{Coercion, Column, Derivation, OnConflict, Plan, path};
use alluvium_core::DataType;
use arrow_buffer::NullBufferBuilder;
use arrow_schema::DataType as ArrowType;

/// The tree that reads a plan's columns, and the places of its nodes by id.
pub(super) fn compile(plan: &Plan) -> (Object, Vec<Place>) {
    let mut sources = Vec::new();
    for (at, column) in plan.columns().iter().enumerate() {
        Source::insert(&mut sources, &column.path, column, at);
    }
    for path in plan.drops() {
        Source::insert_drop(&mut sources, path);
    }
    // Of the record itself.
    let root =
        Place { parent: ROOT, step: Step::Element, wanted: AN_OBJECT.to_owned(), on_conflict: OnConflict::Reject };
    let mut compiler = Compiler { places: vec![root] };
    let root = compiler.branch(&sources, ROOT);
    (root, compiler.places)
}

/// The paths of all columns as a tree.
enum Source<'p> {
    /// A value of which a column is made, or several, with their positions; and the paths below it
    /// that are left out.
    Columns(Vec<(&'p Column, usize)>, Vec<&'p [String]>),
    Branch(Vec<(&'p str, Source<'p>)>),
    Drop,
}

impl<'p> Source<'p> {
    fn insert(sources: &mut Vec<(&'p str, Self)>, path: &'p [String], column: &'p Column, at: usize) {
        match path {
            [] => {}
            [name] => match find(sources, name) {
                Some(Self::Columns(columns, _)) => columns.push((column, at)),
                _ => sources.push((name, Self::Columns(vec![(column, at)], Vec::new()))),
            },
            [name, rest @ ..] => {
                if !matches!(find(sources, name), Some(Self::Branch(_))) {
                    sources.push((name, Self::Branch(Vec::new())));
                }
                if let Some(Self::Branch(inner)) = find(sources, name) {
                    Self::insert(inner, rest, column, at);
                }
            }
        }
    }

    fn insert_drop(sources: &mut Vec<(&'p str, Self)>, path: &'p [String]) {
        let Some((name, rest)) = path.split_first() else { return };
        match (find(sources, name), rest) {
            (None, []) => sources.push((name, Self::Drop)),
            (None, rest) => {
                let mut inner = Vec::new();
                Self::insert_drop(&mut inner, rest);
                sources.push((name, Self::Branch(inner)));
            }
            (Some(Self::Branch(inner)), [_, ..]) => Self::insert_drop(inner, rest),
            (Some(branch @ Self::Branch(_)), []) => *branch = Self::Drop,
            (Some(Self::Columns(_, drops)), rest) if !rest.is_empty() => drops.push(rest),
            (Some(Self::Columns(..) | Self::Drop), _) => {}
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
            Self::Columns(columns, _) => {
                let all = columns.iter().map(|(column, _)| column.on_conflict);
                all.max_by_key(strictness).unwrap_or(OnConflict::Rescue)
            }
            Self::Branch(inner) => {
                let all = inner.iter().map(|(_, source)| source.on_conflict());
                all.max_by_key(strictness).unwrap_or(OnConflict::Rescue)
            }
            Self::Drop => OnConflict::Rescue,
        }
    }
}

fn find<'s, 'p>(sources: &'s mut [(&'p str, Source<'p>)], name: &str) -> Option<&'s mut Source<'p>> {
    sources.iter_mut().find(|(known, _)| *known == name).map(|(_, source)| source)
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
            let mut field = self.field(name, source, parent);
            field.next = fields.len() + 1;
            fields.push(field);
        }
        Object::new(fields)
    }

    fn field(&mut self, name: &str, source: &Source<'_>, parent: u32) -> Field {
        let key = Key::new(name);
        let no_column = usize::MAX;
        match source {
            Source::Columns(columns, drops) if columns.len() == 1 => {
                let Some((column, at)) = columns.first() else { return self.dropped(name, parent, None) };
                let node = self.column(column, drops, parent, name);
                let default = default(column);
                Field { key, node, next: 0, seen: 0, column: *at, has_default: default.is_some(), default }
            }
            Source::Columns(columns, _) => {
                let id = self.place(name, source.on_conflict(), parent);
                let twin = |(column, at): &(&Column, usize)| {
                    let node = self.column(column, &[], parent, name);
                    Twin { node, column: *at, default: default(column) }
                };
                let twins = columns.iter().map(twin).collect::<Vec<_>>();
                let has_default = twins.iter().any(|twin| twin.default.is_some());
                let node = self.close(id, Sink::Twins(twins));
                Field { key, node, next: 0, seen: 0, column: no_column, default: None, has_default }
            }
            Source::Branch(inner) => {
                let id = self.place(name, source.on_conflict(), parent);
                let object = self.branch(inner, id);
                let has_default = object.fields.iter().any(|field| field.has_default);
                let node = self.close(id, Sink::Branch(Box::new(object)));
                Field { key, node, next: 0, seen: 0, column: no_column, default: None, has_default }
            }
            Source::Drop => self.dropped(name, parent, None),
        }
    }

    fn place(&mut self, name: &str, on_conflict: OnConflict, parent: u32) -> u32 {
        let id = self.next_id();
        let wanted = AN_OBJECT.to_owned();
        self.places.push(Place { parent, step: Step::field(name), wanted, on_conflict });
        id
    }

    fn close(&self, id: u32, sink: Sink) -> Node {
        Node { id, end: self.next_id(), mark: 0, coercion: Coercion::None, sink }
    }

    fn dropped(&mut self, name: &str, parent: u32, data_type: Option<ArrowType>) -> Field {
        let id = self.place(name, OnConflict::Rescue, parent);
        let node = self.close(id, Sink::Dropped { data_type, len: 0 });
        Field { key: Key::new(name), node, next: 0, seen: 0, column: usize::MAX, default: None, has_default: false }
    }

    fn column(&mut self, column: &Column, drops: &[&[String]], parent: u32, name: &str) -> Node {
        let inside = Inside { column, at: String::new(), drops: drops.to_vec() };
        match &column.derivation {
            Some(Derivation::Date) => {
                let id = self.next_id();
                self.places.push(Place::of_part(column, "date", parent, name));
                let sink = Sink::DateOf { values: Values::new(), cache: DateCache::default() };
                Node { coercion: column.coercion(), ..self.close(id, sink) }
            }
            Some(derivation) => {
                let id = self.next_id();
                let part = match derivation {
                    Derivation::Date => derivation.name().to_owned(),
                    Derivation::Before(separator) | Derivation::After(separator) => {
                        format!("{} {separator:?}", derivation.name())
                    }
                };
                self.places.push(Place::of_part(column, &part, parent, name));
                let inner = self.node(&inside, &column.data_type, parent, Step::field(name));
                // The part is a string, whatever it is read as.
                let inner = Node { coercion: Coercion::ParseString, ..inner };
                let part = Part { derivation: derivation.clone(), inner, json: Vec::new() };
                self.close(id, Sink::Part(Box::new(part)))
            }
            None => self.node(&inside, &column.data_type, parent, Step::field(name)),
        }
    }

    fn node(&mut self, inside: &Inside<'_>, data_type: &DataType, parent: u32, step: Step) -> Node {
        let id = self.next_id();
        let (on_conflict, coercion) = (inside.column.on_conflict, inside.coercion());
        self.places.push(Place { parent, step, wanted: wanted(data_type, "", coercion), on_conflict });
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
                let item = self.node(&inside.within("element"), element, id, Step::Element);
                Sink::List(Box::new(List { ends: Ends::new(), item, field }))
            }
            DataType::Map(key, value) => {
                let ArrowType::Map(field, _) = data_type.to_arrow() else { return nothing(data_type) };
                if **key != DataType::String {
                    return nothing(data_type);
                }
                let value = self.node(&inside.within("value"), value, id, Step::Value);
                Sink::Map(Box::new(Map { ends: Ends::new(), keys: Bytes::new(), value, field }))
            }
            DataType::Struct(inner) => {
                let ArrowType::Struct(fields) = data_type.to_arrow() else { return nothing(data_type) };
                let mut nodes = Vec::with_capacity(inner.len());
                for field in inner {
                    let mut node = if inside.drops(&field.name) {
                        self.dropped(&field.name, id, Some(field.data_type.to_arrow()))
                    } else {
                        let step = Step::field(&field.name);
                        let node = self.node(&inside.below(&field.name), &field.data_type, id, step);
                        Field {
                            key: Key::new(&field.name),
                            node,
                            next: 0,
                            seen: 0,
                            column: 0,
                            default: None,
                            has_default: false,
                        }
                    };
                    node.next = nodes.len() + 1;
                    nodes.push(node);
                }
                // What is left out, and objects around it, that the struct does not have.
                let mut others = Vec::new();
                let is_other = |name: &String| inner.iter().all(|field| field.name != *name);
                let drops = inside.drops.iter().filter(|path| path.first().is_some_and(is_other));
                drops.for_each(|path| Source::insert_drop(&mut others, path));
                nodes.extend(others.iter().map(|(name, source)| self.field(name, source, id)));
                let object = Object::new(nodes);
                Sink::Struct(Box::new(Struct { object, validity: NullBufferBuilder::new(1024), fields }))
            }
        }
    }
}

const AN_OBJECT: &str = "an object";

impl Place {
    /// Of a column that is made of a part of a value.
    fn of_part(column: &Column, part: &str, parent: u32, name: &str) -> Self {
        let wanted = wanted(&column.data_type, part, column.coercion());
        Self { parent, step: Step::field(name), wanted, on_conflict: column.on_conflict }
    }
}

/// A type, and how it is read, in the words of a pipeline file.
fn wanted(data_type: &DataType, part: &str, coercion: Coercion) -> String {
    let coercion = Some(coercion.name()).filter(|_| coercion != Coercion::None);
    let how = [Some(part).filter(|part| !part.is_empty()), coercion].into_iter().flatten().collect::<Vec<_>>();
    if how.is_empty() { data_type.to_string() } else { format!("{data_type} ({})", how.join(", ")) }
}

fn default(column: &Column) -> Option<Box<[u8]>> {
    column.default.as_ref().map(|json| json.as_bytes().into())
}

fn nothing(data_type: &DataType) -> Sink {
    Sink::Nothing { data_type: data_type.to_arrow(), len: 0 }
}

/// A place inside a column.
struct Inside<'p> {
    column: &'p Column,
    /// The path inside it, as the plan spells it.
    at: String,
    /// The paths from here to what is left out.
    drops: Vec<&'p [String]>,
}

impl<'p> Inside<'p> {
    /// The place of a field; what is dropped lies below objects only, not below lists and maps.
    fn below(&self, name: &str) -> Self {
        let below = |path: &&'p [String]| match path {
            [first, rest @ ..] if first == name && !rest.is_empty() => Some(rest),
            _ => None,
        };
        let drops = self.drops.iter().filter_map(below).collect();
        Self { drops, ..self.within(name) }
    }

    /// The place of a list's elements or a map's values.
    fn within(&self, name: &str) -> Self {
        let mut at = self.at.clone();
        path::push(&mut at, name);
        Self { column: self.column, at, drops: Vec::new() }
    }

    fn drops(&self, name: &str) -> bool {
        self.dropped().any(|dropped| dropped == name)
    }

    /// The fields here that are left out.
    fn dropped(&self) -> impl Iterator<Item = &'p String> {
        self.drops.iter().filter_map(|path| match path {
            [name] => Some(name),
            _ => None,
        })
    }

    fn coercion(&self) -> Coercion {
        self.column.coercions.get(&self.at).copied().unwrap_or_default()
    }
}
