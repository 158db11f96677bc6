//! Importers: send jobs of another server, some of them failed, and repeat imports as after an interruption.

use ganger_types::{Command, Import, ImportRecord, JobId, JobSource, Namespace, Now};

use super::{KnownIds, producer};
use crate::plan::Plan;
use crate::rng::Rng;

/// Maximum number of imports to remember for repeats.
const IMPORTS_MAX: usize = 6;

/// The next command of an importer.
pub(crate) fn act(plan: &Plan, known: &mut KnownIds, rng: &mut Rng, now: Now) -> Command {
    if rng.chance(500)
        && let Some(earlier) = rng.maybe(&known.imports)
    {
        return Command::Import(Box::new(earlier.clone()));
    }
    let records = (0..=rng.index(4)).map(|_| record(plan, known, rng, now));
    let import = Import {
        namespace: Namespace::default(),
        records: records.collect(),
    };
    if known.imports.len() == IMPORTS_MAX {
        known.imports.remove(0);
    }
    known.imports.push(import.clone());
    Command::Import(Box::new(import))
}

fn record(plan: &Plan, known: &mut KnownIds, rng: &mut Rng, now: Now) -> ImportRecord {
    let mut job = producer::job(plan, known, rng, now);
    // Producers use some of these ids too.
    let id = if rng.chance(300) {
        format!("given-{}", rng.below(12))
    } else {
        format!("imported-{}", rng.below(20))
    };
    job.id = Some(JobId::new(id).expect("a short id"));
    let failed = rng.chance(250).then(|| "it had failed there".to_owned());
    ImportRecord::Job(Box::new(JobSource { job, failed }))
}
