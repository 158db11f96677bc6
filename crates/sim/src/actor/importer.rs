//! Who takes jobs of another server over: several at once, some of which had failed; and again, as after an interruption.

use ganger_types::{Command, Import, ImportRecord, JobId, JobSource, Namespace, Now};

use super::{Lore, producer};
use crate::dice::Dice;
use crate::plan::Plan;

/// Imports that are remembered, to be repeated.
const IMPORTS_MAX: usize = 6;

/// What an import sends now.
pub(crate) fn act(plan: &Plan, lore: &mut Lore, dice: &mut Dice, now: Now) -> Command {
    if dice.chance(500)
        && let Some(earlier) = dice.maybe(&lore.imports)
    {
        return Command::Import(Box::new(earlier.clone()));
    }
    let records = (0..=dice.index(4)).map(|_| record(plan, lore, dice, now));
    let import = Import {
        namespace: Namespace::default(),
        records: records.collect(),
    };
    if lore.imports.len() == IMPORTS_MAX {
        lore.imports.remove(0);
    }
    lore.imports.push(import.clone());
    Command::Import(Box::new(import))
}

fn record(plan: &Plan, lore: &mut Lore, dice: &mut Dice, now: Now) -> ImportRecord {
    let mut job = producer::job(plan, lore, dice, now);
    // Some of these ids are those that producers give too.
    let id = if dice.chance(300) {
        format!("given-{}", dice.below(12))
    } else {
        format!("imported-{}", dice.below(20))
    };
    job.id = Some(JobId::new(id).expect("a short id"));
    let failed = dice.chance(250).then(|| "it had failed there".to_owned());
    ImportRecord::Job(Box::new(JobSource { job, failed }))
}
