//! From files to what a pipeline is made of.

use crate::failure::Failure;
use alluvium_config::{Mapping, Pipeline, PluginSource, Setting, Transform};
use alluvium_core::PluginRef;
use alluvium_delta::{DeltaConfig, DeltaReader, DeltaSink};
use alluvium_kafka::KafkaConfig;
use alluvium_runtime::Plugins;
use alluvium_wasm::{ColumnPlugin, Host, HostConfig, Kind, Limits, MappingPlugin, RecordPlugin};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A pipeline file with its plugins, admitted and configured.
#[derive(Debug)]
pub struct Loaded {
    pub file: PathBuf,
    pub pipeline: Arc<Pipeline>,
    pub plugins: Plugins,
}

/// Reads a pipeline file; its errors are all told at once.
pub fn pipeline(file: &Path) -> Result<Pipeline, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::input(format!("{} cannot be read: {error}", file.display()))
            .with_hint("give the path of a pipeline file, as in examples/orders.toml")
    })?;
    alluvium_config::parse(&text, &file.display().to_string()).map_err(Failure::input)
}

pub fn host() -> Result<Arc<Host>, Failure> {
    Host::new(HostConfig::default()).map_err(|error| Failure::classified(&error))
}

/// Reads a pipeline file, and admits and configures its plugins; what speaks against any of them is
/// told at once.
pub fn load(file: &Path, host: &Arc<Host>) -> Result<Loaded, Failure> {
    let pipeline = pipeline(file)?;
    let (mut records, mut columns, mut mapping, mut failures) = (Vec::new(), Vec::new(), None, Vec::new());
    for transform in &pipeline.transforms {
        let after_column = !columns.is_empty();
        match plugin(file, &pipeline, transform, host, after_column) {
            Ok(Configured::Record(plugin)) => records.push(Arc::new(plugin)),
            Ok(Configured::Column(plugin)) => columns.push(Arc::new(plugin)),
            Ok(Configured::Mapping(plugin)) => failures.push(misplaced(file, transform, plugin.reference(), &MAPPING)),
            Err(failure) => failures.push(failure),
        }
    }
    if let Mapping::Plugin(transform) = &pipeline.schema.mapping {
        match plugin(file, &pipeline, transform, host, false) {
            Ok(Configured::Mapping(plugin)) => mapping = Some(Arc::new(plugin)),
            Ok(Configured::Record(plugin)) => {
                failures.push(misplaced(file, transform, plugin.reference(), &TRANSFORM));
            }
            Ok(Configured::Column(plugin)) => {
                failures.push(misplaced(file, transform, plugin.reference(), &TRANSFORM));
            }
            Err(failure) => failures.push(failure),
        }
    }
    if failures.len() > 1 {
        let all: Vec<String> = failures.iter().map(Failure::to_string).collect();
        return Err(Failure::input(all.join("\n")));
    }
    if let Some(failure) = failures.pop() {
        return Err(failure);
    }
    let mut plugins = Plugins::new(records, columns);
    if let Some(mapping) = mapping {
        plugins = plugins.with_mapping(mapping);
    }
    Ok(Loaded { file: file.to_owned(), pipeline: Arc::new(pipeline), plugins })
}

enum Configured {
    Record(RecordPlugin),
    Column(ColumnPlugin),
    Mapping(MappingPlugin),
}

/// What a plugin in the wrong place is, and where it belongs.
const MAPPING: [&str; 2] = ["decides on the mapping", "name it as `mapping = { plugin = … }` in [schema]"];
const TRANSFORM: [&str; 2] = ["transforms records", "name it in a [[transform]] table"];

fn misplaced(file: &Path, transform: &Transform, plugin: &PluginRef, [what, hint]: &[&str; 2]) -> Failure {
    let (line, column) = transform.at;
    Failure::input(format!("{}:{line}:{column}: {} {what}", file.display(), plugin.name)).with_hint(*hint)
}

