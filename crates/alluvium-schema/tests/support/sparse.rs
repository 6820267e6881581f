//! How many values a record makes out of next to nothing, counted plainly.

use super::reference::{Json, Kind, below, last_of_each, scalar};
use alluvium_core::{DataType, data_type::Field};
use alluvium_schema::{Coercion, Column, Derivation, Plan, path};
use std::collections::HashSet;

/// Whether the record, of this many bytes, stands for more such values than one may.
pub fn is_sparse(plan: &Plan, members: &[(String, Json)], len: usize) -> bool {
    let columns = plan.columns().iter().map(|column| (column, column.path.as_slice())).collect::<Vec<_>>();
    let drops = plan.drops().iter().map(Vec::as_slice).collect::<Vec<_>>();
    let most = (16 * 1024 + 64 * len as u64).min(8 << 20);
    of_parts(&columns, &drops, members) > most
}

/// Of an object that these columns read parts of.
fn of_parts(columns: &[(&Column, &[String])], drops: &[&[String]], members: &[(String, Json)]) -> u64 {
    let mut made = 0;
    let mut seen = HashSet::new();
    for (key, value) in members {
        let inner_drops = below(drops, key);
        let is_dropped = inner_drops.contains(&[].as_slice());
        let inner = columns.iter().filter(|(_, path)| path[0] == *key);
        let inner = inner.map(|(column, path)| (*column, &path[1..])).collect::<Vec<_>>();
        if inner.is_empty() && inner_drops.is_empty() {
            continue;
        }
        if !seen.insert(key) {
            made += if is_dropped { 1 } else { size_of_parts(&inner, &inner_drops) };
        }
        made += match (inner.as_slice(), &value.kind) {
            _ if is_dropped => 0,
            ([(column, [])], _) if column.derivation.is_none() => {
                of_value(&column.data_type, column, String::new(), &inner_drops, value, false)
            }
            // Simple values of the record itself: they stand for no others.
            ([(_, []), ..], _) => 0,
            (inner, Kind::Object(members)) => of_parts(inner, &inner_drops, members),
            _ => 0,
        };
    }
    made
}

/// Of a value, which may stand in a list or map.
fn of_value(
    data_type: &DataType,
    column: &Column,
    at: String,
    drops: &[&[String]],
    json: &Json,
    contained: bool,
) -> u64 {
    let inside = |name: &str| {
        let mut at = at.clone();
        path::push(&mut at, name);
        at
    };
    match (data_type, &json.kind) {
        (DataType::Struct(fields), Kind::Object(members)) => {
            let mut made = 0;
            let mut seen = HashSet::new();
            for (key, value) in members {
                let inner_drops = below(drops, key);
                let is_dropped = inner_drops.contains(&[].as_slice());
                let field = fields.iter().find(|field| field.name == *key).filter(|_| !is_dropped);
                if !seen.insert(key) {
                    made += field.map_or(u64::from(is_dropped), |field| size(&field.data_type, &inner_drops));
                }
                if let Some(field) = field {
                    made += of_value(&field.data_type, column, inside(key), &inner_drops, value, contained);
                }
            }
            let missing = fields.iter().filter(|field| contained && !seen.contains(&field.name));
            made + missing.map(|field| size(&field.data_type, &[])).sum::<u64>()
        }
        (DataType::Array(element), Kind::List(items)) => {
            items.iter().map(|item| of_value(element, column, inside("element"), &[], item, true)).sum()
        }
        (DataType::Map(key, value), Kind::Object(members)) if **key == DataType::String => {
            let last = last_of_each(members);
            last.iter().map(|(_, member)| of_value(value, column, inside("value"), &[], member, true)).sum()
        }
        _ if !contained => 0,
        (_, Kind::Null) => size(data_type, &[]),
        _ => {
            let coercion = column.coercions.get(&at).copied().unwrap_or(Coercion::None);
            let fits = scalar(data_type, coercion, json).is_some();
            if fits { 0 } else { size(data_type, &[]) }
        }
    }
}

/// How many places for values a type has, itself included. What is dropped of a struct has one.
fn size(data_type: &DataType, drops: &[&[String]]) -> u64 {
    match data_type {
        DataType::Array(element) => 1 + size(element, &[]),
        DataType::Map(key, value) if **key == DataType::String => 1 + size(value, &[]),
        DataType::Struct(fields) => {
            let of_field = |field: &Field| {
                let inner_drops = below(drops, &field.name);
                if inner_drops.contains(&[].as_slice()) { 1 } else { size(&field.data_type, &inner_drops) }
            };
            let others = drops.iter().filter(|path| path.len() == 1);
            let others = others.filter(|path| fields.iter().all(|field| field.name != path[0])).collect::<HashSet<_>>();
            1 + fields.iter().map(of_field).sum::<u64>() + others.len() as u64
        }
        _ => 1,
    }
}

/// The same for what these columns read of a value.
fn size_of_parts(columns: &[(&Column, &[String])], drops: &[&[String]]) -> u64 {
    let of_column = |column: &Column| match column.derivation {
        None => size(&column.data_type, drops),
        Some(Derivation::Date) => 1,
        // The part, and what it is read as.
        Some(Derivation::Before(_) | Derivation::After(_)) => 2,
    };
    match columns {
        [(column, [])] => of_column(column),
        [(_, []), ..] => 1 + columns.iter().map(|(column, _)| of_column(column)).sum::<u64>(),
        _ => {
            let names = columns.iter().map(|(_, path)| &path[0]).chain(drops.iter().map(|path| &path[0]));
            let of_name = |name: &String| {
                let inner_drops = below(drops, name);
                if inner_drops.contains(&[].as_slice()) {
                    return 1;
                }
                let inner = columns.iter().filter(|(_, path)| path[0] == *name);
                size_of_parts(&inner.map(|(column, path)| (*column, &path[1..])).collect::<Vec<_>>(), &inner_drops)
            };
            1 + names.collect::<HashSet<_>>().into_iter().map(of_name).sum::<u64>()
        }
    }
}
