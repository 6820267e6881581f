//! `cargo xtask demo` and `cargo xtask test`: the README's two commands.

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
    /// Arguments of `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn demo(args: &DemoArgs) -> Result<()> {
    setup::system(false)?;
    let out = plugins::build_all()?;
    let mut cargo = cargo();
    cargo.args(["run", "--locked", "--package", "alluvium", "--", "demo", "--plugin"]).arg(out.join("redact.wasm"));
    run(cargo.args(&args.arguments))
}

pub fn test(args: &TestArgs) -> Result<()> {
    setup::system(true)?;
    let (python, jars) = (setup::python()?, setup::spark_jars()?);
    let out = plugins::build_all()?;
    // The guests' SDK is tested on this machine's own target.
    let mut sdk = cargo();
    sdk.current_dir(plugins::guests()?).args(["test", "--locked", "--workspace"]);
    run(sdk.arg("--target-dir").arg(plugins::native_target_dir()?))?;
    let mut cargo = cargo();
    cargo.args(["test", "--locked", "--workspace"]).args(&args.arguments);
    run(cargo.env("ALLUVIUM_PLUGINS", out).env("ALLUVIUM_PYTHON", python).env("ALLUVIUM_SPARK_JARS", jars))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
