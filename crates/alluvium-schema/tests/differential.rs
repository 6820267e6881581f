//! The decoder against a plain one, over random plans and records, and on bytes of any kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::Packed;
use alluvium_schema::{Decoded, Decoder, Evolve, Plan, PlanOptions, Shape};
use arrow_array::Array;
use proptest::prelude::*;
use std::sync::Arc;
use support::random::Choices;
use support::reference::{self, Json, Outcome, are_in};
use support::{pack, row};

/// Decodes the records by both decoders.
fn compare(plan: &Plan, records: &[Vec<u8>]) {
    let mut decoder = Decoder::new(Arc::new(plan.clone()));
    let values = pack(records.iter().map(Vec::as_slice));
    // The second time the buffers are not new.
    decoder.decode(&values).unwrap();
    let decoded = decoder.decode(&values).unwrap();
    check_batch(plan, &decoded);
    let mut rows = decoded.inputs.iter().enumerate();
    let mut rejects = decoded.rejects.iter();
    let mut unknown_found = false;
    for (input, record) in records.iter().enumerate() {
        let input = input as u32;
        let what = format!("record {input}: {}\nplan: {plan}", String::from_utf8_lossy(record));
        let expected = reference::decode(plan, record);
        match expected {
            Outcome::Malformed | Outcome::Conflict => {
                let code = if matches!(expected, Outcome::Malformed) { "malformed" } else { "conflict" };
                let reject = rejects.next().expect(&what);
                assert_eq!((reject.input, reject.reason.code), (input, code), "{what}: {}", reject.reason.message);
            }
            Outcome::Stop => {
                assert_eq!(decoded.stop.as_ref().map(|stop| stop.input), Some(input), "{what}");
                assert!(rows.next().is_none() && rejects.next().is_none(), "{what}");
                return;
            }
            Outcome::Row { columns, rescued, unknown } => {
                let (at, found) = rows.next().expect(&what);
                assert_eq!(*found, input, "{what}");
                let mut row = row(&decoded.batch, at);
                let text = row.remove(plan.rescued());
                assert_eq!(row, columns, "{what}");
                unknown_found |= unknown;
                match text.as_ref().and_then(|text| text.as_str()) {
                    Some(text) => {
                        let found = Json::parse(text.as_bytes()).expect("the rescued text is JSON");
                        assert!(
                            !rescued.is_empty() && are_in(&rescued, &found),
                            "{what}: rescued {text}, not {rescued:?}"
                        );
                        assert!(text.len() <= record.len(), "{what}: rescued {text}");
                    }
                    None if plan.can_rescue() => assert!(rescued.is_empty(), "{what}: did not rescue {rescued:?}"),
                    None => assert!(rescued.is_empty() || unknown, "{what}: lost {rescued:?}"),
                }
            }
        }
    }
    assert!(rows.next().is_none() && rejects.next().is_none() && decoded.stop.is_none());
    if plan.evolve() == Evolve::Stop {
        assert_eq!(decoded.unknown.is_some(), unknown_found);
    }
}

/// What holds of every decoded chunk.
fn check_batch(plan: &Plan, decoded: &Decoded) {
    assert_eq!(decoded.batch.schema(), plan.schema());
    assert_eq!(decoded.batch.num_rows(), decoded.inputs.len());
    for column in decoded.batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    assert!(decoded.inputs.is_sorted_by(|one, next| one < next));
    assert!(decoded.rejects.is_sorted_by(|one, next| one.input < next.input));
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
