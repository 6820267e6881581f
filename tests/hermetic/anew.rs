//! A topic that was deleted and made anew: another sandbox with a topic of the same name.

use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench};

/// With 100 records read, the new topic has fewer, as many, or more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_created_anew_stops_the_pipeline() {
    for records in [60, 100, 140] {
        let options = Options { partitions: 1, ..Options::default() };
        let topic = Workbench::topic_name("anew");
        let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
        let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
        bench.produce(1, 0..100, 1_000).await;
        bench.run_to_end("first");
        let rows = bench.rows("pipeline").await;
        drop(sandbox);
        let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
        bench.move_to(sandbox.brokers());
        bench.write("pipeline.toml", &topic, &options);
        bench.produce(1, 0..records, 1_000).await;
        // Skipping lost data does not cover it.
        let skipping = Options { source: "lost_data = \"skip\"".to_owned(), ..options.clone() };
        for options in [&options, &skipping] {
            bench.write("pipeline.toml", &topic, options);
            let told = bench.run_refused("anew");
            assert!(told.contains("was created anew") && told.contains("raise `generation`"), "{told}");
            let mut check = bench.alluvium("check", &["check", "--connect", "pipeline.toml"], &[]);
            assert_eq!(check.wait(PATIENCE).code(), Some(2));
            assert!(check.err().contains("was created anew"), "{}", check.err());
            let position = bench.alluvium("position", &["position", "--json", "pipeline.toml"], &[]).done(PATIENCE);
            assert!(position[0]["state"].as_str().unwrap().starts_with("REPLACED"), "{position:#}");
            assert_eq!(bench.rows("pipeline").await, rows);
        }
        // A new generation reads it from its start.
        bench.write("pipeline.toml", &topic, &Options { generation: 2, ..options });
        assert_eq!(bench.run_to_end("generation-2")[0]["read"], records);
        // The rows of two generations cannot be told apart, and that is said.
        let mut verify = bench.alluvium("verify", &["verify", "--scan", "pipeline.toml"], &[]);
        assert!(verify.wait(PATIENCE).success(), "{}", verify.err());
        assert!(verify.out().trim_end().ends_with("by the log alone: the rows were not scanned"), "{}", verify.out());
    }
}
