//! `alluvium schema`

mod explain;

use crate::cli::{ApproveSchema, PlanSchema, Schema, SchemaAction};
use crate::failure::Failure;
use crate::growth::{Growth, Outlook, Planned, SAMPLE, Unfilled, Widest};
use crate::text::escape;
use crate::{load, output};
use alluvium_config::Mapping;
use alluvium_core::{Classified, CommitInfo, CommitKind, Evolve};
use alluvium_schema::{Addition, Plan, additions, path, select};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Names that are told at once.
const LISTED: usize = 20;

/// Characters up to which a column's name and type stand in columns of the output.
const WIDE: usize = 40;

pub async fn schema(arguments: Schema) -> Result<(), Failure> {
    match arguments.action {
        SchemaAction::Show(arguments) => show(arguments).await,
        SchemaAction::Diff(arguments) => diff(arguments).await,
        SchemaAction::Approve(arguments) => approve(arguments).await,
        SchemaAction::Explain(arguments) => explain::explain(arguments).await,
    }
}

/// A column that a table has, or gets.
#[derive(Serialize)]
struct Column {
    /// With backticks and dots, as in the pipeline file.
    path: String,
    #[serde(rename = "type")]
    data_type: String,
}

impl From<&Addition> for Column {
    fn from(addition: &Addition) -> Self {
        Self { path: path::join(&addition.path), data_type: addition.data_type.to_string() }
    }
}

fn columns(additions: &[Addition]) -> Vec<Column> {
    additions.iter().map(Column::from).collect()
}

fn print(additions: &[Addition]) {
    additions.iter().for_each(|addition| line(format!("  + {addition}")));
}

/// A line with names that records chose.
fn line(text: impl AsRef<str>) {
    output::line(escape(text.as_ref().as_bytes()));
}

/// Some names, the first of many.
fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let mut text = names.iter().take(LISTED).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text.push_str(&format!(" and {} more", names.len() - LISTED));
    }
    text
}

/// A command for people to copy into a shell.
fn command(action: &str, file: &Path, names: &[String]) -> String {
    let words = [&[file.display().to_string()], names].concat();
    // What looks like a flag is one, unless told otherwise.
    let end = if words.iter().any(|word| word.starts_with('-')) { " --" } else { "" };
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    format!("`alluvium schema {action}{end} {}`", words.join(" "))
}

/// One word of a POSIX shell. Files and fields have names that somebody else chose.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[derive(Serialize)]
struct Shown {
    pipeline: String,
    plan: Plan,
    digest: String,
    /// All columns of the rows: the plan's, those of plugins, the rescued one, metadata.
    columns: Vec<Column>,
    /// Columns of the table that are filled once a record has a field of their name.
    unfilled_for_now: Vec<Column>,
    /// Columns of the table that are null in new rows.
    unfilled: Vec<Column>,
    /// Unknown fields that stop the pipeline.
    stops: Vec<String>,
    /// Columns without which the pipeline does not start.
    waits: Vec<String>,
}

async fn show(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, 0).await?;
    let planned = outlook.planned()?;
    let all = additions(None, &planned.schema);
    let unfilled = outlook.unfilled(&planned);
    if arguments.json {
        let Planned { plan, stops, waits, .. } = planned;
        let (pipeline, digest) = (outlook.loaded.pipeline.id.to_string(), plan.digest());
        let (unfilled_for_now, unfilled) = (columns(&unfilled.for_now), columns(&unfilled.for_good));
        let columns = columns(&all);
        output::json(&Shown { pipeline, plan, digest, columns, unfilled_for_now, unfilled, stops, waits });
        return Ok(());
    }
    let plan = &planned.plan;
    print_obstacles(&arguments.file, &outlook, &planned.stops, &planned.waits);
    if !plan.is_settled() {
        output::line("the columns come with the first records; to see what they would be: --sample 10000");
    }
    print_columns(plan);
    plan.drops().iter().for_each(|drop| line(format!("dropped: {}", path::join(drop))));
    let names: HashSet<&str> = plan.columns().iter().map(|column| column.name.as_str()).collect();
    for column in all.iter().filter(|column| !column.path.first().is_some_and(|name| names.contains(name.as_str()))) {
        line(format!("besides: {column}"));
    }
    print_unfilled(&unfilled);
    let text = plan.to_string();
    line(text.rsplit('\n').next().unwrap_or_default());
    Ok(())
}

/// Each column with what it reads, one under the other; what is too wide for that stands on a line by itself.
fn print_columns(plan: &Plan) {
    let texts = plan.columns().iter().map(|column| {
        (escape(column.name.as_bytes()), escape(column.data_type.to_string().as_bytes()), column.to_string())
    });
    let texts: Vec<_> = texts.collect();
    let width = |text: &String| text.chars().count();
    let widest = |widths: &mut dyn Iterator<Item = usize>| widths.filter(|width| *width <= WIDE).max().unwrap_or(0);
    let name_width = widest(&mut texts.iter().map(|(name, ..)| width(name)));
    let type_width = widest(&mut texts.iter().map(|(_, data_type, _)| width(data_type)));
    for (name, data_type, source) in &texts {
        if width(name) > name_width || width(data_type) > type_width {
            output::line(format!("{name:name_width$}  {data_type}"));
            line(format!("{:name_width$}  {:type_width$}  {source}", "", ""));
        } else {
            line(format!("{name:name_width$}  {data_type:type_width$}  {source}"));
        }
    }
}