fn plugin(
    file: &Path,
    pipeline: &Pipeline,
    transform: &Transform,
    host: &Arc<Host>,
    after_column: bool,
) -> Result<Configured, Failure> {
    let (line, column) = transform.at;
    let here = format!("{}:{line}:{column}", file.display());
    let PluginSource::File(path) = &transform.plugin else {
        return Err(Failure::input(format!("{here}: plugins are given as files")));
    };
    let path = beside(file, path);
    let component = std::fs::read(&path)
        .map_err(|error| Failure::input(format!("{here}: plugin {} cannot be read: {error}", path.display())))?;
    let name = path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned());
    let plugin =
        host.admit(&name, &component, &limits(pipeline)).map_err(|error| Failure::classified(&error).context(&here))?;
    match plugin.kind() {
        Kind::Record if after_column => {
            Err(Failure::input(format!("{here}: {name} is a record plugin, but stands after a column plugin"))
                .with_hint("records pass record plugins before they are decoded: move it up"))
        }
        Kind::Record => plugin
            .configure_record(&transform.with)
            .map(Configured::Record)
            .map_err(|error| Failure::classified(&error).context(&here)),
        Kind::Mapping => plugin
            .configure_mapping(&transform.with)
            .map(Configured::Mapping)
            .map_err(|error| Failure::classified(&error).context(&here)),
        Kind::Column => plugin
            .configure_column(&transform.with)
            .map(Configured::Column)
            .map_err(|error| Failure::classified(&error).context(&here)),
    }
}

fn limits(pipeline: &Pipeline) -> Limits {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let limits = &pipeline.limits;
    Limits { memory: size(limits.memory), time: limits.time, output: size(limits.output), ..Limits::default() }
}

/// A path of a pipeline file: relative ones start at the file's directory.
pub fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// A table's place: a URL as it is, a path beside the pipeline file.
fn place(file: &Path, place: &str) -> String {
    if place.contains("://") { place.to_owned() } else { beside(file, place).display().to_string() }
}

/// Where the pipeline's tables are.
pub fn delta_config(file: &Path, pipeline: &Pipeline) -> Result<DeltaConfig, Failure> {
    Ok(DeltaConfig {
        table: place(file, &pipeline.sink.table),
        dead_letters: place(file, &pipeline.sink.dead_letters),
        pipeline: pipeline.id.clone(),
        topic: pipeline.source.topic.clone(),
        partition_by: pipeline.sink.partition_by.clone(),
        storage: settings(file, &pipeline.sink.storage)?,
        file_size: pipeline.flush.size,
    })
}

/// The pipeline's table, to be written.
pub async fn sink(file: &Path, pipeline: &Pipeline) -> Result<DeltaSink, Failure> {
    let config = delta_config(file, pipeline)?;
    DeltaSink::open(config).await.map_err(|error| Failure::classified(&error))
}

/// The pipeline's table, to be read: nothing is created or tried out.
pub fn tables(file: &Path, pipeline: &Pipeline) -> Result<DeltaReader, Failure> {
    let config = delta_config(file, pipeline)?;
    DeltaReader::open(config).map_err(|error| Failure::classified(&error))
}

/// The pipeline's table, to be read: a local one must be there.
pub fn existing_tables(file: &Path, pipeline: &Pipeline) -> Result<DeltaReader, Failure> {
    let table = place(file, &pipeline.sink.table);
    if !table.contains("://") && !Path::new(&table).is_dir() {
        return Err(Failure::input(format!("there is no table in {table}"))
            .with_hint("it is made by the first commit of `alluvium run`; check `table` in the pipeline file"));
    }
    tables(file, pipeline)
}

/// The pipeline's topic.
pub fn kafka_config(file: &Path, pipeline: &Pipeline) -> Result<KafkaConfig, Failure> {
    let group = pipeline.source.group.clone();
    let id = &pipeline.id;
    let own = || format!("alluvium.{}.{}.{}", id.tenant(), id.name(), id.generation());
    Ok(KafkaConfig {
        brokers: pipeline.source.brokers.clone(),
        topic: pipeline.source.topic.clone(),
        group: group.unwrap_or_else(own),
        settings: settings(file, &pipeline.source.kafka)?,
        client_id: "alluvium".to_owned(),
    })
}

/// Settings with their secrets, from the environment or from files.
fn settings(file: &Path, settings: &[(String, Setting)]) -> Result<Vec<(String, String)>, Failure> {
    let resolve = |(key, setting): &(String, Setting)| {
        let value = match setting {
            Setting::Plain(value) => value.clone(),
            Setting::Env(name) => std::env::var(name).map_err(|_| {
                Failure::input(format!("{}: {key} is taken from ${name}, which is not set", file.display()))
                    .with_hint(format!("set {name} in the environment"))
            })?,
            Setting::File(path) => {
                let path = beside(file, path);
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    Failure::input(format!("{}: {key} is taken from {}: {error}", file.display(), path.display()))
                })?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
        };
        Ok((key.clone(), value))
    };
    settings.iter().map(resolve).collect()
}
