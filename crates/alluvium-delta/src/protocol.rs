//! Which tables may be written, and the protocol of new ones.
//!
//! A table is refused by name before anything is done to it. A feature that is only listed, with
//! nothing in the table that uses it, binds nobody: an append keeps it as it is.

use crate::actions::{Metadata, Protocol};
use crate::error::Refusal;
use crate::load::LogState;
use serde_json::Value;

const TIMESTAMP_NTZ: &str = "timestampNtz";

/// Features that plain appends keep, once [`check_metadata`] found nothing that uses them otherwise.
const KEPT: [&str; 12] = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "columnMapping",
    "changeDataFeed",
    "deletionVectors",
    TIMESTAMP_NTZ,
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "checkpointProtection",
];

/// Whether rows may be appended to the table.
pub(crate) fn check(state: &LogState) -> Result<(), Refusal> {
    check_protocol(&state.protocol)?;
    check_metadata(&state.metadata)
}

fn check_protocol(protocol: &Protocol) -> Result<(), Refusal> {
    if !(0..=3).contains(&protocol.min_reader_version) {
        return Err(Refusal::ReaderVersion(protocol.min_reader_version));
    }
    if !(0..=7).contains(&protocol.min_writer_version) {
        return Err(Refusal::WriterVersion(protocol.min_writer_version));
    }
    let features = [&protocol.reader_features, &protocol.writer_features];
    let unknown = |name: &&String| !KEPT.contains(&name.as_str()) && name.as_str() != "inCommitTimestamp";
    match features.into_iter().flatten().flatten().find(unknown) {
        Some(name) => Err(Refusal::Feature(name.clone())),
        None => Ok(()),
    }
}

fn check_metadata(metadata: &Metadata) -> Result<(), Refusal> {
    if metadata.format.provider != "parquet" {
        return Err(Refusal::Format(metadata.format.provider.clone()));
    }
    if metadata.property("delta.setTransactionRetentionDuration").is_some() {
        return Err(Refusal::TransactionRetention);
    }
    if metadata.property("delta.enableInCommitTimestamps").is_some_and(is_true) {
        return Err(Refusal::InCommitTimestamps);
    }
    if let Some(mode) = metadata.property("delta.columnMapping.mode").filter(|mode| *mode != "none") {
        return Err(Refusal::ColumnMapping(mode.to_owned()));
    }
    if let Some(name) = metadata.configuration.keys().find_map(|key| key.strip_prefix("delta.constraints.")) {
        return Err(Refusal::Constraint(name.to_owned()));
    }
    // A schema that is not JSON is told of where it is read.
    match serde_json::from_str::<Value>(&metadata.schema_string) {
        Ok(schema) => check_fields(&schema, ""),
        Err(_) => Ok(()),
    }
}

/// Columns' own rules, at any depth.
fn check_fields(data_type: &Value, path: &str) -> Result<(), Refusal> {
    for inner in ["elementType", "keyType", "valueType"] {
        if let Some(inner) = data_type.get(inner) {
            check_fields(inner, path)?;
        }
    }
    for field in data_type.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let rules = field.get("metadata").and_then(Value::as_object).into_iter().flat_map(|rules| rules.keys());
        for rule in rules {
            match rule.as_str() {
                "delta.invariants" => return Err(Refusal::Invariant(path)),
                "delta.generationExpression" => return Err(Refusal::Generated(path)),
                rule if rule.starts_with("delta.identity.") => return Err(Refusal::Identity(path)),
                _ => {}
            }
        }
        if let Some(inner) = field.get("type") {
            check_fields(inner, &path)?;
        }
    }
    Ok(())
}

pub(crate) fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case("true")
}

/// The protocol of a new table with this schema.
pub(crate) fn of_new_table(schema: &Value) -> Protocol {
    let plain = Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
    with_ntz(&plain, schema).unwrap_or(plain)
}

/// The protocol that a table needs once it has this schema; `None` when it is the present one.
///
/// Leaving the numbered protocols means to list what they imply.
pub(crate) fn grown(state: &LogState, schema: &Value) -> Option<Protocol> {
    let mut protocol = with_ntz(&state.protocol, schema)?;
    let before = state.protocol.min_writer_version;
    if before < 7 {
        let change_data_feed = state.metadata.property("delta.enableChangeDataFeed").is_some_and(is_true);
        let implied = [
            ("appendOnly", before >= 2),
            ("invariants", before >= 2),
            ("changeDataFeed", before >= 4 && change_data_feed),
        ];
        let present = implied.into_iter().filter(|(_, present)| *present).map(|(name, _)| name.to_owned());
        protocol.writer_features.get_or_insert_default().extend(present);
    }
    Some(protocol)
}

fn with_ntz(protocol: &Protocol, schema: &Value) -> Option<Protocol> {
    let listed = |features: &Option<Vec<String>>| features.iter().flatten().any(|name| name == TIMESTAMP_NTZ);
    let there = listed(&protocol.reader_features) && listed(&protocol.writer_features);
    if there || !has_type(schema, "timestamp_ntz") {
        return None;
    }
    let add = |features: &Option<Vec<String>>| {
        let mut features = features.clone().unwrap_or_default();
        if !features.iter().any(|name| name == TIMESTAMP_NTZ) {
            features.push(TIMESTAMP_NTZ.to_owned());
        }
        Some(features)
    };
    Some(Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: add(&protocol.reader_features),
        writer_features: add(&protocol.writer_features),
    })
}