fn print_unfilled(unfilled: &Unfilled) {
    let names = |additions: &[Addition]| {
        let names: Vec<String> = additions.iter().map(|addition| path::join(&addition.path)).collect();
        let (what, are) = if names.len() == 1 { ("column", "is") } else { ("columns", "are") };
        (format!("the table's {what} {}", listed(&names)), are)
    };
    if !unfilled.for_now.is_empty() {
        let (columns, are) = names(&unfilled.for_now);
        line(format!("{columns} {are} filled once a record has a field of that name"));
    }
    if !unfilled.for_good.is_empty() {
        let (columns, are) = names(&unfilled.for_good);
        let they = if are == "is" { "it is" } else { "they are" };
        line(format!("{columns} {are} not filled by this pipeline: {they} null in new rows"));
    }
}

/// Why the next commit is not made.
fn print_obstacles(file: &Path, outlook: &Outlook, stops: &[String], waits: &[String]) {
    if let Some(lost) = &outlook.lost {
        let error = alluvium_runtime::Error::Position(lost.clone());
        line(format!("the next commit is not made: {lost}"));
        error.hint().iter().for_each(|hint| line(format!("  {hint}")));
    }
    if !stops.is_empty() {
        let fields = listed(stops);
        line(format!("the next commit is not made: with evolve = \"stop\" these fields stop the pipeline: {fields}"));
    }
    if !waits.is_empty() {
        let (columns, approve) = (listed(waits), command("approve", file, &[]));
        line(format!("the pipeline does not start before these columns are approved ({approve}): {columns}"));
    }
}

#[derive(Serialize)]
struct Difference {
    pipeline: String,
    /// Records that were looked at.
    records: usize,
    /// What the next commit adds.
    adds: Vec<Column>,
    /// What could be added, and is not unless somebody approves it.
    held: Vec<Column>,
    /// Unknown fields that stop the pipeline.
    stops: Vec<String>,
    /// Columns without which the pipeline does not start.
    waits: Vec<String>,
    /// Why the pipeline does not read on from its positions.
    lost: Option<String>,
    /// Columns of the table that are filled once a record has a field of their name.
    unfilled_for_now: Vec<Column>,
    /// Columns of the table that are null in new rows.
    unfilled: Vec<Column>,
    /// Whether more was rescued than could be looked into.
    incomplete: bool,
}

async fn diff(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, SAMPLE).await?;
    let growth = outlook.growth().await?;
    if arguments.json {
        output::json(&Difference {
            pipeline: outlook.loaded.pipeline.id.to_string(),
            records: outlook.looked.records(),
            adds: columns(&growth.adds),
            held: columns(&growth.held),
            stops: growth.stops,
            waits: growth.waits,
            lost: outlook.lost.as_ref().map(ToString::to_string),
            unfilled_for_now: columns(&growth.unfilled.for_now),
            unfilled: columns(&growth.unfilled.for_good),
            incomplete: growth.is_cut,
        });
        return Ok(());
    }
    note_looked(&outlook, growth.is_cut);
    print_growth(&arguments.file, &outlook, &growth);
    Ok(())
}

/// What the answer rests on.
fn note_looked(outlook: &Outlook, is_cut: bool) {
    output::note(escape(outlook.looked.to_string().as_bytes()));
    if is_cut {
        output::note("not all that was rescued was looked into: it holds too many different fields");
    }
}

fn print_growth(file: &Path, outlook: &Outlook, growth: &Growth) {
    let Growth { adds, held, stops, waits, unfilled, .. } = growth;
    print_obstacles(file, outlook, stops, waits);
    let is_made = stops.is_empty() && waits.is_empty() && outlook.lost.is_none();
    match (&outlook.state.schema, adds.is_empty()) {
        (_, true) if is_made => output::line("the next commit adds no columns"),
        (_, true) => {}
        (None, false) => output::line("there is no table yet; the first commit makes it with"),
        (Some(_), false) => output::line("the next commit adds"),
    }
    print(adds);
    if !held.is_empty() {
        let (schema, approve) = (&outlook.loaded.pipeline.schema, command("approve", file, &[]));
        line(match schema.evolve {
            Evolve::Approve => format!("held back; {approve} adds"),
            Evolve::Add => format!("rescued before, and added with the next record that has it; {approve} adds now"),
            _ => format!("not added by the pipeline; {approve} would add"),
        });
        print(held);
        let is_column = held.iter().any(|held| held.path.len() == 1);
        match schema.mapping {
            _ if matches!(schema.evolve, Evolve::Approve | Evolve::Add) || !is_column => {}
            Mapping::Columns(_) => output::line("what is added is filled once it is declared"),
            Mapping::Plugin(_) => output::line("what is added is filled once the mapping plugin plans it"),
            _ => {}
        }
    }
    print_unfilled(unfilled);
}

