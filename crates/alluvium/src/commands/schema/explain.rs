//! `alluvium schema explain`

use super::{command, print_obstacles};
use crate::cli::PlanSchema;
use crate::failure::Failure;
use crate::growth::{Outlook, count};
use crate::text::{cut, escape, is_unsafe};
use crate::{load, output};
use alluvium_config::Mapping;
use alluvium_core::{DataType, Evolve};
use alluvium_schema::{Addition, Kind, RescuedField, Target, Why, path};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Characters of an example that are shown.
const EXAMPLE: usize = 80;

/// Characters of a name, and of a type, that are shown.
const NAME: usize = 200;
const TYPE: usize = 120;

/// Additions of one field that are named.
const NAMED: usize = 5;

#[derive(Serialize)]
struct Explained {
    pipeline: String,
    column: String,
    /// Rows with a rescued value.
    rows: u64,
    fields: Vec<ExplainedField>,
    /// Values of fields past the first 10,000.
    others: u64,
    /// Whether more was rescued than could be looked into.
    incomplete: bool,
    /// Columns without which the pipeline does not start.
    waits: Vec<String>,
}

#[derive(Serialize)]
struct ExplainedField {
    path: String,
    rows: u64,
    /// Rows whose value a column takes by now.
    older: u64,
    kinds: BTreeMap<&'static str, u64>,
    why: &'static str,
    message: String,
    hint: String,
    example: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

pub async fn explain(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, 0).await?;
    let planned = outlook.planned()?;
    let rescued = outlook.rescued(&planned.plan).await?;
    let pipeline = &outlook.loaded.pipeline;
    let advice = Advice {
        file: &arguments.file,
        table: location(&load::delta_config(&arguments.file, pipeline)?.table),
        rescued: planned.plan.rescued(),
        mapping: &pipeline.schema.mapping,
        evolve: pipeline.schema.evolve,
    };
    let mut fields: Vec<ExplainedField> =
        rescued.fields().map(|(path, field, why)| advice.explained(path, field, &why)).collect();
    fields.sort_by_key(|field| std::cmp::Reverse(field.rows - field.older));
    let (rows, others, incomplete) = (rescued.rows(), rescued.others(), rescued.is_cut());
    if arguments.json {
        let (pipeline, column) = (pipeline.id.to_string(), advice.rescued.to_owned());
        output::json(&Explained { pipeline, column, rows, fields, others, incomplete, waits: planned.waits });
        return Ok(());
    }
    print_obstacles(&arguments.file, &outlook, &planned.stops, &planned.waits);
    let rescued = escape(advice.rescued.as_bytes());
    output::line(format!("{rescued} has values of {}", count(rows, "row")));
    for field in fields {
        let kinds: Vec<_> = field.kinds.iter().map(|(kind, rows)| format!("{rows} {kind}")).collect();
        output::line(format!("{}: {}", cut(field.path.as_bytes(), NAME), kinds.join(", ")));
        let place = field.partition.zip(field.offset);
        let place = place.map_or_else(String::new, |(partition, offset)| format!(" ({partition}:{offset})"));
        let (message, hint) = (escape(field.message.as_bytes()), escape(field.hint.as_bytes()));
        output::line(format!("  {message}, as in {}{place}", cut(field.example.as_bytes(), EXAMPLE)));
        output::line(format!("  {hint}"));
    }
    if others > 0 {
        output::line(format!("{} of further fields are not told apart", count(others, "value")));
    }
    if incomplete {
        output::line("not all values were looked into: they hold too many different fields");
    }
    Ok(())
}

/// A table's place as another engine finds it from anywhere.
fn location(table: &str) -> String {
    match std::path::absolute(table) {
        Ok(path) if !table.contains("://") => path.display().to_string(),
        _ => table.to_owned(),
    }
}

/// What to do about a rescued field.
struct Advice<'a> {
    file: &'a Path,
    table: String,
    rescued: &'a str,
    mapping: &'a Mapping,
    evolve: Evolve,
}

