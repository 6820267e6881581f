//! `alluvium test`

use crate::failure::{Failure, WRONG_INPUT};
use crate::load::Loaded;
use crate::local::{Local, chunk};
use crate::{cli, load, output, rows};
use alluvium_config::{Expect, Test};
use alluvium_core::seam::TableState;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Serialize)]
struct Tested {
    file: PathBuf,
    /// `None` stands for a file whose tests cannot be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    ok: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub fn test(arguments: &cli::Test) -> Result<(), Failure> {
    let host = load::host()?;
    let mut tested = Vec::new();
    let mut exit_code = 0;
    for file in &arguments.files {
        if let Err(failure) = test_file(file, &host, &mut tested) {
            if !arguments.json {
                output::failure(&failure);
            }
            exit_code = exit_code.max(failure.exit_code());
            let error = Some(failure.to_string());
            tested.push(Tested { file: file.clone(), test: None, ok: false, differences: Vec::new(), error });
        }
    }
    if arguments.json {
        output::json(&tested);
    } else {
        tested.iter().for_each(print);
    }
    if tested.is_empty() {
        output::note("there are no [[test]] tables in these files");
    }
    let failed = tested.iter().filter(|tested| !tested.ok).count();
    let unread = tested.iter().filter(|tested| tested.error.is_some()).count();
    match (failed, unread) {
        (0, _) => Ok(()),
        (failed, 0) => Err(Failure::new(format!("{failed} of {} tests failed", tested.len()))),
        (_, unread) => {
            let failure =
                Failure::new(format!("the tests of {unread} of {} files could not be run", arguments.files.len()));
            Err(if exit_code == WRONG_INPUT { failure.into_input() } else { failure })
        }
    }
}

fn test_file(file: &Path, host: &Arc<alluvium_wasm::Host>, tested: &mut Vec<Tested>) -> Result<(), Failure> {
    let loaded = load::load(file, host)?;
    for test in &loaded.pipeline.tests {
        let differences = run_test(&loaded, test)?;
        let (ok, test) = (differences.is_empty(), Some(test.name.clone()));
        tested.push(Tested { file: file.to_owned(), test, ok, differences, error: None });
    }
    Ok(())
}

fn print(tested: &Tested) {
    let Some(test) = &tested.test else { return };
    let verdict = if tested.ok { "ok" } else { "FAILED" };
    output::line(format!("{}: {test} ... {verdict}", tested.file.display()));
    tested.differences.iter().for_each(|difference| output::line(format!("    {difference}")));
}

/// Each test begins with no table, so that none depends on another.
fn run_test(loaded: &Loaded, test: &Test) -> Result<Vec<String>, Failure> {
    let (line, _) = test.at;
    let here = |failure: Failure| failure.context(format!("{}:{line}: test {:?}", loaded.file.display(), test.name));
    let mut local = Local::new(loaded, &TableState::default()).map_err(here)?;
    let chunk = chunk(0, [test.input.to_bytes().as_slice()]).map_err(here)?;
    local.learn(std::slice::from_ref(&chunk)).map_err(here)?;
    let processed = local.process(&chunk).map_err(here)?;
    let found: Vec<Value> = (0..processed.batch.num_rows()).map(|row| rows::row(&processed.batch, row)).collect();
    let rejected = processed.dead_letters.first().map(|letter| &letter.reason);
    let became = || match rejected {
        Some(reason) => format!("it was rejected ({}): {}", reason.code, reason.message),
        None if found.is_empty() => "it was filtered".to_owned(),
        None => format!(
            "it became {} rows: {}",
            found.len(),
            found.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
        ),
    };
    let mut differences = Vec::new();
    match &test.expect {
        Expect::Filtered if rejected.is_none() && found.is_empty() => {}
        Expect::Filtered => differences.push(format!("the record should be filtered, but {}", became())),
        Expect::Rejected(code) => match rejected {
            Some(reason) if code.as_ref().is_none_or(|code| code == reason.code) => {}
            _ => {
                let code = code.as_ref().map_or_else(String::new, |code| format!(" ({code})"));
                differences.push(format!("the record should be rejected{code}, but {}", became()));
            }
        },
        Expect::Rows(wanted) if wanted.len() != found.len() => {
            differences.push(format!("the record should become {} rows, but {}", wanted.len(), became()));
        }
        Expect::Rows(wanted) => {
            for (index, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
                let path = if found.is_object() && wanted.is_object() { String::new() } else { format!("row {index}") };
                rows::differences(wanted, found, &path, &mut differences);
            }
        }
    }
    Ok(differences)
}
