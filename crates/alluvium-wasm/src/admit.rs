//! The gate: what is checked of a component before any of it is compiled.

use crate::contract::{COLUMN, MAPPING, RECORD, Version};
use crate::error::{AdmitError, PluginLabel, tame};
use crate::host::HostConfig;
use crate::limits::{Limits, TABLE_ELEMENTS};
use wasmparser::component_types::{ComponentEntityType, ComponentInstanceTypeId};
use wasmparser::types::TypesRef;
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};

/// The size of a page of linear memory.
const PAGE: usize = 64 << 10;

/// Which kind of plugin it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sees typed columns, after decoding.
    Column,
    /// Sees raw bytes, before decoding.
    Record,
    /// Sees what the records are like, and plans the table's columns.
    Mapping,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Column, Self::Record, Self::Mapping];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Column => "column",
            Self::Record => "record",
            Self::Mapping => "mapping",
        }
    }

    pub(crate) fn interface(self) -> &'static str {
        match self {
            Self::Column => COLUMN,
            Self::Record => RECORD,
            Self::Mapping => MAPPING,
        }
    }
}

/// A component that may be compiled: what it is, by its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub kind: Kind,
    pub version: Version,
}

impl Candidate {
    /// The interface it exports, with the version.
    pub fn interface(&self) -> String {
        format!("{}@{}", self.kind.interface(), self.version.as_str())
    }
}

/// What a component may use; the engine's configuration allows the same.
pub(crate) fn features() -> WasmFeatures {
    WasmFeatures::WASM2 | WasmFeatures::EXTENDED_CONST | WasmFeatures::COMPONENT_MODEL
}

/// Checks a component without running or compiling any of it: size, form, imports, exports, and the
/// memory that it starts with.
pub(crate) fn examine(
    plugin: &PluginLabel,
    component: &[u8],
    host: &HostConfig,
    limits: &Limits,
) -> Result<Candidate, AdmitError> {
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
    let outline = outline(component).map_err(|source| AdmitError::Invalid { plugin: plugin.clone(), source })?;
    let types = types.as_ref();
    let imports: Vec<_> = outline.imports.into_iter().filter(|name| !holds_only_types(types, name)).collect();
    if !imports.is_empty() {
        return Err(AdmitError::Imports { plugin: plugin.clone(), imports });
    }
    let candidate = world(plugin, outline.exports)?;
    let minimum = usize::try_from(outline.pages).unwrap_or(usize::MAX).saturating_mul(PAGE);
    if minimum > limits.memory {
        return Err(AdmitError::Memory { plugin: plugin.clone(), minimum, limit: limits.memory });
    }
    let limit = limits.table_elements.min(TABLE_ELEMENTS);
    if outline.elements > limit as u64 {
        return Err(AdmitError::Table { plugin: plugin.clone(), elements: outline.elements, limit });
    }
    Ok(candidate)
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

/// What the gate needs to know of a component's sections.
#[derive(Default)]
struct Outline {
    /// Names of the outermost component's imports and exports.
    imports: Vec<String>,
    exports: Vec<String>,
    /// Pages of the largest memory that a core module starts with.
    pages: u64,
    /// Elements of the largest table that a core module starts with.
    elements: u64,
}

fn outline(component: &[u8]) -> Result<Outline, wasmparser::BinaryReaderError> {
    let mut outline = Outline::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { encoding: Encoding::Component | Encoding::Module, .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    outline.imports.push(tame(import?.name.name));
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    outline.exports.push(tame(export?.name.name));
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    outline.pages = outline.pages.max(memory?.initial);
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    outline.elements = outline.elements.max(table?.ty.initial);
                }
            }
            _ => {}
        }
    }
    Ok(outline)
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

/// Which plugin the exports make, of which version.
fn world(plugin: &PluginLabel, exports: Vec<String>) -> Result<Candidate, AdmitError> {
    let interfaces = Kind::ALL
        .into_iter()
        .flat_map(|kind| Version::ALL.iter().map(move |version| Candidate { kind, version: *version }));
    // Of several versions of one kind the newest is used.
    let mut candidates: Vec<Candidate> = Vec::new();
    for interface in interfaces.clone() {
        let known = candidates.iter().any(|candidate| candidate.kind == interface.kind);
        if !known && exports.contains(&interface.interface()) {
            candidates.push(interface);
        }
    }
    match candidates.as_slice() {
        [candidate] => return Ok(*candidate),
        [_, ..] => {
            let exports = candidates.iter().map(Candidate::interface).collect();
            return Err(AdmitError::Both { plugin: plugin.clone(), exports });
        }
        [] => {}
    }
    let other_version = exports.iter().find(|export| {
        let name = export.split_once('@').map_or(export.as_str(), |(name, _)| name);
        Kind::ALL.iter().any(|kind| name == kind.interface())
    });
    let supported = interfaces.map(|interface| interface.interface()).collect();
    Err(match other_version {
        Some(found) => AdmitError::Version { plugin: plugin.clone(), found: found.clone(), supported },
        None => AdmitError::World { plugin: plugin.clone(), exports, supported },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_plugin_is_of_one_kind() {
        let plugin = PluginLabel::new("p", "sha256:0".to_owned());
        for kind in Kind::ALL {
            let candidate = Candidate { kind, version: Version::V0_1_0 };
            let other = "acme:plugin/extra@1.0.0".to_owned();
            assert_eq!(world(&plugin, vec![other, candidate.interface()]).unwrap(), candidate);
        }
        for (first, second) in [(COLUMN, RECORD), (COLUMN, MAPPING), (MAPPING, RECORD)] {
            let exports = [first, second].map(|interface| format!("{interface}@0.1.0"));
            let error = world(&plugin, exports.to_vec()).unwrap_err();
            assert!(matches!(error, AdmitError::Both { .. }), "{error}");
        }
        let error = world(&plugin, vec![format!("{COLUMN}@0.1.0"), format!("{MAPPING}@0.1.0")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "plugin 'p' (sha256:0) exports alluvium:plugin/column-transform@0.1.0 and alluvium:plugin/schema-mapping@0.1.0; a plugin is one of them"
        );
    }
}
