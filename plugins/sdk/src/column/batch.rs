//! What a plugin sees: rows of the columns it reads.

use super::access::{Declared, find};
use super::views::{
    BigInts, Binaries, Booleans, Dates, Decimals, Doubles, Fixed, Floats, Ints, Lists, Maps, Primitive, SmallInts,
    Strings, Timestamps, TinyInts, Validity, check_offsets,
};
use crate::bindings::column::{Columns, Layout, Node};
use crate::{Error, Result, Type};
use std::borrow::Cow;

/// A row of a batch: `get` of every view takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    pub(crate) index: u32,
    pub(crate) copy: u32,
}

impl Row {
    /// The number of the row in the batch, from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// Which of the rows that [`Edit::repeat`](super::Edit::repeat) made of it, from 0.
    pub fn copy(self) -> usize {
        self.copy as usize
    }
}

impl From<Row> for usize {
    fn from(row: Row) -> Self {
        row.index()
    }
}

/// The rows of a batch, in order.
#[derive(Clone, Debug)]
pub struct Rows(std::ops::Range<u32>);

impl Rows {
    pub(crate) fn new(rows: u32) -> Self {
        Self(0..rows)
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.0.next().map(|index| Row { index, copy: 0 })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Rows {}

/// Rows of the columns that the plugin reads.
#[derive(Debug)]
pub struct Batch<'a> {
    rows: u32,
    reads: &'a [Declared],
    /// The tree of each column read.
    trees: Vec<&'a [Node]>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(reads: &'a [Declared], input: &'a Columns) -> Result<Self> {
        let mut rest = input.nodes.as_slice();
        let mut trees = Vec::with_capacity(reads.len());
        for declared in reads {
            let (tree, after) = split_tree(rest)
                .ok_or_else(|| Error::fault(format!("column '{}': the host handed no column", declared.path)))?;
            if tree.first().is_none_or(|root| root.length != input.rows) {
                return Err(Error::fault(format!(
                    "column '{}': the host handed another number of rows",
                    declared.path
                )));
            }
            trees.push(tree);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(Error::fault("the host handed more columns than the plugin reads"));
        }
        Ok(Self { rows: input.rows, reads, trees })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All rows, in order.
    pub fn rows(&self) -> Rows {
        Rows::new(self.rows)
    }

    /// A column of any type.
    pub fn column(&self, path: &str) -> Result<Column<'a>> {
        let (index, declared) = find(self.reads, path)
            .ok_or_else(|| Error::fault(format!("column '{path}' is not among those that `access` reads")))?;
        let tree = self.trees.get(index).copied().unwrap_or_default();
        Column::new(Cow::Borrowed(&declared.path), &declared.data_type, tree, None)
    }
}

/// A column, or a column within one: the values of a struct's field, the elements of lists.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    path: Cow<'a, str>,
    data_type: &'a Type,
    node: &'a Node,
    /// The trees of the children, one after the other.
    below: &'a [Node],
    validity: Validity<'a>,
}

impl<'a> Column<'a> {
    fn new(path: Cow<'a, str>, data_type: &'a Type, tree: &'a [Node], above: Option<&Validity<'_>>) -> Result<Self> {
        let Some((node, below)) = tree.split_first() else {
            return Err(Error::fault(format!("column '{path}': the host handed no column")));
        };
        let (layout, children) = layout_of(data_type);
        if node.layout != layout || node.children as usize != children {
            let found = format!("{:?} with {} children", node.layout, node.children);
            return Err(Error::fault(format!("column '{path}': the host handed {found} for a {data_type}")));
        }
        let validity = Validity::new(node)
            .map(|own| own.and(above, node.length as usize))
            .ok_or_else(|| Error::fault(format!("column '{path}': the host handed too few validity bits")))?;
        Ok(Self { path, data_type, node, below, validity })
    }

