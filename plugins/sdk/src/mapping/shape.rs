//! What a mapping is told: the records' shape, and the table's columns.

use crate::bindings::mapping as contract;
use crate::path::{self, Step};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// What was seen of the records: a tree of fields.
#[derive(Debug, Default)]
pub struct Shape {
    format: String,
    schema_id: Option<String>,
    nodes: Vec<Node>,
    /// The nodes' numbers by their paths, which are spelled in one way only.
    by_path: BTreeMap<String, usize>,
    /// The fields of the records themselves.
    top: Vec<usize>,
}

#[derive(Debug)]
struct Node {
    path: String,
    step: Step,
    kinds: Kinds,
    inferred: Option<String>,
    fields: Vec<usize>,
    element: Option<usize>,
}

/// A field of the records, or the elements of a list, with what was seen there.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    shape: &'a Shape,
    node: &'a Node,
}

/// Fields beside each other, in the order in which they were first seen.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    shape: &'a Shape,
    nodes: std::slice::Iter<'a, usize>,
}

/// The kinds of values seen at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// `null`
    pub null: bool,
    /// `true` and `false`
    pub boolean: bool,
    /// Numbers without a fraction or an exponent.
    pub integer: bool,
    /// Numbers with one.
    pub fraction: bool,
    /// Strings.
    pub string: bool,
    /// Objects.
    pub object: bool,
    /// Lists.
    pub list: bool,
}

impl Kinds {
    /// Strings, and at most nulls besides.
    pub fn is_string(self) -> bool {
        self.without_null() == Self { string: true, ..Self::default() }
    }

    /// Booleans, and at most nulls besides.
    pub fn is_boolean(self) -> bool {
        self.without_null() == Self { boolean: true, ..Self::default() }
    }

    /// Numbers of either kind, and at most nulls besides.
    pub fn is_number(self) -> bool {
        let Self { integer, fraction, .. } = self;
        (integer || fraction) && self.without_null() == Self { integer, fraction, ..Self::default() }
    }

    /// Objects, and at most nulls besides.
    pub fn is_object(self) -> bool {
        self.without_null() == Self { object: true, ..Self::default() }
    }

    /// Lists, and at most nulls besides.
    pub fn is_list(self) -> bool {
        self.without_null() == Self { list: true, ..Self::default() }
    }

    /// Nothing but nulls.
    pub fn is_null(self) -> bool {
        self.without_null() == Self::default()
    }

    fn without_null(self) -> Self {
        Self { null: false, ..self }
    }

    fn from_contract(kinds: contract::Kinds) -> Self {
        Self {
            null: kinds.contains(contract::Kinds::NULL),
            boolean: kinds.contains(contract::Kinds::BOOLEAN),
            integer: kinds.contains(contract::Kinds::INTEGER),
            fraction: kinds.contains(contract::Kinds::FRACTION),
            string: kinds.contains(contract::Kinds::STRING),
            object: kinds.contains(contract::Kinds::OBJECT),
            list: kinds.contains(contract::Kinds::LIST),
        }
    }
}

impl Shape {
    /// The records' format: `json`.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The id of the records' schema, where a registry gives one.
    pub fn schema_id(&self) -> Option<&str> {
        self.schema_id.as_deref()
    }

