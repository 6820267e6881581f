//! `cargo xtask demo`, `test`, `bench` and `simulate`: builds all that is needed, then runs it.

use crate::{plugins, setup};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Builds everything and runs `alluvium demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// Arguments of `alluvium demo`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds everything and runs all tests.
#[derive(clap::Args)]
pub struct TestArgs {
    /// Five minutes of torture besides
    #[arg(long)]
    slow: bool,
    /// Arguments of `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn demo(args: &DemoArgs) -> Result<()> {
    setup::system(false)?;
    let out = plugins::build_all()?;
    let mut cargo = cargo()?;
    cargo.args(["run", "--locked", "--package", "alluvium", "--", "demo", "--plugin"]).arg(out.join("redact.wasm"));
    run(cargo.args(&args.arguments))
}

pub fn test(args: &TestArgs) -> Result<()> {
    setup::system(true)?;
    let (python, jars, suite) = (setup::python()?, setup::spark_jars()?, setup::json_suite()?);
    let out = plugins::build_all()?;
    // The guests' SDK is tested on this machine's own target.
    let (guests, target) = plugins::native_workspace()?;
    let mut sdk = cargo()?;
    sdk.current_dir(guests).args(["test", "--locked", "--workspace", "--target-dir"]);
    run(sdk.arg(target))?;
    let mut cargo = cargo()?;
    cargo.args(["test", "--locked", "--workspace"]).args(&args.arguments);
    cargo.env("ALLUVIUM_PLUGINS", out).env("ALLUVIUM_JSON_SUITE", suite);
    run(cargo.env("ALLUVIUM_PYTHON", python).env("ALLUVIUM_SPARK_JARS", jars))?;
    if args.slow { torture(&TortureArgs { minutes: 5.0, seed: None }) } else { Ok(()) }
}

/// Three processes on a real broker are killed and frozen, the broker restarts, partitions are added; at
/// the end the table must hold what the producers wrote down, each record once.
#[derive(clap::Args)]
pub struct TortureArgs {
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides what happens when; taken from the clock when not given
    #[arg(long)]
    seed: Option<u64>,
}

pub fn torture(args: &TortureArgs) -> Result<()> {
    setup::system(true)?;
    let out = plugins::build_all()?;
    let mut cargo = cargo()?;
    cargo.args(["test", "--locked", "--workspace", "--test", "torture", "--", "torture", "--exact", "--nocapture"]);
    cargo.env("ALLUVIUM_PLUGINS", out).env("ALLUVIUM_TORTURE_MINUTES", args.minutes.to_string());
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    run(cargo.env("ALLUVIUM_TORTURE_SEED", args.seed.unwrap_or_else(clock).to_string()))
}

/// Measures alluvium beside a vectorised script, on a real broker.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Arguments of the benchmark: --records N, --runs N
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn bench(args: &BenchArgs) -> Result<()> {
    setup::system(true)?;
    let (python, out) = (setup::python()?, plugins::build_all()?);
    let mut build = cargo()?;
    run(build.args(["build", "--locked", "--release", "--package", "alluvium", "--package", "alluvium-bench"]))?;
    let mut bench = cargo()?;
    bench.args(["run", "--locked", "--release", "--package", "alluvium-bench", "--", "--plugin"]);
    bench.arg(out.join("redact.wasm")).arg("--python").arg(python);
    run(bench.args(&args.arguments))
}

/// Lives through simulated worlds, or tells the story of one.
#[derive(clap::Args)]
pub struct SimulateArgs {
    /// Arguments of the simulation: --seeds N, --from N, --seed N
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn simulate(args: &SimulateArgs) -> Result<()> {
    setup::system(false)?;
    let mut cargo = cargo()?;
    cargo.args(["run", "--locked", "--package", "alluvium-testkit", "--bin", "simulate", "--"]);
    run(cargo.args(&args.arguments))
}

/// Commits many small flushes to one table on local disk, and shows how time and memory develop.
#[derive(clap::Args)]
pub struct EnduranceArgs {
    #[arg(long, default_value_t = 10_000)]
    commits: u32,
    /// Wait for maintenance every hundred commits, so that no checkpoint is left out
    #[arg(long)]
    paced: bool,
}

pub fn endurance(args: &EnduranceArgs) -> Result<()> {
    let mut cargo = cargo()?;
    cargo.args(["test", "--locked", "--workspace", "--test", "endurance", "--", "on_local_disk", "--nocapture"]);
    if args.paced {
        cargo.env("ALLUVIUM_PACED", "1");
    }
    run(cargo.env("ALLUVIUM_COMMITS", args.commits.to_string()))
}

/// Cargo, in the repository's root, as if typed in a shell.
///
/// The cargo that runs this process told it of its own package. Build scripts watch such variables: passed
/// on, they would have half of all crates built anew, here and in the next shell.
pub fn cargo() -> Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")) {
        cargo.env_remove(name);
    }
    cargo.current_dir(plugins::repository()?);
    Ok(cargo)
}

pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
