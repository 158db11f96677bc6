//! Checks that the indexes agree with the rows, and the rows with each other.

use std::fmt::Debug;

use bytes::Bytes;
use ganger_types::qless::{QlessJob, QlessSet, QlessState};

use super::Qless;
use super::indexes::Indexes;

impl Qless {
    /// Builds the indexes a second time and compares; then checks each job.
    pub(super) fn compare(&self, wrong: &mut Vec<String>) {
        let mut again = Indexes::default();
        for row in self.rows.all() {
            again.add(&row);
        }
        let kept = &self.indexes;
        same("sets of queues", &kept.queues, &again.queues, wrong);
        same("known queues", &kept.known, &again.known, wrong);
        same("completed jobs", &kept.completed, &again.completed, wrong);
        same("failure groups", &kept.failures, &again.failures, wrong);
        same("tags", &kept.tags, &again.tags, wrong);
        same("tag ranks", &kept.tag_ranks, &again.tag_ranks, wrong);
        same("workers", &kept.workers, &again.workers, wrong);
        same(
            "workers' jobs",
            &kept.worker_jobs,
            &again.worker_jobs,
            wrong,
        );
        same("tracked jids", &kept.tracked, &again.tracked, wrong);
        same("holders", &kept.holders, &again.holders, wrong);
        same("pending jobs", &kept.pending, &again.pending, wrong);
        for job in self.rows.jobs.values() {
            self.look_at(job, wrong);
        }
    }

    /// Checks that a job is in the set that its state requires, and that its links exist in both directions.
    fn look_at(&self, job: &QlessJob, wrong: &mut Vec<String>) {
        let jid = &job.jid;
        let mut say = |what: &str| wrong.push(format!("job {jid:?} {what}: {job:?}"));
        if !is_where_it_should_be(job) {
            say("is not where its state says");
        }
        if job.place.as_ref().is_some_and(|it| it.queue != job.queue) {
            say("is in line in another queue");
        }
        if job.place.is_some() && job.throttled.is_some() {
            say("is throttled and in line");
        }
        if job.throttled.is_some() == job.pending.is_empty() {
            say("waits for a throttle and is not throttled, or the other way round");
        }
        if job.failed_order.is_some() && job.failure.is_none() {
            say("is in a failure group without a failure");
        }
        if job.failed_order.is_some() != (job.state == QlessState::Failed) {
            say("is in a failure group, or not, against its state");
        }
        if job.completed_at.is_some() && job.state != QlessState::Complete {
            say("is in the list of completed jobs and not complete");
        }
        if job.result.is_some() && job.state != QlessState::Complete {
            say("has a result and is not complete");
        }
        for on in &job.dependencies {
            let other = self.job(on);
            if other.is_none_or(|it| it.dependents.binary_search(jid).is_err()) {
                say("waits for a job that does not know");
            }
        }
        for dependent in &job.dependents {
            if !self.waits_for(dependent, jid) {
                say("has a dependent that does not wait");
            }
        }
        let by_name = [&job.tagged, &job.listed, &job.holds, &job.pending];
        let is_sorted = by_name
            .iter()
            .all(|list| list.is_sorted_by(|a, b| a.0 < b.0));
        if !is_sorted || !ascends(&job.dependencies) || !ascends(&job.dependents) {
            say("has a list out of order");
        }
    }
}

/// Whether the job's state allows the set that it is in.
fn is_where_it_should_be(job: &QlessJob) -> bool {
    let set = job.place.as_ref().map(|place| place.set);
    match job.state {
        // A job that completes into another queue with a delay keeps the state `waiting`.
        QlessState::Waiting => matches!(set, Some(QlessSet::Work | QlessSet::Scheduled)),
        QlessState::Scheduled => set == Some(QlessSet::Scheduled),
        QlessState::Depends => set == Some(QlessSet::Depends),
        QlessState::Running => set == Some(QlessSet::Locks),
        QlessState::Stalled => set == Some(QlessSet::Work),
        QlessState::Failed | QlessState::Complete => set.is_none(),
        // When a throttle becomes free, the job is ready again and keeps this state.
        QlessState::Throttled => {
            set == Some(QlessSet::Work) || (set.is_none() && job.throttled.is_some())
        }
    }
}

fn ascends(list: &[Bytes]) -> bool {
    list.is_sorted_by(|a, b| a < b)
}

fn same<T: Debug + PartialEq>(what: &str, kept: &T, again: &T, wrong: &mut Vec<String>) {
    if kept != again {
        wrong.push(format!("{what}: {kept:?} are kept, the rows say {again:?}"));
    }
}
