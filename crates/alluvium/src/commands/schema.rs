//! `alluvium schema`

use crate::cli::{ApproveSchema, PlanSchema, Schema, SchemaAction};
use crate::failure::Failure;
use crate::growth::{Growth, Outlook, SAMPLE};
use crate::text::{cut, escape};
use crate::{load, output};
use alluvium_core::{CommitInfo, CommitKind, Evolve};
use alluvium_schema::{Addition, Plan, RescuedField, Why, additions, path, select};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Characters of an example that are shown.
const EXAMPLE: usize = 80;

pub async fn schema(arguments: Schema) -> Result<(), Failure> {
    match arguments.action {
        SchemaAction::Show(arguments) => show(arguments).await,
        SchemaAction::Diff(arguments) => diff(arguments).await,
        SchemaAction::Approve(arguments) => approve(arguments).await,
        SchemaAction::Explain(arguments) => explain(arguments).await,
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
    additions.iter().for_each(|addition| output::line(escape(format!("  + {addition}").as_bytes())));
}

#[derive(Serialize)]
struct Shown {
    pipeline: String,
    plan: Plan,
    digest: String,
    /// All columns of the rows: the plan's, those of plugins, the rescued one, metadata.
    columns: Vec<Column>,
}

async fn show(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, 0).await?;
    let layout = outlook.layout()?;
    let all = additions(None, layout.schema());
    let plan = layout.plan();
    if arguments.json {
        let (pipeline, digest) = (outlook.loaded.pipeline.id.to_string(), plan.digest());
        output::json(&Shown { pipeline, plan: plan.as_ref().clone(), digest, columns: columns(&all) });
        return Ok(());
    }
    if !plan.is_settled() {
        output::line("the columns come with the first records; to see what they would be: --sample 10000");
    }
    let is_planned =
        |column: &&Addition| plan.columns().iter().any(|planned| Some(&planned.name) == column.path.first());
    let text = plan.to_string();
    let (planned, others) = text.rsplit_once('\n').unwrap_or(("", &text));
    planned.lines().for_each(|line| output::line(escape(line.as_bytes())));
    for column in all.iter().filter(|column| !is_planned(column)) {
        output::line(escape(format!("besides: {column}").as_bytes()));
    }
    output::line(escape(others.as_bytes()));
    Ok(())
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
}

async fn diff(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, SAMPLE).await?;
    let growth = outlook.growth().await?;
    if arguments.json {
        let (pipeline, records) = (outlook.loaded.pipeline.id.to_string(), outlook.looked_at);
        let (adds, held) = (columns(&growth.adds), columns(&growth.held));
        output::json(&Difference { pipeline, records, adds, held, stops: growth.stops, waits: growth.waits });
        return Ok(());
    }
    output::note(format!("{} records of the topic or the file were looked at", outlook.looked_at));
    print_growth(&arguments.file, &outlook, &growth);
    Ok(())
}

fn print_growth(file: &Path, outlook: &Outlook, growth: &Growth) {
    let Growth { adds, held, stops, waits } = growth;
    match (&outlook.state.schema, adds.is_empty()) {
        (_, true) if stops.is_empty() && waits.is_empty() => output::line("the next commit adds no columns"),
        (_, true) => {}
        (None, false) => output::line("there is no table yet; the first commit makes it with"),
        (Some(_), false) => output::line("the next commit adds"),
    }
    print(adds);
    if !stops.is_empty() {
        output::line(format!(
            "the next commit is not made: with evolve = \"stop\" these fields stop the pipeline: {}",
            escape(stops.join(", ").as_bytes())
        ));
    }
    if !waits.is_empty() {
        output::line(format!(
            "the pipeline does not start before these columns are approved: {}",
            escape(waits.join(", ").as_bytes())
        ));
    }
    if !held.is_empty() {
        output::line(match outlook.loaded.pipeline.schema.evolve {
            Evolve::Approve => format!("held back; `alluvium schema approve {}` adds", file.display()),
            _ => format!("not added by the pipeline; `alluvium schema approve {}` would add", file.display()),
        });
        print(held);
    }
}

#[derive(Serialize)]
struct Approved {
    pipeline: String,
    /// The version of the table that has them; `None` when there was nothing to add.
    version: Option<u64>,
    added: Vec<Column>,
}

async fn approve(arguments: ApproveSchema) -> Result<(), Failure> {
    let ApproveSchema { file, columns: wanted, look, json } = arguments;
    let outlook = Outlook::new(&file, &look, 0).await?;
    let sink = load::sink(&file, &outlook.loaded.pipeline).await?;
    let Some(table) = &outlook.state.schema else {
        return Err(Failure::classified(&alluvium_delta::Error::NoTable { table: sink.config().table.clone() }));
    };
    let (mut widest, plan) = outlook.widest().await?;
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
        let pipeline = pipeline.id.to_string();
        output::json(&Approved { pipeline, version, added: columns(&added) });
    } else if let Some(version) = version {
        output::line(format!("version {version} of the table adds"));
        print(&added);
    } else {
        output::line("there is nothing to approve");
    }
    Ok(())
}

