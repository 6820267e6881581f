//! What was observed of records.

use crate::json::{Fault, Number, Scanner};
use alluvium_core::DataType;
use std::collections::{BTreeMap, HashMap};

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Null,
    Boolean,
    /// A number spelled without a fraction or an exponent.
    Integer,
    /// A number spelled with one.
    Fraction,
    String,
    Object,
    List,
}

impl Kind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Fraction => "fraction",
            Self::String => "string",
            Self::Object => "object",
            Self::List => "list",
        }
    }
}

/// The kinds of values seen at a path, and at the paths below: fields of objects and elements of
/// lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    null: bool,
    boolean: bool,
    string: bool,
    object: bool,
    numbers: Numbers,
    fields: Fields,
    /// There when a list was seen; an empty shape when only empty lists were.
    element: Option<Box<Shape>>,
}

/// The numbers seen, as far as a type for them depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    /// The smallest type that holds every number spelled as an integer.
    integers: Integers,
    /// One spelled with a fraction or an exponent.
    fraction: bool,
    /// One that no double comes near to.
    infinite: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Integers {
    #[default]
    None,
    BigInt,
    Digits20,
    Digits38,
    More,
}

impl Shape {
    /// Adds what a record holds; of duplicate keys the last one. Ignores malformed records.
    pub fn observe(&mut self, json: &[u8]) {
        if let Ok(shape) = Self::of_record(json) {
            self.merge(shape);
        }
    }

    /// The shape of one record.
    fn of_record(json: &[u8]) -> Result<Self, Fault> {
        simdutf8::basic::from_utf8(json).map_err(|_| Fault::Utf8)?;
        let mut scanner = Scanner::new(json);
        if scanner.peek() != b'{' {
            return Err(Fault::NotObject);
        }
        let shape = Self::read(&mut scanner, 0)?;
        if scanner.peek() != 0 || scanner.at < json.len() {
            return Err(Fault::Trailing);
        }
        Ok(shape)
    }

    /// The shape of a value whose text was checked before.
    pub(crate) fn of_value(json: &[u8]) -> Self {
        Self::read(&mut Scanner::new(json), 0).unwrap_or_default()
    }

    fn read(scanner: &mut Scanner<'_>, depth: u32) -> Result<Self, Fault> {
        let mut shape = Self::default();
        match scanner.peek() {
            b'{' => {
                shape.object = true;
                shape.read_fields(scanner, depth)?;
            }
            b'[' => shape.read_elements(scanner, depth)?,
            b'-' | b'0'..=b'9' => shape.numbers = Numbers::of(scanner.number()?),
            first => {
                scanner.skip_value(depth)?;
                match first {
                    b'n' => shape.null = true,
                    b'"' => shape.string = true,
                    _ => shape.boolean = true,
                }
            }
        }
        Ok(shape)
    }