    /// What was seen at a path, as in `customer.email`; a key that holds a dot stands in backticks, and
    /// `[]` leads to the elements of a list, as in `items.[].sku`. `None` when it was not seen, which
    /// is also so of a text that is no path.
    pub fn field(&self, path: &str) -> Option<Field<'_>> {
        let path = path::spell(&path::steps(path).ok()?);
        self.by_path.get(&path).and_then(|at| self.get(*at))
    }

    /// The fields of the records; their own are at [`Field::fields`].
    pub fn fields(&self) -> Fields<'_> {
        Fields { shape: self, nodes: self.top.iter() }
    }

    fn get(&self, at: usize) -> Option<Field<'_>> {
        self.nodes.get(at).map(|node| Field { shape: self, node })
    }

    pub(crate) fn from_contract(source: contract::SourceShape) -> Result<Self> {
        let mut shape = Self { format: source.format, schema_id: source.schema_id, ..Self::default() };
        for seen in source.fields {
            shape.push(seen)?;
        }
        Ok(shape)
    }

    fn push(&mut self, seen: contract::Seen) -> Result<()> {
        let wrong = |path: &str| Error::fault(format!("the host tells of '{path}' before what it lies in"));
        let mut steps = path::steps(&seen.path).map_err(Error::fault)?;
        let path = path::spell(&steps);
        let step = steps.pop().ok_or_else(|| wrong(&seen.path))?;
        let at = self.nodes.len();
        if steps.is_empty() {
            self.top.push(at);
        } else {
            let parent = self.by_path.get(&path::spell(&steps));
            let parent = parent.and_then(|parent| self.nodes.get_mut(*parent)).ok_or_else(|| wrong(&seen.path))?;
            match step {
                Step::Key(_) => parent.fields.push(at),
                Step::Element => parent.element = Some(at),
            }
        }
        self.by_path.insert(path.clone(), at);
        let (kinds, inferred) = (Kinds::from_contract(seen.kinds), seen.inferred);
        self.nodes.push(Node { path, step, kinds, inferred, fields: Vec::new(), element: None });
        Ok(())
    }
}

impl<'a> Field<'a> {
    /// The path, as [`Column::from`](super::Column::from) and [`Plan::drop`](super::Plan::drop) take it
    /// where it does not lead into a list.
    pub fn path(&self) -> &'a str {
        &self.node.path
    }

    /// The key in its object, as it is; `[]` for the elements of a list.
    pub fn name(&self) -> &'a str {
        match &self.node.step {
            Step::Key(name) => name,
            Step::Element => "[]",
        }
    }

    /// The kinds of values seen.
    pub fn kinds(&self) -> Kinds {
        self.node.kinds
    }

    /// The type that inference would give it, as in `array<struct<sku:string,qty:bigint>>`. `None` while
    /// it is not known: for null, for lists of nothing and for objects without a field that has a type.
    /// See [`is_json_text`](Self::is_json_text) for `string`.
    pub fn inferred(&self) -> Option<&'a str> {
        self.node.inferred.as_deref()
    }

    /// Whether the inferred `string` is to hold JSON text, since values were seen that are no strings: kinds
    /// that do not meet, or numbers of too many digits. Its column takes
    /// [`Coercion::JsonText`](super::Coercion::JsonText); without it those values are in conflict.
    pub fn is_json_text(&self) -> bool {
        self.inferred() == Some("string") && !self.kinds().is_string()
    }

    /// The fields of the objects seen here.
    pub fn fields(&self) -> Fields<'a> {
        Fields { shape: self.shape, nodes: self.node.fields.iter() }
    }

    /// What the elements of the lists seen here are; `None` without any.
    pub fn element(&self) -> Option<Field<'a>> {
        self.node.element.and_then(|at| self.shape.get(at))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.nodes.next().and_then(|at| self.shape.get(*at))
    }
}

/// The columns that the table has, without those that the host fills itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<TableColumn>,
}

/// A column that the table has. Its type cannot change; to a struct, fields can be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    name: String,
    data_type: String,
}

impl Table {
    /// All columns, in the table's order.
    pub fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    /// The column of this name, as the table spells it.
    pub fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn from_contract(columns: Vec<contract::TableColumn>) -> Self {
        let columns = columns.into_iter();
        Self { columns: columns.map(|c| TableColumn { name: c.name, data_type: c.data_type }).collect() }
    }
}

impl TableColumn {
    /// The column's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The column's type, in Spark's DDL spelling.
    pub fn data_type(&self) -> &str {
        &self.data_type
    }
}