/// The additions that were named.
fn chosen(file: &Path, all: &[Addition], wanted: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let mut chosen = Vec::new();
    for name in wanted {
        let path = path::parse(name).map_err(|error| Failure::input(error.to_string()))?;
        if !all.iter().any(|addition| addition.path == path) {
            let there: Vec<String> = all.iter().map(|addition| path::join(&addition.path)).collect();
            let hint = match there.is_empty() {
                true => "nothing waits for approval".to_owned(),
                false => format!("`alluvium schema diff {}` names them: {}", file.display(), there.join(", ")),
            };
            return Err(Failure::input(format!("{name} does not wait for approval")).with_hint(hint));
        }
        chosen.push(path);
    }
    Ok(chosen)
}

#[derive(Serialize)]
struct Explained {
    pipeline: String,
    column: String,
    /// Rows with a rescued value.
    rows: u64,
    fields: Vec<ExplainedField>,
    /// Values of fields past the first 10,000.
    others: u64,
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

async fn explain(arguments: PlanSchema) -> Result<(), Failure> {
    let outlook = Outlook::new(&arguments.file, &arguments.look, 0).await?;
    let layout = outlook.layout()?;
    let rescued = outlook.rescued(layout.plan()).await?;
    let column = layout.plan().rescued().to_owned();
    let explain =
        |(path, field, why): (&[String], &RescuedField, Why)| explained(&arguments.file, &column, path, field, &why);
    let mut fields: Vec<ExplainedField> = rescued.fields().map(explain).collect();
    fields.sort_by_key(|field| std::cmp::Reverse(field.rows - field.older));
    let (rows, others) = (rescued.rows(), rescued.others());
    if arguments.json {
        let pipeline = outlook.loaded.pipeline.id.to_string();
        output::json(&Explained { pipeline, column, rows, fields, others });
        return Ok(());
    }
    output::line(format!("{column} has values of {rows} rows"));
    for field in fields {
        let kinds: Vec<_> = field.kinds.iter().map(|(kind, rows)| format!("{rows} {kind}")).collect();
        output::line(format!("{}: {}", escape(field.path.as_bytes()), kinds.join(", ")));
        let place = field.partition.zip(field.offset);
        let place = place.map_or_else(String::new, |(partition, offset)| format!(" ({partition}:{offset})"));
        let (message, hint) = (escape(field.message.as_bytes()), escape(field.hint.as_bytes()));
        output::line(format!("  {message}, as in {}{place}", cut(field.example.as_bytes(), EXAMPLE)));
        output::line(format!("  {hint}"));
    }
    if others > 0 {
        output::line(format!("{others} values of further fields are not told apart"));
    }
    Ok(())
}

fn explained(file: &Path, rescued: &str, at: &[String], field: &RescuedField, why: &Why) -> ExplainedField {
    let name = path::join(at);
    let file = file.display();
    let in_rescued = match json_path(at) {
        Some(path) => format!("get_json_object({rescued}, '{path}')"),
        None => rescued.to_owned(),
    };
    let told = |added: &[Addition]| added.iter().map(Addition::to_string).collect::<Vec<_>>().join(", ");
    let approve = |added: &[Addition]| {
        let names: Vec<_> = added.iter().map(|added| path::join(&added.path)).collect();
        let (names, told) = (names.join(" "), told(added));
        format!("`alluvium schema approve {file} {names}` adds {told}; new records fill it")
    };
    let declare = || match at.len() {
        1 => format!("declare a column of another name for it: [[schema.column]] with from = {name:?}"),
        // A column of its own would take the other fields of the object out of theirs.
        _ => format!("change it in a plugin, or read it as {in_rescued}"),
    };
    let (code, message, hint) = match why {
        Why::Older => (
            "older",
            "the column came later".to_owned(),
            format!("fill old rows with your engine: UPDATE … SET … WHERE {in_rescued} IS NOT NULL"),
        ),
        Why::Type(data_type) => ("type", format!("not of the type {data_type} that the column has"), declare()),
        Why::Object => {
            ("object", "columns are made of what is inside an object here, and this is none".to_owned(), declare())
        }
        Why::NotApproved(added) => ("not-approved", "new, and nobody has approved it".to_owned(), approve(added)),
        Why::NotAdded(added) => ("not-added", "new, and evolve = \"none\" adds no columns".to_owned(), approve(added)),
        Why::New(added) => ("new", "new".to_owned(), format!("the next record that has it adds {}", told(added))),
        Why::Case(taken) => (
            "case",
            format!("the name differs from {taken} only in case, or is that of the pipeline's own column"),
            declare(),
        ),
        Why::Name => ("name", "no column can have this name".to_owned(), declare()),
        Why::Full => (
            "full",
            "new, and the table has as many columns as max_columns allows".to_owned(),
            "raise max_columns in [schema], or leave fields out: drop = [\"…\"]".to_owned(),
        ),
        Why::Beside => (
            "beside",
            "columns are declared for other fields of its object, and none for it".to_owned(),
            format!("declare a column for it: [[schema.column]] with from = {name:?}"),
        ),
        Why::Untyped => (
            "untyped",
            "no value says of which type it is".to_owned(),
            "the first value that is more than null, [] or {} makes it a column where columns are added".to_owned(),
        ),
    };
    let (example, place) = field.example.clone();
    ExplainedField {
        path: name,
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

/// A path as Spark's functions on JSON text take it; none for names that would have to be quoted.
fn json_path(at: &[String]) -> Option<String> {
    let is_plain = |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    at.iter().all(is_plain).then(|| format!("$.{}", at.join(".")))
}
