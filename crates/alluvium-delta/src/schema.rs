//! The table's schema against the one that rows have: does it fit, can it grow, or did it move.
//!
//! Works on the schema's JSON text, so that all that is not understood here (comments, defaults,
//! other engines' notes) stays as it is.

use crate::error::{Error, Source};
use alluvium_core::DataType;
use alluvium_core::data_type::Field;
use arrow_schema::{Schema, SchemaRef};
use buoyant_kernel::engine::arrow_conversion::TryIntoArrow;
use buoyant_kernel::schema::StructType;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How rows of a schema go into a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fit {
    Fits,
    /// The table needs these columns first; the whole schema, in JSON.
    Grows(Value),
    /// A column has another type, or the same name in another case.
    Moved {
        column: String,
    },
    /// A new column's name cannot be a column's.
    Unnameable {
        column: String,
    },
}

/// What no name of a column may hold, as Spark sees it, besides control characters.
const FORBIDDEN: &str = " ,;{}()=";

/// The columns of rows, as Delta's types; every one nullable.
pub(crate) fn columns(schema: &Schema) -> Result<Vec<Field>, Error> {
    let column = |field: &Arc<arrow_schema::Field>| {
        let data_type = DataType::from_arrow(field.data_type());
        let unknown = || Error::ColumnType { column: field.name().clone(), found: field.data_type().to_string() };
        Ok(Field { name: field.name().clone(), data_type: data_type.ok_or_else(unknown)? })
    };
    schema.fields().iter().map(column).collect()
}

/// The JSON text of a new table's schema.
pub(crate) fn new_schema(fields: &[Field]) -> Value {
    json!({ "type": "struct", "fields": fields.iter().map(field_json).collect::<Vec<_>>() })
}

fn field_json(field: &Field) -> Value {
    json!({ "name": field.name, "type": type_json(&field.data_type), "nullable": true, "metadata": {} })
}

fn type_json(data_type: &DataType) -> Value {
    match data_type {
        DataType::TinyInt => json!("byte"),
        DataType::SmallInt => json!("short"),
        DataType::Int => json!("integer"),
        DataType::BigInt => json!("long"),
        DataType::Array(element) => {
            json!({ "type": "array", "elementType": type_json(element), "containsNull": true })
        }
        DataType::Map(key, value) => json!({
            "type": "map", "keyType": type_json(key), "valueType": type_json(value), "valueContainsNull": true
        }),
        DataType::Struct(fields) => new_schema(fields),
        // The others are spelled as in DDL.
        plain => json!(plain.to_string()),
    }
}

/// Parses a table's schema.
pub(crate) fn parse(table: &str, schema_string: &str) -> Result<Value, Error> {
    serde_json::from_str(schema_string)
        .map_err(|source| Error::TableSchema { table: table.to_owned(), source: source.into() })
}

/// The Arrow schema of a table.
pub(crate) fn arrow(table: &str, schema_string: &str) -> Result<SchemaRef, Error> {
    let wrong = |source: Source| Error::TableSchema { table: table.to_owned(), source };
    let schema: StructType = serde_json::from_str(schema_string).map_err(|error| wrong(error.into()))?;
    let schema: Schema = (&schema).try_into_arrow().map_err(|error| wrong(error.into()))?;
    Ok(Arc::new(schema))
}

/// How rows with these columns go into a table of this schema.
pub(crate) fn fit(table: &Value, rows: &[Field]) -> Fit {
    let mut grown = table.clone();
    match grow(&mut grown, rows, "") {
        Err(misfit) => misfit,
        Ok(false) => Fit::Fits,
        Ok(true) => Fit::Grows(grown),
    }
}

/// The schema of a new table for rows with these columns.
pub(crate) fn fit_new(rows: &[Field]) -> Fit {
    fit(&new_schema(&[]), rows)
}

/// Writes what the rows' schema notes on its columns (how their values are made of records) into
/// the table's, which alone remembers it.
pub(crate) fn with_notes(fit: Fit, rows: &Schema) -> Fit {
    let Fit::Grows(mut table) = fit else { return fit };
    let fields = table.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten();
    for field in fields {
        let Ok(row) = rows.field_with_name(name_of(field)) else { continue };
        let Some(notes) = field.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        notes.extend(row.metadata().iter().map(|(key, note)| (key.clone(), json!(note))));
    }
    Fit::Grows(table)
}

