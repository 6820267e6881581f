//! What a plugin answers: rows kept, rows rejected, columns written.

use super::access::{Access, find};
use super::batch::{Row, Rows};
use super::buffer::Buffer;
use super::value::{Text, Value};
use super::views::Primitive;
use crate::bindings::column as contract;
use crate::{Date, Decimal, Error, Result, Timestamp, Type};

/// What becomes of a batch. Without any call, every row is kept as it is.
///
/// Columns are written by closures, called once for each row kept at that moment, in order. The
/// order of calls does not matter otherwise: what is dropped or rejected later leaves the columns
/// already written. A closure answers `Some`, or `None` for null; one that answers
/// `Result<Option<_>>` rejects its row by an error.
#[derive(Debug)]
pub struct Edit<'a> {
    access: &'a Access,
    /// Rows of the batch.
    rows: u32,
    kept: Kept,
    /// For each column to write, what is written so far.
    columns: Vec<Option<Buffer>>,
    rejects: Vec<contract::Reject>,
    /// For each row of the batch, whether it is rejected; empty while none is.
    rejected: Vec<bool>,
    /// Whether a rejected row is still among those kept.
    unsettled: bool,
    fault: Option<Error>,
}

/// The rows kept, in order.
#[derive(Debug, Default)]
struct Kept {
    /// Absent: all of them.
    rows: Option<Vec<u32>>,
    /// Which copy of its row each is; absent: all are the first.
    copies: Option<Vec<u32>>,
}

impl Kept {
    fn iter(&self, all: u32) -> impl ExactSizeIterator<Item = Row> {
        let count = self.rows.as_ref().map_or(all as usize, Vec::len);
        (0..count).map(|at| Row {
            index: self.rows.as_ref().map_or(at as u32, |rows| rows.get(at).copied().unwrap_or_default()),
            copy: self.copies.as_ref().and_then(|copies| copies.get(at)).copied().unwrap_or_default(),
        })
    }
}

/// What a closure answers for a row: a value, null, or a reason to reject the row.
pub trait Outcome {
    /// The value's type.
    type Value;

    #[doc(hidden)]
    fn outcome(self) -> Result<Option<Self::Value>>;
}

impl<T> Outcome for Option<T> {
    type Value = T;

    #[inline]
    fn outcome(self) -> Result<Option<T>> {
        Ok(self)
    }
}

impl<T> Outcome for Result<Option<T>> {
    type Value = T;

    #[inline]
    fn outcome(self) -> Self {
        self
    }
}

impl<'a> Edit<'a> {
    pub(crate) fn new(access: &'a Access, rows: u32) -> Self {
        Self {
            access,
            rows,
            kept: Kept::default(),
            columns: access.written().iter().map(|_| None).collect(),
            rejects: Vec::new(),
            rejected: Vec::new(),
            unsettled: false,
            fault: None,
        }
    }

    /// Keeps only the rows for which `keep` is true, of those kept so far; the others are filtered.
    pub fn keep(&mut self, keep: impl FnMut(Row) -> bool) {
        self.settle();
        self.retain(keep);
    }

