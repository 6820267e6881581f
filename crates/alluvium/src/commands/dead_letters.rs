//! `alluvium dead-letters`

use crate::cli::{DeadLetters, DeadLettersAction, ListLetters, ReplayLetters, ShowLetter, WhichLetters};
use crate::failure::Failure;
use crate::replay::{Replayed, Replayer};
use crate::text::{Bytes, cut, escape, pretty};
use crate::{load, output};
use alluvium_core::Hook;
use alluvium_core::chunk::{NO_TIMESTAMP, decode_headers};
use alluvium_core::{Partition, Place, Span, Standing};
use alluvium_delta::{DeltaReader, Letter, LetterFilter, TableRole};
use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Hex digits of a digest that a list shows.
const DIGEST: usize = 12;

pub async fn dead_letters(arguments: DeadLetters, hook: Hook) -> Result<(), Failure> {
    let DeadLetters { file, action } = arguments;
    match action {
        DeadLettersAction::List(arguments) => list(&file, arguments).await,
        DeadLettersAction::Show(arguments) => show(&file, arguments).await,
        DeadLettersAction::Replay(arguments) => replay(&file, arguments, hook).await,
    }
}

fn failed(error: alluvium_delta::Error) -> Failure {
    Failure::classified(&error)
}

fn filter(which: WhichLetters) -> Result<LetterFilter, Failure> {
    let WhichLetters { reason, partition, offset, plugin } = which;
    let offsets = offset.as_deref().map(offsets).transpose()?;
    Ok(LetterFilter { reason, plugin, partition: partition.map(Partition), offsets })
}

fn offsets(text: &str) -> Result<Span, Failure> {
    let wrong = || {
        Failure::input(format!("--offset {text} is not FROM..TO"))
            .with_hint("as in --offset 100..200, which leaves out 200; or 100.. for all from there on")
    };
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let end = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| wrong()) };
    Span::new(end(from, 0)?, end(to, i64::MAX)?).map_err(|_| wrong())
}

/// A letter for people and programs.
#[derive(Serialize)]
struct Shown {
    partition: i32,
    offset: i64,
    /// The record's own, in UTC.
    timestamp: Option<String>,
    #[serde(flatten)]
    state: State,
    stage: String,
    reason: String,
    message: String,
    plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_name: Option<String>,
    /// The replay that rejected it again.
    rejected_by_replay: Option<i64>,
    key: Option<Bytes>,
    headers: Vec<ShownHeader>,
    value: Option<Bytes>,
    value_bytes: Option<usize>,
}

#[derive(Serialize)]
struct ShownHeader {
    key: String,
    value: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum State {
    Open,
    Replayed { by_replay: i64 },
}

impl State {
    fn of(standing: &Standing) -> Self {
        match standing.replayed_by() {
            Some(by_replay) if standing.is_replayed() => Self::Replayed { by_replay },
            _ => Self::Open,
        }
    }

    fn told(self) -> String {
        match self {
            Self::Open => "open".to_owned(),
            Self::Replayed { by_replay } => format!("replay {by_replay}"),
        }
    }
}

impl Shown {
    fn of(letter: &Letter, state: State) -> Self {
        let headers = letter.headers.as_deref().map(decode_headers).unwrap_or_default();
        let header = |header: &alluvium_core::chunk::Header<'_>| ShownHeader {
            key: header.key.to_owned(),
            value: header.value.map(Bytes::of),
        };
        Self {
            partition: letter.partition.0,
            offset: letter.offset,
            timestamp: time(letter.timestamp),
            state,
            stage: letter.stage.clone(),
            reason: letter.reason.clone(),
            message: letter.message.clone(),
            plugin: letter.plugin.clone(),
            plugin_name: None,
            rejected_by_replay: letter.replay,
            key: letter.key.as_deref().map(Bytes::of),
            headers: headers.iter().map(header).collect(),
            value: letter.value.as_deref().map(Bytes::of),
            value_bytes: letter.value.as_ref().map(Vec::len),
        }
    }
}

