//! Which columns a plugin reads and writes.

use crate::bindings::column as contract;
use crate::{Error, Result, Type, path};

/// Which columns a plugin reads and writes, and whether it makes several rows of one.
///
/// A path has its parts joined by dots, as in `customer.email`; a part that holds a dot stands in
/// backticks. Types are in Spark's DDL spelling, as in `decimal(10,2)` or
/// `array<struct<sku:string,qty:int>>`. A mistake in either is reported when the plugin is
/// configured.
#[derive(Debug, Default)]
pub struct Access {
    reads: Vec<Declared>,
    writes: Vec<Declared>,
    multiplies: bool,
    fault: Option<Error>,
}

/// A column as the plugin declared it.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) path: String,
    /// The last part of the path.
    pub(crate) name: String,
    pub(crate) data_type: Type,
}

impl Access {
    /// `transform` sees this column. Reading one twice, with the same type, is reading it once.
    pub fn reads(&mut self, path: &str, data_type: &str) -> &mut Self {
        match Declared::new(path, data_type) {
            Ok(new) => match find(&self.reads, path) {
                Some((_, old)) if old.data_type == new.data_type => {}
                Some((_, old)) => {
                    let message = format!("column '{path}' is read as {} and as {}", old.data_type, new.data_type);
                    self.fails(message);
                }
                None => self.reads.push(new),
            },
            Err(message) => self.fails(message),
        }
        self
    }

    /// `transform` writes this column; one that is not there yet becomes a column of the table.
    pub fn writes(&mut self, path: &str, data_type: &str) -> &mut Self {
        match Declared::new(path, data_type) {
            Ok(_) if find(&self.writes, path).is_some() => self.fails(format!("column '{path}' is written twice")),
            Ok(new) => self.writes.push(new),
            Err(message) => self.fails(message),
        }
        self
    }

    /// Both: `transform` sees the column and writes it anew.
    pub fn changes(&mut self, path: &str, data_type: &str) -> &mut Self {
        self.reads(path, data_type).writes(path, data_type)
    }

    /// One row can become several; see [`Edit::repeat`](super::Edit::repeat).
    pub fn multiplies(&mut self) -> &mut Self {
        self.multiplies = true;
        self
    }

    fn fails(&mut self, message: String) {
        self.fault.get_or_insert_with(|| Error::fault(message));
    }

    pub(crate) fn checked(self) -> Result<Self> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(self),
        }
    }

    pub(crate) fn to_contract(&self) -> contract::Access {
        let fields = |declared: &[Declared]| {
            declared
                .iter()
                .map(|d| contract::Field { path: d.path.clone(), data_type: d.data_type.to_string() })
                .collect()
        };
        contract::Access { reads: fields(&self.reads), writes: fields(&self.writes), multiplies: self.multiplies }
    }

    pub(crate) fn read(&self) -> &[Declared] {
        &self.reads
    }

    pub(crate) fn written(&self) -> &[Declared] {
        &self.writes
    }

    pub(crate) fn can_multiply(&self) -> bool {
        self.multiplies
    }
}

impl Declared {
    fn new(path: &str, data_type: &str) -> std::result::Result<Self, String> {
        let name = path::split(path)?.pop().unwrap_or_default();
        let data_type = Type::parse(data_type).map_err(|error| format!("column '{path}': {error}"))?;
        Ok(Self { path: path.to_owned(), name, data_type })
    }
}

/// The column of this path with its number.
pub(crate) fn find<'a>(declared: &'a [Declared], path: &str) -> Option<(usize, &'a Declared)> {
    declared.iter().enumerate().find(|(_, d)| d.path == path)
}
