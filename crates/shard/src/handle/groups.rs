//! Failure groups with what is known of them besides the engine, and what workers say of themselves.

use std::cmp::Reverse;
use std::time::Duration;

use ganger_store::StoredJob;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{Budget, JobQuery, Query};
use ganger_types::{Command, Group, JobKey, JobState, Namespace, Reply, Timestamp, Worker};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Handle;
use crate::{CallError, GroupFacts};

/// Records of failed jobs that are read to describe the groups of a namespace after a start.
const READ_MAX: u64 = 20_000;
/// Longest time that this may take.
const READ_FOR: Duration = Duration::from_millis(500);

/// A failure group with its kept jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// Name of the group.
    pub group: Group,
    /// Number of kept jobs that failed in the group.
    pub jobs: u64,
    /// What else is known of the group; `None` if no failure of it was seen or read since the start.
    pub facts: Option<GroupFacts>,
}

impl Handle {
    /// Returns the failure groups of a namespace: the last failure first, then those of which no time is known.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn failure_groups(&self, namespace: &Namespace) -> Result<Vec<GroupView>, CallError> {
        let query = Query::FailureGroups(namespace.clone());
        let reply = self.call(Command::Query(Box::new(query))).await?;
        let Reply::FailureGroups(groups) = reply else {
            return Ok(Vec::new());
        };
        if self.shared.metrics.failures().is_unread(namespace) {
            let kept = self.kept_failures(namespace).await?;
            let records = kept.iter().map(|job| &job.record);
            let mut failures = self.shared.metrics.failures();
            failures.add_kept(namespace, records);
        }
        let mut failures = self.shared.metrics.failures();
        failures.keep(namespace, |group| {
            groups.binary_search_by(|known| known.0.cmp(group)).is_ok()
        });
        let view = |(group, jobs): (Group, u64)| GroupView {
            facts: failures.get(namespace, &group).cloned(),
            group,
            jobs,
        };
        let mut views: Vec<GroupView> = groups.into_iter().map(view).collect();
        drop(failures);
        views.sort_by(|a, b| a.place().cmp(&b.place()));
        Ok(views)
    }

    /// Reads the failed jobs that were created last, within bounds.
    async fn kept_failures(&self, namespace: &Namespace) -> Result<Vec<StoredJob>, CallError> {
        let began = Instant::now();
        let mut query = JobQuery {
            namespace: namespace.clone(),
            states: JobState::Failed.into(),
            newest_first: true,
            limit: PAGE_JOBS_MAX,
            ..JobQuery::default()
        };
        let (mut kept, mut looked) = (Vec::new(), 0);
        loop {
            query.budget = Budget {
                records: Some(READ_MAX.saturating_sub(looked)),
                time: Some(READ_FOR.saturating_sub(began.elapsed())),
            };
            let wanted = query.clone();
            let reads = &self.shared.reads;
            let page = reads.read(move |reader| reader.list(&wanted)).await?;
            looked += page.looked.records;
            kept.extend(page.jobs);
            let next: Option<JobKey> = page.next.filter(|_| !page.looked.is_cut);
            if next.is_none() || looked >= READ_MAX || began.elapsed() >= READ_FOR {
                return Ok(kept);
            }
            query.after = next;
        }
    }

    /// Records where a worker is and which program it is, for listings.
    pub fn introduce(&self, namespace: &Namespace, worker: &Worker, address: &str, version: &str) {
        let now = self.shared.clock.wall();
        let mut workers = self.shared.metrics.workers();
        workers.introduce(namespace, worker, (address, version), now);
    }
}

impl GroupView {
    /// Place of the group in the list.
    pub fn place(&self) -> (Reverse<Timestamp>, &Group) {
        let last = self.facts.as_ref().map(|facts| facts.last_at);
        (Reverse(last.unwrap_or_default()), &self.group)
    }
}