impl Advice<'_> {
    fn explained(&self, at: &[String], field: &RescuedField, why: &Why) -> ExplainedField {
        let (code, mut message, hint) = self.told(at, why);
        let is_value = field.kinds.keys().any(|kind| *kind != Kind::Null);
        if self.evolve == Evolve::Stop && is_value && is_unknown(why) {
            message.push_str("; with evolve = \"stop\" the next record that has it stops the pipeline");
        }
        let (example, place) = field.example.clone();
        ExplainedField {
            path: path::join(at),
            rows: field.rows,
            older: field.older,
            kinds: field.kinds.iter().map(|(kind, rows)| (kind.name(), *rows)).collect(),
            why: code,
            message,
            hint,
            example,
            partition: place.map(|(partition, _)| partition.0),
            offset: place.map(|(_, offset)| offset),
        }
    }

    fn told(&self, at: &[String], why: &Why) -> (&'static str, String, String) {
        let max_columns = || "raise max_columns in [schema], or leave fields out: drop = [\"…\"]".to_owned();
        match why {
            Why::Older(target) => ("older", "the column came later".to_owned(), self.fill(at, target.as_ref())),
            Why::Dropped => (
                "dropped",
                "rescued before it was left out".to_owned(),
                "new values are left out (drop); nothing is to be done".to_owned(),
            ),
            Why::Type(readings) => {
                let told: Vec<String> =
                    readings.iter().map(|reading| cut(reading.to_string().as_bytes(), TYPE)).collect();
                let is_column = readings.iter().all(|reading| reading.path.len() == 1);
                ("type", format!("does not fit: {}", told.join(", ")), self.reread(at, is_column))
            }
            Why::Object => (
                "object",
                "columns are made of what is inside an object here, and this is none".to_owned(),
                self.outside(at),
            ),
            Why::NotApproved(added) => {
                ("not-approved", "new, and nobody has approved it".to_owned(), self.approve(added))
            }
            Why::NotAdded(added) => {
                ("not-added", "new, and evolve = \"none\" adds no columns".to_owned(), self.approve(added))
            }
            Why::Stops(added) => ("stops", "new".to_owned(), self.approve(added)),
            Why::New(added) => ("new", "new".to_owned(), format!("the next record that has it adds {}", listed(added))),
            Why::Unfilled(data_type) => self.unfilled(at, data_type),
            Why::Taken(read) => {
                let message = format!("the column of this name reads {}", cut(read.as_bytes(), NAME));
                ("taken", message, self.rename(at))
            }
            Why::Case(taken) => {
                let message = format!("the name differs only in case from {}", cut(taken.as_bytes(), NAME));
                ("case", message, self.rename(at))
            }
            Why::Own(own) => ("own", format!("the name is that of the pipeline's own column {own}"), self.rename(at)),
            Why::Character(character) => {
                ("name", format!("Delta cannot hold a name with {character:?}"), self.rename(at))
            }
            Why::Length => ("name", "the name is empty, or longer than 255 bytes".to_owned(), self.rename(at)),
            Why::Full => {
                ("full", "new, and the table has as many columns as max_columns allows".to_owned(), max_columns())
            }
            Why::Beside => (
                "beside",
                "columns are made of other fields of its object, and none of it".to_owned(),
                match self.mapping {
                    Mapping::Plugin(_) => "let the mapping plugin read it into a column".to_owned(),
                    _ => format!("declare a column for it: [[schema.column]] with from = {}", toml_string(at)),
                },
            ),
            Why::Untyped => (
                "untyped",
                "no value says of which type it is".to_owned(),
                "the first value that is more than null, [] or {} makes it a column where columns are added".to_owned(),
            ),
            Why::Unseen => (
                "unseen",
                "not looked into: what was rescued holds too many different fields".to_owned(),
                format!("read it as {}", self.in_rescued(at)),
            ),
        }
    }

    /// How the table gets columns, and the rows values in them.
    fn approve(&self, added: &[Addition]) -> String {
        let told = listed(added);
        let keeps_out = matches!(self.evolve, Evolve::None | Evolve::Stop);
        match self.mapping {
            // What the table alone has is not filled then.
            Mapping::Columns(_) if keeps_out && added.iter().any(|added| added.path.len() == 1) => {
                format!("declare it ([[schema.column]]), or set evolve = \"add\" in [schema]; that adds {told}")
            }
            Mapping::Plugin(_) if keeps_out && added.iter().any(|added| added.path.len() == 1) => {
                format!("let the mapping plugin plan it, or set evolve = \"add\" in [schema]; that adds {told}")
            }
            _ if added.len() > NAMED => {
                let (diff, approve) = (command("diff", self.file, &[]), command("approve", self.file, &[]));
                format!("{approve} adds {told}, with all else that {diff} shows; new records fill it")
            }
            _ => {
                let names: Vec<_> = added.iter().map(|added| path::join(&added.path)).collect();
                format!("{} adds {told}; new records fill it", command("approve", self.file, &names))
            }
        }
    }

    fn unfilled(&self, at: &[String], data_type: &DataType) -> (&'static str, String, String) {
        if self.evolve == Evolve::Add {
            let message = "the table has the column, and new rows fill it once a record has the field".to_owned();
            return ("unfilled", message, "the next record that has it does so".to_owned());
        }
        let data_type = cut(data_type.to_string().as_bytes(), TYPE);
        let hint = match self.mapping {
            Mapping::Plugin(_) => "let the mapping plugin plan it, or set evolve = \"add\" in [schema]".to_owned(),
            _ => {
                let name = toml_string(at);
                format!(
                    "declare it ([[schema.column]] with name = {name}, type = \"{data_type}\"), or set evolve = \"add\" in [schema]"
                )
            }
        };
        ("unfilled", "the table has the column, but the pipeline does not fill it".to_owned(), hint)
    }

    /// How values that do not fit get a column.
    fn reread(&self, at: &[String], is_column: bool) -> String {
        match self.mapping {
            _ if !is_column => self.outside(at),
            Mapping::Plugin(_) => "let the mapping plugin read it into a column of another name and type".to_owned(),
            // One value is read by one column.
            Mapping::Columns(_) => format!(
                "change the declaration: in its [[schema.column]] another name and type, and from = {}; the column that \
                 was is null in new rows",
                toml_string(at)
            ),
            _ => self.declare_first(at),
        }
    }

    /// How a field whose name is taken gets a column.
    fn rename(&self, at: &[String]) -> String {
        match self.mapping {
            _ if at.len() > 1 => self.outside(at),
            Mapping::Plugin(_) => "let the mapping plugin read it into a column of another name".to_owned(),
            Mapping::Columns(_) => {
                format!("declare a column of another name for it: [[schema.column]] with from = {}", toml_string(at))
            }
            _ => self.declare_first(at),
        }
    }

    /// How the first declaration is made: it turns the inferred columns into ones that are not declared.
    fn declare_first(&self, at: &[String]) -> String {
        let declare = format!(
            "declare a column of another name: [[schema.column]] with from = {}, and no mapping in [schema]",
            toml_string(at)
        );
        match self.evolve {
            Evolve::Approve => format!("{declare}; then {}", command("approve", self.file, &[])),
            _ => format!(
                "{declare}; set evolve = \"add\" there as well, or declare the other columns too: else they are null \
                 in new rows"
            ),
        }
    }

    /// What can be done about a value inside of a column: a column of its own would take the other fields of
    /// the object out of theirs.
    fn outside(&self, at: &[String]) -> String {
        format!("change it in a record plugin, or read it as {}", self.in_rescued(at))
    }

    /// The value as Spark reads it.
    fn in_rescued(&self, at: &[String]) -> String {
        let rescued = sql_name(self.rescued);
        match json_path(at) {
            Some(path) => format!("get_json_object({rescued}, '{path}')"),
            None => rescued,
        }
    }

    /// How old rows get their values.
    fn fill(&self, at: &[String], target: Option<&Target>) -> String {
        let statement = target.filter(|target| target.is_plain).and_then(|target| self.statement(at, target));
        statement.map_or_else(
            || {
                let (value, rescued) = (self.in_rescued(at), self.rescued);
                format!(
                    "fill old rows with your engine from {value}, and set {rescued} to null where nothing else is in it"
                )
            },
            |statement| format!("fill old rows in Spark: {statement}"),
        )
    }

    /// A statement for Spark that moves the values into their column, and empties the rescued texts that hold
    /// nothing else.
    fn statement(&self, at: &[String], target: &Target) -> Option<String> {
        json_path(at)?;
        let (value, rescued) = (self.in_rescued(at), sql_name(self.rescued));
        let value = match &target.data_type {
            DataType::String => value,
            DataType::Binary => format!("unbase64({value})"),
            nested if nested.is_nested() => {
                let data_type = nested.to_string();
                if data_type.len() > TYPE || data_type.contains(['\'', '\\', '"']) {
                    return None;
                }
                format!("from_json({value}, '{data_type}')")
            }
            simple => format!("try_cast({value} AS {simple})"),
        };
        let mut alone = Vec::new();
        for (depth, name) in at.iter().enumerate() {
            let around = at.get(..depth).filter(|around| !around.is_empty());
            let text = around.map_or_else(|| rescued.clone(), |around| self.in_rescued(around));
            alone.push(format!("json_object_keys({text}) = array('{name}')"));
        }
        let column = target.path.iter().map(|name| sql_name(name)).collect::<Vec<_>>().join(".");
        Some(format!(
            "UPDATE delta.{} SET {column} = {value}, {rescued} = CASE WHEN {} THEN NULL ELSE {rescued} END \
             WHERE {column} IS NULL AND {value} IS NOT NULL",
            backticks(&self.table),
            alone.join(" AND "),
        ))
    }
}

