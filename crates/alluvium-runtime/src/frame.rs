//! Rows on their way through the column plugins.

use arrow_array::{Array, ArrayRef, BooleanArray, StructArray, UInt32Array, make_array, new_null_array};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::{filter::filter, take::take};
use std::sync::Arc;

/// Named columns of equal length, and for each row the record it came from.
#[derive(Clone, Debug)]
pub struct Frame {
    columns: Vec<(String, ArrayRef)>,
    /// For each row the index of its record in the chunk; rises.
    records: Vec<u32>,
}

impl Frame {
    pub fn new(columns: Vec<(String, ArrayRef)>, records: Vec<u32>) -> Self {
        Self { columns, records }
    }

    pub fn rows(&self) -> usize {
        self.records.len()
    }

    /// For each row the index of its record in the chunk.
    pub fn records(&self) -> &[u32] {
        &self.records
    }

    pub fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.columns.iter().find(|(column, _)| column == name).map(|(_, array)| array)
    }

    /// The values at `path`: null where a struct above is null, all null where there is no such column.
    pub fn read(&self, path: &[String], data_type: &ArrowType) -> Result<ArrayRef, ArrowError> {
        let absent = || new_null_array(data_type, self.rows());
        let Some((first, rest)) = path.split_first() else { return Ok(absent()) };
        let Some(column) = self.column(first) else { return Ok(absent()) };
        let mut array = column.clone();
        let mut nulls: Option<NullBuffer> = None;
        for part in rest {
            let Some(parent) = array.as_any().downcast_ref::<StructArray>() else { return Ok(absent()) };
            nulls = NullBuffer::union(nulls.as_ref(), parent.nulls());
            let Some(child) = parent.column_by_name(part).cloned() else { return Ok(absent()) };
            array = child;
        }
        if array.data_type() != data_type {
            let (found, path) = (array.data_type(), path.join("."));
            return Err(ArrowError::SchemaError(format!("column {path} is {found}, wanted was {data_type}")));
        }
        match nulls {
            None => Ok(array),
            Some(nulls) => {
                let nulls = NullBuffer::union(Some(&nulls), array.nulls());
                Ok(make_array(array.to_data().into_builder().nulls(nulls).build()?))
            }
        }
    }

    /// Puts values at `path`: a column that is not there yet becomes the last one.
    pub fn write(&mut self, path: &[String], array: ArrayRef) -> Result<(), ArrowError> {
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        match self.columns.iter_mut().find(|(name, _)| name == first) {
            Some((_, column)) => *column = replaced(column, rest, array)?,
            None if rest.is_empty() => self.columns.push((first.clone(), array)),
            None => return Err(ArrowError::SchemaError(format!("there is no column {first} to write into"))),
        }
        Ok(())
    }

    /// Keeps these rows, in this order; rising numbers, a repeated one makes two rows.
    pub fn keep(&mut self, rows: &[u32]) -> Result<(), ArrowError> {
        if rows.len() == self.rows() && rows.iter().enumerate().all(|(index, row)| index == *row as usize) {
            return Ok(());
        }
        if rows.windows(2).all(|pair| pair[0] < pair[1]) {
            let mut mask = BooleanBufferBuilder::new(self.rows());
            mask.append_n(self.rows(), false);
            rows.iter().filter(|row| (**row as usize) < self.rows()).for_each(|row| mask.set_bit(*row as usize, true));
            let mask = BooleanArray::new(mask.finish(), None);
            for (_, column) in &mut self.columns {
                *column = filter(column, &mask)?;
            }
        } else {
            let indices = UInt32Array::from(rows.to_vec());
            for (_, column) in &mut self.columns {
                *column = take(column, &indices, None)?;
            }
        }
        self.records = rows.iter().filter_map(|row| self.records.get(*row as usize).copied()).collect();
        Ok(())
    }

    /// Drops all rows of the records for which `gone` holds.
    pub fn drop_records(&mut self, gone: impl Fn(u32) -> bool) -> Result<(), ArrowError> {
        let stays = |(_, record): &(usize, &u32)| !gone(**record);
        let rows: Vec<u32> = self.records.iter().enumerate().filter(stays).map(|(row, _)| row as u32).collect();
        self.keep(&rows)
    }
}

/// `column` with the values at `path` below it replaced.
fn replaced(column: &ArrayRef, path: &[String], array: ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some((first, rest)) = path.split_first() else { return Ok(array) };
    let unwritable = || ArrowError::SchemaError(format!("there is no nested column {first} to write into"));
    let parent = column.as_any().downcast_ref::<StructArray>().ok_or_else(unwritable)?;
    let (fields, mut children, nulls) = parent.clone().into_parts();
    let (index, _) = fields.find(first).ok_or_else(unwritable)?;
    let child = children.get_mut(index).ok_or_else(unwritable)?;
    *child = replaced(child, rest, array)?;
    Ok(Arc::new(StructArray::try_new(fields, children, nulls)?))
}
