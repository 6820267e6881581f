//! Calls that loop, hoard, trap or wait, and what others notice of them.

use crate::fixture::{Core, HOARD, Node, SPIN, column, record};
use crate::{column_plugin, host, record_plugin, soon, tight};
use alluvium_core::chunk::Record;
use alluvium_core::{Classified, ErrorClass, Records};
use alluvium_wasm::{AccessProblem, CallError, ConfigureError, Function, Host, HostConfig, Limits};
use serde_json::json;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

fn failure(build: impl FnOnce(&mut Core)) -> CallError {
    soon(|| column_plugin(&column(build), &tight()).transform(1, &[]).unwrap_err())
}

fn text(error: &CallError) -> String {
    let digest = error.plugin().0.digest.get(..19).unwrap_or_default().to_owned();
    error.to_string().replace(&format!(" ({digest})"), "")
}

#[test]
fn each_failure_is_told_as_what_it_is() {
    let cases = [
        (
            failure(|core| core.transform = "unreachable".to_owned()),
            "plugin-trap",
            "plugin 'fixture' trapped in transform: wasm `unreachable` instruction executed",
        ),
        (
            failure(|core| {
                core.more = "(func $deep (call $deep))".to_owned();
                core.transform = "(call $deep) unreachable".to_owned();
            }),
            "plugin-trap",
            "plugin 'fixture' trapped in transform: call stack exhausted (in deep, called by deep, called by deep)",
        ),
        (
            failure(|core| core.transform = "(i32.div_u (i32.const 1) (i32.const 0))".to_owned()),
            "plugin-trap",
            "plugin 'fixture' trapped in transform: integer divide by zero",
        ),
        (
            failure(|core| core.transform = format!("{SPIN} unreachable")),
            "plugin-timeout",
            "plugin 'fixture' took longer than its time limit of 0.2 s in transform",
        ),
        (
            failure(|core| core.transform = HOARD.to_owned()),
            "plugin-memory",
            "plugin 'fixture' asked for 4.2 MiB in transform, more than its memory limit of 4 MiB",
        ),
        (failure(|core| core.fails("the moon is full")), "plugin-failed", "plugin 'fixture' failed: the moon is full"),
        (
            failure(|core| core.transform = "(i32.const -8)".to_owned()),
            "plugin-output",
            "plugin 'fixture' returned from transform what cannot be used: it cannot be read from the plugin's memory: pointer out of bounds of memory",
        ),
    ];
    for (error, code, expected) in cases {
        assert_eq!((error.code(), text(&error).as_str()), (code, expected));
        assert_eq!(error.class(), ErrorClass::Plugin);
        assert!(error.hint().is_some());
        assert!(error.to_string().contains(" (sha256:"), "{error}");
    }
}

#[test]
fn handing_over_the_input_is_the_plugin_s_time_too() {
    // Arguments are placed by the plugin's own allocator.
    let component =
        record(|core| core.realloc = format!("(if (i32.gt_u (local.get $size) (i32.const 100)) (then {SPIN}))"));
    let error = soon(|| record_plugin(&component, &tight()).transform(&records(&[&[b'x'; 200]]), None).unwrap_err());
    assert!(matches!(error, CallError::Timeout { function: Function::Transform, .. }), "{error}");
    // And it can place them outside its memory.
    let component = record(|core| {
        core.realloc = "(if (i32.gt_u (local.get $size) (i32.const 100)) (then (return (i32.const -16))))".to_owned();
    });
    let error = record_plugin(&component, &tight()).transform(&records(&[&[b'x'; 200]]), None).unwrap_err();
    assert_eq!(error.code(), "plugin-output", "{error}");
}

#[test]
fn input_larger_than_the_plugin_s_memory_is_the_plugin_s_failure() {
    let plugin = record_plugin(&record(|_| {}), &tight());
    let large = vec![b'x'; 5 << 20];
    let error = plugin.transform(&records(&[&large]), None).unwrap_err();
    assert!(matches!(error, CallError::Memory { .. }), "{error}");
    assert!(plugin.transform(&records(&[b"small"]), None).is_ok());
}

#[test]
fn memory_within_the_limit_is_given() {
    let component = column(|core| {
        let edit = std::mem::take(&mut core.transform);
        core.transform = format!(
            "(if (i32.eq (i32.const -1) (memory.grow (i32.const 59))) (then unreachable))
             (memory.fill (i32.const 262144) (i32.const 7) (i32.const 3866624)) {edit}"
        );
    });
    let plugin = column_plugin(&component, &tight());
    for _ in 0..20 {
        plugin.transform(1, &[]).unwrap();
    }
}

