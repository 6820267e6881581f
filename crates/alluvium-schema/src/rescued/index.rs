//! Finding what a plan does at a path of a record.

use crate::{Column, Plan};
use alluvium_core::DataType;
use std::collections::HashMap;

/// What the columns and drops of a plan begin with: records choose the keys, so looking for one must not
/// cost the more the more columns there are.
#[derive(Debug, Default)]
pub(super) struct Index {
    columns: HashMap<String, Vec<usize>>,
    drops: HashMap<String, Vec<usize>>,
}

/// A column that reads a path, whole or with what is around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'p> {
    pub position: usize,
    pub column: &'p Column,
    /// The fields of structs that lead to the path from the column's own.
    pub inner: usize,
    pub data_type: &'p DataType,
}

impl Reader<'_> {
    /// The path in the table.
    pub fn in_table(&self, path: &[String]) -> Vec<String> {
        let inner = path.get(path.len() - self.inner..).unwrap_or_default();
        std::iter::once(&self.column.name).chain(inner).cloned().collect()
    }
}

impl Index {
    pub fn new(plan: &Plan) -> Self {
        let mut index = Self::default();
        for (at, column) in plan.columns.iter().enumerate() {
            let first = column.path.first().cloned().unwrap_or_default();
            index.columns.entry(first).or_default().push(at);
        }
        for (at, drop) in plan.drops.iter().enumerate() {
            index.drops.entry(drop.first().cloned().unwrap_or_default()).or_default().push(at);
        }
        index
    }

    fn near<'p>(&'p self, plan: &'p Plan, path: &[String]) -> impl Iterator<Item = (usize, &'p Column)> {
        let positions = path.first().and_then(|first| self.columns.get(first)).map(Vec::as_slice).unwrap_or_default();
        positions.iter().filter_map(|at| Some((*at, plan.columns.get(*at)?)))
    }

    fn drops<'p>(&'p self, plan: &'p Plan, path: &[String]) -> impl Iterator<Item = &'p Vec<String>> {
        let positions = path.first().and_then(|first| self.drops.get(first)).map(Vec::as_slice).unwrap_or_default();
        positions.iter().filter_map(|at| plan.drops.get(*at))
    }

    /// The columns that give the value at a path of the record a type.
    pub fn at<'p>(&'p self, plan: &'p Plan, path: &[String]) -> Vec<Reader<'p>> {
        let reader = |(position, column): (usize, &'p Column)| {
            let inner = path.strip_prefix(column.path.as_slice())?;
            let mut data_type = &column.data_type;
            for name in inner {
                let DataType::Struct(fields) = data_type else { return None };
                data_type = &fields.iter().find(|field| field.name == *name)?.data_type;
            }
            Some(Reader { position, column, inner: inner.len(), data_type })
        };
        self.near(plan, path).filter_map(reader).collect()
    }

    /// Whether the plan looks into the object at a path of the record.
    pub fn opens(&self, plan: &Plan, path: &[String]) -> bool {
        let is_above = |other: &[String]| other.len() > path.len() && other.starts_with(path);
        self.near(plan, path).any(|(_, column)| is_above(&column.path))
            || self.drops(plan, path).any(|drop| is_above(drop))
            || self.at(plan, path).iter().any(|reader| matches!(reader.data_type, DataType::Struct(_)))
    }

    /// Whether the plan leaves out what is at a path of the record.
    pub fn is_dropped(&self, plan: &Plan, path: &[String]) -> bool {
        self.drops(plan, path).any(|drop| path.starts_with(drop))
    }
}
