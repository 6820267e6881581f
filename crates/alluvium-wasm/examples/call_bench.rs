//! What a call costs, and that many calls cost no memory.
//!
//! `cargo run -p alluvium-wasm --example call_bench [CALLS]` with the guests of `cargo xtask plugins`.
//! Prints nanoseconds for each row of a call of the plugin `redact` (two columns read and one
//! changed, one derived) and of one that does nothing: with a fresh instance for each call, and with one instance for all.

#![allow(clippy::print_stdout)]

use alluvium_wasm::{ColumnPlugin, Host, HostConfig, Limits};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let calls = std::env::args().nth(1).map_or(Ok(100_000), |calls| calls.parse())?;
    let component = std::fs::read(plugins()?.join("redact.wasm"))?;
    for keep_resident in [0, 256 << 10, 2 << 20] {
        let host = Host::new(HostConfig { keep_resident, ..HostConfig::default() })?;
        let plugin = host.admit("redact", &component, &Limits::default())?;
        let plugin = plugin.configure_column(&json!({ "fields": ["customer.email"] }))?;
        let plain = std::fs::read(plugins()?.join("hostile-column-plain.wasm"))?;
        let plain = host.admit("plain", &plain, &Limits::default())?.configure_column(&json!({}))?;
        println!("\n{} KiB of each memory kept between instances", keep_resident >> 10);
        println!(
            "{:>8} {:>8} {:>16} {:>16} {:>16}",
            "plugin", "rows", "fresh µs/call", "fresh ns/row", "reused ns/row"
        );
        measure(&plain, "nothing", 0)?;
        for rows in [0, 1, 100, 1000, 10_000] {
            measure(&plugin, "redact", rows)?;
        }
        if keep_resident == HostConfig::default().keep_resident {
            soak(&plugin, calls)?;
        }
    }
    Ok(())
}

fn measure(plugin: &ColumnPlugin, name: &str, rows: usize) -> Result<(), Box<dyn Error>> {
    let columns = if plugin.access().reads.is_empty() { Vec::new() } else { columns(rows) };
    let times = (1_000_000 / rows.max(1)).clamp(50, 5000);
    let fresh = best(|| {
        for _ in 0..times {
            plugin.transform(rows, &columns)?;
        }
        Ok(())
    })?;
    let reused = best(|| Ok(plugin.transform_repeatedly(rows, &columns, times)?))?;
    let each = |time: Duration| time.as_nanos() as f64 / (times * rows.max(1)) as f64;
    let call = fresh.as_nanos() as f64 / times as f64 / 1000.0;
    println!("{name:>8} {rows:>8} {call:>16.1} {:>16.0} {:>16.0}", each(fresh), each(reused));
    Ok(())
}

/// The shortest of some runs: the machine has other things to do.
fn best(mut run: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        run()?;
        shortest = shortest.min(start.elapsed());
    }
    Ok(shortest)
}

fn soak(plugin: &ColumnPlugin, calls: usize) -> Result<(), Box<dyn Error>> {
    let columns = columns(100);
    for _ in 0..1000 {
        plugin.transform(100, &columns)?;
    }
    let before = resident()?;
    let start = Instant::now();
    for _ in 0..calls {
        plugin.transform(100, &columns)?;
    }
    let grown = resident()?.saturating_sub(before);
    println!("{calls} calls of 100 rows: {:.1?}, {} KiB more memory than before", start.elapsed(), grown >> 10);
    if grown > 16 << 20 {
        return Err("calls leak memory".into());
    }
    Ok(())
}

fn columns(rows: usize) -> Vec<ArrayRef> {
    let test = (0..rows).map(|row| Some(row % 10 == 0)).collect::<BooleanArray>();
    let email = (0..rows).map(|row| Some(format!("customer{row}@example.org"))).collect::<StringArray>();
    let time = (0..rows as i64).map(|row| Some(1_700_000_000_000_000 + row)).collect();
    let time: PrimitiveArray<TimestampMicrosecondType> = time;
    vec![Arc::new(test), Arc::new(email), Arc::new(time.with_timezone("UTC"))]
}

fn plugins() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(folder) = std::env::var_os("ALLUVIUM_PLUGINS") {
        return Ok(folder.into());
    }
    // This executable lies in <target>/<profile>/examples.
    let executable = std::env::current_exe()?;
    Ok(executable.ancestors().nth(3).ok_or("the executable lies in no target directory")?.join("plugins"))
}

fn resident() -> Result<usize, Box<dyn Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split_whitespace().nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * 4096)
}