    /// The column's type.
    pub fn data_type(&self) -> &'a Type {
        self.data_type
    }

    /// How many values there are, nulls included.
    pub fn len(&self) -> usize {
        self.node.length as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.node.length == 0
    }

    /// Whether the value is null; a row that is not there counts as null.
    pub fn is_null(&self, row: impl Into<usize>) -> bool {
        let row = row.into();
        row >= self.len() || !self.validity.is_valid(row)
    }

    fn is_a(&self, fits: bool, method: &str) -> Result<()> {
        if fits {
            return Ok(());
        }
        Err(Error::fault(format!(
            "column '{}' is declared as {}: `{method}` cannot read it",
            self.path, self.data_type
        )))
    }

    fn wrong(&self, what: &str) -> Error {
        Error::fault(format!("column '{}': the host handed {what}", self.path))
    }

    fn fixed<T: Primitive>(&self) -> Result<Fixed<'a, T>> {
        let values = T::chunks(&self.node.values);
        let values = values.get(..self.len()).ok_or_else(|| self.wrong("too few bytes"))?;
        Ok(Fixed { values, validity: self.validity.clone() })
    }

    /// The offsets, checked: they rise and stay within `end`.
    fn offsets(&self, end: usize) -> Result<&'a [i32]> {
        let offsets = self.node.offsets.as_deref().unwrap_or_default();
        check_offsets(offsets, self.len(), end).ok_or_else(|| self.wrong("wrong offsets"))?;
        Ok(offsets)
    }

    /// The values of a `boolean` column.
    pub fn boolean(&self) -> Result<Booleans<'a>> {
        self.is_a(matches!(self.data_type, Type::Boolean), "boolean")?;
        let bits = self.node.values.get(..self.len().div_ceil(8)).ok_or_else(|| self.wrong("too few bytes"))?;
        Ok(Booleans { length: self.len(), bits, validity: self.validity.clone() })
    }

    /// The values of a `tinyint` column.
    pub fn tinyint(&self) -> Result<TinyInts<'a>> {
        self.is_a(matches!(self.data_type, Type::TinyInt), "tinyint")?;
        self.fixed()
    }

    /// The values of a `smallint` column.
    pub fn smallint(&self) -> Result<SmallInts<'a>> {
        self.is_a(matches!(self.data_type, Type::SmallInt), "smallint")?;
        self.fixed()
    }

    /// The values of an `int` column.
    pub fn int(&self) -> Result<Ints<'a>> {
        self.is_a(matches!(self.data_type, Type::Int), "int")?;
        self.fixed()
    }

    /// The values of a `bigint` column.
    pub fn bigint(&self) -> Result<BigInts<'a>> {
        self.is_a(matches!(self.data_type, Type::BigInt), "bigint")?;
        self.fixed()
    }

    /// The values of a `float` column.
    pub fn float(&self) -> Result<Floats<'a>> {
        self.is_a(matches!(self.data_type, Type::Float), "float")?;
        self.fixed()
    }

    /// The values of a `double` column.
    pub fn double(&self) -> Result<Doubles<'a>> {
        self.is_a(matches!(self.data_type, Type::Double), "double")?;
        self.fixed()
    }

    /// The values of a `decimal` column.
    pub fn decimal(&self) -> Result<Decimals<'a>> {
        let Type::Decimal(_, scale) = *self.data_type else {
            return Err(self.is_a(false, "decimal").err().unwrap_or_else(|| self.wrong("no decimal")));
        };
        Ok(Decimals { unscaled: self.fixed()?, scale })
    }

    /// The values of a `date` column.
    pub fn date(&self) -> Result<Dates<'a>> {
        self.is_a(matches!(self.data_type, Type::Date), "date")?;
        self.fixed()
    }

    /// The values of a `timestamp` or `timestamp_ntz` column.
    pub fn timestamp(&self) -> Result<Timestamps<'a>> {
        self.is_a(matches!(self.data_type, Type::Timestamp | Type::TimestampNtz), "timestamp")?;
        self.fixed()
    }

    /// The values of a `string` column.
    pub fn string(&self) -> Result<Strings<'a>> {
        self.is_a(matches!(self.data_type, Type::String), "string")?;
        let offsets = self.offsets(self.node.values.len())?;
        let text = std::str::from_utf8(&self.node.values).map_err(|_| self.wrong("bytes that are not UTF-8"))?;
        Ok(Strings { offsets, text, validity: self.validity.clone() })
    }

    /// The values of a `binary` column.
    pub fn binary(&self) -> Result<Binaries<'a>> {
        self.is_a(matches!(self.data_type, Type::Binary), "binary")?;
        let offsets = self.offsets(self.node.values.len())?;
        Ok(Binaries { offsets, bytes: &self.node.values, validity: self.validity.clone() })
    }

    /// The values of an `array` column.
    pub fn list(&self) -> Result<Lists<'a>> {
        let Type::Array(element) = self.data_type else {
            return Err(self.is_a(false, "list").err().unwrap_or_else(|| self.wrong("no list")));
        };
        let elements = Column::new(Cow::Owned(format!("{}.element", self.path)), element, self.below, None)?;
        Ok(Lists { offsets: self.offsets(elements.len())?, elements, validity: self.validity.clone() })
    }

    /// The values of a `map` column.
    pub fn map(&self) -> Result<Maps<'a>> {
        let Type::Map(key, value) = self.data_type else {
            return Err(self.is_a(false, "map").err().unwrap_or_else(|| self.wrong("no map")));
        };
        // The one child is a struct of key and value, which is never null.
        let entries = self.below.split_first().filter(|(entries, _)| entries.layout == Layout::Struct);
        let (keys, values) =
            entries.and_then(|(_, children)| split_tree(children)).ok_or_else(|| self.wrong("no keys and values"))?;
        let keys = Column::new(Cow::Owned(format!("{}.key", self.path)), key, keys, None)?;
        let values = Column::new(Cow::Owned(format!("{}.value", self.path)), value, values, None)?;
        let offsets = self.offsets(keys.len().min(values.len()))?;
        Ok(Maps { offsets, keys, values, validity: self.validity.clone() })
    }

    /// A field of a `struct` column: a null struct has null fields.
    pub fn field(&self, name: &str) -> Result<Column<'a>> {
        let Type::Struct(fields) = self.data_type else {
            return Err(self.is_a(false, "field").err().unwrap_or_else(|| self.wrong("no struct")));
        };
        let mut rest = self.below;
        for (field, data_type) in fields {
            let (tree, after) = split_tree(rest).ok_or_else(|| self.wrong("too few fields"))?;
            if field == name {
                let path = Cow::Owned(format!("{}.{name}", self.path));
                if tree.first().is_none_or(|child| child.length != self.node.length) {
                    return Err(self.wrong("fields of another length"));
                }
                return Column::new(path, data_type, tree, Some(&self.validity));
            }
            rest = after;
        }
        Err(Error::fault(format!("column '{}' is declared as {}: it has no field '{name}'", self.path, self.data_type)))
    }
}

