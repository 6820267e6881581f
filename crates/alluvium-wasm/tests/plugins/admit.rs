//! The gate: each refusal, in the words its reader sees.

use crate::fixture::{SPIN, column};
use crate::{first_run, host, refusal, soon, tight};
use alluvium_core::{Classified, ErrorClass};
use alluvium_wasm::{AdmitError, CallError, Host, HostConfig, Kind, Limits, digest};
use std::error::Error;
use std::time::Duration;

/// The message, with its causes, and without the digest.
fn text(error: &AdmitError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    let digest = error.plugin().0.digest.get(..19).unwrap_or_default().to_owned();
    text.replace(&format!(" ({digest})"), "")
}

#[test]
fn a_sound_plugin_is_admitted_and_known() {
    let component = column(|core| core.description("mask", "2.1.0", "masks", r#"{"type":"object"}"#));
    let plugin = host().admit("mask", &component, &tight()).unwrap();
    assert_eq!((plugin.name(), plugin.kind()), ("mask", Kind::Column));
    assert_eq!(plugin.digest(), digest(&component));
    assert_eq!(plugin.digest().len(), "sha256:".len() + 64);
    let said = plugin.description();
    assert_eq!((said.name.as_str(), said.version.as_str(), said.summary.as_str()), ("mask", "2.1.0", "masks"));
    assert_eq!(said.config_schema, r#"{"type":"object"}"#);
}

#[test]
fn what_is_no_component_is_named() {
    let core = wat::parse_str("(module)").unwrap();
    let cases: [(&[u8], &str); 5] = [
        (b"", "it is empty"),
        (&core, "it is a core module"),
        (b"  (component)", "it is WebAssembly text"),
        (b"\0asm\x09\0\x09\0", "it is WebAssembly of an unknown version"),
        (b"#!/bin/sh", "it is something else"),
    ];
    for (bytes, found) in cases {
        assert_eq!(text(&refusal(bytes)), format!("plugin 'fixture' is not a WebAssembly component: {found}"));
    }
}

#[test]
fn size_is_capped() {
    let host = Host::new(HostConfig { instances: 1, max_component: 100, ..HostConfig::default() }).unwrap();
    let error = host.admit("fixture", &[0; 101], &tight()).unwrap_err();
    assert_eq!(text(&error), "plugin 'fixture' is 101 bytes large; at most 100 bytes are allowed");
}

#[test]
fn no_part_of_a_component_is_taken_for_one() {
    // Malformed bytes have made engines panic: no prefix and no damage may.
    let component = column(|_| {});
    for length in (0..component.len()).step_by(7) {
        match host().admit("fixture", &component[..length], &tight()) {
            // Sections that only inform come last.
            Ok(_) => assert!(length > component.len() / 2, "{length} of {} bytes", component.len()),
            Err(error) => assert!(matches!(error.class(), ErrorClass::User), "{error}"),
        }
    }
    for at in (8..component.len()).step_by(13) {
        let mut damaged = component.clone();
        damaged[at] ^= 0xFF;
        // Damage in a name or in constant data can leave a sound component.
        drop(host().admit("fixture", &damaged, &tight()));
    }
}

#[test]
fn proposals_beyond_the_narrow_set_are_refused() {
    let cases = [
        ("(memory 1 1 shared)", "threads"),
        ("(memory i64 1)", "memory64"),
        ("(memory 1) (memory 1)", "multiple memories"),
        ("(func $f (return_call $f))", "tail calls"),
        ("(tag)", "exceptions"),
        ("(type (struct))", "gc"),
        ("(func (result v128) (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0)))", "relaxed SIMD"),
    ];
    for (definition, proposal) in cases {
        let component = wat::parse_str(format!("(component (core module {definition}))")).unwrap();
        let error = refusal(&component);
        assert!(matches!(error, AdmitError::Invalid { .. }), "{proposal}: {error}");
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.hint().unwrap().starts_with("allowed are WebAssembly 2.0"));
    }
    // What guests' toolchains do use gets past validation.
    let simd = "(func (result v128) (i8x16.swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0)))";
    let component = wat::parse_str(format!("(component (core module {simd}))")).unwrap();
    assert!(matches!(refusal(&component), AdmitError::World { .. }));
}

#[test]
fn asynchronous_components_are_refused() {
    let component = wat::parse_str("(component (core func (canon task.cancel)))").unwrap();
    assert!(matches!(refusal(&component), AdmitError::Invalid { .. }));
}

#[test]
fn imports_are_named() {
    let component = wat::parse_str(
        r#"(component
          (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64)))))
          (import "acme:host/log" (func (param "text" string)))
          (import "acme:host/types" (instance (type $level (enum "low")) (export "level" (type (eq $level))))))"#,
    )
    .unwrap();
    let error = refusal(&component);
    assert_eq!(
        text(&error),
        "plugin 'fixture' imports wasi:clocks/monotonic-clock@0.2.0 and acme:host/log; a plugin may import nothing"
    );
    assert!(error.hint().unwrap().contains("without WASI"));
}

