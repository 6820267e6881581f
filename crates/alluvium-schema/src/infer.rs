//! From shapes to types, and the growth of plans.

use crate::plan::{forbidden, leaves};
use crate::{Coercion, Column, Evolve, GrowError, Plan, Shape, path};
use alluvium_core::DataType;
use alluvium_core::data_type::{self, DEEPEST, LIST_DEPTH, STRUCT_DEPTH};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

impl Plan {
    /// The plan with a column for every field of `shape` that it does not know and whose type is
    /// known: additive, so that old rows and readers are not touched. None when nothing is added.
    ///
    /// New columns come last, in order of first appearance; new fields of a struct last in it. Values
    /// that nest deeper than the schema of a table can are kept as JSON text. Not added, so
    /// that they are rescued: names that Delta cannot hold, that are longer than 255 bytes
    /// or that differ from another only in case, what would pass `max_columns`, and fields beside
    /// those that declared columns pick out of an object. A field that only the table has becomes
    /// its column, with its type.
    ///
    /// With `evolve = "none"` and `"approve"` nothing is added, and with `"stop"` an unknown field that holds a
    /// value is an error, once the plan is settled.
    pub fn grow(&self, shape: &Shape) -> Result<Option<Self>, GrowError> {
        let shape = &*self.without_drops(shape);
        if self.settled && self.evolve == Evolve::Stop {
            let mut fields = Vec::new();
            unknown(&self.columns, shape, &mut Vec::new(), &mut fields);
            return if fields.is_empty() { Ok(None) } else { Err(GrowError::Unknown { fields }) };
        }
        if self.settled && matches!(self.evolve, Evolve::None | Evolve::Approve) {
            return Ok(None);
        }
        let mut plan = self.clone();
        let added = plan.add_fields(shape);
        plan.settled |= added;
        Ok(added.then_some(plan))
    }

    fn without_drops<'s>(&self, shape: &'s Shape) -> Cow<'s, Shape> {
        let mut shape = Cow::Borrowed(shape);
        for path in &self.drops {
            shape.to_mut().remove(path);
        }
        shape
    }

    fn add_fields(&mut self, shape: &Shape) -> bool {
        let used: usize = self.columns.iter().map(|column| leaves(&column.data_type)).sum();
        let mut room = self.max_columns.saturating_sub(used);
        // What is known grows first, in the plan's order, so that what there is room for does not
        // depend on where records have what is known.
        let mut added = false;
        for column in &mut self.columns {
            let [name] = column.path.as_slice() else { continue };
            if let Some(field) = shape.field(name) {
                added |= extend_column(column, field, &mut room);
            }
        }
        let read = self.columns.iter().filter_map(|column| column.path.first().cloned()).collect::<HashSet<_>>();
        let mut taken = self.taken_names();
        for (name, field) in shape.fields().filter(|(name, _)| !read.contains(*name)) {
            let column = match self.undeclared.iter().position(|column| column.name == name) {
                Some(at) if field.has_value() && leaves(&self.undeclared[at].data_type) <= room => {
                    Some(self.undeclared.remove(at))
                }
                Some(_) => None,
                None => new_column(name, field, room).filter(|_| taken.insert(name.to_lowercase())),
            };
            if let Some(mut column) = column {
                room -= leaves(&column.data_type);
                // What the table calls its own may lack fields that the record has.
                extend_column(&mut column, field, &mut room);
                self.columns.push(column);
                added = true;
            }
        }
        added
    }

    /// The names that no new column can have, in lower case.
    fn taken_names(&self) -> HashSet<String> {
        let columns = self.columns.iter().chain(&self.undeclared).map(|column| &column.name);
        let names = columns.chain(&self.reserved).chain([&self.rescued]);
        names.map(|name| name.to_lowercase()).collect()
    }
}

fn new_column(name: &str, shape: &Shape, room: usize) -> Option<Column> {
    if !can_be_named(name) {
        return None;
    }
    let inferred = infer(shape, room, DEEPEST)?;
    let mut coercions = BTreeMap::new();
    for inner in inferred.json_text {
        coercions.insert(path::join(&inner), Coercion::JsonText);
    }
    Some(Column::inferred(name, inferred.data_type, coercions))
}

