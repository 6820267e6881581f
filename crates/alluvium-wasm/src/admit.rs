//! The gate: what is checked of a component before any of it is compiled.

use crate::contract::{COLUMN, RECORD, VERSIONS};
use crate::error::{AdmitError, PluginLabel, tame};
use crate::host::HostConfig;
use wasmparser::component_types::{ComponentEntityType, ComponentInstanceTypeId};
use wasmparser::types::TypesRef;
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};

/// Which kind of transform a plugin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sees typed columns, after decoding.
    Column,
    /// Sees raw bytes, before decoding.
    Record,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Column => "column",
            Self::Record => "record",
        }
    }

    pub(crate) fn interface(self) -> &'static str {
        match self {
            Self::Column => COLUMN,
            Self::Record => RECORD,
        }
    }
}

/// A component that may be compiled: what it is, by its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub kind: Kind,
    /// The contract's version, one of [`VERSIONS`].
    pub version: &'static str,
}

impl Candidate {
    /// The interface it exports, with the version.
    pub fn interface(&self) -> String {
        format!("{}@{}", self.kind.interface(), self.version)
    }
}

/// What a component may use; the engine's configuration allows the same.
pub(crate) fn features() -> WasmFeatures {
    WasmFeatures::WASM2 | WasmFeatures::EXTENDED_CONST | WasmFeatures::COMPONENT_MODEL
}

/// Checks size, form, imports and exports of a component.
pub(crate) fn examine(plugin: &PluginLabel, component: &[u8], host: &HostConfig) -> Result<Candidate, AdmitError> {
    if component.len() > host.max_component {
        let (size, limit) = (component.len(), host.max_component);
        return Err(AdmitError::TooLarge { plugin: plugin.clone(), size, limit });
    }
    if let Some(found) = not_component(component) {
        return Err(AdmitError::NotComponent { plugin: plugin.clone(), found });
    }
    let types = Validator::new_with_features(features())
        .validate_all(component)
        .map_err(|source| AdmitError::Invalid { plugin: plugin.clone(), source })?;
    let names = names(component).map_err(|source| AdmitError::Invalid { plugin: plugin.clone(), source })?;
    let types = types.as_ref();
    let imports: Vec<_> = names.imports.into_iter().filter(|name| !holds_only_types(types, name)).collect();
    if !imports.is_empty() {
        return Err(AdmitError::Imports { plugin: plugin.clone(), imports });
    }
    world(plugin, names.exports)
}

/// What the bytes are when they are no component.
fn not_component(bytes: &[u8]) -> Option<&'static str> {
    if Parser::is_component(bytes) {
        return None;
    }
    Some(if bytes.is_empty() {
        "empty"
    } else if Parser::is_core_wasm(bytes) {
        "a core module"
    } else if bytes.starts_with(b"\0asm") {
        "WebAssembly of an unknown version"
    } else if bytes.trim_ascii_start().starts_with(b"(") {
        "WebAssembly text"
    } else {
        "something else"
    })
}

#[derive(Default)]
struct Names {
    imports: Vec<String>,
    exports: Vec<String>,
}

/// The names of the outermost component's imports and exports.
fn names(component: &[u8]) -> Result<Names, wasmparser::BinaryReaderError> {
    let mut names = Names::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { encoding: Encoding::Component | Encoding::Module, .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    names.imports.push(tame(import?.name.name));
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    names.exports.push(tame(export?.name.name));
                }
            }
            _ => {}
        }
    }
    Ok(names)
}

/// Whether an import brings nothing that could be called or held: types are there for others to use.
fn holds_only_types(types: TypesRef<'_>, import: &str) -> bool {
    match types.component_item_for_import(import).map(|item| &item.ty) {
        Some(ComponentEntityType::Instance(id)) => instance_holds_only_types(types, *id),
        Some(ty) => is_plain_type(ty),
        None => false,
    }
}

fn instance_holds_only_types(types: TypesRef<'_>, id: ComponentInstanceTypeId) -> bool {
    let instance = &types[id];
    instance.defined_resources.is_empty() && instance.exports.values().all(|item| is_plain_type(&item.ty))
}

fn is_plain_type(ty: &ComponentEntityType) -> bool {
    use wasmparser::component_types::ComponentAnyTypeId;
    matches!(ty, ComponentEntityType::Type { created, .. } if !matches!(created, ComponentAnyTypeId::Resource(_)))
}

/// Which transform the exports make, of which version.
fn world(plugin: &PluginLabel, exports: Vec<String>) -> Result<Candidate, AdmitError> {
    let supported = || VERSIONS.iter().flat_map(|version| [COLUMN, RECORD].map(|name| format!("{name}@{version}")));
    let candidates: Vec<_> = [Kind::Column, Kind::Record]
        .into_iter()
        .filter_map(|kind| {
            let version = VERSIONS.iter().find(|version| {
                let wanted = (kind.interface(), **version);
                exports.iter().any(|export| export.split_once('@') == Some(wanted))
            });
            version.map(|version| Candidate { kind, version })
        })
        .collect();
    match candidates.as_slice() {
        [candidate] => return Ok(*candidate),
        [_, ..] => return Err(AdmitError::Both { plugin: plugin.clone() }),
        [] => {}
    }
    let other_version = exports.iter().find(|export| {
        let name = export.split_once('@').map_or(export.as_str(), |(name, _)| name);
        name == COLUMN || name == RECORD
    });
    Err(match other_version {
        Some(found) => {
            AdmitError::Version { plugin: plugin.clone(), found: found.clone(), supported: supported().collect() }
        }
        None => AdmitError::World {
            plugin: plugin.clone(),
            exports,
            supported: [COLUMN, RECORD].map(|name| format!("{name}@{}", VERSIONS[0])).to_vec(),
        },
    })
}