#[test]
fn resources_are_no_mere_types() {
    let component =
        wat::parse_str(r#"(component (import "a:b/c" (instance (export "r" (type (sub resource))))))"#).unwrap();
    assert!(matches!(refusal(&component), AdmitError::Imports { .. }));
    let component = wat::parse_str(r#"(component (import "r" (type (sub resource))))"#).unwrap();
    assert!(matches!(refusal(&component), AdmitError::Imports { .. }));
}

#[test]
fn other_worlds_and_versions_are_named() {
    let error = refusal(&wat::parse_str(r#"(component)"#).unwrap());
    assert_eq!(
        text(&error),
        "plugin 'fixture' exports nothing; a plugin exports alluvium:plugin/column-transform@0.1.0, alluvium:plugin/record-transform@0.1.0 or alluvium:plugin/schema-mapping@0.1.0"
    );
    let later = column(|core| core.contract(|contract| contract.replace("plugin@0.1.0", "plugin@0.2.0")));
    assert_eq!(
        text(&refusal(&later)),
        "plugin 'fixture' is built against alluvium:plugin/column-transform@0.2.0; supported are alluvium:plugin/column-transform@0.1.0, alluvium:plugin/record-transform@0.1.0 and alluvium:plugin/schema-mapping@0.1.0"
    );
}

#[test]
fn a_contract_of_other_types_is_refused() {
    let changed = column(|core| core.contract(|contract| contract.replace("rows: u32,", "lines: u32,")));
    let error = refusal(&changed);
    assert!(matches!(error, AdmitError::Contract { .. }), "{error}");
    assert!(text(&error).starts_with(
        "plugin 'fixture' exports alluvium:plugin/column-transform@0.1.0, but with other functions or types than the contract's"
    ));
}

#[test]
fn memory_is_checked_before_it_is_taken() {
    let error = refusal(&column(|core| core.pages = 65));
    assert_eq!(text(&error), "plugin 'fixture' needs 4.1 MiB of memory to start; its memory limit is 4 MiB");
    assert_eq!(error.hint().unwrap(), "raise limits.memory to 4.1 MiB at least, or make its data smaller");
    let error = host().admit("fixture", &column(|_| {}), &Limits { memory: 1 << 30, ..tight() }).unwrap_err();
    assert_eq!(text(&error), "plugin 'fixture' is to have a memory limit of 1 GiB; this host allows at most 256 MiB");
}

#[test]
fn tables_are_bounded() {
    let table = |elements: usize, limit: usize| {
        let component = column(|core| core.more = format!("(table {elements} funcref)"));
        host().admit("fixture", &component, &Limits { table_elements: limit, ..tight() })
    };
    assert!(table(20_000, 100_000).is_ok());
    let says = text(&table(20_001, 100_000).unwrap_err());
    assert_eq!(says, "plugin 'fixture' has a table of 20001 elements; at most 20000 are allowed");
    let says = text(&table(101, 100).unwrap_err());
    assert_eq!(says, "plugin 'fixture' has a table of 101 elements; at most 100 are allowed");
}

#[test]
fn a_start_that_loops_or_traps_is_refused_in_time() {
    let error = soon(|| refusal(&column(|core| core.start = SPIN.to_owned())));
    assert_eq!(
        text(&error),
        "plugin 'fixture' failed its first run: plugin 'fixture' took longer than its time limit of 0.2 s in its start"
    );
    assert_eq!(error.class(), ErrorClass::User);
    let error = first_run(refusal(&column(|core| core.start = "unreachable".to_owned())));
    assert!(matches!(error, CallError::Trap { .. }), "{error}");
}

#[test]
fn descriptions_are_checked() {
    let describe = |name: &str, summary: &str, schema: &str| {
        text(&refusal(&column(|core| core.description(name, "1.0.0", summary, schema))))
    };
    let says = "plugin 'fixture' says of itself what cannot be used: ";
    assert_eq!(describe(" ", "", ""), format!("{says}its name is empty"));
    assert_eq!(describe(&"n".repeat(129), "", ""), format!("{says}its name has 129 bytes; at most 128 are allowed"));
    assert_eq!(
        describe("n", &"s".repeat(1001), ""),
        format!("{says}its summary has 1001 bytes; at most 1000 are allowed")
    );
    assert!(describe("n", "", "{").starts_with(&format!("{says}its configuration's schema is not JSON")));
    let error = refusal(&column(|core| {
        let text = core.put(&[0xFF]);
        let record: Vec<u8> = [text, 1, 0, 0, 0, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        core.describe = format!("(i32.const {})", core.put(&record));
    }));
    assert!(text(&error).contains("returned from describe what cannot be used: it cannot be read"), "{}", text(&error));
}

#[test]
fn compiling_is_bounded_in_time() {
    // Compiling needs longer than no time at all.
    let host = Host::new(HostConfig { instances: 1, compile_time: Duration::ZERO, ..HostConfig::default() }).unwrap();
    let error = host.admit("fixture", &column(|_| {}), &tight()).unwrap_err();
    assert_eq!(text(&error), "plugin 'fixture' took longer than 0 s to compile");
}

#[test]
fn a_host_that_cannot_be_is_refused_at_once() {
    assert!(Host::new(HostConfig { instances: 0, ..HostConfig::default() }).is_err());
    assert!(Host::new(HostConfig { max_memory: 0, ..HostConfig::default() }).is_err());
    let error = Host::new(HostConfig { instances: 1_000_000, ..HostConfig::default() }).unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    assert!(error.hint().unwrap().contains("address space"));
}
