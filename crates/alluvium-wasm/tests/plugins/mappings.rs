//! Schema mappings: what comes of a plan, and of a call that gives none.

use crate::fixture::{Core, HOARD, SPIN, column, mapping};
use crate::{first_run, host, refusal, soon, tight};
use alluvium_core::{Classified, ErrorClass};
use alluvium_wasm::{
    AdmitError, CallError, ConfigureError, Derivation, Function, Kind, MappingAnswer, MappingError, MappingPlugin,
    OnConflict, OutputError, SourceShape,
};
use serde_json::json;

fn mapping_plugin(component: &[u8]) -> MappingPlugin {
    let plugin = host().admit("fixture", component, &tight()).unwrap();
    assert_eq!(plugin.kind(), Kind::Mapping);
    plugin.configure_mapping(&json!({})).unwrap()
}

fn plan(component: &[u8]) -> Result<MappingAnswer, MappingError> {
    mapping_plugin(component).plan(&SourceShape::default(), None)
}

fn call_error(error: MappingError) -> CallError {
    match error {
        MappingError::Call { error } => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_plan_is_read() {
    let component = mapping(|core| {
        core.plan(&[("order_id", "bigint", "id"), ("price", "decimal(10,2)", "amount.`unit.price`")], &["debug"]);
    });
    let answer = plan(&component).unwrap();
    let column = &answer.columns[1];
    assert_eq!((column.name.as_str(), column.data_type.to_string().as_str()), ("price", "decimal(10,2)"));
    assert_eq!(column.path, ["amount", "unit.price"]);
    assert_eq!((column.on_conflict, &column.derivation, &column.default), (OnConflict::Reject, &None, &None));
    assert_eq!((answer.columns.len(), answer.drops), (2, vec![vec!["debug".to_owned()]]));
    assert!(plan(&mapping(|_| {})).unwrap().columns.is_empty());
}

#[test]
fn a_derivation_is_read_and_checked() {
    let derived = |separator: &str| {
        plan(&mapping(|core| {
            let texts = ["family", "string", "sku"].map(|text| (core.put(text.as_bytes()), text.len() as u32));
            let at = core.put(separator.as_bytes());
            let mut column: Vec<u32> = texts.into_iter().flat_map(|(at, length)| [at, length]).collect();
            // Coercion, inner coercions; some derivation, of the case `before`.
            column.extend([0, 0, 0, 1, 1, at, separator.len() as u32]);
            column.extend([1, 0, 0, 0, 0, 0, 0]);
            let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
            let column = core.put(&words(&column));
            core.transform = format!("(i32.const {})", core.put(&words(&[0, column, 1, 0, 0])));
        }))
    };
    let answer = derived("-").unwrap();
    assert_eq!(answer.columns[0].derivation, Some(Derivation::Before("-".to_owned())));
    assert_eq!(answer.columns[0].on_conflict, OnConflict::Rescue);
    let error = derived("").unwrap_err();
    assert!(error.to_string().ends_with("cannot be used: column \"family\": its separator is empty"), "{error}");
}

#[test]
fn all_that_is_wrong_with_a_plan_is_told() {
    let component = mapping(|core| {
        core.plan(&[("a", "strng", "a"), ("b", "int", "b."), ("ok", "int", "ok")], &["c..d"]);
    });
    let error = plan(&component).unwrap_err();
    let digest = mapping_plugin(&component).reference().digest[..19].to_owned();
    assert_eq!(
        error.to_string(),
        format!(
            "plugin 'fixture' ({digest}) returned from plan what cannot be used: column \"a\": its type \"strng\" is not one: unknown type 'strng' at position 0; column \"b\": its path \"b.\" is not one: a part is empty; drop 1: its path \"c..d\" is not one: a part is empty"
        )
    );
    assert_eq!((error.class(), error.code()), (ErrorClass::Plugin, "plugin-output"));
    assert!(error.hint().unwrap().contains("`plan`"));
    let component = mapping(|core| core.plan(&[("", "", ""); 30], &[]));
    assert!(plan(&component).unwrap_err().to_string().ends_with("; and 70 more"));
}

#[test]
fn a_plugin_without_a_plan_says_why() {
    let component = mapping(|core| core.fails("no field 'id'\n\u{202e}here"));
    let error = plan(&component).unwrap_err();
    assert!(matches!(&error, MappingError::Refused { message, .. } if message == "no field 'id'\\n\\u{202e}here"));
    assert!(error.to_string().contains("has no plan for these records and this table: no field 'id'\\n"), "{error}");
    assert_eq!((error.class(), error.code()), (ErrorClass::Plugin, "plugin-failed"));
    assert!(error.hint().is_some());
}

#[test]
fn calls_that_loop_hoard_or_trap_end_within_their_limits() {
    let call = |body: &str| call_error(soon(|| plan(&mapping(|core| core.transform = body.to_owned())).unwrap_err()));
    let error = call(&format!("{SPIN} unreachable"));
    assert!(matches!(error, CallError::Timeout { function: Function::Plan, .. }), "{error}");
    assert!(matches!(call(HOARD), CallError::Memory { function: Function::Plan, .. }));
    assert!(matches!(call("unreachable"), CallError::Trap { function: Function::Plan, .. }));
}

#[test]
fn an_answer_that_is_not_in_memory_is_refused() {
    let unreadable = |build: &dyn Fn(&mut Core)| {
        let error = call_error(plan(&mapping(build)).unwrap_err());
        assert!(matches!(&error, CallError::Output { problem: OutputError::Unreadable { .. }, .. }), "{error}");
    };
    for address in ["(i32.const -8)", "(i32.const 6)"] {
        unreadable(&|core| core.transform = address.to_owned());
    }
    // Lists of columns and of drops that go on past the end of memory, or are too long to be counted.
    for record in [[0, 1024, 1 << 20, 0, 0], [0, 0, 0, 1024, 1 << 20], [0, 1024, u32::MAX, 0, 0]] {
        unreadable(&|core| {
            let record = core.put(&record.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>());
            core.transform = format!("(i32.const {record})");
        });
    }
}

#[test]
fn a_plan_is_bounded_in_bytes() {
    // A hundred thousand drops that share the bytes of one.
    let component = mapping(|core| {
        core.pages = 40;
        let drops = core.put(&[0; 8].repeat(100_000));
        let text = core.put(&[b'x'; 1000]);
        let record: Vec<u8> = [0, 0, 0, drops, 100_000].into_iter().flat_map(u32::to_le_bytes).collect();
        let record = core.put(&record);
        core.transform = format!(
            r#"(local $at i32)
            (loop $next
              (i32.store (i32.add (i32.const {drops}) (local.get $at)) (i32.const {text}))
              (i32.store (i32.add (i32.const {}) (local.get $at)) (i32.const 1000))
              (local.set $at (i32.add (local.get $at) (i32.const 8)))
              (br_if $next (i32.lt_u (local.get $at) (i32.const 800000))))
            (i32.const {record})"#,
            drops + 4
        );
    });
    let error = call_error(soon(|| plan(&component).unwrap_err()));
    assert_eq!(
        error.to_string().split_once("used: ").unwrap().1,
        "it is larger than its output limit of 16 MiB",
        "{error}"
    );
}

#[test]
fn a_configuration_is_refused_in_the_plugin_s_words() {
    let component = mapping(|core| core.refuses("no such field"));
    let plugin = host().admit("fixture", &component, &tight()).unwrap();
    let error = plugin.configure_mapping(&json!({})).unwrap_err();
    assert!(matches!(&error, ConfigureError::Refused { message, .. } if message == "no such field"));
}

#[test]
fn kinds_are_not_taken_for_each_other() {
    let plugin = host().admit("fixture", &mapping(|_| {}), &tight()).unwrap();
    let error = plugin.configure_column(&json!({})).unwrap_err();
    assert!(error.to_string().ends_with("is a mapping plugin; a column plugin is needed here"), "{error}");
    assert!(matches!(plugin.configure_record(&json!({})), Err(ConfigureError::Kind { .. })));
    let plugin = host().admit("fixture", &column(|_| {}), &tight()).unwrap();
    let error = plugin.configure_mapping(&json!({})).unwrap_err();
    assert!(error.to_string().ends_with("is a column plugin; a mapping plugin is needed here"), "{error}");
}

#[test]
fn the_gate_is_that_of_all_plugins() {
    let error = refusal(&mapping(|core| core.contract(|contract| contract.replace("schema-id:", "schema:"))));
    assert!(matches!(error, AdmitError::Contract { .. }), "{error}");
    let error = refusal(&mapping(|core| core.contract(|contract| contract.replace("plugin@0.1.0", "plugin@0.2.0"))));
    assert!(error.to_string().contains("is built against alluvium:plugin/schema-mapping@0.2.0; supported are"));
    let error = first_run(soon(|| refusal(&mapping(|core| core.start = SPIN.to_owned()))));
    assert!(matches!(error, CallError::Timeout { function: Function::Start, .. }), "{error}");
    assert!(matches!(refusal(&mapping(|core| core.pages = 65)), AdmitError::Memory { .. }));
}
