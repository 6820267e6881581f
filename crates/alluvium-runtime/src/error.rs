//! Why a pipeline stops.

use alluvium_core::position::PositionError;
use alluvium_core::{Classified, ErrorClass, Fault, Partition, Span};
use alluvium_schema::PlanError;
use arrow_schema::ArrowError;

/// How many chunks of a first batch an error names.
const MOST_SPANS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the topic cannot be read")]
    Source(#[source] Fault),
    #[error("the table cannot be read")]
    Load(#[source] Fault),
    #[error("partition {partition}, offsets {span}: rows cannot be encoded")]
    Encode { partition: Partition, span: Span, source: Fault },
    #[error("a flush of {rows} rows cannot be committed, after {tries} tries")]
    Commit { rows: u64, tries: u32, source: Fault },
    #[error(transparent)]
    Position(#[from] PositionError),
    #[error("the mapping does not fit the table: {}", list(.0))]
    Mapping(Vec<PlanError>),
    #[error("the plan of plugin {plugin} cannot be carried out: {}", list(.problems))]
    PluginPlan { plugin: String, problems: Vec<PlanError> },
    #[error("plugin {plugin} has no plan for the records")]
    MappingPlugin { plugin: String, source: Fault },
    #[error("columns are to be added to the table, and nobody has approved them: {}", .columns.join(", "))]
    NotApproved { columns: Vec<String> },
    #[error("{records}: there are no columns for what they hold")]
    Columns { records: String, source: Box<Error> },
    #[error("the mapping plan cannot grow")]
    Grow(#[source] alluvium_schema::GrowError),
    #[error("plugin {plugin} {access} column {column} as {wanted}, but the pipeline has it as {found}")]
    ColumnType { plugin: String, access: &'static str, column: String, wanted: String, found: String },
    #[error("plugin {plugin} writes column {column}, which is neither a top-level column nor there already")]
    NestedColumn { plugin: String, column: String },
    #[error("plugin {plugin} writes column {column}, whose name is taken by a metadata column")]
    TakenColumn { plugin: String, column: String },
    #[error("the pipeline writes the metadata column {wanted}, but the table has {found}")]
    MetadataColumn { wanted: String, found: String },
    #[error("column {column} of the table does not take the rows, although they were planned anew {times} times")]
    Misfit { column: String, times: u32 },
    #[error(
        "{records} records that were read could not be committed within the grace time: they are read again next time"
    )]
    GraceOver { records: u64 },
    #[error("the table is partitioned by [{found}], but the pipeline says [{wanted}]")]
    PartitionedBy { found: String, wanted: String },
    #[error("partition {partition}, offsets {span}: too many records fail in plugin {plugin}")]
    TooManyFailures { partition: Partition, span: Span, plugin: String, source: Fault },
    #[error("partition {partition}, offsets {span}: plugin {plugin} cannot be called")]
    Plugin { partition: Partition, span: Span, plugin: String, source: Fault },
    #[error(
        "partition {partition}, offsets {span}: plugin {plugin} makes about {bytes} bytes of rows out of one chunk"
    )]
    Multiplied { partition: Partition, span: Span, plugin: String, bytes: usize },
    #[error("partition {partition}, offset {offset}: {conflict}")]
    Stop { partition: Partition, offset: i64, conflict: String },
    #[error("partition {partition}, offsets {span}: records cannot be decoded")]
    Decode { partition: Partition, span: Span, source: alluvium_schema::DecodeError },
    #[error("partition {partition}, offsets {span}: rows cannot be put together")]
    Rows { partition: Partition, span: Span, source: ArrowError },
    #[error("partition {partition}, offsets {span}: the counts do not balance: {counts:?}")]
    Unbalanced { partition: Partition, span: Span, counts: alluvium_core::Counts },
    #[error("partition {partition}: a worker has offsets {first} and then {second}")]
    Disjoint { partition: Partition, first: Span, second: Span },
    #[error("a worker thread of the pipeline cannot be started")]
    Thread(#[source] std::io::Error),
    #[error("a worker thread ended by a fault of its own: {message}")]
    Worker { message: String },
}

fn list(errors: &[PlanError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// Says for which records there is no plan.
    pub(crate) fn of(self, records: impl IntoIterator<Item = (Partition, Span)>) -> Self {
        let told = |(partition, span)| format!("partition {partition}, offsets {span}");
        let mut records = records.into_iter();
        let mut parts = records.by_ref().take(MOST_SPANS).map(told).collect::<Vec<_>>();
        let others = records.count();
        if others > 0 {
            parts.push(format!("and {others} more chunks"));
        }
        Self::Columns { records: parts.join("; "), source: Box::new(self) }
    }
}

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Columns { source, .. } => source.class(),
            Self::Source(source)
            | Self::Load(source)
            | Self::Encode { source, .. }
            | Self::Commit { source, .. }
            | Self::MappingPlugin { source, .. }
            | Self::Plugin { source, .. } => source.class(),
            Self::TooManyFailures { .. } | Self::Multiplied { .. } | Self::PluginPlan { .. } => ErrorClass::Plugin,
            Self::Position(_)
            | Self::Mapping(_)
            | Self::NotApproved { .. }
            | Self::Grow(_)
            | Self::ColumnType { .. }
            | Self::NestedColumn { .. }
            | Self::TakenColumn { .. }
            | Self::MetadataColumn { .. }
            | Self::Misfit { .. }
            | Self::PartitionedBy { .. }
            | Self::Stop { .. } => ErrorClass::User,
            Self::Thread(_) | Self::GraceOver { .. } => ErrorClass::External,
            Self::Decode { .. }
            | Self::Rows { .. }
            | Self::Unbalanced { .. }
            | Self::Disjoint { .. }
            | Self::Worker { .. } => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        let own = match self {
            Self::Columns { source, .. } => return source.hint(),
            Self::Source(source)
            | Self::Load(source)
            | Self::Encode { source, .. }
            | Self::Commit { source, .. }
            | Self::MappingPlugin { source, .. }
            | Self::Plugin { source, .. } => return source.hint(),
            Self::Position(PositionError::Lost { .. }) => {
                "nothing was skipped; to go on without the lost offsets, set `lost_data = \"skip\"` in [source]: \
                 the gap is then recorded in the table's log"
            }
            Self::Position(PositionError::Beyond { .. }) => {
                "if the topic was created anew on purpose, raise `generation` in the pipeline file to read it from \
                 the start"
            }
            Self::Position(PositionError::Replaced { .. }) => {
                "raise `generation` in the pipeline file to read the new topic from its start; what was not read of \
                 the old one is lost. `lost_data = \"skip\"` does not cover it: positions of the old topic mean \
                 nothing in the new one"
            }
            Self::Mapping(_) => "change the declared columns, or write to another table",
            Self::PluginPlan { .. } => {
                "nothing was committed of these records; mend the plugin or its configuration: a plan must be sound, and \
                 keep the types that the table has"
            }
            Self::NotApproved { .. } => {
                "`alluvium schema approve FILE` adds them to the table; `alluvium schema diff FILE` shows them first"
            }
            Self::Grow(_) => {
                "declare the new fields, or add them with `alluvium schema approve FILE` where columns are inferred; leave \
                 them out with `drop` in [schema]; or set `evolve = \"add\"` or `\"none\"` there"
            }
            Self::ColumnType { .. } => "declare the column with the type that the plugin wants",
            Self::NestedColumn { .. } => "let the plugin read the column too, or declare it in [schema]",
            Self::TakenColumn { .. } => "give the metadata column another name in [sink.metadata]",
            Self::MetadataColumn { .. } => {
                "give the metadata column another name in [sink.metadata], or turn it off; or write to another table"
            }
            Self::Misfit { .. } => {
                "nothing was committed past the stored positions; see `alluvium schema show FILE`, and who changes the table"
            }
            Self::GraceOver { .. } => "nothing is lost; raise `grace` in [flush], or see why commits are slow",
            Self::PartitionedBy { .. } => {
                "a table's partition columns cannot change: set `partition_by` as the table has it"
            }
            Self::TooManyFailures { .. } => {
                "nothing was committed of these records; mend the plugin, or raise `trapping_share` in [limits] to \
                 send them to the dead letters"
            }
            Self::Multiplied { .. } => "let the plugin make fewer rows of one record",
            Self::Stop { .. } => {
                "nothing was committed past this record; change the column's type, or its `on_conflict`"
            }
            Self::Thread(_) => "the system refuses new threads: raise its limit",
            Self::Decode { .. }
            | Self::Rows { .. }
            | Self::Unbalanced { .. }
            | Self::Disjoint { .. }
            | Self::Worker { .. } => {
                "this is a fault of alluvium; nothing of the flush was committed: please report it"
            }
        };
        Some(own.to_owned())
    }
}