/// The first column of the rows, or field in one, that the table had when they were planned and has no more:
/// its owner dropped it, and writing must not put it back.
pub(crate) fn dropped(rows: &Schema, planned: &Schema, table: &Schema) -> Result<Option<String>, Error> {
    Ok(dropped_in(&columns(rows)?, &columns(planned)?, &columns(table)?))
}

fn dropped_in(rows: &[Field], planned: &[Field], table: &[Field]) -> Option<String> {
    let find = |fields: &[Field], name: &str| fields.iter().find(|field| field.name == name).cloned();
    rows.iter().find_map(|row| {
        let was = find(planned, &row.name)?;
        let Some(is) = find(table, &row.name) else { return Some(row.name.clone()) };
        let inner = dropped_inside(&row.data_type, &was.data_type, &is.data_type)?;
        Some(format!("{}.{inner}", row.name))
    })
}

fn dropped_inside(row: &DataType, was: &DataType, is: &DataType) -> Option<String> {
    match (row, was, is) {
        (DataType::Struct(row), DataType::Struct(was), DataType::Struct(is)) => dropped_in(row, was, is),
        (DataType::Array(row), DataType::Array(was), DataType::Array(is)) => {
            dropped_inside(row, was, is).map(|inner| format!("element.{inner}"))
        }
        (DataType::Map(_, row), DataType::Map(_, was), DataType::Map(_, is)) => {
            dropped_inside(row, was, is).map(|inner| format!("value.{inner}"))
        }
        _ => None,
    }
}

fn moved(path: &str) -> Fit {
    Fit::Moved { column: path.to_owned() }
}

/// Whether a field and all within it may be added.
fn check_names(field: &Field, path: &str) -> Result<(), Fit> {
    if field.name.is_empty() || field.name.contains(|c: char| c.is_control() || FORBIDDEN.contains(c)) {
        return Err(Fit::Unnameable { column: path.to_owned() });
    }
    check_inner_names(&field.data_type, path)
}

fn check_inner_names(data_type: &DataType, path: &str) -> Result<(), Fit> {
    match data_type {
        DataType::Array(element) => check_inner_names(element, path),
        DataType::Map(key, value) => {
            check_inner_names(key, path)?;
            check_inner_names(value, path)
        }
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_names(field, &format!("{path}.{}", field.name)))
        }
        _ => Ok(()),
    }
}

/// Adds to a struct what rows have and it lacks; tells whether anything was added. Fails with the
/// first field that does not fit.
fn grow(table: &mut Value, rows: &[Field], path: &str) -> Result<bool, Fit> {
    let Some(fields) = table.get_mut("fields").and_then(Value::as_array_mut) else {
        return Err(moved(path));
    };
    let mut added = false;
    for row in rows {
        let path = if path.is_empty() { row.name.clone() } else { format!("{path}.{}", row.name) };
        let lower = row.name.to_lowercase();
        let same = |field: &&mut Value| name_of(field).to_lowercase() == lower;
        match fields.iter_mut().find(same).and_then(Value::as_object_mut) {
            None => {
                check_names(row, &path)?;
                fields.push(field_json(row));
                added = true;
            }
            // A file's column is found by its exact name.
            Some(field) if field.get("name").and_then(Value::as_str) != Some(&row.name) => return Err(moved(&path)),
            Some(field) => added |= grow_type(field, "type", &row.data_type, &path)?,
        }
    }
    Ok(added)
}

fn grow_type(holder: &mut Map<String, Value>, key: &str, row: &DataType, path: &str) -> Result<bool, Fit> {
    let Some(table) = holder.get_mut(key) else { return Err(moved(path)) };
    if *table == type_json(row) {
        return Ok(false);
    }
    let kind = kind_of(table).unwrap_or_default().to_owned();
    match (row, table.as_object_mut()) {
        (DataType::Struct(fields), Some(_)) if kind == "struct" => grow(table, fields, path),
        (DataType::Array(element), Some(table)) if kind == "array" => {
            grow_type(table, "elementType", element, &format!("{path}.element"))
        }
        (DataType::Map(key, value), Some(table)) if kind == "map" => {
            // A key that grew would be another key.
            if grow_type(&mut table.clone(), "keyType", key, &format!("{path}.key"))? {
                return Err(moved(&format!("{path}.key")));
            }
            grow_type(table, "valueType", value, &format!("{path}.value"))
        }
        _ => Err(moved(path)),
    }
}

fn kind_of(data_type: &Value) -> Option<&str> {
    data_type.get("type")?.as_str()
}

