//! Jobs of a commit with consecutive numbers that fare alike, so that what goes can go at once.

use std::collections::BTreeMap;

use ganger_store::merge::{Body, JobChange};
use ganger_types::JobKey;

/// What becomes of the rows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Everything goes.
    Removed,
    /// It was stored among the live, moves to the finished, and its lease goes.
    Ended,
    /// Anything else.
    Usual,
}

impl Course {
    fn of(key: JobKey, change: &JobChange<'_>, new_from: JobKey) -> Self {
        let was_stored = key < new_from;
        if change.is_removed && was_stored {
            return Self::Removed;
        }
        let ends = matches!(change.body, Body::Finished(..)) && change.lease == Some(None);
        if ends && was_stored && !change.is_revived {
            return Self::Ended;
        }
        Self::Usual
    }
}

/// Jobs with consecutive numbers and the same course; never empty.
#[derive(Debug, PartialEq)]
pub(crate) struct Run<'a> {
    pub(crate) course: Course,
    pub(crate) jobs: Vec<(JobKey, &'a JobChange<'a>)>,
}

impl<'a> Run<'a> {
    /// Splits a commit's jobs. No row has the number `new_from` or a larger one.
    pub(crate) fn all(jobs: &'a BTreeMap<JobKey, JobChange<'a>>, new_from: JobKey) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (key, change) in jobs {
            let course = Course::of(*key, change, new_from);
            match runs.last_mut() {
                Some(run) if run.course == course && run.keys().1.0 + 1 == key.0 => {
                    run.jobs.push((*key, change));
                }
                _ => runs.push(Self {
                    course,
                    jobs: vec![(*key, change)],
                }),
            }
        }
        runs
    }

    /// The first and the last number.
    pub(crate) fn keys(&self) -> (JobKey, JobKey) {
        let (first, last) = (self.jobs.first(), self.jobs.last());
        let key = |job: Option<&(JobKey, _)>| job.expect("a run is never empty").0;
        (key(first), key(last))
    }
}
