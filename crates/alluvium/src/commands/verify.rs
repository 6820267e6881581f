//! `alluvium verify`

use crate::failure::Failure;
use crate::proof::{Proof, prove};
use crate::{cli, load, output};

pub async fn verify(arguments: cli::Verify) -> Result<(), Failure> {
    let pipeline = load::pipeline(&arguments.file)?;
    let sink = load::existing_sink(&arguments.file, &pipeline).await?;
    let column = match (arguments.scan, &pipeline.sink.metadata.kafka) {
        (false, _) => None,
        (true, Some(column)) => Some(column.as_str()),
        (true, None) => {
            return Err(Failure::input("--scan reads the metadata column, which this pipeline turned off")
                .with_hint("verify without --scan proves from the log alone"));
        }
    };
    let proof = prove(&sink, &pipeline, column).await?;
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
        output::line("older versions were cleaned up: what follows is proven from there on");
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
        if proof.skipped > 0 {
            output::line(format!("{:>9} {} lost offsets were skipped on the owner's word", "", proof.skipped));
        }
    }
    for finding in &log.findings {
        output::line(format!("{}: {finding}", if finding.is_fault() { "FAULT" } else { "note" }));
    }
    let rejected = log.counts().rejected;
    if !proof.letters_hold() {
        let found = proof.dead_letters;
        output::line(format!("FAULT: {rejected} records were rejected, but there are {found} dead letters"));
    } else if proof.letters_ahead {
        output::line("note: a flush was interrupted after its dead letters; the next run commits its rows");
    }
    if let Some(why) = proof.unscanned {
        output::line(format!("note: no scan: {why}"));
    }
    if let Some(scan) = &proof.scan {
        let (rows, missing, doubled, stray) = (scan.rows, scan.missing, scan.doubled, scan.stray);
        output::line(format!(
            "scan of {rows} rows: missing {missing}, doubled {doubled}, outside of all commits {stray}"
        ));
    }
    output::line(if proof.holds() { "every offset is accounted for exactly once" } else { "NOT exactly once" });
}
