//! What the cancellation of a job would lead to, found without changing anything.
//!
//! The search follows the same edges, in the same order, as the cascade in `endings`: first all dependents of a job
//! that ends badly fail, and only then are the jobs cancelled that no live job needs. A test compares the two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ganger_types::cancel_effects::{AffectedJobs, CancelEffects, LISTED_JOBS_MAX};
use ganger_types::{FailurePolicy, JobId, JobKey, JobState, Namespace, Now, Rejection};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;

/// Number of jobs that would end at which the search stops.
const ENDING_JOBS_MAX: usize = 100_000;

/// The state of a search.
#[derive(Default)]
struct Search {
    /// Jobs that would end, with whether they would fail; the others would be cancelled.
    ends: BTreeMap<JobKey, bool>,
    /// Jobs that would end and whose edges have not been followed yet.
    open: VecDeque<JobKey>,
    waiting: BTreeSet<JobKey>,
    continuing: BTreeSet<JobKey>,
    /// Dependencies in the graph of a job that would end.
    known: BTreeSet<JobKey>,
    /// Those of them whose dependents have changed since they were last checked.
    to_look_at: BTreeSet<JobKey>,
    elsewhere: u64,
}

impl Search {
    fn end(&mut self, key: JobKey, fails: bool) {
        if self.ends.insert(key, fails).is_none() {
            self.open.push_back(key);
        }
    }
}

impl Engine {
    /// The consequences that the cancellation of a job would have. A job that has ended, or that belongs to an
    /// external system, has none.
    pub(crate) fn cancel_effects(
        &self,
        now: Now,
        namespace: &Namespace,
        id: &JobId,
        known: &FinishedIndex,
    ) -> Result<CancelEffects, Rejection> {
        let Some(key) = self.find_job(namespace, id) else {
            let state = known.find(namespace, id).map(|record| record.state);
            let external = || {
                self.external_job(now, namespace, id)
                    .map(|job| job.record.state)
            };
            let state = state.or_else(external);
            let state = state.ok_or_else(|| self.no_job(namespace, id))?;
            return Ok(self.affected(state, None, &Search::default()));
        };
        let mut search = Search::default();
        search.end(key, false);
        self.search_effects(&mut search);
        Ok(self.affected(self.job(key).state, Some(key), &search))
    }

    fn search_effects(&self, search: &mut Search) {
        loop {
            while let Some(ended) = search.open.pop_front() {
                self.follow_edges(ended, search);
                if search.ends.len() > ENDING_JOBS_MAX {
                    return;
                }
            }
            let Some(dependency) = search.to_look_at.pop_first() else {
                return;
            };
            let ends = &search.ends;
            let mut users = self.edges.dependents(dependency);
            let is_needed = users.any(|(user, _)| !ends.contains_key(&user))
                || self.is_awaited_elsewhere(dependency);
            if !is_needed && !ends.contains_key(&dependency) {
                search.end(dependency, false);
            }
        }
    }

    fn follow_edges(&self, ended: JobKey, search: &mut Search) {
        for (dependent, _, policy) in self.edges.waiting_for(ended) {
            match policy {
                _ if search.ends.contains_key(&dependent) => {}
                FailurePolicy::Fail => search.end(dependent, true),
                FailurePolicy::Wait => drop(search.waiting.insert(dependent)),
                FailurePolicy::Ignore => drop(search.continuing.insert(dependent)),
            }
        }
        let elsewhere = self.peers.down.get(&ended).map_or(0, BTreeMap::len);
        search.elsewhere += u64::try_from(elsewhere).unwrap_or(u64::MAX);
        let graph = self.job(ended).graph();
        for (_, edge) in self.edges.of(ended) {
            let dependency = edge.dependency;
            if !self.is_live(dependency) || search.ends.contains_key(&dependency) {
                continue;
            }
            if graph.is_some() && self.job(dependency).graph() == graph {
                search.known.insert(dependency);
            }
            if search.known.contains(&dependency) {
                search.to_look_at.insert(dependency);
            }
        }
    }

    fn affected(&self, state: JobState, named: Option<JobKey>, search: &Search) -> CancelEffects {
        let ends = &search.ends;
        let which = |fails: bool| {
            let found = ends.iter().filter(move |(_, other)| **other == fails);
            found.map(|(key, _)| *key)
        };
        let lasting = |key: &JobKey| !ends.contains_key(key);
        CancelEffects {
            state,
            cancelled: self.named(which(false).filter(|key| Some(*key) != named)),
            failed: self.named(which(true)),
            waiting: self.named(search.waiting.iter().copied().filter(lasting)),
            continuing: self.named(
                search
                    .continuing
                    .difference(&search.waiting)
                    .copied()
                    .filter(lasting),
            ),
            elsewhere: search.elsewhere,
            is_complete: search.open.is_empty(),
        }
    }

    fn named(&self, keys: impl Iterator<Item = JobKey>) -> AffectedJobs {
        let mut affected = AffectedJobs::default();
        for key in keys {
            affected.count += 1;
            if affected.jobs.len() < LISTED_JOBS_MAX {
                affected.jobs.push(self.job(key).id());
            }
        }
        affected
    }
}
