//! What a schema would add to a table's.

use crate::path;
use alluvium_core::{DataType, data_type};
use arrow_schema::{Field, Fields, Schema, SchemaRef};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// A column, or a field of a struct, that a table would get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The path in the table: names of columns and fields, with `element` for what is in a list and
    /// `value` for what is in a map.
    pub path: Vec<String>,
    pub data_type: DataType,
}

impl fmt::Display for Addition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", path::join(&self.path), self.data_type)
    }
}

/// What `wanted` has and `table` has not, in the order of `wanted`; `None` is a table that is not there.
/// Columns of a type that Delta has not are left out.
pub fn additions(table: Option<&Schema>, wanted: &Schema) -> Vec<Addition> {
    let (table, mut found) = (table.map(columns).unwrap_or_default(), Vec::new());
    add_fields(&table, &columns(wanted), &mut Vec::new(), &mut found);
    found
}

/// `wanted` without those of its additions to `table` whose paths are not `chosen`.
pub fn select(table: &Schema, wanted: &Schema, chosen: &[Vec<String>]) -> SchemaRef {
    let (known, chosen) = (columns(table), chosen.iter().map(Vec::as_slice).collect());
    let known = by_name(&known);
    let keep = |field: &Arc<Field>| {
        let data_type = DataType::from_arrow(field.data_type())?;
        let column = data_type::Field { name: field.name().clone(), data_type };
        let kept = kept_fields(&known, std::slice::from_ref(&column), &mut Vec::new(), &chosen).pop()?;
        Some(Arc::new(field.as_ref().clone().with_data_type(kept.data_type.to_arrow())))
    };
    Arc::new(Schema::new(wanted.fields().iter().filter_map(keep).collect::<Fields>()))
}

fn columns(schema: &Schema) -> Vec<data_type::Field> {
    let column = |field: &Arc<Field>| {
        let data_type = DataType::from_arrow(field.data_type())?;
        Some(data_type::Field { name: field.name().clone(), data_type })
    };
    schema.fields().iter().filter_map(column).collect()
}

/// Fields as Delta takes their names: records choose them, so looking for one must not cost the more the
/// more there are.
fn by_name(fields: &[data_type::Field]) -> HashMap<String, &data_type::Field> {
    let mut by_name = HashMap::with_capacity(fields.len());
    for field in fields {
        by_name.entry(field.name.to_lowercase()).or_insert(field);
    }
    by_name
}

fn add_fields(
    table: &[data_type::Field],
    wanted: &[data_type::Field],
    at: &mut Vec<String>,
    found: &mut Vec<Addition>,
) {
    let table = by_name(table);
    for field in wanted {
        at.push(field.name.clone());
        match table.get(&field.name.to_lowercase()) {
            Some(known) => add_inner(&known.data_type, &field.data_type, at, found),
            None => found.push(Addition { path: at.clone(), data_type: field.data_type.clone() }),
        }
        at.pop();
    }
}

fn add_inner(table: &DataType, wanted: &DataType, at: &mut Vec<String>, found: &mut Vec<Addition>) {
    let mut below = |name: &str, table: &DataType, wanted: &DataType| {
        at.push(name.to_owned());
        add_inner(table, wanted, at, found);
        at.pop();
    };
    match (table, wanted) {
        (DataType::Struct(table), DataType::Struct(wanted)) => add_fields(table, wanted, at, found),
        (DataType::Array(table), DataType::Array(wanted)) => below("element", table, wanted),
        (DataType::Map(_, table), DataType::Map(_, wanted)) => below("value", table, wanted),
        _ => {}
    }
}

fn kept_fields(
    table: &HashMap<String, &data_type::Field>,
    wanted: &[data_type::Field],
    at: &mut Vec<String>,
    chosen: &HashSet<&[String]>,
) -> Vec<data_type::Field> {
    let mut kept = Vec::new();
    for field in wanted {
        at.push(field.name.clone());
        let data_type = match table.get(&field.name.to_lowercase()) {
            Some(known) => Some(kept_type(&known.data_type, &field.data_type, at, chosen)),
            None => chosen.contains(at.as_slice()).then(|| field.data_type.clone()),
        };
        kept.extend(data_type.map(|data_type| data_type::Field { name: field.name.clone(), data_type }));
        at.pop();
    }
    kept
}

fn kept_type(table: &DataType, wanted: &DataType, at: &mut Vec<String>, chosen: &HashSet<&[String]>) -> DataType {
    let mut below = |name: &str, table: &DataType, wanted: &DataType| {
        at.push(name.to_owned());
        let kept = kept_type(table, wanted, at, chosen);
        at.pop();
        Box::new(kept)
    };
    match (table, wanted) {
        (DataType::Struct(table), DataType::Struct(wanted)) => {
            DataType::Struct(kept_fields(&by_name(table), wanted, at, chosen))
        }
        (DataType::Array(table), DataType::Array(wanted)) => DataType::Array(below("element", table, wanted)),
        (DataType::Map(_, table), DataType::Map(key, wanted)) => {
            DataType::Map(key.clone(), below("value", table, wanted))
        }
        _ => wanted.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn schema(ddl: &str) -> Schema {
        let DataType::Struct(fields) = DataType::parse(&format!("struct<{ddl}>")).unwrap() else {
            unreachable!("a struct")
        };
        Schema::new(
            fields.iter().map(|field| Field::new(&field.name, field.data_type.to_arrow(), true)).collect::<Vec<_>>(),
        )
    }

    fn told(additions: &[Addition]) -> Vec<String> {
        additions.iter().map(Addition::to_string).collect()
    }

    const TABLE: &str = "id:bigint, s:struct<x:int>, l:array<struct<x:int>>, m:map<string,struct<x:int>>";
    const WANTED: &str = "note:string, Id:bigint, s:struct<x:int,y:struct<z:date>>, l:array<struct<`q.r`:int,x:int>>, \
                          m:map<string,struct<x:int,y:int>>";

    #[test]
    fn what_is_new_is_named_at_any_depth() {
        let added = additions(Some(&schema(TABLE)), &schema(WANTED));
        assert_eq!(told(&added), ["note string", "s.y struct<z:date>", "l.element.`q.r` int", "m.value.y int"]);
        assert_eq!(additions(Some(&schema(WANTED)), &schema(TABLE)), []);
        assert_eq!(told(&additions(None, &schema("a:int"))), ["a int"]);
    }

    #[test]
    fn chosen_additions_are_added_and_no_others() {
        let (table, wanted) = (schema(TABLE), schema(WANTED));
        let all = additions(Some(&table), &wanted);
        for number in 0..1 << all.len() {
            let chosen: Vec<_> =
                (0..all.len()).filter(|at| number >> at & 1 == 1).map(|at| all[at].path.clone()).collect();
            let selected = select(&table, &wanted, &chosen);
            let paths: Vec<_> = additions(Some(&table), &selected).into_iter().map(|added| added.path).collect();
            assert_eq!(paths, chosen);
        }
    }
}
