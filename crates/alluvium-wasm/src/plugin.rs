//! A component from its bytes to a configured plugin.

use crate::access::{ColumnAccess, column_access};
use crate::admit::{Candidate, Kind, examine};
use crate::column::ColumnPlugin;
use crate::contract::{ColumnContract, Description, MappingContract, RecordContract};
use crate::error::{AdmitError, CallError, ConfigureError, DescriptionProblem, Function, PluginLabel, is_wild, said};
use crate::host::Host;
use crate::instance::{Sandbox, Session, StoreData};
use crate::limits::{ANSWER_BYTES, Limits};
use crate::mapping::MappingPlugin;
use crate::record::RecordPlugin;
use alluvium_core::PluginRef;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use wasmtime::Store;
use wasmtime::component::{Component, Instance, InstancePre};

/// An admitted plugin: compiled, linked, and known by its description.
#[derive(Clone)]
pub struct Plugin {
    sandbox: Sandbox,
    contract: Contract,
    description: Description,
}

#[derive(Clone)]
enum Contract {
    Column(ColumnContract),
    Record(RecordContract),
    Mapping(MappingContract),
}

impl Host {
    /// Admits a component as the plugin `name`, or says why not. In this order: its size, that it is
    /// a component, that it is valid within the features allowed, that it imports nothing, that it
    /// exports one of the contract's interfaces in a supported version, that its memory fits, that it compiles in time,
    /// that it starts, and that it describes itself.
    ///
    /// Blocks for as long as compiling takes.
    pub fn admit(self: &Arc<Self>, name: &str, component: &[u8], limits: &Limits) -> Result<Plugin, AdmitError> {
        let plugin = PluginLabel::new(name, digest(component));
        // Malformed components have made parsers and compilers panic before.
        let admit = AssertUnwindSafe(|| self.admit_as(plugin.clone(), component, limits));
        catch_unwind(admit).unwrap_or(Err(AdmitError::CompilerPanic { plugin }))
    }

    fn admit_as(
        self: &Arc<Self>,
        plugin: PluginLabel,
        component: &[u8],
        limits: &Limits,
    ) -> Result<Plugin, AdmitError> {
        if limits.memory > self.config.max_memory {
            let (limit, allowed) = (limits.memory, self.config.max_memory);
            return Err(AdmitError::MemoryLimit { plugin, limit, allowed });
        }
        let candidate = examine(&plugin, component, &self.config, limits)?;
        let compiled = self.compile(&plugin, component)?;
        let linked = self.linker.instantiate_pre(&compiled);
        let linked = linked.map_err(|source| AdmitError::Compile { plugin: plugin.clone(), source })?;
        let contract = link(&plugin, candidate, linked)?;
        let sandbox = Sandbox { host: Arc::clone(self), plugin, limits: *limits };
        let description = describe(&sandbox, candidate, &contract)?;
        tracing::debug!(plugin = %sandbox.plugin, kind = candidate.kind.as_str(), "plugin admitted");
        Ok(Plugin { sandbox, contract, description })
    }

    /// Compiles on a thread of its own. One that takes too long cannot be stopped, but it keeps its
    /// place among the few compilers, so that it cannot be repeated at will.
    fn compile(self: &Arc<Self>, plugin: &PluginLabel, component: &[u8]) -> Result<Component, AdmitError> {
        let limit = self.config.compile_time;
        let busy = || AdmitError::CompileBusy { plugin: plugin.clone() };
        let slot = self.compilers.take(limit.max(self.config.wait)).ok_or_else(busy)?;
        let (answer, answered) = channel();
        let engine = self.engine.clone();
        let bytes = component.to_vec();
        let work = move || {
            let compiled = Component::from_binary(&engine, &bytes);
            drop(slot);
            answer.send(compiled)
        };
        // The compiler recurses as deep as the code nests.
        let thread = thread::Builder::new().name("plugin-compiler".to_owned()).stack_size(16 << 20).spawn(work);
        thread.map_err(|_| busy())?;
        match answered.recv_timeout(limit) {
            Ok(Ok(compiled)) => Ok(compiled),
            Ok(Err(source)) => Err(AdmitError::Compile { plugin: plugin.clone(), source }),
            Err(RecvTimeoutError::Timeout) => Err(AdmitError::CompileTime { plugin: plugin.clone(), limit }),
            Err(RecvTimeoutError::Disconnected) => Err(AdmitError::CompilerPanic { plugin: plugin.clone() }),
        }
    }
}

impl Plugin {
    /// The name it was admitted under, and its digest.
    pub fn reference(&self) -> &PluginRef {
        &self.sandbox.plugin.0
    }

    pub fn name(&self) -> &str {
        &self.reference().name
    }

