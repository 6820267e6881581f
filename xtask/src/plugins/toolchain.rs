//! Finds a Rust that can build for wasm, or installs what one lacks.

use super::answer;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What guests are built for.
pub const TARGET: &str = "wasm32-unknown-unknown";

const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
const DEBIAN_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// What one compiler's flags or wrappers would do to the guests is not what they are meant to be.
const FOREIGN: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_BOOTSTRAP",
    "RUSTDOCFLAGS",
    "MAKEFLAGS",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The first of the others that works here
    Auto,
    /// The active toolchain, its wasm target added by rustup when it lacks it
    Active,
    /// Debian's rustc-web, which builds the standard library from source
    Debian,
}

/// A Rust that can build for [`TARGET`].
pub enum Toolchain {
    /// The active one; it has the target.
    Active,
    /// Debian's rustc-web; it builds the standard library itself.
    Debian { linker: PathBuf },
}

impl Toolchain {
    /// Tells its builds from another's.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Debian { .. } => "debian",
        }
    }

    /// Its `cargo build` for [`TARGET`], to which further arguments can be added.
    pub fn cargo_build(&self) -> Command {
        let mut cargo = match self {
            Self::Active => Command::new(active("CARGO", "cargo")),
            Self::Debian { .. } => Command::new("/usr/bin/cargo"),
        };
        for name in FOREIGN {
            cargo.env_remove(name);
        }
        cargo.args(["build", "--target", TARGET]);
        if let Self::Debian { linker } = self {
            cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC_WRAPPER");
            // Building the standard library is an unstable option of cargo.
            cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
            cargo.arg("-Zbuild-std=std,panic_abort");
            cargo.arg("--config").arg(format!("target.{TARGET}.linker={:?}", linker.display().to_string()));
        }
        cargo
    }
}

/// The toolchain to use in `folder`, whose own toolchain file counts.
pub fn find(choice: Choice, folder: &Path) -> Result<Toolchain> {
    if choice != Choice::Debian && (has_target(folder) || add_target(folder)) {
        return Ok(Toolchain::Active);
    }
    if choice != Choice::Active && (debian_is_there() || install_debian()) {
        let linker = linker(folder).context("no linker for WebAssembly here: run `apt-get install lld`")?;
        return Ok(Toolchain::Debian { linker });
    }
    match choice {
        Choice::Debian => bail!(
            "no {} here, and `apt-get install` could not bring them (it needs Debian or Ubuntu, and root)",
            DEBIAN_PACKAGES.join(", ")
        ),
        _ => bail!("this Rust cannot build for {TARGET}: run `rustup target add {TARGET}`"),
    }
}

fn active(variable: &str, otherwise: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| otherwise.into())
}

fn rustc(folder: &Path) -> Command {
    let mut rustc = Command::new(active("RUSTC", "rustc"));
    rustc.current_dir(folder);
    rustc
}

/// Whether the active compiler has a standard library for the target, however it came there.
fn has_target(folder: &Path) -> bool {
    let Some(libraries) = answer(rustc(folder).args(["--print", "target-libdir", "--target", TARGET])) else {
        return false;
    };
    let Ok(entries) = std::fs::read_dir(libraries) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

fn add_target(folder: &Path) -> bool {
    if answer(Command::new("rustup").arg("--version")).is_none() {
        return false;
    }
    eprintln!("adding {TARGET} with rustup");
    succeeds(Command::new("rustup").current_dir(folder).args(["target", "add", TARGET])) && has_target(folder)
}

fn debian_is_there() -> bool {
    ["/usr/bin/rustc", "/usr/bin/cargo", DEBIAN_SOURCES].iter().all(|path| Path::new(path).exists())
}

fn install_debian() -> bool {
    if !Path::new("/usr/bin/apt-get").exists() || answer(Command::new("id").arg("-u")).as_deref() != Some("0") {
        return false;
    }
    eprintln!("installing {} with apt-get", DEBIAN_PACKAGES.join(", "));
    let install = || succeeds(apt_get().args(["install", "-y", "--no-install-recommends"]).args(DEBIAN_PACKAGES));
    (install() || (succeeds(apt_get().arg("update")) && install())) && debian_is_there()
}

fn apt_get() -> Command {
    let mut apt_get = Command::new("/usr/bin/apt-get");
    apt_get.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
    apt_get
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A linker for wasm: the one that rustup's toolchains carry, or LLVM's own.
fn linker(folder: &Path) -> Option<PathBuf> {
    let carried = || {
        let sysroot = PathBuf::from(answer(rustc(folder).args(["--print", "sysroot"]))?);
        let version = answer(rustc(folder).arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "))?;
        Some(sysroot.join("lib/rustlib").join(host).join("bin/rust-lld"))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("wasm-ld"));
    carried().into_iter().chain(installed).find(|linker| linker.exists())
}
