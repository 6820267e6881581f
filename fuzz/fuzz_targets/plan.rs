//! `support::fuzzed::plan` of the schema crate's tests, on whatever libFuzzer makes up.
#![no_main]

#[path = "../../crates/alluvium-schema/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|input: &[u8]| support::fuzzed::plan(input));
