//! What the files mean, value by value.

#![allow(clippy::unwrap_used, clippy::panic)]

use alluvium_config::{
    Coercion, Column, Derivation, Evolve, Expect, Flush, Format, Input, Limits, LostData, Mapping, Metadata,
    OnConflict, Pipeline, PluginSource, Setting, Tombstones, parse,
};
use alluvium_core::position::StartPolicy;
use alluvium_core::{Classified, DataType, ErrorClass, Partition};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

fn read(text: &str) -> Pipeline {
    parse(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn column(pipeline: &Pipeline, index: usize) -> &Column {
    let Mapping::Columns(columns) = &pipeline.schema.mapping else { panic!("columns are declared") };
    &columns[index]
}

fn plain(text: &str) -> Setting {
    Setting::Plain(text.to_owned())
}

#[test]
fn what_is_left_out_has_its_default() {
    let pipeline = read(include_str!("ui/valid/minimal.toml"));
    assert_eq!(pipeline.id.to_string(), "acme/orders");
    assert_eq!(pipeline.id.generation(), 1);
    assert_eq!(pipeline.app_id(Partition(3)).as_str(), "acme/orders/1/orders/3");
    assert_eq!(pipeline.source.format, Format::Json);
    assert_eq!(pipeline.source.start, StartPolicy::Earliest);
    assert_eq!(pipeline.source.tombstones, Tombstones::Drop);
    assert_eq!(pipeline.source.lost_data, LostData::Stop);
    assert_eq!(pipeline.source.group, None);
    assert!(pipeline.source.kafka.is_empty() && pipeline.transforms.is_empty() && pipeline.tests.is_empty());
    assert_eq!(pipeline.schema.mapping, Mapping::Infer);
    assert_eq!(pipeline.schema.evolve, Evolve::Add);
    assert_eq!(pipeline.schema.max_columns, 1000);
    assert_eq!(pipeline.sink.table, "orders");
    assert_eq!(pipeline.sink.dead_letters, "orders_dead_letters");
    assert_eq!(pipeline.sink.metadata, Metadata::default());
    assert_eq!(pipeline.flush, Flush::default());
    assert_eq!(pipeline.limits, Limits::default());
}

#[test]
fn everything_can_be_set() {
    let pipeline = read(include_str!("ui/valid/everything.toml"));
    assert_eq!(pipeline.app_id(Partition(0)).as_str(), "acme/orders.eu-1/7/orders.v1_eu-west/0");
    let source = &pipeline.source;
    assert_eq!(source.brokers, ["kafka-1.example.com:9092", "10.0.0.1:9093", "[2001:db8::1]:9092"]);
    assert_eq!(source.start, StartPolicy::Timestamp(1_772_319_600_500));
    assert_eq!(source.tombstones, Tombstones::DeadLetter);
    assert_eq!(source.lost_data, LostData::Skip);
    assert_eq!(source.group.as_deref(), Some("lag dashboards"));

    let transforms = &pipeline.transforms;
    assert_eq!(transforms[0].plugin, PluginSource::File("./unwrap.wasm".into()));
    assert_eq!((&transforms[0].with, transforms[0].at), (&json!({}), (32, 1)));
    assert_eq!(transforms[1].plugin, PluginSource::File("/opt/plugins/redact.wasm".into()));
    let with = json!({"fields": ["customer.email"], "since": "2026-03-01", "nested": {"deep": [1, 2.5, true]}});
    assert_eq!(transforms[1].with, with);

    assert_eq!(pipeline.schema.evolve, Evolve::Stop);
    assert_eq!(pipeline.schema.max_columns, 50);
    let id = column(&pipeline, 0);
    assert_eq!((id.name.as_str(), &id.data_type, id.at), ("id", &DataType::BigInt, (43, 1)));
    assert_eq!((id.from.as_slice(), id.on_conflict), (["id".to_owned()].as_slice(), OnConflict::Stop));
    let size = column(&pipeline, 1);
    assert_eq!(size.from, ["amount", "a.b"]);
    assert_eq!((&size.data_type, size.on_conflict), (&DataType::Decimal(10, 2), OnConflict::Rescue));
    assert_eq!(column(&pipeline, 2).on_conflict, OnConflict::Reject);
    assert_eq!(column(&pipeline, 3).data_type.to_string(), "map<string,array<struct<`a.b`:int>>>");

    assert_eq!(pipeline.sink.table, "s3://lake/acme/orders/");
    assert_eq!(pipeline.sink.dead_letters, "s3://lake/acme/dead");
    assert_eq!(pipeline.sink.partition_by, ["currency", "order_date"]);
    let [kafka, key, headers] = ["_source", "_key", "_headers"].map(|name| Some(name.to_owned()));
    assert_eq!(pipeline.sink.metadata, Metadata { kafka, key, headers, rescued: "_rest".into() });
    let storage = [
        ("AWS_ENDPOINT_URL".to_owned(), plain("http://localhost:9000")),
        ("allow_http".to_owned(), plain("true")),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), Setting::Env("S3".into())),
        ("some_new_option".to_owned(), plain("1")),
    ];
    assert_eq!(pipeline.sink.storage, storage);

    let flush = &pipeline.flush;
    assert_eq!((flush.every, flush.grace), (Duration::from_secs(90), Duration::ZERO));
    assert_eq!((flush.rows, flush.size, flush.memory), (1, 1024, 3 << 29));
    let limits = &pipeline.limits;
    assert_eq!((limits.memory, limits.time, limits.output), (4 << 30, Duration::from_secs(600), 4096));
    assert!(limits.trapping_share.abs() < f64::EPSILON);

    let tests = &pipeline.tests;
    assert_eq!(tests[0].input, Input::Value(json!({"id": 1, "amount": {"a.b": "9.99", "currency": "EUR"}})));
    assert_eq!(tests[0].expect, Expect::Rows(vec![json!({"id": 1, "currency": "EUR"})]));
    assert_eq!(tests[0].at, (88, 1));
    assert_eq!(tests[1].input.to_bytes(), br#"{"id": 1, "amount": 1.10}"#);
    assert_eq!(tests[1].expect, Expect::Rows(vec![json!({"id": 1}), json!({"id": 2})]));
    assert_eq!((&tests[2].input.to_bytes()[..], &tests[2].expect), (&br#"{"rejected":true}"#[..], &Expect::Filtered));
    assert_eq!(tests[3].expect, Expect::Rejected(None));
    assert_eq!(tests[4].expect, Expect::Rejected(Some("conflict".into())));
}

/// A setting is the same whether its key is quoted or not, and keeps its place.
#[test]
fn kafka_settings_keep_their_order() {
    let pipeline = read(include_str!("ui/valid/everything.toml"));
    let keys = pipeline.source.kafka.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>();
    let expected = [
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.pem",
        "ssl.ca.pem",
        "queued.min.messages",
        "check.crcs",
        "session.timeout.ms",
        "max.poll.interval.ms",
    ];
    assert_eq!(keys, expected);
    let get = |key: &str| pipeline.source.kafka.iter().find(|(found, _)| found == key).map(|(_, setting)| setting);
    assert_eq!(get("sasl.username"), Some(&Setting::Env("ORDERS_USER".into())));
    assert_eq!(get("sasl.password"), Some(&Setting::File("../secrets/orders".into())));
    assert_eq!(get("sasl.oauthbearer.assertion.file"), Some(&plain("assertion.jwt")));
    assert_eq!(get("queued.min.messages"), Some(&plain("1000000")));
    assert_eq!(get("check.crcs"), Some(&plain("true")));
}

#[test]
fn the_default_dead_letters_lie_beside_the_table() {
    for (table, expected) in [
        ("orders", "orders_dead_letters"),
        ("./lake/orders//", "./lake/orders_dead_letters"),
        ("s3://lake/acme/orders/", "s3://lake/acme/orders_dead_letters"),
    ] {
        let text = include_str!("ui/valid/minimal.toml")
            .replace("{ table = \"orders\" }", &format!("{{ table = '{table}' }}"));
        let pipeline = read(&text);
        assert_eq!((pipeline.sink.table.as_str(), pipeline.sink.dead_letters.as_str()), (table, expected));
    }
}

#[test]
fn the_example_is_a_pipeline() {
    let pipeline = read(include_str!("../../../examples/orders.toml"));
    assert_eq!(pipeline.app_id(Partition(0)).as_str(), "acme/orders/1/orders/0");
    assert_eq!(pipeline.transforms[0].with, json!({"fields": ["customer.email"]}));
    assert_eq!(pipeline.schema.evolve, Evolve::None);
    assert_eq!(column(&pipeline, 3).data_type.to_string(), "array<struct<sku:string,qty:int,price:decimal(10,2)>>");
    assert_eq!(pipeline.sink.partition_by, ["order_date"]);
    assert_eq!(pipeline.tests.len(), 4);
}

#[test]
fn errors_are_the_owners_to_mend() {
    let errors = parse("version = 2\n", "a\u{1b}[2J.toml").unwrap_err();
    assert_eq!(errors.class(), ErrorClass::User);
    assert_eq!(errors.file_name(), "a\\u{1b}[2J.toml");
    assert_eq!((errors.len(), errors.unlisted()), (1, 0));
    let error = errors.iter().next().unwrap();
    assert_eq!((error.line, error.column, error.message.as_str()), (1, 11, "`version` is 2"));
}

#[test]
fn a_pipeline_shows_no_setting() {
    let text = include_str!("ui/valid/everything.toml").replace("http://localhost:9000", "hunter2");
    assert!(!format!("{:?}", read(&text)).contains("hunter2"));
}

#[test]
fn columns_can_be_derived_and_defaulted() {
    let pipeline = parse(include_str!("ui/valid/derived.toml"), "derived.toml").unwrap();
    let derivations = (0..7).map(|at| column(&pipeline, at).derivation.clone()).collect::<Vec<_>>();
    let dash = "-".to_owned();
    assert_eq!(
        derivations[..4],
        [None, Some(Derivation::Date), Some(Derivation::Before(dash.clone())), Some(Derivation::After(dash))]
    );
    assert_eq!(column(&pipeline, 1).comment.as_deref(), Some("in UTC"));
    assert_eq!(column(&pipeline, 4).default.as_deref(), Some("0.5"));
    assert_eq!(column(&pipeline, 5).coercions, BTreeMap::from([("element".to_owned(), Coercion::EpochMs)]));
    assert_eq!(column(&pipeline, 6).coercions, BTreeMap::from([(String::new(), Coercion::ParseString)]));
}

#[test]
fn a_plugin_can_decide_on_the_mapping() {
    let pipeline = parse(include_str!("ui/valid/mapped.toml"), "mapped.toml").unwrap();
    let Mapping::Plugin(plugin) = &pipeline.schema.mapping else { panic!("{:?}", pipeline.schema.mapping) };
    assert_eq!(plugin.plugin, PluginSource::File("./orders-map.wasm".to_owned()));
    assert_eq!(plugin.with, serde_json::json!({"date": "order_date"}));
    assert_eq!(plugin.at, (10, 11));
    assert_eq!(pipeline.schema.evolve, Evolve::Approve);
    assert_eq!(pipeline.schema.drops, [vec!["debug".to_owned()], vec!["customer".to_owned(), "s.n".to_owned()]]);
}
