//! The decoder against a plain one, over random plans and records, and on bytes of any kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::Packed;
use alluvium_schema::{Decoder, Plan, PlanOptions, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use support::compare::{check_batch, compare};
use support::random::Choices;
use support::{pack_texts, row};

const SECRET: &str = "s3cr3t";

/// The record with a value in each place that is dropped, if objects lead there.
fn planted(record: &str, drops: &[Vec<String>]) -> String {
    let mut record = serde_json::from_str(record).unwrap_or_else(|_| json!({}));
    for drop in drops {
        let Some((last, way)) = drop.split_last() else { continue };
        let mut at = Some(&mut record);
        for name in way {
            at = at.and_then(Value::as_object_mut).map(|object| object.entry(name).or_insert_with(|| json!({"n": 1})));
        }
        if let Some(object) = at.and_then(Value::as_object_mut) {
            object.insert(last.clone(), json!({"x": [SECRET]}));
        }
    }
    record.to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decodes_as_the_reference(
        plan in prop::collection::vec(any::<u8>(), 0..80),
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..160), 0..6),
    ) {
        let plan = Choices::new(&plan).plan();
        let records = records.iter().map(|bytes| Choices::new(bytes).record(&plan)).collect::<Vec<_>>();
        compare(&plan, &records);
    }

    #[test]
    fn grown_plans_decode_as_the_reference(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..6),
        later in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..6),
    ) {
        let any_record = |bytes: &Vec<u8>| Choices::new(bytes).any_record().into_bytes();
        let records = records.iter().map(any_record).collect::<Vec<_>>();
        let mut shape = Shape::default();
        records.iter().for_each(|record| shape.observe(record));
        let plan = Plan::inferred(PlanOptions::default());
        let plan = plan.grow(&shape).unwrap().unwrap_or(plan);
        compare(&plan, &records);
        compare(&plan, &later.iter().map(any_record).collect::<Vec<_>>());
        let typed = later.iter().map(|bytes| Choices::new(bytes).record(&plan)).collect::<Vec<_>>();
        compare(&plan, &typed);
    }

    /// Whatever the plan, however it grew, and whatever stands around it.
    #[test]
    fn what_is_dropped_comes_out_nowhere(
        plan in prop::collection::vec(any::<u8>(), 0..80),
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..8),
    ) {
        let declared = Choices::new(&plan).plan();
        let records = records.iter().map(|bytes| planted(&Choices::new(bytes).any_record(), declared.drops()));
        let records = records.collect::<Vec<_>>();
        let options = PlanOptions { drops: declared.drops().to_vec(), ..PlanOptions::default() };
        let mut plans = vec![declared, Plan::inferred(options)];
        for record in &records {
            let mut shape = Shape::default();
            shape.observe(record.as_bytes());
            for at in 0..plans.len() {
                plans.extend(plans[at].grow(&shape).ok().flatten());
            }
            plans.truncate(16);
        }
        for plan in plans {
            let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(&records)).unwrap();
            for at in 0..decoded.batch.num_rows() {
                let row = Value::Object(row(&decoded.batch, at)).to_string();
                prop_assert!(!row.contains(SECRET), "{} of {:?} by {}", row, records, plan);
            }
            let told = decoded.rejects.iter().map(|reject| reject.reason.message.as_str());
            prop_assert!(!told.clone().any(|told| told.contains(SECRET)), "{:?}", told.collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        plan in prop::collection::vec(any::<u8>(), 0..80),
        records in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..60)), 0..6),
        alphabet in any::<bool>(),
    ) {
        let plan = Choices::new(&plan).plan();
        let mut values = Packed::default();
        for record in &records {
            let mut record = record.clone();
            if let (Some(record), true) = (&mut record, alphabet) {
                record.iter_mut().for_each(|byte| *byte = b"{}[]\":,\\ abcid019.e-+tfn\xc3\xa9"[*byte as usize % 26]);
            }
            values.push(record.as_deref()).unwrap();
        }
        let decoded = Decoder::new(Arc::new(plan.clone())).decode(&values).unwrap();
        check_batch(&plan, &decoded);
        if decoded.stop.is_none() {
            let mut all = decoded.inputs.iter().copied().chain(decoded.rejects.iter().map(|reject| reject.input)).collect::<Vec<_>>();
            all.sort_unstable();
            prop_assert_eq!(all, (0..records.len() as u32).collect::<Vec<_>>());
        }
        let mut shape = Shape::default();
        records.iter().flatten().for_each(|record| shape.observe(record));
        if let Ok(Some(grown)) = plan.grow(&shape) {
            check_batch(&grown, &Decoder::new(Arc::new(grown.clone())).decode(&values).unwrap());
        }
    }
}
