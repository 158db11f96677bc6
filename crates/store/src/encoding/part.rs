//! Parts of submissions over several shards.

use ganger_types::peer::PartAnswer;
use ganger_types::{Part, PartRecord};

use super::field::{Bits, Field, Form, fields, record};
use super::{Cursor, DecodeError, Record, Writer};

/// Version from which a part has the fingerprints of its jobs.
const WITH_PRINTS: u8 = 3;

/// Limit of the numbers from which ids can be made.
pub(super) const MADE_KEYS: u64 = 1 << 40;
pub(super) const ID_TAGS: u32 = 1 << 20;

record!("part", version 2, PartRecord {
    namespace,
    graph,
    decider,
    shards,
    first,
    count,
    id_tag,
    client_ids,
    outside,
    prepared_at,
    is_committed,
    cancelled,
    answer,
} checked by check_record);

/// Refuses numbers that no id of a job can have.
fn check_record(part: &PartRecord) -> Result<(), &'static str> {
    let end = part.first.0.checked_add(u64::from(part.count));
    if end.is_none_or(|end| end > MADE_KEYS) {
        return Err("has jobs with numbers that no id can tell");
    }
    if part.id_tag.0 >= ID_TAGS {
        return Err("has a start that no id can tell");
    }
    Ok(())
}

fields!(PartAnswer {
    key,
    fingerprint as Bits,
    numbers,
    existed since 2 or Vec::new(),
} checked by check_answer);

fn check_answer(answer: &PartAnswer) -> Result<(), &'static str> {
    for (_, first, tag) in &answer.numbers {
        if first.0 >= MADE_KEYS {
            return Err("has jobs with numbers that no id can tell");
        }
        if tag.0 >= ID_TAGS {
            return Err("has a start that no id can tell");
        }
    }
    Ok(())
}

impl Record for Part {
    // Jobs have names since version 2.
    const VERSION: u8 = WITH_PRINTS;
    const WHAT: &'static str = "part with its jobs";

    fn write(&self, out: &mut Writer<'_>) {
        self.record.put(out);
        self.jobs.put(out);
        self.dependents.put(out);
        Bits::put(&self.prints, out);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let has_prints = from.version() >= WITH_PRINTS;
        let version_of_record = if has_prints { PartRecord::VERSION } else { 1 };
        let part = Self {
            record: from.in_version(version_of_record, PartRecord::take)?,
            jobs: Field::take(from)?,
            dependents: Field::take(from)?,
            prints: if has_prints {
                Bits::take(from)?
            } else {
                Vec::new()
            },
        };
        check_part(&part).map_err(|why| from.error(why))?;
        Ok(part)
    }
}

fn check_part(part: &Part) -> Result<(), &'static str> {
    let count = part.record.count;
    if usize::try_from(count) != Ok(part.jobs.len()) {
        return Err("has another number of jobs than it says");
    }
    if part.dependents.iter().any(|(place, _)| *place >= count) {
        return Err("has a dependent of a job beyond its last");
    }
    if !part.prints.is_empty() && part.prints.len() != part.jobs.len() {
        return Err("has another number of fingerprints than of jobs");
    }
    Ok(())
}

#[cfg(any(test, feature = "suite"))]
impl super::any::Any for Part {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::prelude::*;

        let parts = super::any::any_struct!(@of Part { record, jobs, prints, dependents });
        let fitting = parts.prop_map(|mut part| {
            part.record.count = u32::try_from(part.jobs.len()).expect("few");
            part.prints.truncate(part.jobs.len());
            if part.prints.len() < part.jobs.len() {
                part.prints.clear();
            }
            for (place, _) in &mut part.dependents {
                *place %= part.record.count.max(1);
            }
            part
        });
        fitting
            .prop_filter("what is read back", |part| check_part(part).is_ok())
            .boxed()
    }
}