/// Whether a type occurs anywhere in a schema, in maps too.
fn has_type(data_type: &Value, name: &str) -> bool {
    match data_type {
        Value::String(found) => found == name,
        Value::Object(inner) => {
            let inner_types =
                ["type", "elementType", "keyType", "valueType"].into_iter().filter_map(|key| inner.get(key));
            let fields = inner.get("fields").and_then(Value::as_array).into_iter().flatten();
            inner_types.chain(fields).any(|inner| has_type(inner, name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::actions::new_metadata;
    use serde_json::json;
    use std::collections::HashMap;

    fn table(protocol: Protocol, schema: &Value, properties: &[(&str, &str)]) -> LogState {
        let mut metadata = new_metadata(schema.to_string(), &[]);
        for (key, value) in properties {
            metadata.configuration.insert((*key).to_owned(), Some((*value).to_owned()));
        }
        LogState {
            version: 0,
            protocol,
            metadata,
            positions: HashMap::new(),
            topic_id: None,
            checkpoint: None,
            head: None,
        }
    }

    fn protocol(reader: i32, writer: i32, features: &[&str]) -> Protocol {
        let features = Some(features.iter().map(|name| (*name).to_owned()).collect());
        Protocol {
            min_reader_version: reader,
            min_writer_version: writer,
            reader_features: None,
            writer_features: features.filter(|_| writer == 7),
        }
    }

    fn column(name: &str, data_type: Value, metadata: Value) -> Value {
        json!({ "type": "struct", "fields": [{ "name": name, "type": data_type, "nullable": true, "metadata": metadata }] })
    }

    #[test]
    fn what_expires_positions_or_needs_enforcement_is_refused() {
        let plain = column("a", json!("long"), json!({}));
        let cases = [
            (vec![("delta.setTransactionRetentionDuration", "interval 1 day")], Refusal::TransactionRetention),
            (vec![("delta.constraints.positive", "a > 0")], Refusal::Constraint("positive".to_owned())),
            (vec![("delta.columnMapping.mode", "name")], Refusal::ColumnMapping("name".to_owned())),
            (vec![("delta.enableInCommitTimestamps", "TRUE")], Refusal::InCommitTimestamps),
        ];
        for (properties, refusal) in cases {
            assert_eq!(check(&table(protocol(1, 2, &[]), &plain, &properties)), Err(refusal));
        }
        let allowed = [("delta.columnMapping.mode", "none"), ("delta.enableInCommitTimestamps", "false")];
        assert_eq!(check(&table(protocol(2, 6, &[]), &plain, &allowed)), Ok(()));
    }

    #[test]
    fn rules_of_columns_are_found_at_any_depth() {
        let inner = column("b", json!("long"), json!({ "delta.generationExpression": "1" }));
        let list = json!({ "type": "array", "elementType": inner, "containsNull": true });
        let map = json!({ "type": "map", "keyType": "string", "valueType": list, "valueContainsNull": true });
        let state = table(protocol(1, 4, &[]), &column("a", map, json!({})), &[]);
        assert_eq!(check(&state), Err(Refusal::Generated("a.b".to_owned())));
        for (rule, refusal) in [
            ("delta.invariants", Refusal::Invariant("a".to_owned())),
            ("delta.identity.start", Refusal::Identity("a".to_owned())),
        ] {
            let state = table(protocol(1, 6, &[]), &column("a", json!("long"), json!({ rule: "1" })), &[]);
            assert_eq!(check(&state), Err(refusal));
        }
    }

    #[test]
    fn listed_features_that_nothing_uses_are_kept_and_unknown_ones_refused() {
        let plain = column("a", json!("long"), json!({}));
        let listed = protocol(3, 7, &["invariants", "checkConstraints", "columnMapping", "deletionVectors"]);
        assert_eq!(check(&table(listed, &plain, &[])), Ok(()));
        for name in ["rowTracking", "typeWidening", "icebergCompatV2", "clustering", "made-up"] {
            let state = table(protocol(3, 7, &[name]), &plain, &[]);
            assert_eq!(check(&state), Err(Refusal::Feature(name.to_owned())));
        }
        assert_eq!(check(&table(protocol(4, 7, &[]), &plain, &[])), Err(Refusal::ReaderVersion(4)));
        assert_eq!(check(&table(protocol(3, 8, &[]), &plain, &[])), Err(Refusal::WriterVersion(8)));
    }

    #[test]
    fn wall_clock_times_need_their_feature_wherever_they_are() {
        let map =
            json!({ "type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": true });
        let new = of_new_table(&column("a", map.clone(), json!({})));
        assert_eq!((new.min_reader_version, new.min_writer_version), (3, 7));
        assert_eq!(new.writer_features, Some(vec![TIMESTAMP_NTZ.to_owned()]));
        assert_eq!(of_new_table(&column("timestamp_ntz", json!("timestamp"), json!({}))).min_writer_version, 2);

        let schema = json!({ "type": "struct", "fields": [
            { "name": "a", "type": map, "nullable": false, "metadata": {} }] });
        let state = table(protocol(1, 2, &[]), &schema, &[]);
        let grown = super::grown(&state, &schema).unwrap();
        assert_eq!(grown.reader_features, Some(vec![TIMESTAMP_NTZ.to_owned()]));
        assert_eq!(grown.writer_features.unwrap(), [TIMESTAMP_NTZ, "appendOnly", "invariants"]);
        assert_eq!(super::grown(&table(new, &schema, &[]), &schema), None);
    }
}
