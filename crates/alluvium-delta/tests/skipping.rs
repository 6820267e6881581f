//! No reader that skips files by their statistics loses a row.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::Table;
use alluvium_delta::DeltaSink;
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use buoyant_kernel as kernel;
use common::*;
use kernel::engine::arrow_data::ArrowEngineData;
use kernel::expressions::{ColumnName, Expression, Predicate, Scalar};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use proptest::prelude::*;
use std::sync::Arc;

/// The ids of rows in files that the kernel does not skip for `predicate`.
fn kept(store: &Arc<dyn ObjectStore>, predicate: Predicate) -> Vec<i64> {
    let url = url::Url::parse(TABLE).unwrap();
    let log = deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap();
    let engine = log.engine(None);
    let snapshot = kernel::Snapshot::builder_for("memory:///rows/").build(engine.as_ref()).unwrap();
    let scan = snapshot.scan_builder().with_predicate(Arc::new(predicate)).build().unwrap();
    let mut ids = Vec::new();
    for data in scan.execute(engine).unwrap() {
        let batch: RecordBatch = ArrowEngineData::try_from_engine_data(data.unwrap()).unwrap().into();
        let column = batch.column_by_name("id").unwrap().as_any().downcast_ref::<Int64Array>().unwrap().clone();
        ids.extend(column.values().iter().copied());
    }
    ids
}

#[derive(Clone, Debug)]
struct Row {
    number: Option<i64>,
    double: Option<f64>,
    decimal: Option<i128>,
    text: Option<String>,
    micros: Option<i64>,
    days: Option<i32>,
}

fn row() -> impl Strategy<Value = Row> {
    let number = prop_oneof![any::<i64>(), -3..3i64, Just(i64::MAX), Just(i64::MIN)];
    let double = prop_oneof![
        any::<f64>(),
        -2.0..2.0f64,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(0.0),
        Just(-0.0),
        Just(f64::MIN_POSITIVE),
    ];
    let limit = 10i128.pow(38) - 1;
    let decimal = prop_oneof![-limit..=limit, -3..3i128, Just(limit), Just(-limit), Just(10i128.pow(20))];
    let text = prop_oneof![".{0,5}", "[a-c]{60,70}", Just("\u{10FFFF}".repeat(40)), Just(String::new())];
    // What the kernel can compare: its own times reach from year 1 to 9999.
    let micros = prop_oneof![-60_000_000_000_000_000..250_000_000_000_000_000i64, -3000..3000i64];
    let days = prop_oneof![-700_000..2_900_000i32, -3..3i32];
    let some = |strategy: BoxedStrategy<i64>| prop::option::weighted(0.9, strategy);
    (
        some(number.boxed()),
        prop::option::weighted(0.9, double),
        prop::option::weighted(0.9, decimal),
        prop::option::weighted(0.9, text),
        some(micros.boxed()),
        prop::option::weighted(0.9, days),
    )
        .prop_map(|(number, double, decimal, text, micros, days)| Row {
            number,
            double,
            decimal,
            text,
            micros,
            days,
        })
}

fn batch(rows: &[Row], first: i64) -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(first..first + rows.len() as i64))),
        ("number", Arc::new(rows.iter().map(|row| row.number).collect::<Int64Array>())),
        ("double", Arc::new(rows.iter().map(|row| row.double).collect::<Float64Array>())),
        (
            "decimal",
            Arc::new(
                rows.iter()
                    .map(|row| row.decimal)
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(38, 10)
                    .unwrap(),
            ),
        ),
        ("text", Arc::new(rows.iter().map(|row| row.text.clone()).collect::<StringArray>())),
        ("at", Arc::new(rows.iter().map(|row| row.micros).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))),
        ("wall", Arc::new(rows.iter().map(|row| row.micros).collect::<TimestampMicrosecondArray>())),
        ("day", Arc::new(rows.iter().map(|row| row.days).collect::<Date32Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// A column of a row as a value to compare with, unless it is null.
fn value(row: &Row, column: &str) -> Option<Scalar> {
    Some(match column {
        "number" => Scalar::Long(row.number?),
        "double" => Scalar::Double(row.double?),
        "decimal" => Scalar::decimal(row.decimal?, 38, 10).unwrap(),
        "text" => Scalar::String(row.text.clone()?),
        "at" => Scalar::Timestamp(row.micros?),
        "wall" => Scalar::TimestampNtz(row.micros?),
        _ => Scalar::Date(row.days?),
    })
}

const COLUMNS: [&str; 7] = ["number", "double", "decimal", "text", "at", "wall", "day"];

async fn check(files: Vec<Vec<Row>>) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = DeltaSink::open_with_store(store.clone(), memory_config()).await.unwrap();
    let mut first = 0;
    for (rows, from) in files.iter().zip(0..) {
        let batch = batch(rows, first);
        first += rows.len() as i64;
        assert!(is_committed(&sink.commit(&mut flush_of(&sink, &[(0, from, from + 1)], &[batch])).await.unwrap()));
    }
    let ids: Vec<(i64, &Row)> = (0..).zip(files.iter().flatten()).collect();
    let task = |column: &'static str, id: i64, pivot: Scalar| {
        let store = store.clone();
        tokio::task::block_in_place(move || {
            let name = || Expression::from(ColumnName::new([column]));
            for (operator, predicate) in [
                ("<=", Predicate::le(name(), Expression::literal(pivot.clone()))),
                (">=", Predicate::ge(name(), Expression::literal(pivot.clone()))),
                ("=", Predicate::eq(name(), Expression::literal(pivot.clone()))),
            ] {
                let kept = kept(&store, predicate);
                assert!(kept.contains(&id), "{column} {operator} {pivot:?} skips the row {id} that has it");
            }
        });
    };
    for column in COLUMNS {
        for (id, row) in &ids {
            if let Some(pivot) = value(row, column).filter(|pivot| !matches!(pivot, Scalar::Double(d) if d.is_nan())) {
                task(column, *id, pivot);
            }
        }
    }
    // Readers that hold NaN to be the greatest value find it above any other.
    for (id, _) in ids.iter().filter(|(_, row)| row.double.is_some_and(f64::is_nan)) {
        let store = store.clone();
        let kept = tokio::task::block_in_place(move || {
            let above = Predicate::gt(Expression::from(ColumnName::new(["double"])), Expression::literal(1e300));
            kept(&store, above)
        });
        assert!(kept.contains(id), "NaN of row {id} is skipped");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_row_is_never_skipped_by_its_own_value(files in prop::collection::vec(prop::collection::vec(row(), 1..4), 1..4)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(files));
    }
}