/// Longer names become no columns: they are bytes of a record, which every commit would repeat.
const MAX_NAME: usize = 255;

pub(crate) fn can_be_named(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && forbidden(name).is_none()
}

/// A type for what was observed.
struct Inferred {
    data_type: DataType,
    /// Paths inside it of the strings that hold JSON text.
    json_text: Vec<Vec<String>>,
}

impl Inferred {
    fn plain(data_type: DataType) -> Self {
        Self { data_type, json_text: Vec::new() }
    }

    fn json_text() -> Self {
        Self { data_type: DataType::String, json_text: vec![Vec::new()] }
    }

    fn below(self, name: &str, json_text: &mut Vec<Vec<String>>) -> DataType {
        for mut inner in self.json_text {
            inner.insert(0, name.to_owned());
            json_text.push(inner);
        }
        self.data_type
    }
}

impl Shape {
    /// The type that inference would give it; none while it is not known.
    pub fn inferred(&self) -> Option<DataType> {
        infer(self, usize::MAX, DEEPEST).map(|inferred| inferred.data_type)
    }
}

/// The type of a shape, of no more than `room` columns of values and nested no deeper than `deepest`.
/// None while it is not known: for null, lists of nothing and objects without a field that has a type,
/// which do not count as kinds either. Kinds that do not meet become JSON text, and so does what nests
/// too deep.
fn infer(shape: &Shape, room: usize, deepest: usize) -> Option<Inferred> {
    if room == 0 {
        return None;
    }
    let number = shape.number_type().map(|known| known.map_or_else(Inferred::json_text, Inferred::plain));
    let candidates = [
        shape.has_boolean().then(|| Inferred::plain(DataType::Boolean)),
        number,
        shape.has_string().then(|| Inferred::plain(DataType::String)),
        infer_struct(shape, room, deepest),
        infer_list(shape, room, deepest),
    ];
    let mut kinds = candidates.into_iter().flatten();
    let first = kinds.next()?;
    Some(if kinds.next().is_some() { Inferred::json_text() } else { first })
}

fn infer_struct(shape: &Shape, mut room: usize, deepest: usize) -> Option<Inferred> {
    let below = deepest.checked_sub(STRUCT_DEPTH);
    let mut fields = Vec::new();
    let mut json_text = Vec::new();
    let mut taken = HashSet::new();
    for (name, field) in shape.fields() {
        let inferred = infer(field, room, below.unwrap_or(0));
        if let Some(inferred) = inferred.filter(|_| can_be_named(name) && taken.insert(name.to_lowercase())) {
            room -= leaves(&inferred.data_type);
            let data_type = inferred.below(name, &mut json_text);
            fields.push(data_type::Field { name: name.to_owned(), data_type });
        }
    }
    if fields.is_empty() {
        return None;
    }
    let inferred = Inferred { data_type: DataType::Struct(fields), json_text };
    Some(if below.is_some() { inferred } else { Inferred::json_text() })
}

fn infer_list(shape: &Shape, room: usize, deepest: usize) -> Option<Inferred> {
    let below = deepest.checked_sub(LIST_DEPTH);
    let element = infer(shape.element()?, room, below.unwrap_or(0))?;
    if below.is_none() {
        return Some(Inferred::json_text());
    }
    let mut json_text = Vec::new();
    let data_type = DataType::Array(Box::new(element.below("element", &mut json_text)));
    Some(Inferred { data_type, json_text })
}

fn extend_column(column: &mut Column, shape: &Shape, room: &mut usize) -> bool {
    let mut extension = Extension { coercions: &mut column.coercions, room };
    extension.extend(&mut column.data_type, shape, &mut Vec::new(), DEEPEST)
}

/// The growth of one column's type.
struct Extension<'a> {
    coercions: &'a mut BTreeMap<String, Coercion>,
    room: &'a mut usize,
}

