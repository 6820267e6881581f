//! What can be typed.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Kafka through WebAssembly plugins to Delta Lake, each record exactly once.
#[derive(Debug, Parser)]
#[command(name = "alluvium", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Write logs as JSON lines.
    #[arg(long, global = true)]
    pub log_json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check pipeline files: all that can be known without the outside.
    Check(Check),
    /// Run the [[test]] tables of pipeline files.
    Test(Test),
    /// Run a pipeline over a file of records, without Kafka.
    Try(Try),
    /// Run pipelines.
    Run(Run),
    /// Show where a pipeline is: stored position, the broker's low and high, lag.
    Position(Position),
    /// Prove from the table that no offset is missing or doubled.
    Verify(Verify),
    /// Look at records that were rejected, and run them through the present plugins again.
    DeadLetters(DeadLetters),
    /// See how records become columns, what a table would grow by, and why values were rescued.
    Schema(Schema),
    /// Start an in-memory Kafka for trying things; it ends with this command.
    Sandbox(Sandbox),
    /// See it all in a minute: a sandbox, a plugin, a table, kills, the proof.
    Demo(Demo),
}

#[derive(Debug, Args)]
pub struct Check {
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Also ask the broker and the table.
    #[arg(long)]
    pub connect: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Test {
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Try {
    pub file: PathBuf,
    /// Records, one a line.
    pub records: PathBuf,
    /// Write the rows to a Delta table in this directory instead of the terminal.
    #[arg(long, value_name = "DIR")]
    pub table: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Stop at the end of each topic as it is at the start.
    #[arg(long)]
    pub until_end: bool,
    /// Worker threads of each pipeline; one a core by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Print a summary of each pipeline as JSON at the end.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Position {
    pub file: PathBuf,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    pub file: PathBuf,
    /// Also read the metadata column of every row.
    #[arg(long)]
    pub scan: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DeadLetters {
    pub file: PathBuf,
    #[command(subcommand)]
    pub action: DeadLettersAction,
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersAction {
    /// Count the open dead letters by reason, and show the newest.
    List(ListLetters),
    /// Show everything about one dead letter.
    Show(ShowLetter),
    /// Run the raw records of open dead letters through the present plugins: rows of those that pass now.
    Replay(ReplayLetters),
}

#[derive(Debug, Args)]
pub struct ListLetters {
    #[command(flatten)]
    pub which: WhichLetters,
    /// Also those that were replayed.
    #[arg(long)]
    pub all: bool,
    /// How many to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ShowLetter {
    #[arg(value_name = "PARTITION:OFFSET")]
    pub place: String,
    /// Write the bytes of the value as they are, and nothing else.
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReplayLetters {
    #[command(flatten)]
    pub which: WhichLetters,
    #[arg(long)]
    pub json: bool,
}

/// Which dead letters: those that have all that is named.
#[derive(Debug, Args)]
pub struct WhichLetters {
    /// The reason's code, such as malformed.
    #[arg(long, value_name = "CODE")]
    pub reason: Option<String>,
    #[arg(long, value_name = "N")]
    pub partition: Option<i32>,
    /// Offsets from FROM up to, not including, TO; each may be left out.
    #[arg(long, value_name = "FROM..TO")]
    pub offset: Option<String>,
    /// The beginning of the digest of the plugin that rejected them.
    #[arg(long, value_name = "DIGEST")]
    pub plugin: Option<String>,
}

#[derive(Debug, Args)]
pub struct Schema {
    #[command(subcommand)]
    pub action: SchemaAction,
}

#[derive(Debug, Subcommand)]
pub enum SchemaAction {
    /// Print the mapping plan over the table as it is.
    Show(PlanSchema),
    /// Print what the next commit would add to the table, and what waits for approval. Changes nothing.
    Diff(PlanSchema),
    /// Add to the table what `diff` shows as held back: a commit of its own in the table's log.
    Approve(ApproveSchema),
    /// Tell which fields are in the rescued column, how often, why, and what to do.
    Explain(PlanSchema),
}

/// Records to look at, besides what the table holds.
#[derive(Debug, Args)]
pub struct Look {
    /// Records of a file, one a line.
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// How many of the topic's next records to look at; 0 asks no broker. By default 10,000 to diff, to approve
    /// and where a plugin decides on the mapping, 0 otherwise and beside --records.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub sample: Option<u32>,
}

#[derive(Debug, Args)]
pub struct PlanSchema {
    pub file: PathBuf,
    #[command(flatten)]
    pub look: Look,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApproveSchema {
    pub file: PathBuf,
    /// What to approve, as `alluvium schema diff` spells it; all of it by default.
    #[arg(value_name = "COLUMN")]
    pub columns: Vec<String>,
    #[command(flatten)]
    pub look: Look,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Sandbox {
    /// A topic and its number of partitions.
    #[arg(long = "topic", value_name = "NAME:PARTITIONS", required = true)]
    pub topics: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// How many orders to send.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub records: u64,
    /// How often to kill the worker.
    #[arg(long, default_value_t = 5)]
    pub kills: u32,
    /// Where to put the pipeline file and the table; a new temporary directory by default, removed at
    /// the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The redact plugin, as `cargo xtask plugins` builds it.
    #[arg(long, env = "ALLUVIUM_DEMO_PLUGIN")]
    pub plugin: Option<PathBuf>,
    /// Seed of the orders and of the kills.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}
