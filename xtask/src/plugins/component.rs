//! Makes a component of a core module and checks that it keeps the contract.

use anyhow::{Context, Result, bail};
use std::path::Path;
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
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
        resolve.push_str("both.wit", BOTH).context("reading the world of a plugin that is two")?;
        Ok(Self { resolve, worlds })
    }

    /// A world by its name; the newest where several versions have it.
    fn find(&self, name: &str) -> Result<WorldId> {
        let mut found: Vec<_> = self.resolve.worlds.iter().filter(|(_, world)| world.name == name).collect();
        found
            .sort_by_key(|(_, world)| world.package.map(|package| self.resolve.packages[package].name.version.clone()));
        Ok(found.pop().with_context(|| format!("the contract has no world '{name}'"))?.0)
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

/// A plugin has one interface; a fixture has both.
const BOTH: &str = "
    package hostile:both;
    world both {
        export alluvium:plugin/column-transform@0.1.0;
        export alluvium:plugin/record-transform@0.1.0;
    }";

/// The component of a core module in text form. The name's first word says which world it is for.
pub fn encode_text(path: &Path, name: &str, worlds: &Worlds) -> Result<Vec<u8>> {
    let mut core = wat::parse_file(path)?;
    let world = match name.split('-').next() {
        Some("both") => worlds.find("both")?,
        Some(kind) => worlds.find(&format!("{kind}-plugin"))?,
        None => bail!("the name says no world"),
    };
    embed_component_metadata(&mut core, &worlds.resolve, world, StringEncoding::UTF8)?;
    encode(&core, worlds)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use std::path::PathBuf;

    fn repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
    }

    fn worlds() -> Worlds {
        Worlds::read(&repository("wit")).unwrap()
    }

    /// Names and paths of the texts in a folder.
    fn texts(folder: &str) -> Vec<(String, PathBuf)> {
        let entries = std::fs::read_dir(repository(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect()
    }

    #[test]
    fn the_texts_are_components_that_the_catalogue_names() {
        let catalogue = std::fs::read_to_string(repository("plugins/hostile/README.md")).unwrap();
        let worlds = worlds();
        for (name, path) in texts("plugins/hostile/core") {
            encode_text(&path, &name, &worlds).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let short = name.strip_prefix("column").unwrap_or(&name);
            assert!(catalogue.contains(short), "{name} is not in the catalogue");
        }
        for (name, path) in texts("plugins/hostile/wat") {
            let bytes = wat::parse_file(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(Parser::is_component(&bytes), name != "core-module", "{name}");
            let short = if name.starts_with("feature-") { "feature-…" } else { &name };
            assert!(catalogue.contains(short), "{name} is not in the catalogue");
        }
    }

    #[test]
    fn what_is_no_plugin_is_refused() {
        let worlds = worlds();
        for (name, path) in texts("plugins/hostile/wat") {
            // Those are sound but for a feature that the host does not allow, and export nothing.
            let bytes = wat::parse_file(&path).unwrap();
            let refused = check_imports(&bytes).and_then(|()| worlds.check(&bytes)).unwrap_err();
            let imports = format!("{refused:#}").contains("a plugin has no imports");
            let expected = name.starts_with("imports-") && name != "imports-types-function";
            assert_eq!(imports, expected, "{name}: {refused:#}");
        }
    }

    #[test]
    fn a_module_with_imports_makes_no_plugin() {
        let text = std::fs::read_to_string(repository("plugins/hostile/core/column-plain.wat")).unwrap();
        let text = text.replacen("(module", r#"(module (import "env" "now" (func))"#, 1);
        let mut core = wat::parse_str(text).unwrap();
        let worlds = worlds();
        let world = worlds.find("column-plugin").unwrap();
        embed_component_metadata(&mut core, &worlds.resolve, world, StringEncoding::UTF8).unwrap();
        let error = encode(&core, &worlds).unwrap_err();
        assert!(format!("{error:#}").contains("env"), "{error:#}");
    }
}
