//! A plan as people read it.

use super::{Column, Plan};
use crate::{Coercion, Derivation, Evolve, OnConflict, path};
use std::fmt;

impl fmt::Display for Plan {
    /// A line for each column, then what becomes of the other fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&Column) -> usize| self.columns.iter().map(text).max().unwrap_or(0);
        let name = width(|column| column.name.chars().count());
        let data_type = width(|column| column.data_type.to_string().chars().count()).min(40);
        for column in &self.columns {
            let line = format!("{:name$}  {:data_type$}  {column}", column.name, column.data_type.to_string());
            writeln!(f, "{}", line.trim_end())?;
        }
        for path in &self.drops {
            writeln!(f, "dropped: {}", path::join(path))?;
        }
        let others = match self.evolve {
            Evolve::Add => format!("become columns, {} at most", self.max_columns),
            Evolve::None => format!("are kept in {}", self.rescued),
            Evolve::Stop => "stop the pipeline".to_owned(),
            Evolve::Approve => format!("are kept in {} until they are approved", self.rescued),
        };
        write!(f, "other fields {others}")
    }
}

impl fmt::Display for Column {
    /// Where its values come from, and what becomes of those that do not fit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = path::join(&self.path);
        let from = match &self.derivation {
            Some(Derivation::Date) => format!("date of {from}"),
            Some(Derivation::Before(separator)) => format!("{from} before {separator:?}"),
            Some(Derivation::After(separator)) => format!("{from} after {separator:?}"),
            None => from,
        };
        write!(f, "from {from}")?;
        for (inner, coercion) in self.coercions.iter().filter(|(_, coercion)| **coercion != Coercion::None) {
            match inner.as_str() {
                "" => write!(f, ", {}", coercion.name())?,
                inner => write!(f, ", {inner} {}", coercion.name())?,
            }
        }
        match self.on_conflict {
            OnConflict::Reject => write!(f, ", else rejected")?,
            OnConflict::Rescue => write!(f, ", else rescued")?,
            OnConflict::Stop => write!(f, ", else stop")?,
        }
        if let Some(default) = &self.default {
            write!(f, ", default {default}")?;
        }
        match &self.comment {
            Some(comment) => write!(f, " -- {comment}"),
            None => Ok(()),
        }
    }
}