    /// Makes several rows of one, as many as `count` says: they follow each other, and
    /// [`Row::copy`] tells them apart. 0 filters the row. The plugin must have declared that it
    /// [`multiplies`](Access::multiplies).
    pub fn repeat(&mut self, mut count: impl FnMut(Row) -> usize) {
        self.settle();
        if self.kept.copies.is_some() {
            return self.fails("`repeat` is called twice");
        }
        if !self.access.can_multiply() {
            return self.fails("`repeat` is called, but `access` does not say `multiplies`");
        }
        let (mut rows, mut copies, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (position, row) in self.kept.iter(self.rows).enumerate() {
            for copy in 0..count(row) {
                rows.push(row.index);
                copies.push(copy as u32);
                positions.push(position as u32);
            }
        }
        self.take(&positions);
        self.kept = Kept { rows: Some(rows), copies: Some(copies) };
    }

    /// Sends a row to the dead letters, with the reason in one line. A row's first reason stands;
    /// all copies of the row are gone.
    pub fn reject(&mut self, row: impl Into<usize>, reason: impl Into<Error>) {
        let row = row.into();
        match u32::try_from(row) {
            Ok(input) if input < self.rows => self.note_reject(input, reason.into()),
            _ => self.fails(&format!("row {row} is rejected, but the batch has {} rows", self.rows)),
        }
    }

    /// Rejects the rows for which `reason` gives one, of those kept so far.
    pub fn reject_where<R: Into<Error>>(&mut self, mut reason: impl FnMut(Row) -> Option<R>) {
        self.settle();
        let rejects: Vec<(u32, R)> =
            self.kept.iter(self.rows).filter_map(|row| Some((row.index, reason(row)?))).collect();
        for (input, reason) in rejects {
            self.note_reject(input, reason.into());
        }
    }

    /// All rows of the batch, kept or not.
    pub fn rows(&self) -> Rows {
        Rows::new(self.rows)
    }

    /// Writes a `boolean` column.
    pub fn boolean<O>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()>
    where
        O: Outcome<Value = bool>,
    {
        self.fill(
            path,
            "boolean",
            |t| *t == Type::Boolean,
            value,
            |buffer, value| {
                buffer.push_boolean(value);
                Ok(())
            },
        )
    }

    /// Writes a `tinyint` column.
    pub fn tinyint<O: Outcome<Value = i8>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "tinyint", |t| *t == Type::TinyInt, value)
    }

    /// Writes a `smallint` column.
    pub fn smallint<O: Outcome<Value = i16>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "smallint", |t| *t == Type::SmallInt, value)
    }

    /// Writes an `int` column.
    pub fn int<O: Outcome<Value = i32>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "int", |t| *t == Type::Int, value)
    }

    /// Writes a `bigint` column.
    pub fn bigint<O: Outcome<Value = i64>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "bigint", |t| *t == Type::BigInt, value)
    }

    /// Writes a `float` column.
    pub fn float<O: Outcome<Value = f32>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "float", |t| *t == Type::Float, value)
    }

    /// Writes a `double` column.
    pub fn double<O: Outcome<Value = f64>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        self.fixed(path, "double", |t| *t == Type::Double, value)
    }

    /// Writes a `decimal` column. Values are brought to its scale; a row whose value would lose
    /// digits is rejected.
    pub fn decimal<O: Outcome<Value = Decimal>>(&mut self, path: &str, mut value: impl FnMut(Row) -> O) -> Result<()> {
        let fits = |t: &Type| matches!(t, Type::Decimal(..));
        self.each(path, "decimal", fits, |row, place| match value(row).outcome()? {
            Some(value) => place.decimal(value),
            None => place.null(),
        })
    }

    /// Writes a `date` column. A row whose date is not within the years 1 to 9999 is rejected.
    pub fn date<O: Outcome<Value = Date>>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()> {
        let fits = |t: &Type| *t == Type::Date;
        self.fill(path, "date", fits, value, |buffer, value| buffer.push_checked(value.is_writable(), value, path))
    }

    /// Writes a `timestamp` or `timestamp_ntz` column. A row whose timestamp is not within the
    /// years 1 to 9999 is rejected.
    pub fn timestamp<O>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()>
    where
        O: Outcome<Value = Timestamp>,
    {
        let fits = |t: &Type| matches!(t, Type::Timestamp | Type::TimestampNtz);
        self.fill(path, "timestamp", fits, value, |buffer, value| buffer.push_checked(value.is_writable(), value, path))
    }

    /// Writes a `string` column.
    pub fn string<O>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()>
    where
        O: Outcome<Value: AsRef<str>>,
    {
        let fits = |t: &Type| *t == Type::String;
        self.fill(path, "string", fits, value, |buffer, value| buffer.push_bytes(value.as_ref().as_bytes()))
    }

    /// Writes a `string` column whose values are put together in place, without an allocation
    /// each: what is appended to the text is the value when `write` answers `Some(())`.
    pub fn string_with<O>(&mut self, path: &str, mut write: impl FnMut(Row, &mut Text<'_>) -> O) -> Result<()>
    where
        O: Outcome<Value = ()>,
    {
        let fits = |t: &Type| *t == Type::String;
        self.build(path, "string_with", fits, |row, bytes| write(row, &mut Text(bytes)).outcome())
    }

    /// Writes a `binary` column.
    pub fn binary<O>(&mut self, path: &str, value: impl FnMut(Row) -> O) -> Result<()>
    where
        O: Outcome<Value: AsRef<[u8]>>,
    {
        let fits = |t: &Type| *t == Type::Binary;
        self.fill(path, "binary", fits, value, |buffer, value| buffer.push_bytes(value.as_ref()))
    }

    /// Writes a column of any type, lists, maps and structs among them: `write` puts the row's
    /// value into its place. An error rejects the row.
    pub fn value(&mut self, path: &str, write: impl FnMut(Row, Value<'_>) -> Result<()>) -> Result<()> {
        self.each(path, "value", |_| true, write)
    }

    /// The contract's form. Columns that were declared but not written are an error.
    pub(crate) fn finish(mut self) -> Result<contract::Edit> {
        self.settle();
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut nodes = Vec::with_capacity(self.columns.len());
        for (column, declared) in self.columns.into_iter().zip(self.access.written()) {
            let unwritten = || Error::fault(format!("column '{}' is declared as written, but is not", declared.path));
            column.ok_or_else(unwritten)?.into_nodes(&mut nodes)?;
        }
        self.rejects.sort_unstable_by_key(|reject| reject.input);
        Ok(contract::Edit { rows: self.kept.rows, nodes, rejects: self.rejects })
    }

    fn fixed<T: Primitive, O: Outcome<Value = T>>(
        &mut self,
        path: &str,
        method: &str,
        fits: impl Fn(&Type) -> bool,
        value: impl FnMut(Row) -> O,
    ) -> Result<()> {
        self.fill(path, method, fits, value, |buffer, value| {
            buffer.push_fixed(value.store());
            Ok(())
        })
    }

    fn fill<O: Outcome>(
        &mut self,
        path: &str,
        method: &str,
        fits: impl Fn(&Type) -> bool,
        mut value: impl FnMut(Row) -> O,
        mut push: impl FnMut(&mut Buffer, O::Value) -> Result<()>,
    ) -> Result<()> {
        self.write(path, method, fits, |row, buffer, _| {
            match value(row).outcome()? {
                Some(value) => push(buffer, value)?,
                None => buffer.push_null(),
            }
            Ok(())
        })
    }

    fn build(
        &mut self,
        path: &str,
        method: &str,
        fits: impl Fn(&Type) -> bool,
        mut write: impl FnMut(Row, &mut Vec<u8>) -> Result<Option<()>>,
    ) -> Result<()> {
        self.write(path, method, fits, |row, buffer, _| {
            match write(row, buffer.open_bytes())? {
                Some(()) => buffer.close_bytes()?,
                None => {
                    buffer.drop_bytes();
                    buffer.push_null();
                }
            }
            Ok(())
        })
    }

    fn each(
        &mut self,
        path: &str,
        method: &str,
        fits: impl Fn(&Type) -> bool,
        mut write: impl FnMut(Row, Value<'_>) -> Result<()>,
    ) -> Result<()> {
        self.write(path, method, fits, |row, buffer, data_type| {
            let before = buffer.len();
            write(row, Value { buffer, data_type, path })?;
            if buffer.len() == before {
                buffer.push_null();
            }
            Ok(())
        })
    }

    /// Writes a column, row by row; a row whose value fails is rejected, unless the plugin itself is wrong.
    fn write(
        &mut self,
        path: &str,
        method: &str,
        fits: impl Fn(&Type) -> bool,
        mut write: impl FnMut(Row, &mut Buffer, &Type) -> Result<()>,
    ) -> Result<()> {
        let (index, declared) = find(self.access.written(), path)
            .ok_or_else(|| Error::fault(format!("column '{path}' is not among those that `access` writes")))?;
        if !fits(&declared.data_type) {
            let message = format!("column '{path}' is declared as {}: `{method}` cannot write it", declared.data_type);
            return Err(Error::fault(message));
        }
        if self.columns.get(index).is_some_and(Option::is_some) {
            return Err(Error::fault(format!("column '{path}' is written twice")));
        }
        self.settle();
        let mut failed = Vec::new();
        let rows = self.kept.iter(self.rows);
        let mut buffer = Buffer::new(&declared.name, &declared.data_type, rows.len());
        for row in rows {
            let before = buffer.len();
            if let Err(error) = write(row, &mut buffer, &declared.data_type) {
                if error.is_fault() {
                    return Err(error);
                }
                buffer.truncate(before);
                buffer.push_null();
                failed.push((row.index, error));
            }
        }
        if let Some(column) = self.columns.get_mut(index) {
            *column = Some(buffer);
        }
        for (input, error) in failed {
            self.note_reject(input, error);
        }
        Ok(())
    }

    fn note_reject(&mut self, input: u32, reason: Error) {
        if self.rejected.is_empty() {
            self.rejected = vec![false; self.rows as usize];
        }
        if let Some(rejected @ false) = self.rejected.get_mut(input as usize) {
            *rejected = true;
            self.rejects.push(contract::Reject { input, reason: reason.into_message() });
            self.unsettled = true;
        }
    }

    /// Takes the rejected rows out of those kept.
    fn settle(&mut self) {
        if std::mem::take(&mut self.unsettled) {
            let rejected = std::mem::take(&mut self.rejected);
            self.retain(|row| rejected.get(row.index()) != Some(&true));
            self.rejected = rejected;
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(Row) -> bool) {
        let written = self.columns.iter().any(Option::is_some);
        let kept = self.kept.iter(self.rows);
        let (mut rows, mut positions) = (Vec::with_capacity(kept.len()), Vec::new());
        let mut copies = self.kept.copies.as_ref().map(|_| Vec::new());
        for (position, row) in kept.enumerate() {
            if keep(row) {
                rows.push(row.index);
                if let Some(copies) = &mut copies {
                    copies.push(row.copy);
                }
                if written {
                    positions.push(position as u32);
                }
            }
        }
        if rows.len() == self.kept.iter(self.rows).len() {
            return;
        }
        self.take(&positions);
        self.kept = Kept { rows: Some(rows), copies };
    }

    fn take(&mut self, positions: &[u32]) {
        for column in self.columns.iter_mut().flatten() {
            *column = column.take(positions);
        }
    }

    fn fails(&mut self, message: &str) {
        self.fault.get_or_insert_with(|| Error::fault(message));
    }
}
