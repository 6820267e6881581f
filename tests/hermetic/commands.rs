//! The commands besides `run`, as a user types them.

use alluvium_kafka::{NewRecord, Producer};
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::{PATIENCE, plugin};
use alluvium_tests::{Options, Process, Workbench};
use std::time::{Duration, Instant};

/// The example of the repository, with the plugin where it was built.
fn example(dir: &std::path::Path) {
    let text = include_str!("../../examples/orders.toml");
    let at = text.find("redact.wasm").expect("the example's plugin");
    let (before, after) = (text[..at].rfind('"').unwrap(), at + text[at..].find('"').unwrap());
    let text = format!("{}\"{}{}", &text[..before], plugin("redact").display(), &text[after..]);
    std::fs::write(dir.join("orders.toml"), text).unwrap();
}

#[test]
fn the_example_is_fine_and_its_tests_pass() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let mut check = Process::start(dir.path(), "check", &["check", "orders.toml"], &[]);
    check.done(PATIENCE);
    assert!(check.out().contains("is fine"), "{}", check.out());
    let mut test = Process::start(dir.path(), "test", &["test", "orders.toml"], &[]);
    test.done(PATIENCE);
    assert!(test.out().contains("... ok"), "{}", test.out());
}

#[test]
fn a_failing_test_says_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let text = std::fs::read_to_string(dir.path().join("orders.toml")).unwrap();
    std::fs::write(dir.path().join("orders.toml"), text.replacen("***@", "visible@", 1)).unwrap();
    let mut test = Process::start(dir.path(), "test", &["test", "orders.toml"], &[]);
    assert_eq!(test.wait(PATIENCE).code(), Some(1), "{}", test.out());
    assert!(test.out().contains("customer.email: wanted"), "{}", test.out());
}

#[test]
fn a_file_full_of_mistakes_is_told_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = "version = 1\ntenant = \"a/b\"\nnam = \"orders\"\n[source]\nbrokers = []\ntopic = 5\n[sink]\n";
    std::fs::write(dir.path().join("bad.toml"), text).unwrap();
    let mut check = Process::start(dir.path(), "check", &["check", "bad.toml"], &[]);
    assert_eq!(check.wait(PATIENCE).code(), Some(2));
    for told in ["bad.toml:2:", "bad.toml:3:", "bad.toml:5:", "bad.toml:6:", "did you mean", "table"] {
        assert!(check.err().contains(told), "{told} is not in\n{}", check.err());
    }
}

#[test]
fn every_plugin_that_cannot_be_had_is_told() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let text = std::fs::read_to_string(dir.path().join("orders.toml")).unwrap();
    std::fs::write(dir.path().join("text.wasm"), "not a component").unwrap();
    let more = "\n[[transform]]\nplugin = \"./absent.wasm\"\n[[transform]]\nplugin = \"./text.wasm\"\n";
    std::fs::write(dir.path().join("orders.toml"), text + more).unwrap();
    let mut check = Process::start(dir.path(), "check", &["check", "orders.toml"], &[]);
    assert_eq!(check.wait(PATIENCE).code(), Some(2), "{}", check.err());
    for told in ["absent.wasm cannot be read", "text"] {
        assert!(check.err().contains(told), "{told} is not in\n{}", check.err());
    }
    assert_eq!(check.err().matches("error: ").count(), 3, "two plugins and the sum:\n{}", check.err());
}

#[test]
fn a_file_that_cannot_be_read_does_not_hide_the_tests_of_others() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    std::fs::write(dir.path().join("bad.toml"), "version = 1\n").unwrap();
    let mut test = Process::start(dir.path(), "test", &["test", "--json", "bad.toml", "orders.toml"], &[]);
    assert_eq!(test.wait(PATIENCE).code(), Some(2), "{}", test.err());
    let told: serde_json::Value = serde_json::from_str(&test.out()).unwrap();
    assert_eq!((&told[0]["file"], &told[0]["ok"]), (&"bad.toml".into(), &false.into()));
    assert!(told[0]["error"].as_str().unwrap().contains("bad.toml:1:"), "{told:#}");
    assert_eq!((&told[1]["file"], &told[1]["ok"]), (&"orders.toml".into(), &true.into()), "{told:#}");
}

#[test]
fn try_tells_of_rows_and_rejects() {
    let dir = tempfile::tempdir().unwrap();
    example(dir.path());
    let records = "{\"id\":1,\"customer\":{\"email\":\"a@b.c\"}}\n{\"id\":\n{\"id\":2,\"test\":true}\n{\"id\":\"x\"}\n";
    std::fs::write(dir.path().join("records.ndjson"), records).unwrap();
    let mut process = Process::start(dir.path(), "try", &["try", "orders.toml", "records.ndjson"], &[]);
    process.done(PATIENCE);
    assert!(process.out().contains(r#""email":"***@b.c""#), "{}", process.out());
    for told in ["line 2: malformed", "line 4: conflict", "4 records: 1 rows, 1 filtered, 2 rejected"] {
        assert!(process.err().contains(told), "{told} is not in\n{}", process.err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_serves_producers_until_it_is_stopped_and_position_tells_the_lag() {
    let dir = tempfile::tempdir().unwrap();
    let mut sandbox = Process::start(dir.path(), "sandbox", &["sandbox", "--topic", "orders:2"], &[]);
    let begun = Instant::now();
    while sandbox.out().is_empty() {
        assert!(begun.elapsed() < PATIENCE && sandbox.is_running(), "{}", sandbox.err());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let brokers = sandbox.out().trim().to_owned();
    let mut bench = Workbench::new(&brokers, "orders", &Options { partitions: 2, ..Options::default() });
    bench.produce(2, 0..100, 100).await;
    bench.run_to_end("run");
    let producer = Producer::connect(&brokers, &[]).unwrap();
    let record = NewRecord { topic: "orders", partition: Some(1), value: Some(b"{}"), ..NewRecord::default() };
    producer.produce(record).await.unwrap();
    let position = bench.alluvium("position", &["position", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert_eq!((&position[0]["stored"], &position[0]["lag"]), (&100.into(), &0.into()), "{position:#}");
    assert_eq!((&position[1]["high"], &position[1]["lag"]), (&101.into(), &1.into()), "{position:#}");
    bench.assert_exactly_once().await;
    sandbox.signal(Signal::SIGTERM);
    assert!(sandbox.wait(PATIENCE).success(), "{}", sandbox.err());
}

#[test]
fn the_demo_ends_well_after_its_kills() {
    let dir = tempfile::tempdir().unwrap();
    let redact = plugin("redact").display().to_string();
    let arguments = ["demo", "--records", "20000", "--kills", "2", "--plugin", &redact];
    let mut demo = Process::start(dir.path(), "demo", &arguments, &[]);
    demo.done(PATIENCE);
    for told in ["kill 2 of 2", "missing                0", "doubled                0", "order_date"] {
        assert!(demo.out().contains(told), "{told} is not in\n{}", demo.out());
    }
}
