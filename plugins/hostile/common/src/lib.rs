//! What all hostile plugins do to their host: see `plugins/hostile/README.md`.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::hint::black_box;

const MIB: usize = 1 << 20;

/// A text that a terminal or a log must not see as it is.
pub const ESCAPES: &str = "two\nlines\r\x1b[2J\x1b]0;title\x07\u{202e}\u{0}end";

/// Which misbehaviour, and where.
#[derive(Clone, Debug, Deserialize)]
pub struct Common {
    pub mode: String,
    /// The row or record at which it happens.
    #[serde(default)]
    pub at: i64,
    /// The text that a row or record must hold for it to happen.
    #[serde(default = "boom")]
    pub marker: String,
    #[serde(default)]
    pub multiplies: bool,
    /// Bytes that a bomb makes.
    #[serde(default = "half")]
    pub size: usize,
}

fn half() -> usize {
    32 * MIB
}

fn boom() -> String {
    "boom".to_owned()
}

/// The configuration; a hostile plugin that is configured wrongly says so.
pub fn read<C: DeserializeOwned>(config: &str) -> Result<C, String> {
    serde_json::from_str(config).map_err(|error| format!("configuration: {error}"))
}

/// What can be done in `configure` as in `transform`; false when the mode is none of these.
pub fn attack(mode: &str) -> Result<bool, String> {
    match mode {
        "loop" => spin(),
        "memory" => hoard(),
        "stack" => {
            recurse(0);
        }
        "bulk" => copy(),
        "trap" => trap(),
        "panic-1mb" => shout(),
        "err" => return Err("this plugin always fails".to_owned()),
        "err-empty" => return Err(String::new()),
        "err-10mb" => return Err("x".repeat(10 * MIB)),
        "err-escapes" => return Err(ESCAPES.to_owned()),
        "err-utf8" => return Err(not_utf8()),
        "memory-refused" => starve(),
        _ => return Ok(false),
    }
    Ok(true)
}

pub fn spin() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

/// Takes memory until there is none.
fn hoard() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; MIB]));
    }
}

/// Takes memory until it is refused, frees it, and goes on as if nothing had happened.
fn starve() {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(MIB).is_err() {
            break;
        }
        block.push(1);
        taken.push(black_box(block));
    }
}

#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    frame[(depth % 16) as usize] + recurse(black_box(depth + 1)) + frame[0]
}

/// Copies memory for ever: few instructions, each of which takes long.
fn copy() -> ! {
    let mut memory = vec![1_u8; 32 * MIB];
    loop {
        let half = memory.len() / 2;
        memory.copy_within(black_box(0)..half, half);
        black_box(&mut memory);
    }
}

pub fn trap() -> ! {
    std::process::abort()
}

/// Panics with a message of a megabyte.
#[expect(clippy::panic, reason = "the panic is the point")]
fn shout() -> ! {
    panic!("{}", "x".repeat(MIB))
}

/// A string that is none.
#[expect(unsafe_code, reason = "a plugin in another language can return any bytes as a string")]
pub fn not_utf8() -> String {
    // SAFETY: there is none; the bytes are handed to the host and looked at nowhere else.
    unsafe { String::from_utf8_unchecked(black_box(vec![b'a', 0xff, 0xfe, b'b'])) }
}

/// A list that claims to go on past the end of memory.
#[expect(unsafe_code, reason = "a plugin in another language can return any length")]
pub fn past_memory<T: Clone>(item: T) -> Vec<T> {
    let mut list = vec![item; 16];
    let pointer = list.as_mut_ptr();
    std::mem::forget(list);
    // SAFETY: there is none; the list is handed to the host, which reads it and must refuse.
    unsafe { Vec::from_raw_parts(pointer, (isize::MAX as usize) / size_of::<T>(), 16) }
}

/// Where a mode such as `configure-loop` is one of `configure`.
pub fn in_configure(mode: &str) -> Option<&str> {
    mode.strip_prefix("configure-")
}
