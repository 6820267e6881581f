//! `[sink]`

use crate::ErrorKind;
use crate::column::column_name;
use crate::location::{self, Location};
use crate::pipeline::{Metadata, Sink};
use crate::reader::{Item, Table};
use crate::report::Problem;
use crate::schema::same;
use crate::setting::{self, Setting};
use crate::snippet::quoted;
use crate::suggest::did_you_mean;
use std::ops::Range;
use toml::de::DeValue;

/// A sink with the places of the columns that it names.
pub(crate) struct Draft<'a> {
    pub sink: Sink,
    pub partition_by: Vec<(&'a str, Item<'a>)>,
    /// Metadata columns that are set in the file, sound ones.
    pub metadata: Vec<(&'a str, Item<'a>)>,
}

impl Draft<'_> {
    fn new() -> Self {
        let sink = Sink {
            table: String::new(),
            dead_letters: String::new(),
            partition_by: Vec::new(),
            metadata: Metadata::default(),
            storage: Vec::new(),
        };
        Self { sink, partition_by: Vec::new(), metadata: Vec::new() }
    }
}

pub(crate) fn read(table: Option<Table<'_>>) -> Draft<'_> {
    let mut draft = Draft::new();
    let Some(table) = table else { return draft };
    let item = table.required("table", "table = \"s3://lake/acme/orders\"");
    let location = item.as_ref().and_then(location::read);
    if let Some(text) = item.as_ref().and_then(text_of) {
        draft.sink.table = text.to_owned();
        draft.sink.dead_letters = format!("{}_dead_letters", text.trim_end_matches('/'));
    }
    if let Some(item) = table.optional("dead_letters") {
        let dead_letters = location::read(&item);
        draft.sink.dead_letters = text_of(&item).unwrap_or_default().to_owned();
        if let (Some(location), Some(dead_letters)) = (location, dead_letters) {
            check_apart(&item, &location, &dead_letters);
        }
    }
    if let Some(item) = table.optional("partition_by") {
        draft.partition_by = partition_by(&item);
        draft.sink.partition_by = draft.partition_by.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    if let Some(metadata) = table.section("metadata", "[sink.metadata]") {
        read_metadata(metadata, &mut draft);
    }
    if let Some(item) = table.optional("storage") {
        draft.sink.storage = storage(&item);
    }
    table.finish();
    draft
}

fn text_of<'a>(item: &Item<'a>) -> Option<&'a str> {
    match item.value() {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

fn check_apart(item: &Item<'_>, table: &Location, dead_letters: &Location) {
    if table.overlaps(dead_letters) {
        let message = if table == dead_letters {
            "`dead_letters` is the table itself"
        } else {
            "one of `table` and `dead_letters` lies inside of the other"
        };
        let problem = item.problem(ErrorKind::Conflict, message);
        item.report().add(
            problem.hint(
                "two tables need two places side by side; leave it out for `table` with `_dead_letters` at its end",
            ),
        );
    }
}

const MOST_PARTITION_COLUMNS: usize = 16;

fn partition_by<'a>(item: &Item<'a>) -> Vec<(&'a str, Item<'a>)> {
    let elements = item.elements("[\"order_date\"]").unwrap_or_default();
    if elements.len() > MOST_PARTITION_COLUMNS {
        let message = format!("{} has {} elements", item.shown(), elements.len());
        item.refuse(
            message,
            format!("at most {MOST_PARTITION_COLUMNS}; each combination of values is a file of every flush"),
        );
    }
    let mut columns: Vec<(&str, Item<'_>)> = Vec::new();
    for element in elements.into_iter().take(MOST_PARTITION_COLUMNS) {
        let Some(name) = column_name(&element) else { continue };
        if columns.iter().any(|(other, _)| same(other, name)) {
            let message = format!("the column {} stands here twice", quoted(name));
            element.report().add(element.problem(ErrorKind::Duplicate, message).hint("keep one of the two"));
        } else {
            columns.push((name, element));
        }
    }
    columns
}

fn read_metadata<'a>(table: Table<'a>, draft: &mut Draft<'a>) {
    let mut set = Vec::new();
    let metadata = &mut draft.sink.metadata;
    let mut optional = |key: &'static str, column: &mut Option<String>| {
        let Some(item) = table.optional(key) else { return };
        match item.value() {
            DeValue::Boolean(false) => *column = None,
            DeValue::String(_) => {
                if let Some(name) = column_name(&item) {
                    *column = Some(name.to_owned());
                    set.push((name, item));
                }
            }
            _ => item.report().add(item.wrong_type("the name of a column, or `false` to leave it out")),
        }
    };
    optional("kafka", &mut metadata.kafka);
    optional("key", &mut metadata.key);
    optional("headers", &mut metadata.headers);
    if let Some(item) = table.optional("rescued") {
        if matches!(item.value(), DeValue::Boolean(false)) {
            let problem = item.wrong_type("the name of a column");
            item.report().add(problem.hint("the column is only there when something can be rescued: declare the columns with `on_conflict` \"reject\" or \"stop\", and set `evolve` to \"stop\""));
        } else if let Some(name) = column_name(&item) {
            metadata.rescued = name.to_owned();
            set.push((name, item));
        }
    }
    table.finish();
    draft.metadata = set;
}

