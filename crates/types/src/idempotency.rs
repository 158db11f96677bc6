//! Idempotency keys: the answers to submissions, kept for repeats (`rel P1`).
//!
//! A key is kept for a day and a submission may have many thousand jobs, so the jobs are stored as runs: ids that the
//! engine made follow from the numbers, and the repeat itself contains the ids that the client gave.

use crate::id::{IdTag, JobId, JobKey};
use crate::name::{Graph, IdempotencyKey, Namespace};
use crate::time::Timestamp;

/// A submission's idempotency key and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// The namespace in which the key was used.
    pub namespace: Namespace,
    /// The idempotency key that the client sent.
    pub key: IdempotencyKey,
    /// Fingerprint and answer of the submission.
    pub answer: SubmissionAnswer,
}

/// The fingerprint of a submission under an idempotency key, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionAnswer {
    /// Hash of the submission.
    pub fingerprint: u64,
    /// Jobs of the submission, in order.
    pub jobs: SubmittedJobs,
    /// Graph of the jobs; `None` if they form none.
    pub graph: Option<Graph>,
    /// Time at which the record expires.
    pub until: Timestamp,
}

/// The jobs of a submission, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmittedJobs {
    runs: Vec<SubmittedRun>,
}

/// Consecutive jobs of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmittedRun {
    /// Consecutively numbered jobs with ids that the engine made.
    Made {
        /// Number of the first job.
        first: JobKey,
        /// Number of jobs in the run.
        count: u32,
        /// Tag in the ids.
        tag: IdTag,
    },
    /// Consecutively numbered jobs with ids that the client gave.
    Given {
        /// Number of the first job.
        first: JobKey,
        /// Number of jobs in the run.
        count: u32,
    },
    /// One job that existed already, under its unique key and another id.
    Other(JobKey, JobId),
}

impl SubmittedRun {
    /// Returns the number of jobs in the run.
    pub fn count(&self) -> u32 {
        match self {
            Self::Made { count, .. } | Self::Given { count, .. } => *count,
            Self::Other(..) => 1,
        }
    }

    /// Extends the run by the next job. Returns false and changes nothing if that job does not follow.
    fn takes(&mut self, next: &Self) -> bool {
        let follows = |first: JobKey, count: u32, key: JobKey| {
            count < u32::MAX && first.0.checked_add(u64::from(count)) == Some(key.0)
        };
        match (self, next) {
            (
                Self::Made { first, count, tag },
                Self::Made {
                    first: key,
                    tag: other,
                    ..
                },
            ) if tag == other && follows(*first, *count, *key) => *count += 1,
            (Self::Given { first, count }, Self::Given { first: key, .. })
                if follows(*first, *count, *key) =>
            {
                *count += 1;
            }
            _ => return false,
        }
        true
    }
}

impl SubmittedJobs {
    /// Collects the jobs of a submission: number, id, and whether the client gave the id.
    pub fn collect<'a>(jobs: impl IntoIterator<Item = (JobKey, &'a JobId, bool)>) -> Self {
        let mut runs: Vec<SubmittedRun> = Vec::new();
        for (key, id, is_given) in jobs {
            let (first, count) = (key, 1);
            let next = match id.parts() {
                _ if is_given => SubmittedRun::Given { first, count },
                Some((number, tag)) if number == key => SubmittedRun::Made { first, count, tag },
                _ => SubmittedRun::Other(key, id.clone()),
            };
            if !runs.last_mut().is_some_and(|last| last.takes(&next)) {
                runs.push(next);
            }
        }
        runs.shrink_to_fit();
        Self { runs }
    }

    /// Restores the jobs from the runs that [`SubmittedJobs::runs`] returned.
    pub fn from_runs(runs: Vec<SubmittedRun>) -> Self {
        Self { runs }
    }

    /// Returns the runs in order of submission.
    pub fn runs(&self) -> &[SubmittedRun] {
        &self.runs
    }

    /// Returns the number of jobs in all runs.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count())).sum()
    }

    /// Whether the submission has no jobs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number and id of each job. `given` are the ids in the repeat. `None` if it is not a repeat: the number of jobs
    /// differs, or other jobs have ids.
    pub fn answer(&self, given: &[Option<&JobId>]) -> Option<Vec<(JobKey, JobId)>> {
        if u64::try_from(given.len()) != Ok(self.len()) {
            return None;
        }
        let mut answer = Vec::with_capacity(given.len());
        for run in &self.runs {
            match run {
                SubmittedRun::Made { first, count, tag } => {
                    let keys = (first.0..).take(given.len()).zip(0..*count);
                    answer.extend(keys.map(|(key, _)| {
                        let key = JobKey(key);
                        (key, JobId::made(key, *tag))
                    }));
                }
                SubmittedRun::Given { first, count } => {
                    for (key, _) in (first.0..).zip(0..*count) {
                        let id = (*given.get(answer.len())?)?;
                        answer.push((JobKey(key), id.clone()));
                    }
                }
                SubmittedRun::Other(key, id) => answer.push((*key, id.clone())),
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(key: u64, tag: u32) -> (JobKey, JobId) {
        (JobKey(key), JobId::made(JobKey(key), IdTag(tag)))
    }

    fn named(key: u64, name: &str) -> (JobKey, JobId) {
        (JobKey(key), JobId::new(name).expect("short"))
    }

    #[test]
    fn every_answer_comes_back_as_it_was() {
        let jobs = [
            made(7, 1),
            made(8, 1),
            made(9, 2),
            named(10, "a"),
            named(11, "b"),
            named(3, "holder"),
            made(12, 2),
            made(12, 2),
            named(13, "c"),
        ];
        let is_given = |id: &JobId| id.parts().is_none() && id.as_bytes() != b"holder";
        let claimed = SubmittedJobs::collect(jobs.iter().map(|(key, id)| (*key, id, is_given(id))));
        let given: Vec<_> = jobs
            .iter()
            .map(|(_, id)| is_given(id).then_some(id))
            .collect();
        assert_eq!(claimed.answer(&given).expect("it is a repeat"), jobs);
        assert_eq!((claimed.len(), claimed.runs().len()), (9, 7));
    }

    #[test]
    fn many_made_ids_take_the_room_of_one() {
        let jobs: Vec<_> = (5..100_005).map(|key| made(key, 9)).collect();
        let claimed = SubmittedJobs::collect(jobs.iter().map(|(key, id)| (*key, id, false)));
        let run = SubmittedRun::Made {
            first: JobKey(5),
            count: 100_000,
            tag: IdTag(9),
        };
        assert_eq!(claimed.runs(), [run]);
        assert_eq!(claimed.answer(&vec![None; 100_000]), Some(jobs));
    }

    #[test]
    fn a_submission_of_another_shape_gets_no_answer() {
        let (key, id) = named(1, "a");
        let claimed = SubmittedJobs::collect([(key, &id, true)]);
        assert_eq!(claimed.answer(&[None]), None);
        assert_eq!(claimed.answer(&[Some(&id), Some(&id)]), None);
        assert_eq!(claimed.answer(&[]), None);
    }

    #[test]
    fn an_id_of_our_form_on_another_job_is_kept_as_it_is() {
        let (_, id) = made(4, 9);
        let claimed = SubmittedJobs::collect([(JobKey(5), &id, false)]);
        assert_eq!(claimed.runs(), [SubmittedRun::Other(JobKey(5), id)]);
    }
}