#[test]
fn output_is_bounded() {
    // One mebibyte is allowed.
    let large = |bytes: usize| {
        column(|core| {
            core.columns(&[], &[("x", "binary")], false);
            let node = Node { layout: 6, offsets: Some(vec![0, bytes as i32]), ..Node::bigint(&[0]) };
            core.edit(None, &[Node { values: vec![b'x'; bytes], ..node }], &[]);
        })
    };
    assert!(column_plugin(&large(1 << 19), &tight()).transform(1, &[]).is_ok());
    let error = column_plugin(&large((1 << 20) + 1), &tight()).transform(1, &[]).unwrap_err();
    assert_eq!(
        text(&error),
        "plugin 'fixture' returned from transform what cannot be used: it is larger than its output limit of 1 MiB"
    );
}

#[test]
fn one_buffer_returned_many_times_is_counted_as_often() {
    // A thousand nodes that all point to the same 512 KiB.
    let component = column(|core| {
        let mut node = [core.put(b"x"), 1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        node[11] = core.put(&vec![0; 1 << 19]);
        node[12] = 1 << 19;
        let nodes: Vec<u8> = std::iter::repeat_n(node, 1000).flatten().flat_map(u32::to_le_bytes).collect();
        let nodes = core.put(&nodes);
        let edit: Vec<u8> = [0, 0, 0, 0, nodes, 1000, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        core.transform = format!("(i32.const {})", core.put(&edit));
    });
    let error = soon(|| column_plugin(&component, &tight()).transform(1, &[]).unwrap_err());
    assert!(text(&error).ends_with("it is larger than its output limit of 1 MiB"), "{error}");
}

#[test]
fn answers_to_configure_are_bounded_and_checked() {
    let refused = |build: fn(&mut Core)| {
        let plugin = host().admit("fixture", &column(build), &tight()).unwrap();
        plugin.configure_column(&json!({})).unwrap_err()
    };
    let error = refused(|core| core.refuses("`field` is missing"));
    assert!(error.to_string().ends_with("refuses its configuration: `field` is missing"), "{error}");
    assert_eq!(error.class(), ErrorClass::User);
    let error = refused(|core| core.columns(&[("a", "int"), ("A", "int")], &[], false));
    assert!(matches!(error, ConfigureError::Access { problem: AccessProblem::Twice { .. }, .. }), "{error}");
    let error = soon(|| refused(|core| core.configure = format!("{SPIN} unreachable")));
    assert!(matches!(error, ConfigureError::Call { error: CallError::Timeout { function: Function::Configure, .. } }));
    // A type of many fields is read in linear time.
    let error = soon(|| {
        refused(|core| {
            let fields: Vec<_> = (0..6000).map(|number| format!("f{number}:int")).collect();
            let wide = format!("struct<{}>", fields.join(","));
            let paths: Vec<_> = (0..14).map(|number| format!("c{number}")).collect();
            let reads: Vec<_> = paths.iter().map(|path| (path.as_str(), wide.as_str())).collect();
            core.columns(&reads, &[("a", "int"), ("a.b", "int")], false);
        })
    });
    assert!(matches!(error, ConfigureError::Access { problem: AccessProblem::Overlap { .. }, .. }), "{error}");
    let plugin = host().admit("fixture", &column(|_| {}), &tight()).unwrap();
    let error = plugin.configure_record(&json!({})).unwrap_err();
    assert!(error.to_string().ends_with("is a column plugin; a record plugin is needed here"), "{error}");
}

#[test]
fn nothing_is_kept_from_call_to_call() {
    // Counts its calls, and traps in the second.
    let component = column(|core| {
        let edit = std::mem::take(&mut core.transform);
        core.more = "(global $calls (mut i32) (i32.const 0))".to_owned();
        core.transform = format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.gt_u (global.get $calls) (i32.const 1)) (then unreachable)) {edit}"
        );
    });
    let plugin = column_plugin(&component, &tight());
    for _ in 0..3 {
        plugin.transform(1, &[]).unwrap();
    }
    // Nor in memory, whose pages the pool uses again.
    let component = column(|core| {
        let edit = std::mem::take(&mut core.transform);
        core.transform = format!(
            "(if (i32.load (i32.const 200000)) (then unreachable))
             (memory.fill (i32.const 131072) (i32.const 255) (i32.const 131072)) {edit}"
        );
    });
    let plugin = column_plugin(&component, &tight());
    for _ in 0..50 {
        plugin.transform(1, &[]).unwrap();
    }
}