fn name_of(field: &Value) -> &str {
    field.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The first NOT NULL column of a table that these rows could leave empty. `filled` tells whether
/// every row has a value for a column that exists.
pub(crate) fn left_empty(table: &Value, rows: &Schema, filled: impl Fn(&str) -> bool) -> Option<String> {
    let fields = table.get("fields").and_then(Value::as_array).into_iter().flatten();
    fields.into_iter().find_map(|field| {
        let name = name_of(field);
        let not_null = field.get("nullable") == Some(&Value::Bool(false));
        match rows.field_with_name(name) {
            Err(_) => not_null.then(|| name.to_owned()),
            Ok(_) if not_null && !filled(name) => Some(name.to_owned()),
            Ok(row) => field.get("type").and_then(|data_type| empty_inside(data_type, row.data_type(), name)),
        }
    })
}

/// Below the top, rows must promise by their own schema what the table demands.
fn empty_inside(table: &Value, row: &arrow_schema::DataType, path: &str) -> Option<String> {
    use arrow_schema::DataType as Arrow;
    let is_false = |key: &str| table.get(key) == Some(&Value::Bool(false));
    match row {
        Arrow::Struct(row_fields) => {
            let fields = table.get("fields").and_then(Value::as_array).into_iter().flatten();
            fields.into_iter().find_map(|field| {
                let path = format!("{path}.{}", name_of(field));
                let not_null = field.get("nullable") == Some(&Value::Bool(false));
                match row_fields.find(name_of(field)) {
                    Some((_, row)) if not_null && row.is_nullable() => Some(path),
                    Some((_, row)) => empty_inside(field.get("type")?, row.data_type(), &path),
                    None => not_null.then_some(path),
                }
            })
        }
        Arrow::List(element) | Arrow::LargeList(element) => {
            let path = format!("{path}.element");
            if is_false("containsNull") && element.is_nullable() {
                return Some(path);
            }
            empty_inside(table.get("elementType")?, element.data_type(), &path)
        }
        Arrow::Map(entries, _) => {
            let Arrow::Struct(fields) = entries.data_type() else { return None };
            let value = fields.get(1)?;
            let path = format!("{path}.value");
            if is_false("valueContainsNull") && value.is_nullable() {
                return Some(path);
            }
            empty_inside(table.get("valueType")?, value.data_type(), &path)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fields(ddl: &str) -> Vec<Field> {
        match DataType::parse(&format!("struct<{ddl}>")).unwrap() {
            DataType::Struct(fields) => fields,
            other => unreachable!("{other}"),
        }
    }

    fn table(ddl: &str) -> Value {
        new_schema(&fields(ddl))
    }

    #[test]
    fn new_columns_come_last_and_nullable_at_any_depth() {
        let before = table("a:int, s:struct<x:int>, l:array<struct<x:int>>, m:map<string,struct<x:int>>");
        let rows = fields("b:string, m:map<string,struct<y:int>>, l:array<struct<y:int,x:int>>, s:struct<y:date>");
        let after =
            "a:int, s:struct<x:int,y:date>, l:array<struct<x:int,y:int>>, m:map<string,struct<x:int,y:int>>, b:string";
        assert_eq!(fit(&before, &rows), Fit::Grows(table(after)));
        assert_eq!(fit(&table(after), &rows), Fit::Fits);
    }

    #[test]
    fn what_other_engines_noted_in_the_schema_stays() {
        let mut before = table("a:int");
        before["fields"][0]["metadata"] = json!({ "comment": "kept", "other": { "deep": 1 } });
        before["fields"][0]["nullable"] = json!(false);
        let Fit::Grows(after) = fit(&before, &fields("b:int")) else { unreachable!("it grows") };
        assert_eq!(after["fields"][0], before["fields"][0]);
    }

    #[test]
    fn another_type_or_case_has_moved() {
        for (before, rows, column) in [
            ("a:int", "a:bigint", "a"),
            ("a:bigint", "a:int", "a"),
            ("a:decimal(10,2)", "a:decimal(12,2)", "a"),
            ("a:timestamp", "a:timestamp_ntz", "a"),
            ("a:int", "A:int", "A"),
            ("a:struct<b:int>", "a:struct<B:int>", "a.B"),
            ("a:struct<b:int>", "a:string", "a"),
            ("a:string", "a:struct<b:int>", "a"),
            ("a:array<int>", "a:array<bigint>", "a.element"),
            ("a:map<string,int>", "a:map<int,int>", "a.key"),
            ("a:map<struct<k:int>,int>", "a:map<struct<l:int>,int>", "a.key"),
            ("a:map<string,int>", "a:map<string,string>", "a.value"),
        ] {
            assert_eq!(fit(&table(before), &fields(rows)), super::moved(column), "{before} against {rows}");
        }
    }

    #[test]
    fn names_that_spark_cannot_hold_are_not_added_but_kept_where_they_are() {
        let rows = fields("a:array<struct<`b c`:int>>");
        let unnameable = Fit::Unnameable { column: "a.b c".to_owned() };
        assert_eq!(fit_new(&rows), unnameable);
        assert_eq!(
            fit(&table("a:array<struct<x:int>>"), &rows),
            Fit::Unnameable { column: "a.element.b c".to_owned() }
        );
        assert_eq!(fit(&new_schema(&rows), &rows), Fit::Fits);
        assert_eq!(fit_new(&fields("`größe`:int")), Fit::Grows(table("`größe`:int")));
    }

    #[test]
    fn names_that_differ_in_case_only_are_never_both_added() {
        let rows = [fields("ab:int"), fields("AB:int")].concat();
        assert_eq!(fit_new(&rows), super::moved("AB"));
    }

    #[test]
    fn all_types_are_spelled_as_delta_does() {
        let all = "a:boolean, b:tinyint, c:smallint, d:int, e:bigint, f:float, g:double, h:decimal(38,18), \
                   i:string, j:binary, k:date, l:timestamp, m:timestamp_ntz, n:array<int>, o:map<string,int>";
        let arrow = arrow("t", &table(all).to_string()).unwrap();
        assert_eq!(columns(&arrow).unwrap(), fields(all));
    }

    #[test]
    fn not_null_columns_must_be_filled() {
        let not_null = |path: &[&str]| {
            let mut table = table("a:int, s:struct<x:int>");
            let mut at = &mut table;
            for name in path {
                let index = usize::from(*name == "s");
                at = &mut at["fields"][index];
                if *name != path[path.len() - 1] {
                    at = &mut at["type"];
                }
            }
            at["nullable"] = json!(false);
            table
        };
        let rows = arrow("t", &table("a:int, s:struct<x:int>").to_string()).unwrap();
        let top = not_null(&["a"]);
        assert_eq!(left_empty(&top, &rows, |_| false), Some("a".to_owned()));
        assert_eq!(left_empty(&top, &rows, |_| true), None);
        assert_eq!(left_empty(&top, &Schema::empty(), |_| true), Some("a".to_owned()));
        let nested = not_null(&["s", "x"]);
        assert_eq!(left_empty(&nested, &rows, |_| true), Some("s.x".to_owned()));
        let promised = arrow("t", &nested.to_string()).unwrap();
        assert_eq!(left_empty(&nested, &promised, |_| true), None);
    }

    #[test]
    fn not_null_inside_lists_and_maps_must_be_promised() {
        for (ddl, inside, key, path) in [
            ("l:array<int>", vec![], "containsNull", "l.element"),
            ("l:array<array<int>>", vec!["elementType"], "containsNull", "l.element.element"),
            ("m:map<string,int>", vec![], "valueContainsNull", "m.value"),
            ("m:map<string,array<int>>", vec!["valueType"], "containsNull", "m.value.element"),
        ] {
            let rows = arrow("t", &table(ddl).to_string()).unwrap();
            let mut strict = table(ddl);
            assert_eq!(left_empty(&strict, &rows, |_| true), None, "{ddl}");
            inside.iter().fold(&mut strict["fields"][0]["type"], |at, name| &mut at[*name])[key] = json!(false);
            assert_eq!(left_empty(&strict, &rows, |_| true), Some(path.to_owned()), "{ddl}");
            let promised = arrow("t", &strict.to_string()).unwrap();
            assert_eq!(left_empty(&strict, &promised, |_| true), None, "{ddl}");
        }
        // A field of a list's struct, and of a map's.
        for (ddl, kind, path) in [
            ("l:array<struct<x:int>>", "elementType", "l.element.x"),
            ("m:map<string,struct<x:int>>", "valueType", "m.value.x"),
        ] {
            let rows = arrow("t", &table(ddl).to_string()).unwrap();
            let mut strict = table(ddl);
            strict["fields"][0]["type"][kind]["fields"][0]["nullable"] = json!(false);
            assert_eq!(left_empty(&strict, &rows, |_| true), Some(path.to_owned()), "{ddl}");
        }
    }
}
