//! What people see of dead letters.

use super::case::{BAD, BROKEN, Case, FIXED, GOOD, HOPELESS, file};
use alluvium_tests::workbench::PATIENCE;

fn is_safe(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

#[test]
fn a_list_counts_by_reason_and_shows_the_newest() {
    let case = Case::new(&file(BROKEN, ""), [GOOD, BAD, HOPELESS, BAD, "\u{1b}[31m\u{9b}not \u{202e}JSON"]);
    let mut list = case.letters(&["list", "--limit", "3"]);
    list.done(PATIENCE);
    let text = list.out();
    for told in ["4 open dead letters of test/pipeline", "2  conflict", "2  malformed", "the newest 3:", "0:4", "0:3"] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    assert!(!text.contains("0:1 "), "{text}");
    assert!(is_safe(&text) && !text.contains('\u{202e}'), "{text}");
    assert!(text.contains(r"\u{1b}[31m"), "{text}");
    let json = case.letters(&["list", "--json"]);
    let mut json = json;
    let parsed = json.done(PATIENCE);
    assert!(is_safe(&json.out()) && !json.out().contains('\u{202e}'), "{}", json.out());
    let hostile = &parsed["letters"][0];
    assert_eq!(hostile["value"], "\u{1b}[31m\u{9b}not \u{202e}JSON", "{parsed:#}");
    assert_eq!(parsed["groups"].as_array().unwrap().len(), 2, "{parsed:#}");
}

#[test]
fn show_tells_everything_about_one_letter() {
    let case = Case::usual();
    let mut show = case.letters(&["show", "0:1"]);
    show.done(PATIENCE);
    for told in ["conflict", "mapping", "amount", "\"amount\": \"many\"", "open", "offset     1"] {
        assert!(show.out().contains(told), "{told} is not in\n{}", show.out());
    }
    assert!(is_safe(&show.out()), "{}", show.out());
    let mut raw = case.letters(&["show", "0:1", "--raw"]);
    raw.done(PATIENCE);
    assert_eq!(raw.out(), BAD);
    let json = case.letters(&["show", "0:2", "--json"]).done(PATIENCE);
    assert_eq!(
        (&json["value"], &json["reason"], &json["state"]),
        (&HOPELESS.into(), &"malformed".into(), &"open".into())
    );
    case.write(&file(FIXED, ""));
    case.replay(&[]);
    assert_eq!(case.letters(&["show", "0:1", "--json"]).done(PATIENCE)["state"], "replayed");
}

#[test]
fn wrong_input_is_told_as_such() {
    let case = Case::usual();
    for (arguments, told) in [
        (vec!["show", "0:0"], "there is no dead letter"),
        (vec!["show", "7"], "not PARTITION:OFFSET"),
        (vec!["list", "--offset", "9..3"], "not FROM..TO"),
        (vec!["list", "--offset", "3"], "not FROM..TO"),
    ] {
        let mut process = case.letters(&arguments);
        assert_eq!(process.wait(PATIENCE).code(), Some(2), "{arguments:?}: {}", process.err());
        assert!(process.err().contains(told) && process.err().contains("hint:"), "{}", process.err());
    }
    case.write(&file("mapping = \"wrong\"", ""));
    assert_eq!(case.letters(&["list"]).wait(PATIENCE).code(), Some(2));
}

/// Reading makes no directory, no object and no version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_changes_nothing() {
    let case = Case::new(&file(BROKEN, ""), [GOOD]);
    std::fs::remove_dir_all(case.dir.path().join("pipeline_dead_letters")).ok();
    assert_eq!(case.list(&[])["count"], 0);
    assert_eq!(case.letters(&["show", "0:0"]).wait(PATIENCE).code(), Some(2));
    assert!(!case.dir.path().join("pipeline_dead_letters").exists());
    assert!(case.replay(&[])["number"].is_null());

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pipeline.toml"), file(BROKEN, "")).unwrap();
    let arguments = ["dead-letters", "pipeline.toml", "list"];
    let mut list = alluvium_tests::Process::start(dir.path(), "none", &arguments, &[]);
    assert_eq!(list.wait(PATIENCE).code(), Some(2), "{}", list.err());
    assert!(list.err().contains("there is no table"), "{}", list.err());
    assert!(!dir.path().join("pipeline").exists());
}