    /// `sha256:` and 64 hex digits, of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.reference().digest
    }

    pub fn kind(&self) -> Kind {
        match self.contract {
            Contract::Column(_) => Kind::Column,
            Contract::Record(_) => Kind::Record,
            Contract::Mapping(_) => Kind::Mapping,
        }
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    pub fn limits(&self) -> &Limits {
        &self.sandbox.limits
    }

    /// Hands the configuration to a column plugin and checks the columns it asks for.
    pub fn configure_column(&self, config: &Value) -> Result<ColumnPlugin, ConfigureError> {
        let Contract::Column(contract) = &self.contract else {
            return Err(self.wrong_kind(Kind::Column));
        };
        let config = config.to_string();
        let answer = self.sandbox.enter(|session| {
            let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
            session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, &config))
        });
        let raw = self.configured(answer)?;
        let access: ColumnAccess = column_access(&raw)
            .map_err(|problem| ConfigureError::Access { plugin: self.sandbox.plugin.clone(), problem })?;
        Ok(ColumnPlugin::new(self.sandbox.clone(), contract.clone(), config, raw, access))
    }

    /// Hands the configuration to a record plugin.
    pub fn configure_record(&self, config: &Value) -> Result<RecordPlugin, ConfigureError> {
        let Contract::Record(contract) = &self.contract else {
            return Err(self.wrong_kind(Kind::Record));
        };
        let config = config.to_string();
        let answer = self.sandbox.enter(|session| {
            let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
            session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, &config))
        });
        let access = self.configured(answer)?;
        Ok(RecordPlugin::new(self.sandbox.clone(), contract.clone(), config, access))
    }

    /// Hands the configuration to a mapping plugin.
    pub fn configure_mapping(&self, config: &Value) -> Result<MappingPlugin, ConfigureError> {
        let Contract::Mapping(contract) = &self.contract else {
            return Err(self.wrong_kind(Kind::Mapping));
        };
        let config = config.to_string();
        let answer = self.sandbox.enter(|session| {
            let instance = session.instance(|store| contract.start(store), |store, new| contract.load(store, new))?;
            session.call(Function::Configure, ANSWER_BYTES, |store| instance.configure(store, &config))
        });
        self.configured(answer)?;
        Ok(MappingPlugin::new(self.sandbox.clone(), contract.clone(), config))
    }

    fn configured<T>(&self, answer: Result<Result<T, String>, CallError>) -> Result<T, ConfigureError> {
        let answer = answer.map_err(|error| ConfigureError::Call { error })?;
        answer
            .map_err(|message| ConfigureError::Refused { plugin: self.sandbox.plugin.clone(), message: said(&message) })
    }

    fn wrong_kind(&self, wanted: Kind) -> ConfigureError {
        let (found, wanted) = (self.kind().as_str(), wanted.as_str());
        ConfigureError::Kind { plugin: self.sandbox.plugin.clone(), found, wanted }
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("plugin", &self.sandbox.plugin)
            .field("kind", &self.kind())
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// `sha256:` and the digest of `bytes` in hex: a plugin's identity.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

fn link(plugin: &PluginLabel, candidate: Candidate, component: InstancePre<StoreData>) -> Result<Contract, AdmitError> {
    let linked = match candidate.kind {
        Kind::Column => ColumnContract::link(candidate.version, component).map(Contract::Column),
        Kind::Record => RecordContract::link(candidate.version, component).map(Contract::Record),
        Kind::Mapping => MappingContract::link(candidate.version, component).map(Contract::Mapping),
    };
    let interface = candidate.interface();
    linked.map_err(|source| AdmitError::Contract { plugin: plugin.clone(), interface, source })
}

/// Starts the component for the first time, checks its functions' types, and asks what it is.
fn describe(sandbox: &Sandbox, candidate: Candidate, contract: &Contract) -> Result<Description, AdmitError> {
    let described = sandbox.enter(|session| match contract {
        Contract::Column(contract) => first_run(
            session,
            |store| contract.start(store),
            |store, new| contract.load(store, new),
            |store, instance| instance.describe(store),
        ),
        Contract::Record(contract) => first_run(
            session,
            |store| contract.start(store),
            |store, new| contract.load(store, new),
            |store, instance| instance.describe(store),
        ),
        Contract::Mapping(contract) => first_run(
            session,
            |store| contract.start(store),
            |store, new| contract.load(store, new),
            |store, instance| instance.describe(store),
        ),
    });
    let plugin = || sandbox.plugin.clone();
    let described = described.map_err(|error| AdmitError::FirstRun { error })?;
    let interface = candidate.interface();
    let description = described.map_err(|source| AdmitError::Contract { plugin: plugin(), interface, source })?;
    check_description(description).map_err(|problem| AdmitError::Description { plugin: plugin(), problem })
}

/// The outer error is the plugin's failure; the inner one says that it does not keep the contract.
fn first_run<I>(
    session: &mut Session<'_>,
    start: impl FnOnce(&mut Store<StoreData>) -> wasmtime::Result<Instance>,
    load: impl FnOnce(&mut Store<StoreData>, &Instance) -> wasmtime::Result<I>,
    describe: impl FnOnce(&mut Store<StoreData>, &I) -> wasmtime::Result<Description>,
) -> Result<wasmtime::Result<Description>, CallError> {
    let new = session.call(Function::Start, 0, start)?;
    let instance = match session.load(|store| load(store, &new)) {
        Ok(instance) => instance,
        Err(error) => return Ok(Err(error)),
    };
    session.call(Function::Describe, ANSWER_BYTES, |store| describe(store, &instance)).map(Ok)
}

fn check_description(description: Description) -> Result<Description, DescriptionProblem> {
    let lengths = [
        ("name", &description.name, 128),
        ("version", &description.version, 128),
        ("summary", &description.summary, 1000),
        ("configuration's schema", &description.config_schema, 256 << 10),
    ];
    for (field, text, limit) in lengths {
        if text.len() > limit {
            return Err(DescriptionProblem::TooLong { field, length: text.len(), limit });
        }
    }
    for (field, text, _) in lengths.into_iter().take(3) {
        if let Some(character) = text.chars().find(|character| is_wild(*character)) {
            return Err(DescriptionProblem::Character { field, character });
        }
    }
    if description.name.trim().is_empty() {
        return Err(DescriptionProblem::Empty { field: "name" });
    }
    if !description.config_schema.is_empty() {
        let schema: Result<Value, _> = serde_json::from_str(&description.config_schema);
        schema.map_err(|error| DescriptionProblem::Schema { problem: error.to_string() })?;
    }
    Ok(description)
}
