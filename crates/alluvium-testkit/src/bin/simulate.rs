//! Searches simulated worlds for one that breaks a promise, or tells the story of one.

#![expect(clippy::print_stdout, reason = "a command line tool: what it has to say goes to the terminal")]

use alluvium_testkit::sim;
use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;

/// Searches simulated worlds for one that breaks a promise.
#[derive(Parser)]
struct Arguments {
    /// How many worlds to live through
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first world
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// One world only: prints every event of it
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let protocol = sim::simulate(seed, None, true);
        protocol.lines.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: hash {:016x}, {} violations", protocol.hash, protocol.violations.len());
        return if protocol.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let failures = sim::search(seeds, None, threads, 20);
    for (seed, protocol) in &failures {
        println!("seed {seed}: {}", protocol.violations.first().map_or("", String::as_str));
    }
    if let Some((seed, _)) = failures.first() {
        println!(
            "{} worlds broke a promise; tell the story of one: cargo xtask simulate --seed {seed}",
            failures.len()
        );
        return ExitCode::FAILURE;
    }
    println!("{} worlds kept every promise, in {:.1} s", arguments.seeds, start.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
