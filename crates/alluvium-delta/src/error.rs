//! What can go wrong at a table.

use alluvium_core::{Classified, ErrorClass, Partition};
use std::fmt;
use std::time::Duration;

/// The error below, of whatever library it came from.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// A failure at a Delta table. Outcomes that are expected are values, not errors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{location:?} is not a table's location: {problem}")]
    Location { location: String, problem: String },
    #[error("table and dead letters are both at {table}")]
    SameLocation { table: String },
    #[error("cannot create the directory of table {table}")]
    CreateDirectory { table: String, source: std::io::Error },
    #[error("cannot open the object store of table {table}")]
    OpenStore { table: String, source: Source },
    #[error("table {table}: {key} asks for locks in DynamoDB, which are not supported")]
    LockingProvider { table: String, key: String },
    #[error("cannot try out the object store of table {table}")]
    Probe { table: String, source: object_store::Error },
    #[error("the object store of table {table} has no conditional put")]
    ConditionalPutMissing { table: String, source: object_store::Error },
    #[error("the object store of table {table} ignores conditional puts: a second one overwrote the first")]
    ConditionalPutIgnored { table: String },

    #[error("cannot list the log of table {table}")]
    ListLog { table: String, source: object_store::Error },
    #[error("cannot load table {table}")]
    Load { table: String, source: Source },
    #[error("table {table} cannot be read")]
    Unreadable { table: String, source: Source },
    #[error("cannot read version {version} of table {table}")]
    ReadLog { table: String, version: u64, source: object_store::Error },
    #[error("version {version} of table {table} is not a log entry")]
    ParseLog { table: String, version: u64, source: serde_json::Error },
    #[error("version {version} of table {table} is missing from its log, and no checkpoint holds it")]
    LogHole { table: String, version: u64 },
    #[error("cannot list the files of table {table}")]
    ListFiles { table: String, source: object_store::Error },
    #[error("table {table} cannot be written: {refusal}")]
    Refused { table: String, refusal: Refusal },
    #[error("table {table} is partitioned by [{}], but the pipeline says [{}]", found.join(", "), configured.join(", "))]
    PartitionColumns { table: String, found: Vec<String>, configured: Vec<String> },

    #[error("column {column} has the type {found}, which Delta does not have")]
    ColumnType { column: String, found: String },
    #[error("column {column} has a name that Delta cannot hold")]
    ColumnName { column: String },
    #[error("partition column {column} is not among the columns")]
    PartitionColumnMissing { column: String },
    #[error("partition column {column} has the type {found}, which cannot be a partition's")]
    PartitionColumnType { column: String, found: String },
    #[error("partition column {column} has a value outside the years 1 to 9999")]
    PartitionValue { column: String },
    #[error("all columns are partition columns: a file would have none")]
    NothingButPartitions,
    #[error("the schema of table {table} is not one")]
    TableSchema { table: String, source: Source },
    #[error("the dead letters' table {table} has a column {column} of another type")]
    DeadLettersSchema { table: String, column: String },
    #[error("an interrupted commit to table {table} owes dead letters (mark {mark}), but {missing} is gone")]
    LettersGone { table: String, mark: i64, missing: String },
    #[error("cannot look for the dead letters' file {path} of table {table}")]
    LettersFile { table: String, path: String, source: object_store::Error },
    #[error("table {table}: column {column} is NOT NULL, but rows have no value for it, or could have none")]
    NotNull { table: String, column: String },

    #[error("rows of another schema than the writer's: {problem}")]
    BatchSchema { problem: String },
    #[error("cannot divide rows by partition columns")]
    Divide { source: arrow_schema::ArrowError },
    #[error("cannot encode rows as Parquet")]
    Encode { source: parquet::errors::ParquetError },
    #[error("cannot encode a log entry of table {table}")]
    EncodeEntry { table: String, source: serde_json::Error },
    #[error("cannot build the rows of dead letters")]
    DeadLetterRows { source: arrow_schema::ArrowError },

    #[error("partition {partition} is in a flush twice")]
    DuplicatePartition { partition: Partition },
    #[error("a flush of rows or dead letters moves no position: committing it again would double them")]
    NothingMoves,
    #[error("{path} of table {table} is not a path")]
    FilePath { table: String, path: String, source: object_store::path::Error },
    #[error("cannot upload {path} to table {table}")]
    Upload { table: String, path: String, source: object_store::Error },
    #[error("version {version} of table {table} was not written")]
    WriteLog { table: String, version: u64, source: Source },
    #[error("whether version {version} of table {table} was written is not known yet: {unsettled}")]
    Unsettled { table: String, version: u64, unsettled: Source, source: Source },
    #[error("the store did not answer within {after:?}")]
    NoAnswer { after: Duration },
    #[error("table {table}: {attempts} attempts to commit lost against other writers")]
    Contended { table: String, attempts: u32 },

    #[error("cannot read rows of table {table}")]
    Scan { table: String, source: Source },
    #[error("table {table} has no column {column}")]
    NoColumn { table: String, column: String },
    #[error("there is no table in {table}")]
    NoTable { table: String },
    #[error("column {column} of table {table} has another type or another spelling than the one to be added")]
    Moved { table: String, column: String },
    #[error("column {column} of table {table} does not hold partition and offset")]
    KafkaColumn { table: String, column: String },
    #[error("cannot write a checkpoint of table {table}")]
    Checkpoint { table: String, source: Source },
    #[error("cannot clean up the log of table {table}")]
    Cleanup { table: String, source: Source },
    #[error("the thread of the maintenance of table {table} failed")]
    Maintenance { table: String, source: Source },
    #[error("a worker thread of table {table} failed")]
    Worker { table: String, source: tokio::task::JoinError },
}

