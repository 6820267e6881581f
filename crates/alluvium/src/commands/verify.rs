//! `alluvium verify`

use crate::failure::Failure;
use crate::proof::{File, Proof, prove};
use crate::{cli, load, output};
use alluvium_core::audit::{Finding, LettersProof, ScanReport};

pub async fn verify(arguments: cli::Verify) -> Result<(), Failure> {
    let pipeline = load::pipeline(&arguments.file)?;
    let tables = load::existing_tables(&arguments.file, &pipeline)?;
    let column = match (arguments.scan, &pipeline.sink.metadata.kafka) {
        (false, _) => None,
        (true, Some(column)) => Some(column.as_str()),
        (true, None) => {
            return Err(Failure::input("--scan reads the metadata column, which this pipeline turned off")
                .with_hint("verify without --scan proves from the log alone"));
        }
    };
    let proof = prove(&tables, &pipeline, column).await?;
    if arguments.json {
        output::json(&proof);
    } else {
        print(&proof);
    }
    match proof.holds() {
        true => Ok(()),
        false => Err(Failure::new(format!("the table of {} does not hold each record once", pipeline.id))),
    }
}

pub fn print(proof: &Proof) {
    let log = &proof.log;
    output::line(format!(
        "log versions {} to {}, {} commits of this pipeline",
        log.first_version, log.last_version, log.commits
    ));
    if log.first_version > 0 {
        output::line(format!(
            "older versions were cleaned up: it is proven from version {} on, from each partition's offset below",
            log.first_version
        ));
    }
    output::line(format!(
        "{:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "partition", "from", "to", "read", "rows", "filtered", "dead letters"
    ));
    for proof in &log.partitions {
        let counts = proof.counts;
        output::line(format!(
            "{:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
            proof.partition, proof.from, proof.to, counts.read, counts.rows, counts.filtered, counts.rejected
        ));
        if proof.replayed > 0 {
            output::line(format!(
                "{:>9} {} dead letters were replayed; the counts are those after",
                "", proof.replayed
            ));
        }
        if proof.skipped > 0 {
            output::line(format!("{:>9} {} lost offsets were skipped on the owner's word", "", proof.skipped));
        }
    }
    print_findings("", &log.findings);
    print_letters(proof);
    for File { table, path, said, found } in &proof.files {
        output::line(match found {
            None => format!("FAULT: {table}: data file {path} is missing"),
            Some(found) => format!("FAULT: {table}: data file {path} has {found} bytes instead of {said}"),
        });
    }
    if let Some(why) = proof.unscanned {
        output::line(format!("note: no scan: {why}"));
    }
    if let Some(scan) = &proof.scan {
        print_scan(scan);
    }
    output::line(match (proof.holds(), proof.unscanned.is_some()) {
        (true, false) => "every offset is accounted for exactly once",
        (true, true) => "every offset is accounted for exactly once, by the log alone: the rows were not scanned",
        (false, _) => "NOT exactly once",
    });
}

fn print_findings(table: &str, findings: &[Finding]) {
    for finding in findings {
        output::line(format!("{}: {table}{finding}", if finding.is_fault() { "FAULT" } else { "note" }));
    }
}

fn print_letters(proof: &Proof) {
    let letters = &proof.dead_letters;
    if letters.first_version > 0 {
        let first = letters.first_version;
        output::line(format!("dead letters: versions before {first} were cleaned up: older letters are not counted"));
    }
    print_findings("dead letters: ", &letters.findings);
    for wrong in letters.wrong() {
        let LettersProof { partition, rejected, letters, owed } = wrong;
        let owed = if *owed > 0 { format!(", and {owed} that are yet to be written") } else { String::new() };
        output::line(format!(
            "FAULT: partition {partition}: {rejected} records were rejected, but there are {letters} dead letters{owed}"
        ));
    }
    if let Some(version) = letters.owed {
        output::line(format!(
            "note: version {version} was interrupted before its dead letters; the next run or replay writes them"
        ));
    }
}

fn print_scan(scan: &ScanReport) {
    let ScanReport { rows, letters, missing, doubled, stray, extra, removed, findings } = scan;
    for finding in findings {
        output::line(format!("FAULT: {finding}"));
    }
    if *removed > 0 {
        output::line(format!("note: {removed} records are gone from commits of which other writers removed rows"));
    }
    output::line(format!(
        "scan of {rows} rows and {letters} dead letters: missing {missing}, doubled {doubled}, outside of all commits {stray}, too many {extra}"
    ));
}
