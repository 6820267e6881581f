//! A record plugin that misbehaves as its configuration says: see `plugins/hostile/README.md`.

use hostile_common::{Common, ESCAPES, attack, in_configure, not_utf8, past_memory, read, spin, trap};
use serde::Deserialize;
use std::cell::RefCell;

#[allow(unsafe_code, clippy::all, missing_debug_implementations, reason = "generated from the contract")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "record-plugin", additional_derives: [Clone] });
}

use bindings::exports::alluvium::plugin::record_transform::{
    Access, Chunk, Description, Guest, Output, Packed, Reject,
};

#[derive(Clone, Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    #[serde(default)]
    keys: bool,
    #[serde(default)]
    headers: bool,
    #[serde(default)]
    timestamps: bool,
}

thread_local! {
    static CONFIG: RefCell<Option<Config>> = const { RefCell::new(None) };
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            summary: env!("CARGO_PKG_DESCRIPTION").to_owned(),
            config_schema: String::new(),
        }
    }

    fn configure(config: String) -> Result<Access, String> {
        let config: Config = read(&config)?;
        if let Some(mode) = in_configure(&config.common.mode)
            && !attack(mode)?
        {
            return Err(format!("unknown mode 'configure-{mode}'"));
        }
        let Config { keys, headers, timestamps, .. } = config;
        let multiplies = config.common.multiplies;
        CONFIG.replace(Some(config));
        Ok(Access { keys, headers, timestamps, multiplies })
    }

    fn transform(input: Chunk) -> Result<Output, String> {
        let config = CONFIG.with_borrow(Clone::clone).ok_or("transform came before configure")?;
        transform(&config.common, input)
    }
}

#[allow(unsafe_code, reason = "the contract's exports")]
const _: () = {
    bindings::export!(Hostile with_types_in bindings);
};

fn transform(config: &Common, input: Chunk) -> Result<Output, String> {
    let count = input.count;
    let values = unpack(&input.values);
    let marked = values.iter().any(|value| holds(value, &config.marker));
    let reached = usize::try_from(config.at).is_ok_and(|at| at < values.len());

    let mut output = honest(&values, (0..count).collect());
    if in_configure(&config.mode).is_some() || attack(&config.mode)? {
        return Ok(output);
    }
    let reject = |input: u32| Reject { input, reason: "rejected".to_owned() };
    let last = count.saturating_sub(1);
    match config.mode.as_str() {
        "honest" => {}
        // Where it happens depends on the records.
        "trap-at" if reached => trap(),
        "trap-marker" if marked => trap(),
        "loop-marker" if marked => spin(),
        "err-marker" if marked => return Err(format!("a record holds '{}'", config.marker)),
        "memory-marker" if marked => return Err(format!("there is no end of memory: {}", attack("memory")?)),
        "trap-at" | "trap-marker" | "loop-marker" | "err-marker" | "memory-marker" => {}
        "reject-marker" => {
            let is_marked = |row: &u32| values.get(*row as usize).is_some_and(|value| holds(value, &config.marker));
            let (rejected, kept) = (0..count).partition(is_marked);
            output = honest(&values, kept);
            output.rejects = Vec::<u32>::into_iter(rejected).map(reject).collect();
        }
        // Inputs.
        "filter-all" => output = honest(&values, Vec::new()),
        "reject-all" => {
            output = honest(&values, Vec::new());
            output.rejects = (0..count).map(reject).collect();
        }
        "inputs-twice" => output = honest(&values, (0..count).flat_map(|row| [row, row]).collect()),
        "inputs-out-of-range" => output = honest(&values, (0..count).chain([count]).collect()),
        "inputs-max" => output = honest(&values, (0..count).chain([u32::MAX]).collect()),
        "inputs-falling" => output = honest(&values, (0..count).rev().collect()),
        "inputs-short" => output.inputs = (1..count).collect(),
        "inputs-long" => output.inputs.push(last),
        "inputs-bomb" => output = honest(&[], vec![0; config.size / 8]),
        "inputs-past-memory" => output.inputs = past_memory(0),
        // Rejects.
        "kept-and-rejected" => output.rejects = vec![reject(0)],
        "reject-out-of-range" => output.rejects = vec![reject(count)],
        "reject-max" => output.rejects = vec![reject(u32::MAX)],
        "reject-twice" => {
            output = honest(&values, (1..count).collect());
            output.rejects = vec![reject(0), reject(0)];
        }
        "reject-falling" => {
            output = honest(&values, Vec::new());
            output.rejects = (0..count).rev().map(reject).collect();
        }
        "reject-10mb" | "reject-escapes" | "reject-empty" | "reject-utf8" => {
            output = honest(&values, (1..count).collect());
            let reason = match config.mode.as_str() {
                "reject-10mb" => "x".repeat(10 << 20),
                "reject-escapes" => ESCAPES.to_owned(),
                "reject-empty" => String::new(),
                _ => not_utf8(),
            };
            output.rejects = vec![Reject { input: 0, reason }];
        }
        "rejects-bomb" => {
            output = honest(&values, Vec::new());
            output.rejects = (0..1 << 20).map(|n| reject(n % count.max(1))).collect();
        }
        // Keys, as they should be and not.
        "keys-echo" => output.keys = input.keys,
        "keys-null" => {
            output.keys = Some(Packed {
                ends: vec![0; count as usize],
                data: Vec::new(),
                validity: Some(vec![0; (count as usize).div_ceil(8)]),
            })
        }
        "keys-new" => {
            let keys: Vec<Vec<u8>> = (0..count).map(|n| format!("key-{n}").into_bytes()).collect();
            output.keys = Some(pack(keys.iter().map(Vec::as_slice)));
        }
        "headers-as-values" => output.values = header_values(&input)?,
        "timestamps-as-values" => {
            let texts: Vec<String> = input.timestamps.iter().flatten().map(ToString::to_string).collect();
            output.values = pack(texts.iter().map(String::as_bytes));
        }
        // Everything else makes the values, or the keys, wrong.
        mode => match mode.strip_prefix("keys-") {
            Some(mode) => {
                let mut keys = output.values.clone();
                corrupt(mode, config.size, &mut keys)?;
                output.keys = Some(keys);
            }
            None => corrupt(mode, config.size, &mut output.values)?,
        },
    }
    Ok(output)
}