    fn read_fields(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Fault> {
        scanner.enter(depth)?;
        if scanner.peek() == b'}' {
            scanner.at += 1;
            return Ok(());
        }
        let mut scratch = Vec::new();
        loop {
            scanner.peek();
            let key = scanner.string()?.unescaped(&mut scratch);
            let name = std::str::from_utf8(key).map_err(|_| Fault::Utf8)?.to_owned();
            scanner.colon()?;
            *self.fields.entry(&name) = Self::read(scanner, depth + 1)?;
            if scanner.object_ends()? {
                self.fields.set_nulls_aside();
                return Ok(());
            }
        }
    }

    fn read_elements(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Fault> {
        let element = self.element.get_or_insert_default();
        scanner.enter(depth)?;
        if scanner.peek() == b']' {
            scanner.at += 1;
            return Ok(());
        }
        loop {
            element.merge(Self::read(scanner, depth + 1)?);
            if scanner.list_ends()? {
                return Ok(());
            }
        }
    }

    /// Adds all that `other` has seen, after what this one has.
    pub fn merge(&mut self, other: Self) {
        self.null |= other.null;
        self.boolean |= other.boolean;
        self.string |= other.string;
        self.object |= other.object;
        self.numbers = self.numbers.joined(other.numbers);
        self.fields.merge(other.fields);
        if let Some(element) = other.element {
            self.element.get_or_insert_default().merge(*element);
        }
    }

    /// Whether all that `other` has seen was seen here.
    pub fn holds(&self, other: &Self) -> bool {
        let element = match (&self.element, &other.element) {
            (_, None) => true,
            (Some(own), Some(other)) => own.holds(other),
            (None, Some(_)) => false,
        };
        let field = |(name, other): (&str, &Self)| self.field(name).is_some_and(|own| own.holds(other));
        element
            && (self.null || !other.null)
            && (self.boolean || !other.boolean)
            && (self.string || !other.string)
            && (self.object || !other.object)
            && self.numbers.joined(other.numbers) == self.numbers
            && other.fields().all(field)
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The kinds of values seen here.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        let seen = [
            (Kind::Null, self.null),
            (Kind::Boolean, self.boolean),
            (Kind::Integer, self.numbers.integers != Integers::None),
            (Kind::Fraction, self.numbers.fraction),
            (Kind::String, self.string),
            (Kind::Object, self.object),
            (Kind::List, self.element.is_some()),
        ];
        seen.into_iter().filter_map(|(kind, seen)| seen.then_some(kind))
    }

    /// The fields of the objects seen here: in the order in which they first had a value, then those
    /// that were always null.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Shape)> {
        let valued = self.fields.entries.iter().map(|(name, shape)| (name.as_str(), shape));
        valued.chain(self.fields.nulls.iter().map(|(name, shape)| (name.as_str(), shape)))
    }

    /// A field of the objects seen here.
    pub fn field(&self, name: &str) -> Option<&Shape> {
        match self.fields.find(name) {
            Some(at) => self.fields.entries.get(at).map(|(_, shape)| shape),
            None => self.fields.nulls.get(name),
        }
    }

    /// What the elements of the lists seen here are.
    pub fn element(&self) -> Option<&Shape> {
        self.element.as_deref()
    }

    /// How many paths there are below this one.
    pub fn paths(&self) -> usize {
        let fields: usize = self.fields().map(|(_, shape)| 1 + shape.paths()).sum();
        fields + self.element.as_ref().map_or(0, |element| 1 + element.paths())
    }

    /// Forgets a field, the path leading through objects: and what is around it counts as an object only,
    /// so that no column takes it whole.
    pub(crate) fn remove(&mut self, path: &[String]) {
        match path {
            [] => {}
            [name] => self.fields.remove(name),
            [name, rest @ ..] => {
                if let Some(field) = self.fields.get_mut(name) {
                    field.remove(rest);
                    let Self { null, object, fields, .. } = std::mem::take(field);
                    *field = Self { null, object, fields, ..Self::default() };
                }
            }
        }
    }

    /// Whether a value other than null was seen.
    pub(crate) fn has_value(&self) -> bool {
        self.kinds().any(|kind| kind != Kind::Null)
    }

    pub(crate) fn has_boolean(&self) -> bool {
        self.boolean
    }

    pub(crate) fn has_string(&self) -> bool {
        self.string
    }

    /// The type that holds every number seen; `Some(None)` when there is none but their text.
    ///
    /// A number spelled with a fraction or an exponent makes a double. Integers stay exact: bigint,
    /// decimal(20,0), which holds every unsigned 64-bit one, decimal(38,0); with more digits the text.
    pub(crate) fn number_type(&self) -> Option<Option<DataType>> {
        let Numbers { integers, fraction, infinite } = self.numbers;
        Some(match integers {
            _ if infinite => None,
            _ if fraction => Some(DataType::Double),
            Integers::None => return None,
            Integers::BigInt => Some(DataType::BigInt),
            Integers::Digits20 => Some(DataType::Decimal(20, 0)),
            Integers::Digits38 => Some(DataType::Decimal(38, 0)),
            Integers::More => None,
        })
    }

    /// The shape of a field of the objects seen here, made when it is not there.
    pub(crate) fn field_mut(&mut self, name: &str) -> &mut Self {
        self.object = true;
        self.fields.entry(name)
    }

    /// The shape of the elements of the lists seen here, made when it is not there.
    pub(crate) fn element_mut(&mut self) -> &mut Self {
        self.element.get_or_insert_default()
    }
}

impl Numbers {
    fn of(number: Number<'_>) -> Self {
        let infinite = number.to_f64().is_none();
        if !number.is_spelled_as_integer() {
            return Self { fraction: true, infinite, ..Self::default() };
        }
        let integers = match number.integer_digits() {
            0..=20 if number.to_i64().is_some() => Integers::BigInt,
            0..=20 => Integers::Digits20,
            21..=38 => Integers::Digits38,
            _ => Integers::More,
        };
        Self { integers, infinite, ..Self::default() }
    }