impl Extension<'_> {
    /// Adds to `data_type`, which stands at `inner` in its column, the fields that it lacks; it may
    /// nest as deep as `deepest`.
    fn extend(&mut self, data_type: &mut DataType, shape: &Shape, inner: &mut Vec<String>, deepest: usize) -> bool {
        match data_type {
            DataType::Struct(fields) => self.extend_struct(fields, shape, inner, deepest.saturating_sub(STRUCT_DEPTH)),
            DataType::Array(element) => {
                let deepest = deepest.saturating_sub(LIST_DEPTH);
                shape.element().is_some_and(|shape| self.extend_at("element", element, shape, inner, deepest))
            }
            // The fields of an object that is a map are its keys: all its values are of one type.
            DataType::Map(_, value) => {
                let deepest = deepest.saturating_sub(LIST_DEPTH);
                let mut all = Shape::default();
                shape.fields().for_each(|(_, shape)| all.merge(shape.clone()));
                self.extend_at("value", value, &all, inner, deepest)
            }
            _ => false,
        }
    }

    fn extend_at(
        &mut self,
        name: &str,
        data_type: &mut DataType,
        shape: &Shape,
        inner: &mut Vec<String>,
        deepest: usize,
    ) -> bool {
        inner.push(name.to_owned());
        let added = self.extend(data_type, shape, inner, deepest);
        inner.pop();
        added
    }

    /// `deepest` is for the types of the fields.
    fn extend_struct(
        &mut self,
        fields: &mut Vec<data_type::Field>,
        shape: &Shape,
        inner: &mut Vec<String>,
        deepest: usize,
    ) -> bool {
        let mut added = false;
        for field in fields.iter_mut() {
            if let Some(shape) = shape.field(&field.name) {
                added |= self.extend_at(&field.name, &mut field.data_type, shape, inner, deepest);
            }
        }
        let known = fields.iter().map(|field| field.name.clone()).collect::<HashSet<_>>();
        let mut taken = fields.iter().map(|field| field.name.to_lowercase()).collect::<HashSet<_>>();
        for (name, shape) in shape.fields().filter(|(name, _)| !known.contains(*name)) {
            let inferred = infer(shape, *self.room, deepest);
            let Some(inferred) = inferred.filter(|_| can_be_named(name) && taken.insert(name.to_lowercase())) else {
                continue;
            };
            *self.room -= leaves(&inferred.data_type);
            let mut json_text = Vec::new();
            let data_type = inferred.below(name, &mut json_text);
            for below in json_text {
                let at = [inner.as_slice(), &below].concat();
                self.coercions.insert(path::join(&at), Coercion::JsonText);
            }
            fields.push(data_type::Field { name: name.to_owned(), data_type });
            added = true;
        }
        added
    }
}

/// The fields of `shape`, which stands at `at` in the record, that hold a value and that no
/// column knows.
fn unknown(columns: &[Column], shape: &Shape, at: &mut Vec<String>, found: &mut Vec<String>) {
    for (name, field) in shape.fields() {
        at.push(name.to_owned());
        if let Some(column) = columns.iter().find(|column| column.path == *at) {
            unknown_in(&column.data_type, field, at, found);
        } else if columns.iter().any(|column| column.path.starts_with(at)) {
            unknown(columns, field, at, found);
        } else if field.has_value() {
            found.push(path::join(at));
        }
        at.pop();
    }
}

/// The same for what stands inside a value of a column.
fn unknown_in(data_type: &DataType, shape: &Shape, at: &mut Vec<String>, found: &mut Vec<String>) {
    match data_type {
        DataType::Array(element) => {
            if let Some(shape) = shape.element() {
                unknown_in(element, shape, at, found);
            }
        }
        DataType::Map(_, value) => shape.fields().for_each(|(_, shape)| unknown_in(value, shape, at, found)),
        DataType::Struct(fields) => {
            for (name, shape) in shape.fields() {
                at.push(name.to_owned());
                match fields.iter().find(|field| field.name == *name) {
                    Some(field) => unknown_in(&field.data_type, shape, at, found),
                    None if shape.has_value() => found.push(path::join(at)),
                    None => {}
                }
                at.pop();
            }
        }
        _ => {}
    }
}
