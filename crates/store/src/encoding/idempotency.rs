//! The stored form of an idempotency key.
//!
//! Version 1 had a number and an id for each job; version 2 has runs of them.

use ganger_types::{
    IdempotencyRecord, JobId, JobKey, SubmissionAnswer, SubmittedJobs, SubmittedRun,
};

use super::field::{Bits, Field, choice, fields, record};
use super::part::{ID_TAGS, MADE_KEYS};
use super::{Cursor, DecodeError, Writer};

record!("idempotency key", version 2, IdempotencyRecord { namespace, key, answer });

fields!(SubmissionAnswer { fingerprint as Bits, jobs, graph, until });

choice!(SubmittedRun, "has jobs of an unknown form" {
    1 Made { first, count, tag }
    2 Given { first, count }
    3 Other(key, id)
});

impl Field for SubmittedJobs {
    fn put(&self, out: &mut Writer<'_>) {
        out.length(self.runs().len());
        self.runs().iter().for_each(|run| run.put(out));
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        if from.version() < 2 {
            // Version 1 did not store which ids the client gave, so they stay as they are.
            let jobs = Vec::<(JobKey, JobId)>::take(from)?;
            return Ok(Self::collect(
                jobs.iter().map(|(key, id)| (*key, id, false)),
            ));
        }
        let runs = Vec::take(from)?;
        check(&runs).map_err(|why| from.error(why))?;
        Ok(Self::from_runs(runs))
    }
}

/// Refuses numbers that no id of a job can have.
fn check(runs: &[SubmittedRun]) -> Result<(), &'static str> {
    for run in runs {
        let (first, count, end) = match run {
            SubmittedRun::Made { tag, .. } if tag.0 >= ID_TAGS => {
                return Err("has a start that no id can tell");
            }
            SubmittedRun::Made { first, count, .. } => (first, count, MADE_KEYS),
            SubmittedRun::Given { first, count } => (first, count, u64::MAX),
            SubmittedRun::Other(..) => continue,
        };
        let after = first.0.checked_add(u64::from(*count));
        if *count == 0 || after.is_none_or(|after| after > end) {
            return Err("has a run of jobs without beginning or end");
        }
    }
    Ok(())
}

#[cfg(any(test, feature = "suite"))]
impl super::any::Any for SubmittedJobs {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::strategy::Strategy;

        let runs: proptest::strategy::BoxedStrategy<Vec<SubmittedRun>> = super::any::Any::any();
        runs.prop_filter("what is read back", |runs| check(runs).is_ok())
            .prop_map(Self::from_runs)
            .boxed()
    }
}