const MOST_OPTIONS: usize = 200;

/// Options that would let two writers overwrite each other's commits, or write elsewhere.
const REFUSED: &[(&str, &str)] = &[
    ("aws_s3_allow_unsafe_rename", "without a check two processes could overwrite each other's commits"),
    ("allow_unsafe_rename", "without a check two processes could overwrite each other's commits"),
    ("mount_allow_unsafe_rename", "without a check two processes could overwrite each other's commits"),
    ("aws_bucket", "the bucket is named in `table`"),
    ("aws_bucket_name", "the bucket is named in `table`"),
    ("bucket", "the bucket is named in `table`"),
    ("bucket_name", "the bucket is named in `table`"),
];

/// Common options, for misspelt ones; the store knows more.
const KNOWN: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_CHECKSUM_ALGORITHM",
    "AWS_CONDITIONAL_PUT",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_COPY_IF_NOT_EXISTS",
    "AWS_DEFAULT_REGION",
    "AWS_DISABLE_TAGGING",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_TIMEOUT",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_FORCE_CREDENTIAL_LOAD",
    "AWS_IAM_ROLE_ARN",
    "AWS_IAM_ROLE_SESSION_NAME",
    "AWS_IMDSV1_FALLBACK",
    "AWS_METADATA_ENDPOINT",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_REQUEST_PAYER",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_S3_ADDRESSING_STYLE",
    "AWS_S3_EXPRESS",
    "AWS_S3_LOCKING_PROVIDER",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_TOKEN",
    "AWS_UNSIGNED_PAYLOAD",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "max_retries",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "retry_timeout",
    "timeout",
    "user_agent",
];

fn storage(item: &Item<'_>) -> Vec<(String, Setting)> {
    let DeValue::Table(table) = item.value() else {
        let problem = item.wrong_type("a table of the object store's options");
        item.report().add(problem.hint("write storage = { AWS_REGION = \"eu-central-1\" }"));
        return Vec::new();
    };
    let mut entries = table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect::<Vec<_>>();
    entries.sort_by_key(|(_, span, _)| span.start);
    if entries.len() > MOST_OPTIONS {
        let message = format!("{} holds {} options", item.shown(), entries.len());
        item.report().add(item.problem(ErrorKind::Value, message).allowed(format!("at most {MOST_OPTIONS}")));
        entries.iter().for_each(|(_, _, value)| item.report().hide(value.span()));
        return Vec::new();
    }
    let mut settings: Vec<(String, Setting)> = Vec::new();
    for (key, span, value) in entries {
        let value = Item::new(quoted(key), key, value, item.report());
        if let Some(problem) = option_fault(key, &span, &value, &settings) {
            item.report().add(problem);
        } else if let Some(setting) = setting::read(key, &value) {
            if matches!(&setting, Setting::Plain(text) if text.eq_ignore_ascii_case("disabled"))
                && matches!(key.to_lowercase().as_str(), "aws_conditional_put" | "conditional_put")
            {
                let message = "conditional puts cannot be turned off: they keep two processes from overwriting each other's commits";
                item.report().add(value.problem(ErrorKind::Refused, message).hint("leave it out"));
            }
            settings.push((key.to_owned(), setting));
        }
    }
    settings
}

fn option_fault(key: &str, span: &Range<usize>, value: &Item<'_>, earlier: &[(String, Setting)]) -> Option<Problem> {
    let problem = |kind, message: String| Some(Problem::new(kind, span.clone(), message));
    if key.is_empty() || key.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return problem(ErrorKind::Value, format!("{} is not the name of an option", quoted(key)));
    }
    let lower = key.to_lowercase();
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == lower) {
        return problem(ErrorKind::Refused, format!("`{key}` cannot be set: {reason}")).map(|p| p.hint("leave it out"));
    }
    if earlier.iter().any(|(other, _)| other.to_lowercase() == lower) {
        let hint = "letter case does not count; keep one of the two";
        return problem(ErrorKind::Duplicate, format!("the option {} stands here twice", quoted(key)))
            .map(|p| p.hint(hint));
    }
    if KNOWN.iter().any(|known| known.to_lowercase() == lower) {
        return None;
    }
    let plain = KNOWN.iter().map(|known| known.trim_start_matches("AWS_"));
    if plain.clone().any(|known| known.to_lowercase() == lower) {
        return None;
    }
    let hint = did_you_mean(key, KNOWN.iter().copied().chain(plain))?;
    // A misspelt key can be one whose value is secret.
    if !matches!(value.value(), DeValue::Table(_)) {
        value.report().hide(value.span());
    }
    problem(ErrorKind::Unknown, format!("{} is not an option of the object store", quoted(key))).map(|p| p.hint(hint))
}