/// Whether the plan knows nothing of the field.
fn is_unknown(why: &Why) -> bool {
    match why {
        Why::Older(_) | Why::Dropped | Why::Type(_) | Why::Object => false,
        Why::NotApproved(_) | Why::NotAdded(_) | Why::New(_) => false,
        Why::Stops(_)
        | Why::Unfilled(_)
        | Why::Taken(_)
        | Why::Case(_)
        | Why::Own(_)
        | Why::Character(_)
        | Why::Length
        | Why::Full
        | Why::Beside
        | Why::Untyped
        | Why::Unseen => true,
    }
}

/// Some additions, each with a type that may be long.
fn listed(added: &[Addition]) -> String {
    let told = |added: &Addition| cut(added.to_string().as_bytes(), TYPE);
    let mut text = added.iter().take(NAMED).map(told).collect::<Vec<_>>().join(", ");
    if added.len() > NAMED {
        text.push_str(&format!(" and {} more", added.len() - NAMED));
    }
    text
}

/// A path as Spark's functions on JSON text take it; none for names that would have to be quoted.
fn json_path(at: &[String]) -> Option<String> {
    let is_plain = |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    at.iter().all(is_plain).then(|| format!("$.{}", at.join(".")))
}

/// A name as Spark's SQL takes it.
fn sql_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_word = !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(is_plain);
    if is_word { name.to_owned() } else { backticks(name) }
}

