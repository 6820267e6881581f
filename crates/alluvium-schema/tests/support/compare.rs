//! The decoder and the plain one, side by side.

use super::reference::{self, Json, Outcome, are_in};
use super::{pack, row};
use alluvium_core::DataType;
use alluvium_schema::{Decoded, Decoder, Evolve, Plan, Shape};
use arrow_array::Array;
use std::sync::Arc;

/// Decodes the records by both decoders, which must agree on each of them.
pub fn compare(plan: &Plan, records: &[Vec<u8>]) {
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
        let what = || format!("record {input}: {}\nplan: {plan}", String::from_utf8_lossy(record));
        let expected = reference::decode(plan, record);
        match expected {
            Outcome::Malformed | Outcome::Conflict => {
                let code = if matches!(expected, Outcome::Malformed) { "malformed" } else { "conflict" };
                let reject = rejects.next().unwrap_or_else(|| panic!("{}", what()));
                assert_eq!((reject.input, reject.reason.code), (input, code), "{}: {}", what(), reject.reason.message);
            }
            Outcome::Stop => {
                assert_eq!(decoded.stop.as_ref().map(|stop| stop.input), Some(input), "{}", what());
                assert!(rows.next().is_none() && rejects.next().is_none(), "{}", what());
                return;
            }
            Outcome::Row { columns, rescued, unknown } => {
                let (at, found) = rows.next().unwrap_or_else(|| panic!("{}", what()));
                assert_eq!(*found, input, "{}", what());
                let mut row = row(&decoded.batch, at);
                let text = row.remove(plan.rescued());
                assert_eq!(row, columns, "{}", what());
                unknown_found |= unknown;
                match text.as_ref().and_then(|text| text.as_str()) {
                    Some(text) => {
                        let found = Json::parse(text.as_bytes()).expect("the rescued text is JSON");
                        assert!(
                            !rescued.is_empty() && are_in(&rescued, &found),
                            "{}: rescued {text}, not {rescued:?}",
                            what()
                        );
                        assert!(text.len() <= record.len(), "{}: rescued {text}", what());
                    }
                    None if plan.can_rescue() => assert!(rescued.is_empty(), "{}: did not rescue {rescued:?}", what()),
                    None => assert!(rescued.is_empty() || unknown, "{}: lost {rescued:?}", what()),
                }
            }
        }
    }
    assert!(rows.next().is_none() && rejects.next().is_none() && decoded.stop.is_none());
    if is_mapped(plan) {
        // A plugin is told more than growth could use.
        assert!(decoded.unknown.is_some() || !unknown_found);
    } else if plan.evolve() == Evolve::Stop && plan.is_settled() {
        assert_eq!(decoded.unknown.is_some(), unknown_found);
    } else {
        check_growth(plan, records, &decoded);
    }
}

/// The unknown fields that the decoder tells of are what observing the rows' records finds.
fn check_growth(plan: &Plan, records: &[Vec<u8>], decoded: &Decoded) {
    // Observing does not know which objects are maps, and so orders what is in their values by key; nor
    // that what should be an object, since parts of it are left out, is never a column of another type.
    let has_map = plan.columns().iter().any(|column| has_map(&column.data_type));
    if has_map || plan.drops().iter().any(|path| path.len() > 1) {
        return;
    }
    let mut shape = Shape::default();
    decoded.inputs.iter().for_each(|input| shape.observe(&records[*input as usize]));
    let seen = decoded.unknown.as_ref().map(|unknown| plan.grow(unknown).unwrap().unwrap());
    assert_eq!(seen, plan.grow(&shape).unwrap());
}

/// Whether a schema-mapping plugin made the plan.
fn is_mapped(plan: &Plan) -> bool {
    serde_json::to_value(plan).unwrap()["origin"] == "mapped"
}

fn has_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) => true,
        DataType::Array(element) => has_map(element),
        DataType::Struct(fields) => fields.iter().any(|field| has_map(&field.data_type)),
        _ => false,
    }
}

/// What holds of every decoded chunk.
pub fn check_batch(plan: &Plan, decoded: &Decoded) {
    assert_eq!(decoded.batch.schema(), plan.schema());
    assert_eq!(decoded.batch.num_rows(), decoded.inputs.len());
    for column in decoded.batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    assert!(decoded.inputs.is_sorted_by(|one, next| one < next));
    assert!(decoded.rejects.is_sorted_by(|one, next| one.input < next.input));
}