    fn joined(self, other: Self) -> Self {
        Self {
            integers: self.integers.max(other.integers),
            fraction: self.fraction || other.fraction,
            infinite: self.infinite || other.infinite,
        }
    }
}

/// Named shapes.
#[derive(Clone, Debug, Default)]
struct Fields {
    /// In the order in which they first had a value.
    entries: Vec<(String, Shape)>,
    /// Positions in `entries`, kept once there are many: records choose the names, so looking for
    /// one must not cost the more the more there are.
    index: HashMap<String, usize>,
    /// Those that were always null. They have no place in the order yet: whoever looks at unknown
    /// fields alone, as the decoder does, has no reason to notice a null.
    nulls: BTreeMap<String, Shape>,
}

const FEW: usize = 16;

impl Fields {
    fn entry(&mut self, name: &str) -> &mut Shape {
        let at = match self.find(name) {
            Some(at) => at,
            None => self.add(name),
        };
        &mut self.entries[at].1
    }

    /// Moves the fields without a value out of the order.
    fn set_nulls_aside(&mut self) {
        if self.entries.iter().all(|(_, shape)| shape.has_value()) {
            return;
        }
        for (name, shape) in std::mem::take(self).entries {
            if shape.has_value() {
                *self.entry(&name) = shape;
            } else {
                self.nulls.insert(name, shape);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (name, shape) in other.entries {
            let null = self.nulls.remove(&name);
            let entry = self.entry(&name);
            entry.merge(shape);
            entry.null |= null.is_some();
        }
        for (name, shape) in other.nulls {
            if let Some(at) = self.find(&name) {
                self.entries[at].1.null = true;
            } else {
                self.nulls.insert(name, shape);
            }
        }
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Shape> {
        match self.find(name) {
            Some(at) => self.entries.get_mut(at).map(|(_, shape)| shape),
            None => self.nulls.get_mut(name),
        }
    }

    fn remove(&mut self, name: &str) {
        self.nulls.remove(name);
        if self.find(name).is_some() {
            let entries = std::mem::take(&mut self.entries);
            self.index.clear();
            for (known, shape) in entries.into_iter().filter(|(known, _)| known != name) {
                *self.entry(&known) = shape;
            }
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        if self.index.is_empty() {
            return self.entries.iter().position(|(known, _)| known == name);
        }
        self.index.get(name).copied()
    }

    fn add(&mut self, name: &str) -> usize {
        let at = self.entries.len();
        self.entries.push((name.to_owned(), Shape::default()));
        if !self.index.is_empty() {
            self.index.insert(name.to_owned(), at);
        } else if at == FEW {
            let names = self.entries.iter().enumerate();
            self.index = names.map(|(at, (name, _))| (name.clone(), at)).collect();
        }
        at
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries && self.nulls == other.nulls
    }
}

impl Eq for Fields {}
