//! Checks that the indexes agree with the rows, and the rows with each other.

use std::fmt::Debug;

use bytes::Bytes;
use ganger_types::qless::{QlessJob, QlessSet, QlessState};

use super::Qless;
use super::indexes::Indexes;

impl Qless {
    /// Builds the indexes a second time and compares; then checks each job.
    pub(super) fn check_invariants(&self, wrong: &mut Vec<String>) {
        let mut rebuilt = Indexes::default();
        for row in self.rows.all() {
            rebuilt.add(&row);
        }
        let kept = &self.indexes;
        compare("sets of queues", &kept.queues, &rebuilt.queues, wrong);
        compare("known queues", &kept.known, &rebuilt.known, wrong);
        compare("completed jobs", &kept.completed, &rebuilt.completed, wrong);
        compare("failure groups", &kept.failures, &rebuilt.failures, wrong);
        compare("tags", &kept.tags, &rebuilt.tags, wrong);
        compare("tag ranks", &kept.tag_ranks, &rebuilt.tag_ranks, wrong);
        compare("workers", &kept.workers, &rebuilt.workers, wrong);
        compare(
            "workers' jobs",
            &kept.worker_jobs,
            &rebuilt.worker_jobs,
            wrong,
        );
        compare("tracked jids", &kept.tracked, &rebuilt.tracked, wrong);
        compare("holders", &kept.holders, &rebuilt.holders, wrong);
        compare("pending jobs", &kept.pending, &rebuilt.pending, wrong);
        for job in self.rows.jobs.values() {
            self.check_job(job, wrong);
        }
    }

    /// Checks that a job is in the set that its state requires, and that its links exist in both directions.
    fn check_job(&self, job: &QlessJob, wrong: &mut Vec<String>) {
        let jid = &job.jid;
        let mut report = |what: &str| wrong.push(format!("job {jid:?} {what}: {job:?}"));
        if !is_in_set_of_its_state(job) {
            report("is not where its state says");
        }
        if job.place.as_ref().is_some_and(|it| it.queue != job.queue) {
            report("is in line in another queue");
        }
        if job.place.is_some() && job.throttled.is_some() {
            report("is throttled and in line");
        }
        if job.throttled.is_some() == job.pending.is_empty() {
            report("waits for a throttle and is not throttled, or the other way round");
        }
        if job.failed_order.is_some() && job.failure.is_none() {
            report("is in a failure group without a failure");
        }
        if job.failed_order.is_some() != (job.state == QlessState::Failed) {
            report("is in a failure group, or not, against its state");
        }
        if job.completed_at.is_some() && job.state != QlessState::Complete {
            report("is in the list of completed jobs and not complete");
        }
        if job.result.is_some() && job.state != QlessState::Complete {
            report("has a result and is not complete");
        }
        for on in &job.dependencies {
            let other = self.job(on);
            if other.is_none_or(|it| it.dependents.binary_search(jid).is_err()) {
                report("waits for a job that does not know");
            }
        }
        for dependent in &job.dependents {
            if !self.waits_for(dependent, jid) {
                report("has a dependent that does not wait");
            }
        }
        let by_name = [&job.tagged, &job.listed, &job.holds, &job.pending];
        let is_sorted = by_name
            .iter()
            .all(|list| list.is_sorted_by(|a, b| a.0 < b.0));
        if !is_sorted || !is_ascending(&job.dependencies) || !is_ascending(&job.dependents) {
            report("has a list out of order");
        }
    }
}

/// Whether the job's state allows the set that it is in.
fn is_in_set_of_its_state(job: &QlessJob) -> bool {
    let set = job.place.as_ref().map(|place| place.set);
    match job.state {
        // A job that completes into another queue with a delay keeps the state `waiting`.
        QlessState::Waiting => matches!(set, Some(QlessSet::Work | QlessSet::Scheduled)),
        QlessState::Scheduled => set == Some(QlessSet::Scheduled),
        QlessState::Depends => set == Some(QlessSet::Depends),
        QlessState::Running => set == Some(QlessSet::Locks),
        QlessState::Stalled => set == Some(QlessSet::Work),
        QlessState::Failed | QlessState::Complete => set.is_none(),
        // When a throttle becomes free, the job is ready rebuilt and keeps this state.
        QlessState::Throttled => {
            set == Some(QlessSet::Work) || (set.is_none() && job.throttled.is_some())
        }
    }
}

fn is_ascending(list: &[Bytes]) -> bool {
    list.is_sorted_by(|a, b| a < b)
}

fn compare<T: Debug + PartialEq>(what: &str, kept: &T, rebuilt: &T, wrong: &mut Vec<String>) {
    if kept != rebuilt {
        wrong.push(format!(
            "{what}: {kept:?} are kept, the rows say {rebuilt:?}"
        ));
    }
}
