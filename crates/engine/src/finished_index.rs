//! An index of the finished jobs that a command names, by id and by number.
//!
//! The host passes them as a list in [`PrefetchedRows`], which a bulk command would have to search once per job.

use std::collections::BTreeMap;

use ganger_types::{Graph, InputRow, JobId, JobKey, JobRecord, Namespace, Part};

use crate::PrefetchedRows;

/// An index over [`PrefetchedRows`].
#[derive(Default)]
pub(crate) struct FinishedIndex<'a> {
    by_id: BTreeMap<(&'a Namespace, &'a JobId), &'a JobRecord>,
    by_key: BTreeMap<JobKey, &'a JobRecord>,
    inputs: BTreeMap<JobKey, Vec<&'a InputRow>>,
    parts: &'a [Part],
    members: &'a [JobKey],
    members_up_to: Option<JobKey>,
}

impl<'a> FinishedIndex<'a> {
    pub(crate) fn new(known: &'a PrefetchedRows) -> Self {
        let mut past = Self::default();
        for job in &known.jobs {
            past.by_id.insert((&job.namespace, &job.id), job);
            past.by_key.insert(job.key, job);
        }
        for row in &known.inputs {
            past.inputs.entry(row.job).or_default().push(row);
        }
        past.parts = &known.parts;
        past.members = &known.members;
        past.members_up_to = known.members_up_to;
        past
    }

    /// The finished job with this id.
    pub(crate) fn find(&self, namespace: &Namespace, id: &JobId) -> Option<&'a JobRecord> {
        self.by_id.get(&(namespace, id)).copied()
    }

    /// The finished job with this number.
    pub(crate) fn by_key(&self, key: JobKey) -> Option<&'a JobRecord> {
        self.by_key.get(&key).copied()
    }

    /// An undecided part with its jobs.
    pub(crate) fn part(&self, name: &(Namespace, Graph)) -> Option<&'a Part> {
        let mut parts = self.parts.iter();
        parts.find(|part| (&part.record.namespace, &part.record.graph) == (&name.0, &name.1))
    }

    /// The finished jobs among the members that were read of a graph.
    pub(crate) fn members(&self) -> impl Iterator<Item = &'a JobRecord> {
        self.members.iter().filter_map(|key| self.by_key(*key))
    }

    /// The last member that was read of a graph, if there may be more.
    pub(crate) fn members_up_to(&self) -> Option<JobKey> {
        self.members_up_to
    }

    /// All inputs that were read.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &'a InputRow> {
        self.inputs.values().flatten().copied()
    }

    /// The inputs of a finished job.
    pub(crate) fn inputs_of(&self, key: JobKey) -> &[&'a InputRow] {
        self.inputs.get(&key).map_or(&[], Vec::as_slice)
    }
}