fn time(timestamp: i64) -> Option<String> {
    let time = timestamp_ms_to_datetime(timestamp).filter(|_| timestamp != NO_TIMESTAMP)?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[derive(Serialize)]
struct Listed {
    count: u64,
    /// Whether a commit was interrupted before its letters, or a replay before its marks: the next run or
    /// replay writes them.
    owed: bool,
    groups: Vec<Group>,
    letters: Vec<Shown>,
}

#[derive(Serialize)]
struct Group {
    reason: String,
    stage: String,
    count: u64,
}

async fn list(file: &Path, arguments: ListLetters) -> Result<(), Failure> {
    let ListLetters { which, all, limit, json } = arguments;
    let filter = filter(which)?;
    let pipeline = load::pipeline(file)?;
    let tables = load::existing_tables(file, &pipeline)?;
    let owed = tables.owes_letters().await.map_err(failed)?;
    let (groups, letters) = newest(&tables, &filter, all, limit).await?;
    let group = |((reason, stage), count)| Group { reason, stage, count };
    let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let count = groups.iter().map(|group| group.count).sum();
    if json {
        let letters = letters.iter().map(|(letter, state)| Shown::of(letter, *state)).collect();
        output::json(&Listed { count, owed, groups, letters });
        return Ok(());
    }
    output::line(format!("{count} {}dead letters of {}", if all { "" } else { "open " }, pipeline.id));
    let counted = groups
        .iter()
        .map(|group| vec![group.count.to_string(), escape(group.reason.as_bytes()), escape(group.stage.as_bytes())]);
    table(&["count", "reason", "stage"], counted.collect(), &[0]);
    if count > letters.len() as u64 && !letters.is_empty() {
        output::line(format!("the newest {}:", letters.len()));
    }
    table(
        &["place", "time", "state", "reason", "plugin", "message", "value"],
        letters.iter().map(|(letter, state)| cells(letter, *state)).collect(),
        &[],
    );
    Ok(())
}

type Groups = BTreeMap<(String, String), u64>;

/// All letters counted, and the newest of them.
async fn newest(
    tables: &DeltaReader,
    filter: &LetterFilter,
    all: bool,
    limit: usize,
) -> Result<(Groups, Vec<(Letter, State)>), Failure> {
    let standings = tables.letter_standings(None, filter).await.map_err(failed)?;
    let wanted = standings.iter().filter(|(_, standing)| all || standing.is_open());
    let wanted = wanted.filter_map(|(place, standing)| Some((*place, standing.newest()?))).collect();
    let mut scan = tables.scan_letters(wanted).await.map_err(failed)?;
    let mut groups = Groups::new();
    let mut newest: Vec<(Letter, State)> = Vec::new();
    while let Some(batch) = scan.next().await {
        for letter in batch.map_err(failed)? {
            *groups.entry((letter.reason.clone(), letter.stage.clone())).or_default() += 1;
            let Some(standing) = standings.get(&(letter.partition, letter.offset)) else { continue };
            newest.push((letter, State::of(standing)));
        }
        let age =
            |(letter, _): &(Letter, State)| std::cmp::Reverse((letter.timestamp, letter.offset, letter.partition));
        newest.sort_unstable_by_key(age);
        newest.truncate(limit);
    }
    Ok((groups, newest))
}

fn cells(letter: &Letter, state: State) -> Vec<String> {
    let digest = letter.plugin.as_deref().unwrap_or("-");
    let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
    vec![
        format!("{}:{}", letter.partition, letter.offset),
        time(letter.timestamp).unwrap_or_else(|| "-".to_owned()),
        state.told(),
        cut(letter.reason.as_bytes(), 20),
        escape(digest.get(..DIGEST).unwrap_or(digest).as_bytes()),
        cut(letter.message.as_bytes(), 50),
        letter.value.as_deref().map_or_else(|| "-".to_owned(), |value| cut(value, 60)),
    ]
}

/// An aligned table; the columns in `numbers` to the right. Nothing for no rows.
fn table(names: &[&str], rows: Vec<Vec<String>>, numbers: &[usize]) {
    if rows.is_empty() {
        return;
    }
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(names).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths.get(column).copied().unwrap_or(0);
            if numbers.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        output::line(cells.join("  ").trim_end());
    }
}