/// Why a table must not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Transactions expire, and with them the positions.
    TransactionRetention,
    ReaderVersion(i32),
    WriterVersion(i32),
    /// A table feature that this writer does not keep up.
    Feature(String),
    /// A CHECK constraint, by its name.
    Constraint(String),
    /// A column whose values another engine must check or make.
    Invariant(String),
    Generated(String),
    Identity(String),
    ColumnMapping(String),
    InCommitTimestamps,
    Format(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TransactionRetention => {
                f.write_str("delta.setTransactionRetentionDuration is set, so that stored positions would expire")
            }
            Self::ReaderVersion(version) => write!(f, "it needs readers of version {version}"),
            Self::WriterVersion(version) => write!(f, "it needs writers of version {version}"),
            Self::Feature(name) => write!(f, "it has the feature {name}, which is not supported"),
            Self::Constraint(name) => write!(f, "it has the CHECK constraint {name}, which is not enforced here"),
            Self::Invariant(column) => write!(f, "column {column} has an invariant, which is not enforced here"),
            Self::Generated(column) => write!(f, "column {column} is generated from others, which is not done here"),
            Self::Identity(column) => write!(f, "column {column} numbers its rows, which is not done here"),
            Self::ColumnMapping(mode) => write!(f, "it maps columns by {mode}, which is not supported"),
            Self::InCommitTimestamps => f.write_str("it has in-commit timestamps, which are not supported"),
            Self::Format(provider) => write!(f, "its files are {provider}, not Parquet"),
        }
    }
}

