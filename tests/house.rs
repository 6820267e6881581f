//! Rules of the house that a compiler does not hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn manifests() -> Vec<(String, String)> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path.join("Cargo.toml")).unwrap())
    };
    crates.map(read).collect()
}

/// The names in a manifest's tables of dependencies whose header `is_wanted`.
fn dependencies(manifest: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut wanted = false;
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            wanted = is_wanted(header.trim_end_matches(']'));
        } else if let Some((name, _)) = line.split_once(['.', ' ', '=']).filter(|_| wanted) {
            names.push(name.to_owned());
        }
    }
    names
}

/// wasmtime, rdkafka and deltalake each stand behind one crate of ours.
#[test]
fn each_of_the_large_libraries_has_one_room() {
    for (library, room) in
        [("wasmtime", "alluvium-wasm"), ("rdkafka", "alluvium-kafka"), ("deltalake", "alluvium-delta")]
    {
        let users: Vec<String> = manifests()
            .into_iter()
            .filter(|(_, text)| {
                dependencies(text, |header| header.ends_with("dependencies")).iter().any(|d| d == library)
            })
            .map(|(name, _)| name)
            .collect();
        assert_eq!(users, [room], "{library}");
    }
}

/// The arrows between our crates, as ARCHITECTURE.md draws them.
#[test]
fn arrows_between_crates_are_as_drawn() {
    let allowed: &[(&str, &[&str])] = &[
        ("alluvium-core", &[]),
        ("alluvium-config", &["alluvium-core"]),
        ("alluvium-schema", &["alluvium-core"]),
        ("alluvium-wasm", &["alluvium-core"]),
        ("alluvium-kafka", &["alluvium-core"]),
        ("alluvium-delta", &["alluvium-core"]),
        ("alluvium-runtime", &["alluvium-config", "alluvium-core", "alluvium-schema", "alluvium-wasm"]),
    ];
    for (name, text) in manifests() {
        let Some((_, allowed)) = allowed.iter().find(|(crate_name, _)| *crate_name == name) else { continue };
        for dependency in dependencies(&text, |header| header == "dependencies") {
            let ours = dependency.starts_with("alluvium");
            assert!(!ours || allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

/// Pure crates have no runtime, clock or files.
#[test]
fn pure_crates_stay_pure() {
    for name in ["alluvium-core", "alluvium-config", "alluvium-schema"] {
        let (_, text) = manifests().into_iter().find(|(found, _)| found == name).unwrap();
        let found = dependencies(&text, |header| header == "dependencies");
        for impure in ["tokio", "object_store", "tempfile", "rand"] {
            assert!(!found.iter().any(|dependency| dependency == impure), "{name} depends on {impure}");
        }
        for file in sources(&root().join("crates").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            for impure in ["std::fs", "std::env", "std::net", "SystemTime", "Instant::now", "std::thread"] {
                assert!(!text.contains(impure), "{} uses {impure}", file.display());
            }
        }
    }
}

/// A room too full is hard to find one's way in.
#[test]
fn no_source_file_is_too_long() {
    let folders = ["crates", "plugins", "tests", "xtask", "bench", "fuzz"].map(|folder| root().join(folder));
    for file in folders.iter().filter(|folder| folder.is_dir()).flat_map(|folder| sources(folder)) {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 800, "{} has {lines} lines", file.display());
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                files.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