#[derive(Serialize)]
struct Approved {
    pipeline: String,
    /// The version of the table that has them; `None` when there was nothing to add.
    version: Option<u64>,
    added: Vec<Column>,
}

impl Approved {
    /// Without a version another writer was first: nothing was added.
    fn new(pipeline: String, version: Option<u64>, added: &[Addition]) -> Self {
        Self { pipeline, version, added: version.map_or_else(Vec::new, |_| columns(added)) }
    }
}

async fn approve(arguments: ApproveSchema) -> Result<(), Failure> {
    let ApproveSchema { file, columns: wanted, look, json } = arguments;
    // As many as `diff` looks at, whose answer is approved.
    let outlook = Outlook::new(&file, &look, SAMPLE).await?;
    let sink = load::sink(&file, &outlook.loaded.pipeline).await?;
    let Some(table) = &outlook.state.schema else {
        return Err(Failure::classified(&alluvium_delta::Error::NoTable { table: sink.config().table.clone() }));
    };
    let Widest { schema: mut widest, plan, is_cut } = outlook.widest().await?;
    let all = additions(Some(table), &widest);
    if !wanted.is_empty() {
        widest = select(table, &widest, &chosen(&file, &all, &wanted)?);
    }
    let added = additions(Some(table), &widest);
    let pipeline = &outlook.loaded.pipeline;
    let info = CommitInfo {
        format: 1,
        kind: CommitKind::Schema,
        pipeline: pipeline.id.to_string(),
        generation: pipeline.id.generation(),
        topic: pipeline.source.topic.clone(),
        topic_id: outlook.state.topic_id.clone(),
        partitions: Vec::new(),
        plugins: outlook.loaded.plugins.references(),
        plan: Some(plan.digest()),
        replay: None,
    };
    let version = match added.is_empty() {
        true => None,
        false => sink.grow(&info, &widest).await.map_err(|error| Failure::classified(&error))?,
    };
    if json {
        output::json(&Approved::new(pipeline.id.to_string(), version, &added));
        return Ok(());
    }
    note_looked(&outlook, is_cut);
    if let Some(lost) = &outlook.lost {
        output::note(escape(format!("the pipeline does not read on: {lost}").as_bytes()));
    }
    if let Some(version) = version {
        output::line(format!("version {version} of the table adds"));
        print(&added);
    } else {
        output::line("there is nothing to approve");
    }
    Ok(())
}

/// The additions that were named, as they are or as they are printed.
fn chosen(file: &Path, all: &[Addition], wanted: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let named: HashMap<String, &Addition> = all
        .iter()
        .flat_map(|addition| {
            let name = path::join(&addition.path);
            [(escape(name.as_bytes()), addition), (name, addition)]
        })
        .collect();
    let mut chosen = Vec::new();
    for name in wanted {
        let parsed = || path::parse(name).ok().map(|path| path::join(&path));
        let found = named.get(name).or_else(|| named.get(&parsed()?));
        let Some(addition) = found else {
            let there: Vec<String> = all.iter().map(|addition| path::join(&addition.path)).collect();
            let hint = match there.is_empty() {
                true => "nothing waits for approval".to_owned(),
                false => format!("{} names them: {}", command("diff", file, &[]), listed(&there)),
            };
            let message = format!("{} does not wait for approval", escape(name.as_bytes()));
            return Err(Failure::input(message).with_hint(escape(hint.as_bytes())));
        };
        chosen.push(addition.path.clone());
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_safe_to_copy() {
        let told = |file: &str, names: &[&str]| {
            command("approve", Path::new(file), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(told("a/orders-1.toml", &["note", "s.y"]), "`alluvium schema approve a/orders-1.toml note s.y`");
        assert_eq!(
            told("my orders.toml", &["`a.b`", "$(rm)", "it's", ""]),
            r"`alluvium schema approve 'my orders.toml' '`a.b`' '$(rm)' 'it'\''s' ''`"
        );
        assert_eq!(told("orders.toml", &["--help"]), "`alluvium schema approve -- orders.toml --help`");
    }

    #[test]
    fn what_another_writer_added_first_is_not_claimed() {
        let added = [Addition { path: vec!["note".to_owned()], data_type: alluvium_core::DataType::Int }];
        assert_eq!(Approved::new(String::new(), None, &added).added.len(), 0);
        assert_eq!(Approved::new(String::new(), Some(3), &added).added.len(), 1);
    }

    #[test]
    fn names_are_accepted_as_they_are_printed() -> Result<(), Failure> {
        let addition = |name: &str| Addition { path: vec![name.to_owned()], data_type: alluvium_core::DataType::Int };
        let all = ["a.b", "c`d", "zero\u{200b}width", "-x"].map(addition);
        for addition in &all {
            let printed = escape(path::join(&addition.path).as_bytes());
            assert_eq!(chosen(Path::new("f"), &all, &[printed])?, std::slice::from_ref(&addition.path));
        }
        assert!(chosen(Path::new("f"), &all, &["a".to_owned()]).is_err());
        Ok(())
    }
}
