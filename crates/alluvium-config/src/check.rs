//! Rules between the tables of the file.

use crate::column::Declared;
use crate::report::{Problem, Report};
use crate::schema::{self, same};
use crate::snippet::quoted;
use crate::suggest::{did_you_mean, listed};
use crate::{ErrorKind, sink, source};
use alluvium_core::DataType;
use alluvium_core::position::StartPolicy;

/// `plugins`: whether there are any, sound or not.
pub(crate) fn across(
    report: &Report<'_>,
    source: &source::Draft<'_>,
    plugins: bool,
    schema: &schema::Draft<'_>,
    sink: &sink::Draft<'_>,
) {
    metadata_names(report, schema, sink);
    match &schema.declared {
        // Something else stands where columns are declared; that has been told.
        Some(declared) if declared.is_empty() => {}
        Some(declared) => partition_columns(declared, plugins, sink),
        None => start_without_columns(source, plugins, sink),
    }
}

/// No two columns of the table have the same name.
fn metadata_names(report: &Report<'_>, schema: &schema::Draft<'_>, sink: &sink::Draft<'_>) {
    let metadata = &sink.sink.metadata;
    let keys = [
        ("kafka", metadata.kafka.as_deref()),
        ("key", metadata.key.as_deref()),
        ("headers", metadata.headers.as_deref()),
        ("rescued", Some(metadata.rescued.as_str())),
    ];
    let names = keys.iter().filter_map(|(key, name)| Some((*key, (*name)?))).collect::<Vec<_>>();
    for (index, (key, name)) in names.iter().enumerate() {
        let Some((other, _)) = names.iter().take(index).find(|(_, other)| same(other, name)) else { continue };
        // One of the two is set in the file, or they would differ.
        let Some((_, item)) = sink.metadata.iter().rev().find(|(set, _)| same(set, name)) else { continue };
        let message = format!("the metadata columns `{other}` and `{key}` have the same name");
        item.report().add(item.problem(ErrorKind::Conflict, message).hint("give each a name of its own"));
    }
    for Declared { name, .. } in schema.declared.iter().flatten() {
        let Some((name, span)) = name else { continue };
        let Some((key, _)) = names.iter().find(|(_, other)| same(other, name)) else { continue };
        let message = format!("the column {} has the name of the metadata column `{key}`", quoted(name));
        let hint = match *key {
            "rescued" => "rename one of them; the other is named by `rescued` in [sink.metadata]".to_owned(),
            key => format!("rename one of them, or leave the other out with `{key} = false` in [sink.metadata]"),
        };
        let problem = Problem::new(ErrorKind::Conflict, span.clone(), message);
        report.add(problem.hint(hint));
    }
}

/// Partition columns are declared, or written by a plugin.
fn partition_columns(declared: &[Declared<'_>], plugins: bool, sink: &sink::Draft<'_>) {
    let all_named = declared.iter().all(|column| column.name.is_some());
    let names = || declared.iter().filter_map(|column| column.name.as_ref().map(|(name, _)| *name));
    for (name, item) in &sink.partition_by {
        let column = declared.iter().find(|column| column.name.as_ref().is_some_and(|(other, _)| other == name));
        let problem = match column.map(|column| &column.data_type) {
            Some(Some(data_type @ (DataType::Binary | DataType::Float | DataType::Double))) => item
                .problem(ErrorKind::Value, format!("the partition column {} is of type {data_type}", quoted(name)))
                .allowed("booleans, integers, decimals, strings, dates and timestamps"),
            Some(Some(data_type)) if data_type.is_nested() => item
                .problem(ErrorKind::Value, format!("the partition column {} is of type {data_type}", quoted(name)))
                .allowed("columns of a plain type"),
            Some(_) => continue,
            // A plugin can add columns; which ones is only known from the plugin.
            None if plugins || !all_named => match names().find(|other| same(other, name)) {
                Some(other) => item
                    .problem(ErrorKind::Value, format!("no column has the name {}", quoted(name)))
                    .hint(format!("did you mean `{other}`?")),
                None => continue,
            },
            None => {
                let message = format!("no column has the name {}", quoted(name));
                let problem = item.problem(ErrorKind::Value, message);
                match did_you_mean(name, names()) {
                    Some(hint) => problem.hint(hint),
                    None => problem.allowed(listed(names().take(20))),
                }
            }
        };
        item.report().add(problem);
    }
    let every = names().all(|name| sink.partition_by.iter().any(|(other, _)| *other == name));
    if every
        && !plugins
        && all_named
        && let Some((_, item)) = sink.partition_by.last()
    {
        let problem = item.problem(ErrorKind::Conflict, "every column is a partition column");
        item.report().add(problem.hint("a table needs a column that its rows hold; partition by fewer"));
    }
}

/// A position that is chosen by `latest` or a timestamp is committed before the first record is
/// read, so the table must be made with no record seen.
fn start_without_columns(source: &source::Draft<'_>, plugins: bool, sink: &sink::Draft<'_>) {
    let Some(start) = source.start.as_ref().filter(|_| source.source.start != StartPolicy::Earliest) else { return };
    let message = if sink.sink.metadata.kafka.is_none() {
        "with this start the table is made before the first record is read, and it would have no columns"
    } else if !plugins && !sink.partition_by.is_empty() {
        "with this start the table is made before the first record is read, and its partition columns would have no type"
    } else {
        return;
    };
    let problem = start.problem(ErrorKind::Conflict, message);
    let problem = problem.allowed("`earliest`, while columns are inferred");
    start.report().add(match sink.sink.metadata.kafka {
        None => problem.hint("declare the columns in [[schema.column]], or keep the `kafka` column in [sink.metadata]"),
        Some(_) => problem.hint("declare the columns in [[schema.column]], or leave `partition_by` out"),
    });
}