impl Refusal {
    fn hint(&self) -> String {
        match self {
            Self::TransactionRetention => "ALTER TABLE … UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
            Self::Constraint(_) => "drop the constraint, or let the pipeline reject such records and use a new table",
            Self::ColumnMapping(_) => "write to a table without column mapping",
            Self::InCommitTimestamps => "ALTER TABLE … SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')",
            Self::Invariant(_) | Self::Generated(_) | Self::Identity(_) => {
                "drop the column's rule, or write to a table without it"
            }
            Self::Feature(_) | Self::ReaderVersion(_) | Self::WriterVersion(_) | Self::Format(_) => {
                "drop the feature (ALTER TABLE … DROP FEATURE), or write to another table"
            }
        }
        .to_owned()
    }
}

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Location { .. }
            | Self::SameLocation { .. }
            | Self::CreateDirectory { .. }
            | Self::OpenStore { .. }
            | Self::LockingProvider { .. }
            | Self::ConditionalPutMissing { .. }
            | Self::ConditionalPutIgnored { .. }
            | Self::Unreadable { .. }
            | Self::Refused { .. }
            | Self::PartitionColumns { .. }
            | Self::ColumnName { .. }
            | Self::PartitionColumnMissing { .. }
            | Self::PartitionColumnType { .. }
            | Self::PartitionValue { .. }
            | Self::NothingButPartitions
            | Self::TableSchema { .. }
            | Self::DeadLettersSchema { .. }
            | Self::LettersGone { .. }
            | Self::NotNull { .. }
            | Self::ParseLog { .. }
            | Self::LogHole { .. }
            | Self::NoColumn { .. }
            | Self::NoTable { .. }
            | Self::Moved { .. }
            | Self::KafkaColumn { .. } => ErrorClass::User,
            Self::Probe { source, .. }
            | Self::ListLog { source, .. }
            | Self::ListFiles { source, .. }
            | Self::ReadLog { source, .. }
            | Self::LettersFile { source, .. }
            | Self::Upload { source, .. } => class_of(source),
            Self::WriteLog { source, .. } | Self::Load { source, .. } | Self::Scan { source, .. } => {
                class_of(source.as_ref())
            }
            Self::Unsettled { .. }
            | Self::NoAnswer { .. }
            | Self::Contended { .. }
            | Self::Checkpoint { .. }
            | Self::Cleanup { .. }
            | Self::Maintenance { .. } => ErrorClass::External,
            Self::ColumnType { .. }
            | Self::BatchSchema { .. }
            | Self::Divide { .. }
            | Self::Encode { .. }
            | Self::EncodeEntry { .. }
            | Self::DeadLetterRows { .. }
            | Self::FilePath { .. }
            | Self::DuplicatePartition { .. }
            | Self::NothingMoves
            | Self::Worker { .. } => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Location { .. } => "use a directory, or a URL that starts with file:// or s3://",
            Self::SameLocation { .. } => "give dead_letters a location of its own",
            Self::CreateDirectory { .. } => "check that the directory above exists and may be written",
            Self::OpenStore { .. } => "check the table's URL and the storage options",
            Self::LockingProvider { .. } => {
                "remove the option: commits use conditional puts, which S3 has; every other writer of the table must too"
            }
            Self::ConditionalPutMissing { .. } | Self::ConditionalPutIgnored { .. } => {
                "use a store with conditional puts (If-None-Match), and leave aws_conditional_put at its default"
            }
            Self::Refused { refusal, .. } => return Some(refusal.hint()),
            Self::PartitionColumns { .. } => "make partition_by the table's own, or write to a new table",
            Self::PartitionColumnMissing { .. } => "add the column to the schema, or take it out of partition_by",
            Self::PartitionColumnType { .. } => "partition by a boolean, integer, decimal, string, date or timestamp",
            Self::PartitionValue { .. } => "reject such records in a plugin, or partition by another column",
            Self::NoTable { .. } => "the pipeline's first commit makes it with all its columns: `alluvium run`",
            Self::Moved { .. } => "another writer changed the table meanwhile: look again with `alluvium schema diff`",
            Self::ColumnName { .. } => "give the column a name without spaces and any of ,;{}()=",
            Self::NothingButPartitions => "take at least one column out of partition_by",
            Self::NotNull { .. } => {
                "nothing was committed; give the column a value in every row, or ALTER TABLE … ALTER COLUMN … DROP NOT NULL: \
                 inside structs, lists and maps, rows cannot promise it is never null"
            }
            Self::DeadLettersSchema { .. } => "give the dead letters a new table",
            Self::LettersGone { .. } => {
                "put it back from a backup, or read the topic anew with a new generation; a VACUUM or log cleanup with a short retention removed it"
            }
            Self::Unreadable { .. } => "another engine may have given the table a feature that is not supported here",
            Self::KafkaColumn { .. } => "name the pipeline's metadata column; it must hold partition and offset",
            Self::ParseLog { .. } | Self::LogHole { .. } => {
                "no engine can read the table as it is: put the entry back from a backup of the log"
            }
            Self::Probe { .. }
            | Self::ListLog { .. }
            | Self::ListFiles { .. }
            | Self::LettersFile { .. }
            | Self::Load { .. }
            | Self::Scan { .. }
            | Self::ReadLog { .. }
            | Self::Upload { .. }
            | Self::WriteLog { .. }
                if self.class() == ErrorClass::User =>
            {
                if is_local(self) {
                    "make room, or let the process write there; then start again: nothing is lost"
                } else {
                    "check the credentials and what they permit: list, get, put and delete"
                }
            }
            Self::Load { .. }
            | Self::ListLog { .. }
            | Self::ListFiles { .. }
            | Self::ReadLog { .. }
            | Self::Probe { .. } => "check that the store can be reached with these storage options",
            Self::Unsettled { .. } | Self::WriteLog { .. } | Self::NoAnswer { .. } => {
                "nothing is lost: the same flush is committed again, or found to have landed"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// What refuses will refuse again, and a full disk stays full until somebody makes room; everything
/// else may pass.
fn class_of(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
    if is_refused(error) || is_local(error) { ErrorClass::User } else { ErrorClass::External }
}

fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(|cause| {
        matches!(
            cause,
            object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. }
                | object_store::Error::UnknownConfigurationKey { .. }
        )
    })
}

/// Whether a local disk is full, or may not be written.
fn is_local(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = [StorageFull, QuotaExceeded, ReadOnlyFilesystem, PermissionDenied];
    causes(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(|cause| kinds.contains(&cause.kind()))
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}