macro_rules! shorthands {
    ($($method:ident -> $view:ident: $doc:literal;)*) => {
        /// Shorthands: `batch.bigint("id")` is `batch.column("id")?.bigint()`.
        impl<'a> Batch<'a> {
            $(
                #[doc = $doc]
                pub fn $method(&self, path: &str) -> Result<$view<'a>> {
                    self.column(path)?.$method()
                }
            )*
        }
    };
}

shorthands! {
    boolean -> Booleans: "A `boolean` column.";
    tinyint -> TinyInts: "A `tinyint` column.";
    smallint -> SmallInts: "A `smallint` column.";
    int -> Ints: "An `int` column.";
    bigint -> BigInts: "A `bigint` column.";
    float -> Floats: "A `float` column.";
    double -> Doubles: "A `double` column.";
    decimal -> Decimals: "A `decimal` column.";
    date -> Dates: "A `date` column.";
    timestamp -> Timestamps: "A `timestamp` or `timestamp_ntz` column.";
    string -> Strings: "A `string` column.";
    binary -> Binaries: "A `binary` column.";
    list -> Lists: "An `array` column.";
    map -> Maps: "A `map` column.";
}

/// The first tree of a preorder, and what follows it.
fn split_tree(nodes: &[Node]) -> Option<(&[Node], &[Node])> {
    let mut open = 1_u64;
    for (at, node) in nodes.iter().enumerate() {
        open = open - 1 + u64::from(node.children);
        if open == 0 {
            return nodes.split_at_checked(at + 1);
        }
    }
    None
}

/// How a type lies in a node, and how many children that has.
pub(crate) fn layout_of(data_type: &Type) -> (Layout, usize) {
    match data_type {
        Type::Boolean => (Layout::Boolean, 0),
        Type::TinyInt => (Layout::Fixed1, 0),
        Type::SmallInt => (Layout::Fixed2, 0),
        Type::Int | Type::Float | Type::Date => (Layout::Fixed4, 0),
        Type::BigInt | Type::Double | Type::Timestamp | Type::TimestampNtz => (Layout::Fixed8, 0),
        Type::Decimal(..) => (Layout::Fixed16, 0),
        Type::String => (Layout::Utf8, 0),
        Type::Binary => (Layout::Bytes, 0),
        Type::Array(_) => (Layout::List, 1),
        Type::Map(..) => (Layout::Map, 1),
        Type::Struct(fields) => (Layout::Struct, fields.len()),
    }
}