#[test]
fn a_plugin_works_on_after_it_trapped() {
    let component = record(|core| {
        let output = std::mem::take(&mut core.transform);
        core.transform =
            format!("(if (i32.eq (i32.load (local.get $chunk)) (i32.const 2)) (then unreachable)) {output}");
    });
    let plugin = record_plugin(&component, &tight());
    for _ in 0..20 {
        assert!(plugin.transform(&records(&[b"a", b"b"]), None).is_err());
        assert!(plugin.transform(&records(&[b"a"]), None).is_ok());
    }
}

#[test]
fn others_keep_their_pace_beside_a_plugin_that_loops() {
    let limits = Limits { time: Duration::from_secs(3), ..tight() };
    let looping = column_plugin(&column(|core| core.transform = format!("{SPIN} unreachable")), &limits);
    let healthy = column_plugin(&column(|_| {}), &tight());
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            start.wait();
            looping.transform(1, &[])
        });
        start.wait();
        // Measured: a call takes some ten microseconds.
        for _ in 0..1000 {
            let before = Instant::now();
            healthy.transform(1, &[]).unwrap();
            assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
        }
        assert!(!hostile.is_finished(), "the healthy plugin was held up until the other ended");
        assert!(matches!(hostile.join().unwrap(), Err(CallError::Timeout { .. })));
    });
}

#[test]
fn waiting_for_an_instance_is_not_the_plugin_s_time() {
    let config = HostConfig { instances: 1, wait: Duration::from_secs(20), ..HostConfig::default() };
    let host = Host::new(config).unwrap();
    let spin = column(|core| core.transform = format!("{SPIN} unreachable"));
    let slow = Limits { time: Duration::from_millis(800), ..tight() };
    let looping = host.admit("looping", &spin, &slow).unwrap().configure_column(&json!({})).unwrap();
    let healthy = host.admit("healthy", &column(|_| {}), &tight()).unwrap().configure_column(&json!({})).unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            assert!(matches!(looping.transform(1, &[]), Err(CallError::Timeout { .. })));
        });
        start.wait();
        thread::sleep(Duration::from_millis(100));
        // Waits longer than its own 200 ms, and has them all the same.
        let before = Instant::now();
        healthy.transform(1, &[]).unwrap();
        assert!(before.elapsed() > Duration::from_millis(300), "{:?}", before.elapsed());
    });
}

#[test]
fn no_instance_to_spare_is_not_the_plugin_s_fault() {
    let config = HostConfig { instances: 1, wait: Duration::from_millis(50), ..HostConfig::default() };
    let host = Host::new(config).unwrap();
    let spin = column(|core| core.transform = format!("{SPIN} unreachable"));
    let slow = Limits { time: Duration::from_secs(2), ..tight() };
    let looping = host.admit("looping", &spin, &slow).unwrap().configure_column(&json!({})).unwrap();
    let healthy = host.admit("healthy", &column(|_| {}), &tight()).unwrap().configure_column(&json!({})).unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            assert!(looping.transform(1, &[]).is_err());
        });
        start.wait();
        thread::sleep(Duration::from_millis(100));
        let error = healthy.transform(1, &[]).unwrap_err();
        assert!(error.to_string().ends_with("cannot be run now: all 1 instances were busy for 0.05 s"), "{error}");
        assert_eq!((error.class(), error.code()), (ErrorClass::External, "plugin-unavailable"));
    });
    assert!(healthy.transform(1, &[]).is_ok());
}

#[test]
fn many_calls_from_many_threads_leak_nothing() {
    let plugin = column_plugin(&column(|_| {}), &tight());
    let trapping = column_plugin(&column(|core| core.transform = "unreachable".to_owned()), &tight());
    let calls = |count: usize| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..count {
                        plugin.transform(1, &[]).unwrap();
                        trapping.transform(1, &[]).unwrap_err();
                    }
                });
            }
        });
    };
    calls(200);
    let before = resident();
    calls(2000);
    let grown = resident().saturating_sub(before);
    // Other tests run in this process meanwhile; a leak of one page a call would be 64 MiB.
    assert!(grown < 48 << 20, "{} KiB more after 16,000 calls", grown >> 10);
}

/// Bytes of memory in use by this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap() * 4096
}

fn records(values: &[&[u8]]) -> Records {
    let mut records = Records::default();
    for (offset, value) in values.iter().enumerate() {
        let record = Record { offset: offset as i64, timestamp: -1, key: None, value: Some(value), headers: None };
        records.push(record).unwrap();
    }
    records
}