/// Hands on these inputs as they are.
fn honest(values: &[&[u8]], inputs: Vec<u32>) -> Output {
    let packed = pack(inputs.iter().map(|input| values.get(*input as usize).copied().unwrap_or_default()));
    Output { inputs, values: packed, keys: None, rejects: Vec::new() }
}

fn pack<'a>(strings: impl Iterator<Item = &'a [u8]>) -> Packed {
    let mut packed = Packed { ends: Vec::new(), data: Vec::new(), validity: None };
    for string in strings {
        packed.data.extend_from_slice(string);
        packed.ends.push(packed.data.len() as u32);
    }
    packed
}

fn unpack(packed: &Packed) -> Vec<&[u8]> {
    let starts = [0].into_iter().chain(packed.ends.iter().copied());
    let ranges = starts.zip(&packed.ends).map(|(start, end)| start as usize..*end as usize);
    ranges.map(|range| packed.data.get(range).unwrap_or_default()).collect()
}

fn holds(value: &[u8], marker: &str) -> bool {
    value.windows(marker.len().max(1)).any(|window| window == marker.as_bytes())
}

/// For each record its headers as `name=value;`, so that a test sees what arrived; `-` is null.
fn header_values(input: &Chunk) -> Result<Packed, String> {
    let headers = input.headers.as_ref().ok_or("no headers came")?;
    let (names, values) = (unpack(&headers.names), unpack(&headers.values));
    let is_there = |at: usize| {
        let bit = |bits: &Vec<u8>| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        headers.values.validity.as_ref().is_none_or(bit)
    };
    let mut next = 0;
    let mut texts = Vec::new();
    for count in &headers.counts {
        let mut text = Vec::new();
        for at in next..next + *count as usize {
            text.extend_from_slice(names.get(at).ok_or("too few names")?);
            text.push(b'=');
            text.extend_from_slice(if is_there(at) { values.get(at).ok_or("too few values")? } else { b"-" });
            text.push(b';');
        }
        next += *count as usize;
        texts.push(text);
    }
    Ok(pack(texts.iter().map(Vec::as_slice)))
}

fn corrupt(mode: &str, size: usize, packed: &mut Packed) -> Result<(), String> {
    let count = packed.ends.len();
    match mode {
        "ends-short" => {
            packed.ends.pop();
        }
        "ends-long" => packed.ends.push(packed.data.len() as u32),
        "ends-empty" => packed.ends.clear(),
        "ends-falling" => packed.ends.reverse(),
        "ends-past" => packed.ends.iter_mut().for_each(|end| *end += 1_000_000),
        "ends-max" => packed.ends.iter_mut().for_each(|end| *end = u32::MAX),
        "ends-past-memory" => packed.ends = past_memory(0),
        "data-short" => {
            packed.data.pop();
        }
        "data-empty" => packed.data.clear(),
        "data-long" => packed.data.extend_from_slice(b"nobody's"),
        "data-bomb" => packed.data.resize(size, b'x'),
        "data-past-memory" => packed.data = past_memory(b'x'),
        "validity-short" => packed.validity = Some(vec![0xff; count.div_ceil(8).saturating_sub(1)]),
        "validity-empty" => packed.validity = Some(Vec::new()),
        "validity-null" => packed.validity = Some(vec![0; count.div_ceil(8)]),
        "validity-long" => packed.validity = Some(vec![0xff; count.div_ceil(8) + 9]),
        _ => return Err(format!("unknown mode '{mode}'")),
    }
    Ok(())
}
