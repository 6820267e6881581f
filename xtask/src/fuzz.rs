//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/` with libFuzzer, on the stable toolchain.
//!
//! Coverage counters are a pass of LLVM's that stable rustc can be asked for; libFuzzer itself comes as
//! source in the crate `libfuzzer-sys`. No sanitizer: our crates have no unsafe code.

use crate::{cargo, plugins, setup};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Fuzzes the schema crate: any bytes as records and plans, against a plain decoder.
#[derive(clap::Args)]
pub struct Args {
    /// What to fuzz
    #[arg(value_enum, default_values = ["decode", "plan"])]
    targets: Vec<Target>,
    /// How long to fuzz each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Afterwards keep in the repository what is worth it: few short inputs that reach what the seeds do not
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Decode,
    Plan,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Plan => "plan",
        }
    }
}

/// What one input may cost; more is a finding.
const LIMITS: [&str; 3] = ["-max_len=2560", "-timeout=10", "-rss_limit_mb=2048"];

/// How many inputs the repository keeps of each target.
const MOST_KEPT: usize = 400;

const COVERAGE: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

pub fn run(args: &Args) -> Result<()> {
    setup::system(false)?;
    let root = plugins::repository()?;
    let target_dir = plugins::target_dir(&root)?.join("fuzz");
    seed(&target_dir.join("seeds"))?;
    let programs = build(&root, &target_dir)?;
    for target in &args.targets {
        let target = Fuzzed {
            program: programs.join(target.name()),
            kept: root.join("fuzz/corpus").join(target.name()),
            found: target_dir.join("corpus").join(target.name()),
            seeds: target_dir.join("seeds").join(target.name()),
            findings: target_dir.join("findings").join(target.name()),
            dictionary: root.join("fuzz/json.dict"),
        };
        for dir in [&target.found, &target.findings] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        target.fuzz(args.seconds)?;
        if args.keep {
            target.keep()?;
        }
    }
    Ok(())
}

/// Writes the inputs that are made from the case files.
fn seed(dir: &Path) -> Result<()> {
    let mut cargo = cargo::cargo()?;
    cargo.args(["test", "--quiet", "--locked", "--package", "alluvium-schema", "--test", "fuzzed", "the_seeds_hold"]);
    cargo::run(cargo.env("ALLUVIUM_FUZZ_SEEDS", dir))
}

/// Builds the targets; where they are.
fn build(root: &Path, target_dir: &Path) -> Result<PathBuf> {
    let rustc = plugins::answer(Command::new("rustc").arg("-vV")).context("asking rustc for its host")?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut cargo = cargo::cargo()?;
    // With a target named, build scripts and macros are left without counters.
    cargo.current_dir(root.join("fuzz")).args(["build", "--locked", "--release", "--target", host, "--target-dir"]);
    cargo::run(cargo.arg(target_dir).env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f")))?;
    Ok(target_dir.join(host).join("release"))
}

struct Fuzzed {
    program: PathBuf,
    /// The corpus in the repository.
    kept: PathBuf,
    /// What was found on this machine besides.
    found: PathBuf,
    seeds: PathBuf,
    /// Inputs that failed.
    findings: PathBuf,
    dictionary: PathBuf,
}

impl Fuzzed {
    fn command(&self) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&self.program).args(LIMITS);
        command
    }

    fn fuzz(&self, seconds: u64) -> Result<()> {
        let mut command = self.command();
        command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        command.arg(format!("-dict={}", self.dictionary.display()));
        command.arg(format!("-artifact_prefix={}/", self.findings.display()));
        let begun = Instant::now();
        cargo::run(command.args([&self.found, &self.kept, &self.seeds]))?;
        println!("{}: nothing found in {} s", self.program.display(), begun.elapsed().as_secs());
        Ok(())
    }

    /// Replaces the repository's corpus by few short inputs that reach what the seeds do not.
    fn keep(&self) -> Result<()> {
        let next = self.kept.with_extension("next");
        if next.exists() {
            fs::remove_dir_all(&next).with_context(|| format!("removing {}", next.display()))?;
        }
        fs::create_dir_all(&next).with_context(|| format!("creating {}", next.display()))?;
        // The test that replays the corpus has the seeds anyway.
        let seeds = fs::read_dir(&self.seeds)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        for seed in &seeds {
            fs::copy(self.seeds.join(seed), next.join(seed)).context("copying a seed")?;
        }
        let merge = ["-merge=1", "-set_cover_merge=1", "-use_counters=0", "-max_len=900"];
        cargo::run(self.command().args(merge).arg(&next).args([&self.kept, &self.found]))?;
        for seed in &seeds {
            fs::remove_file(next.join(seed)).context("removing a seed")?;
        }
        let mut inputs = Vec::new();
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            inputs.push((entry.metadata()?.len(), entry.path()));
        }
        inputs.sort();
        for (_, path) in inputs.iter().skip(MOST_KEPT) {
            fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
        }
        fs::remove_dir_all(&self.kept).with_context(|| format!("removing {}", self.kept.display()))?;
        fs::rename(&next, &self.kept).with_context(|| format!("writing {}", self.kept.display()))
    }
}
