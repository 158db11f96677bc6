//! The edges from live jobs to the jobs that they wait for or whose results they use.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{FailurePolicy, JobKey};

/// One input or dependency of a live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub dependency: JobKey,
    pub policy: FailurePolicy,
    /// Whether the dependency has succeeded. The edge stays, so that the result is kept until this job has ended.
    pub is_delivered: bool,
}

/// All edges, indexed from both ends.
#[derive(Default)]
pub(crate) struct Edges {
    /// Edges by dependent and slot.
    up: BTreeMap<(JobKey, u32), Edge>,
    /// Dependency, dependent, slot: holds exactly the edges of `up`.
    down: BTreeSet<(JobKey, JobKey, u32)>,
}

impl Edges {
    pub(crate) fn add(&mut self, dependent: JobKey, slot: u32, edge: Edge) {
        self.up.insert((dependent, slot), edge);
        self.down.insert((edge.dependency, dependent, slot));
    }

    pub(crate) fn remove(&mut self, dependent: JobKey, slot: u32) -> Option<Edge> {
        let edge = self.up.remove(&(dependent, slot))?;
        self.down.remove(&(edge.dependency, dependent, slot));
        Some(edge)
    }

    pub(crate) fn deliver(&mut self, dependent: JobKey, slot: u32) {
        let edge = self
            .up
            .get_mut(&(dependent, slot))
            .expect("the edge was just found");
        edge.is_delivered = true;
    }

    /// The slots and edges of a dependent.
    pub(crate) fn of(&self, dependent: JobKey) -> impl Iterator<Item = (u32, Edge)> + '_ {
        self.up
            .range((dependent, 0)..=(dependent, u32::MAX))
            .map(|((_, slot), edge)| (*slot, *edge))
    }

    /// The dependents and slots that wait for `dependency`.
    pub(crate) fn waiting_for(&self, dependency: JobKey) -> Vec<(JobKey, u32, FailurePolicy)> {
        self.dependents(dependency)
            .filter_map(|(dependent, slot)| {
                let edge = self.up[&(dependent, slot)];
                (!edge.is_delivered).then_some((dependent, slot, edge.policy))
            })
            .collect()
    }

    /// The live dependents of `dependency`, delivered or not.
    pub(crate) fn dependents(
        &self,
        dependency: JobKey,
    ) -> impl Iterator<Item = (JobKey, u32)> + '_ {
        self.down
            .range((dependency, JobKey(0), 0)..=(dependency, JobKey(u64::MAX), u32::MAX))
            .map(|(_, dependent, slot)| (*dependent, *slot))
    }

    /// A live job that waits for `dependency` or uses its result.
    pub(crate) fn user_of(&self, dependency: JobKey) -> Option<JobKey> {
        self.dependents(dependency)
            .next()
            .map(|(dependent, _)| dependent)
    }

    /// The first slot from `from` on that no edge of `dependent` uses.
    pub(crate) fn free_slot(&self, dependent: JobKey, from: u32) -> u32 {
        self.up
            .range((dependent, from)..=(dependent, u32::MAX))
            .next_back()
            .map_or(from, |((_, slot), _)| slot + 1)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (JobKey, u32, Edge)> + '_ {
        self.up
            .iter()
            .map(|((dependent, slot), edge)| (*dependent, *slot, *edge))
    }

    /// Whether both indexes agree.
    pub(crate) fn is_consistent(&self) -> bool {
        self.up.len() == self.down.len()
            && self.up.iter().all(|((dependent, slot), edge)| {
                self.down.contains(&(edge.dependency, *dependent, *slot))
            })
    }
}
