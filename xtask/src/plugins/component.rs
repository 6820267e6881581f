//! Makes a component of a core module and checks that it keeps the contract.

use anyhow::{Context, Result, bail};
use std::path::Path;
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;
use wit_parser::{Resolve, WorldId};

/// The worlds of the plugin contract, in every version.
pub struct Worlds {
    resolve: Resolve,
    worlds: Vec<WorldId>,
}

impl Worlds {
    /// Reads the contract's versions, each in its own folder below `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut resolve = Resolve::default();
        let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            resolve.push_path(&path).with_context(|| format!("reading the contract in {}", path.display()))?;
        }
        let worlds = resolve.worlds.iter().map(|(id, _)| id).collect();
        Ok(Self { resolve, worlds })
    }

    /// Refuses a component that fits none of the worlds.
    fn check(&self, component: &[u8]) -> Result<()> {
        let mut reasons = Vec::new();
        for world in &self.worlds {
            match wit_component::targets(&self.resolve, *world, component) {
                Ok(()) => return Ok(()),
                Err(error) => reasons.push(format!("not a {}: {error:#}", self.resolve.worlds[*world].name)),
            }
        }
        bail!("fits no world of the contract: {}", reasons.join("; "))
    }
}

/// The component of a core module that carries its world's description, as wit-bindgen puts it there.
pub fn encode(core: &[u8], worlds: &Worlds) -> Result<Vec<u8>> {
    let component = ComponentEncoder::default().validate(true).module(core)?.encode().context("making a component")?;
    check_imports(&component)?;
    worlds.check(&component)?;
    Ok(component)
}

/// A plugin imports nothing, save the types that its interface shares.
fn check_imports(component: &[u8]) -> Result<()> {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ImportSection(imports) => {
                if let Some(import) = imports.into_imports().next() {
                    let import = import?;
                    bail!("imports {}.{}: a plugin has no imports", import.module, import.name);
                }
            }
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports {
                    let name = import?.name.name;
                    if !name.starts_with("alluvium:plugin/types@") {
                        bail!("imports {name}: a plugin has no imports");
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