async fn show(file: &Path, arguments: ShowLetter) -> Result<(), Failure> {
    let ShowLetter { place, raw, json } = arguments;
    let wrong = || {
        Failure::input(format!("{place} is not PARTITION:OFFSET"))
            .with_hint("as in: alluvium dead-letters orders.toml show 0:1234")
    };
    let (partition, offset) = place.split_once(':').ok_or_else(wrong)?;
    let (partition, offset): (i32, i64) =
        (partition.parse().map_err(|_| wrong())?, offset.parse().map_err(|_| wrong())?);
    let place: Place = (Partition(partition), offset);
    let pipeline = load::pipeline(file)?;
    let none = || {
        Failure::input(format!("there is no dead letter of partition {partition}, offset {offset}"))
            .with_hint("`alluvium dead-letters FILE list` shows which there are")
    };
    let tables = load::existing_tables(file, &pipeline)?;
    let span = Span::new(offset, offset.saturating_add(1)).map_err(|_| none())?;
    let filter = LetterFilter { partition: Some(Partition(partition)), offsets: Some(span), ..LetterFilter::default() };
    let standings = tables.letter_standings(None, &filter).await.map_err(failed)?;
    let standing = standings.get(&place).copied().ok_or_else(none)?;
    let wanted = HashMap::from([(place, standing.newest().ok_or_else(none)?)]);
    let mut scan = tables.scan_letters(wanted).await.map_err(failed)?;
    let batch = scan.next().await.ok_or_else(none)?.map_err(failed)?;
    let letter = batch.first().ok_or_else(none)?;
    if raw {
        output::raw(letter.value.as_deref().unwrap_or_default());
        return Ok(());
    }
    let mut shown = Shown::of(letter, State::of(&standing));
    shown.plugin_name = plugin_name(&tables, letter.plugin.as_deref()).await?;
    if json {
        output::json(&shown);
    } else {
        print(&shown, letter);
    }
    Ok(())
}

/// The name that the plugin had when it rejected the record.
async fn plugin_name(tables: &DeltaReader, digest: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(digest) = digest else { return Ok(None) };
    let history = tables.history(TableRole::DeadLetters).await.map_err(failed)?;
    let mut plugins = history.iter().rev().flat_map(|commit| &commit.entry.info).flat_map(|info| &info.plugins);
    Ok(plugins.find(|plugin| plugin.digest == digest).map(|plugin| plugin.name.clone()))
}

fn print(shown: &Shown, letter: &Letter) {
    let text = |text: &str| escape(text.as_bytes());
    let part = |name: &str, text: String| output::line(format!("{name:<10} {text}"));
    part("partition", shown.partition.to_string());
    part("offset", shown.offset.to_string());
    part("timestamp", shown.timestamp.clone().unwrap_or_else(|| "none".to_owned()));
    part("state", shown.state.told());
    part("reason", text(&shown.reason));
    part("stage", text(&shown.stage));
    if let Some(digest) = &shown.plugin {
        let name = shown.plugin_name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        part("plugin", text(&format!("{digest}{name}")));
    }
    if let Some(number) = shown.rejected_by_replay {
        part("replay", format!("rejected again by replay {number}"));
    }
    part("key", letter.key.as_deref().map_or_else(|| "none".to_owned(), escape));
    for header in letter.headers.as_deref().map(decode_headers).unwrap_or_default() {
        let value = header.value.map_or_else(|| "none".to_owned(), escape);
        part("header", format!("{} = {value}", text(header.key)));
    }
    output::line("message");
    output::line(pretty(letter.message.as_bytes()));
    match &letter.value {
        Some(value) => {
            output::line(format!("value, {} bytes", value.len()));
            output::line(pretty(value));
        }
        None => output::line("no value"),
    }
}

async fn replay(file: &Path, arguments: ReplayLetters, hook: Hook) -> Result<(), Failure> {
    let filter = filter(arguments.which)?;
    let loaded = load::load(file, &load::host()?)?;
    load::existing_tables(file, &loaded.pipeline)?;
    let sink = load::sink(file, &loaded.pipeline).await?.with_hook(hook.clone());
    let replayer = Replayer { loaded, sink: Arc::new(sink), hook };
    let replayed = replayer.replay(&filter).await?;
    replayer.sink.finish_maintenance().await;
    if arguments.json {
        output::json(&replayed);
    } else {
        tell(replayed);
    }
    Ok(())
}

fn tell(Replayed { number, counts, ahead }: Replayed) {
    output::line(match number {
        None => "there is nothing to replay".to_owned(),
        Some(number) => format!(
            "replay {number}: {} dead letters, {} rows, {} filtered, {} rejected again",
            counts.read, counts.rows, counts.filtered, counts.rejected
        ),
    });
    if ahead > 0 {
        output::line(format!("{ahead} were left: the table was set back, and the next run reads their records anew"));
    }
}
