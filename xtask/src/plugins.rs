//! `cargo xtask plugins`: builds every guest of `plugins/` to a component.

mod component;
mod toolchain;

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};
use toolchain::{TARGET, Toolchain};

/// Builds all plugins of this repository to WebAssembly components.
#[derive(clap::Args)]
pub struct Args {
    /// Where the components go [default: plugins/ in cargo's target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Which Rust builds them; auto takes the active one where it can
    #[arg(long, value_enum, default_value_t = toolchain::Choice::Auto)]
    toolchain: toolchain::Choice,
}

pub fn run(args: &Args) -> Result<()> {
    components(args).map(drop)
}

/// Builds all components to where they go by default, and says where that is.
pub fn build_all() -> Result<PathBuf> {
    components(&Args { out: None, toolchain: toolchain::Choice::Auto })
}

/// The guests' workspace, and a target directory for what of it runs on this machine.
pub fn native_workspace() -> Result<(PathBuf, PathBuf)> {
    let root = repository()?;
    Ok((root.join("plugins"), target_dir(&root)?.join("plugins-build/native")))
}

fn components(args: &Args) -> Result<PathBuf> {
    let root = repository()?;
    let target_dir = target_dir(&root)?;
    let out = args.out.clone().unwrap_or_else(|| target_dir.join("plugins"));
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;

    let guests = root.join("plugins");
    let toolchain = toolchain::find(args.toolchain, &guests)?;
    let modules = build(&toolchain, &guests, &target_dir.join("plugins-build").join(toolchain.name()))?;
    let worlds = component::Worlds::read(&root.join("wit"))?;
    for (name, module) in &modules {
        let core = fs::read(module).with_context(|| format!("reading {}", module.display()))?;
        let bytes = component::encode(&core, &worlds).with_context(|| format!("plugin {name}"))?;
        finish(&out, name, &bytes)?;
    }
    for (name, text) in texts(&guests.join("hostile/core"))? {
        let bytes = component::encode_text(&text, &name, &worlds).with_context(|| format!("{}", text.display()))?;
        finish(&out, &format!("hostile-{name}"), &bytes)?;
    }
    Ok(out)
}

/// The repository that `cargo xtask` was called in. Cargo tells it at run time too, which counts: with one
/// target directory for several clones, it can find the program of one of them fresh enough for another.
pub fn repository() -> Result<PathBuf> {
    let here = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    Ok(here.parent().context("the xtask crate lies in no repository")?.to_owned())
}

pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let dir = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::path::absolute(&dir).with_context(|| format!("resolving {}", dir.display()))
}

/// Builds the guests and returns the core module of each, by name.
fn build(toolchain: &Toolchain, guests: &Path, build_dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut cargo = toolchain.cargo_build();
    cargo.current_dir(guests).args(["--locked", "--release"]);
    cargo.arg("--target-dir").arg(build_dir).arg("--message-format=json-render-diagnostics");
    cargo.arg("--config").arg(remap(guests)?);
    let output = cargo.stderr(Stdio::inherit()).output().with_context(|| format!("running {cargo:?}"))?;
    if !output.status.success() {
        bail!("building the guests failed ({})", output.status);
    }
    let mut modules = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("reading cargo's messages")?;
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(|file| file.as_str());
        if let (Some(name), Some(file)) =
            (message["target"]["name"].as_str(), files.into_iter().find(|f| f.ends_with(".wasm")))
        {
            modules.insert(name.replace('_', "-"), PathBuf::from(file));
        }
    }
    if modules.is_empty() {
        bail!("no guest in {} makes a wasm module", guests.display());
    }
    Ok(modules)
}

/// Keeps this machine's paths out of the components, so that the same sources give the same bytes.
fn remap(guests: &Path) -> Result<String> {
    let root = guests.parent().unwrap_or(guests);
    let mut flags = vec![format!("--remap-path-prefix={}=/alluvium", root.display())];
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home()?.join(".cargo")));
    if let Some(home) = home {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    Ok(format!("target.{TARGET}.rustflags={}", serde_json::to_string(&flags)?))
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").or_else(|| env::var_os("USERPROFILE")).map(|home: OsString| home.into())
}

/// The core modules in text form in a folder, by name.
fn texts(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wat") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            texts.insert(name, path);
        }
    }
    Ok(texts)
}

fn finish(out: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = out.join(format!("{name}.wasm"));
    write_if_changed(&path, bytes)?;
    println!("{name:<36} {:>9}  {}", size(bytes.len()), path.display());
    Ok(())
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    // Renamed into place: whoever reads components while they are built sees the old or the new one.
    let partial = path.with_extension("partial");
    fs::write(&partial, bytes).with_context(|| format!("writing {}", partial.display()))?;
    fs::rename(&partial, path).with_context(|| format!("writing {}", path.display()))
}

fn size(bytes: usize) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

/// Runs a command for what it prints; `None` when it cannot be run or fails.
pub fn answer(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