fn backticks(text: &str) -> String {
    format!("`{}`", text.replace('`', "``"))
}

/// A path as a pipeline file takes it.
fn toml_string(at: &[String]) -> String {
    let mut text = String::from("\"");
    for c in path::join(at).chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if is_unsafe(c) => text.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(mapping: &Mapping, evolve: Evolve) -> Advice<'_> {
        Advice {
            file: Path::new("orders.toml"),
            table: "/data/orders".to_owned(),
            rescued: "_rescued",
            mapping,
            evolve,
        }
    }

    fn path_of(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn old_rows_are_filled_by_a_whole_statement() {
        let told = |at: &[&str], data_type: DataType, is_plain: bool| {
            let target = Target { path: path_of(at), data_type, is_plain };
            advice(&Mapping::Infer, Evolve::Add).told(&path_of(at), &Why::Older(Some(target))).2
        };
        assert_eq!(
            told(&["s", "n"], DataType::Decimal(10, 2), true),
            "fill old rows in Spark: UPDATE delta.`/data/orders` SET s.n = try_cast(get_json_object(_rescued, '$.s.n') \
             AS decimal(10,2)), _rescued = CASE WHEN json_object_keys(_rescued) = array('s') AND \
             json_object_keys(get_json_object(_rescued, '$.s')) = array('n') THEN NULL ELSE _rescued END \
             WHERE s.n IS NULL AND try_cast(get_json_object(_rescued, '$.s.n') AS decimal(10,2)) IS NOT NULL"
        );
        for (at, is_plain) in [("a b", true), ("a", false)] {
            let words = told(&[at], DataType::BigInt, is_plain);
            assert!(words.starts_with("fill old rows with your engine from") && !words.contains("UPDATE"), "{words}");
        }
    }

    #[test]
    fn a_field_that_stops_the_pipeline_is_said_to() {
        let mut field = RescuedField::default();
        field.kinds.insert(Kind::String, 1);
        let note = Addition { path: path_of(&["note"]), data_type: DataType::String };
        for why in [Why::Stops(vec![note]), Why::Case("Note".to_owned()), Why::Full] {
            let told = advice(&Mapping::Infer, Evolve::Stop).explained(&path_of(&["note"]), &field, &why);
            assert!(told.message.ends_with("the next record that has it stops the pipeline"), "{}", told.message);
        }
    }

    #[test]
    fn long_types_are_cut() {
        let data_type = DataType::Struct(
            (0..1_000)
                .map(|at| alluvium_core::data_type::Field { name: format!("f{at}"), data_type: DataType::Int })
                .collect(),
        );
        let added = vec![Addition { path: path_of(&["s"]), data_type }; 50];
        for why in [Why::New(added.clone()), Why::NotApproved(added)] {
            let hint = advice(&Mapping::Infer, Evolve::Approve).told(&path_of(&["s"]), &why).2;
            assert!(hint.len() < 1_000 && hint.contains(" and 45 more"), "{hint}");
        }
    }

    #[test]
    fn a_field_is_named_as_the_pipeline_file_takes_it() {
        assert_eq!(toml_string(&path_of(&["a\"b\\c", "d.e\u{1b}"])), r#""a\"b\\c.`d.e\U0000001B`""#);
    }
}
