//! Finds the finished jobs that a command names for the engine, which holds only live ones.
//!
//! The search covers the uncommitted turns, newest first, and then the store.

use std::collections::{BTreeMap, BTreeSet};

use ganger_engine::{Archive, FollowersQuery, Members, PrefetchedRows, read_followers};
use ganger_store::{Reader, StoreError};
use ganger_types::{
    Command, Graph, InputRow, InputState, JobId, JobKey, JobRecord, Namespace, Part,
};

use super::Core;
use super::request::Ticket;
use super::turn::EndedRow;
use crate::CallError;

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Returns everything that the engine needs for this command.
    pub(super) fn prefetch(&mut self, command: &Command) -> Result<PrefetchedRows, CallError> {
        let engine = &self.live().engine;
        let (wanted, parts) = (engine.prefetch(command), engine.prefetch_parts(command));
        let followed = engine.prefetch_followers(command);
        if wanted.is_empty() && parts.is_empty() && followed.is_none() {
            return Ok(PrefetchedRows::default());
        }
        let with_inputs = engine.prefetch_inputs(command);
        let known = self.look_up(wanted, with_inputs, followed);
        let mut known =
            known.map_err(|error| CallError::from_read(&self.settings.shard, &error))?;
        for (namespace, graph) in parts {
            known.parts.push(self.read_part(&namespace, &graph)?);
        }
        if self.lacks_rows() {
            return Err(self.unavailable("a job that it names has just changed"));
        }
        Ok(known)
    }

    /// Reads the part that a command decides. A submitter waits until the part is durable; another caller is asked to
    /// try again.
    fn read_part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Part, CallError> {
        let part = self.rows().part(namespace, graph);
        part.map_err(|error| CallError::from_read(&self.settings.shard, &error))?
            .ok_or_else(|| self.unavailable("a submission is decided before its part is durable"))
    }

    fn look_up(
        &mut self,
        wanted: Vec<(Namespace, JobId)>,
        with_inputs: bool,
        followed: Option<FollowersQuery>,
    ) -> Result<PrefetchedRows, StoreError> {
        let mut known = PrefetchedRows::default();
        let mut seen = BTreeSet::new();
        for (namespace, id) in wanted {
            let found = self.ended_by_id(&namespace, &id)?;
            // The inputs of a job that is named twice are read once.
            let found = found.filter(|record| seen.insert(record.key));
            known.jobs.extend(found);
        }
        if let Some(followed) = followed {
            let pending = self.pending().dependents();
            read_followers(
                &mut FinishedLookup {
                    core: self,
                    pending,
                },
                &followed,
                &mut known,
            )?;
        }
        if !with_inputs {
            return Ok(known);
        }
        let mut dependencies = BTreeSet::new();
        for job in &known.jobs {
            known.inputs.extend(self.input_rows(job.key)?);
        }
        for row in &known.inputs {
            if let InputState::Missing { dependency, .. }
            | InputState::Delivered { dependency, .. } = &row.state
            {
                dependencies.insert(*dependency);
            }
        }
        for job in &known.jobs {
            dependencies.remove(&job.key);
        }
        for dependency in dependencies {
            known.jobs.extend(self.ended_by_key(dependency)?);
        }
        Ok(known)
    }

    fn ended_by_id(
        &mut self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<JobRecord>, StoreError> {
        match self.pending().ended_by_id(namespace, id) {
            EndedRow::Record(record) => return Ok(Some(record.clone())),
            EndedRow::Gone => return Ok(None),
            EndedRow::Unknown => {}
        }
        let found = self.rows().find(namespace, id)?;
        Ok(self.unless_superseded(found.map(|job| job.record)))
    }

    fn ended_by_key(&mut self, key: JobKey) -> Result<Option<JobRecord>, StoreError> {
        match self.pending().ended(key) {
            EndedRow::Record(record) => return Ok(Some(record.clone())),
            EndedRow::Gone => return Ok(None),
            EndedRow::Unknown => {}
        }
        let found = self.rows().job(key)?;
        Ok(self.unless_superseded(found.map(|job| job.record)))
    }

    /// Returns a stored record if it says that the job has ended and no uncommitted turn contradicts it.
    fn unless_superseded(&mut self, record: Option<JobRecord>) -> Option<JobRecord> {
        let record = record.filter(|record| record.finished.is_some())?;
        let is_current = matches!(self.pending().ended(record.key), EndedRow::Unknown);
        is_current.then_some(record)
    }

    /// Returns every current input and dependency of a job.
    fn input_rows(&mut self, key: JobKey) -> Result<Vec<InputRow>, StoreError> {
        let mut rows = BTreeMap::new();
        let mut from = Some(0);
        while let Some(first) = from {
            let page = self.rows().inputs(key, first)?;
            from = page.last().and_then(|last| last.slot.checked_add(1));
            rows.extend(page.into_iter().map(|row| (row.slot, row)));
        }
        for row in self.pending().inputs(key) {
            match row {
                Ok(row) => drop(rows.insert(row.slot, row)),
                Err(slot) => drop(rows.remove(&slot)),
            }
        }
        Ok(rows.into_values().collect())
    }
}

/// Finds finished jobs in the uncommitted turns and in the store.
struct FinishedLookup<'a, R, T> {
    core: &'a mut Core<R, T>,
    /// Dependents by their dependencies, as the uncommitted turns have written them.
    pending: BTreeMap<JobKey, Vec<JobKey>>,
}

impl<R: Reader, T: Ticket> Archive for FinishedLookup<'_, R, T> {
    type Error = StoreError;

    fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, StoreError> {
        let mut found = self.core.rows().dependents(key)?;
        found.extend(self.pending.get(&key).into_iter().flatten());
        // A turn that was released since is known from both.
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn ended(&mut self, key: JobKey) -> Result<Option<JobRecord>, StoreError> {
        self.core.ended_by_key(key)
    }

    fn inputs(&mut self, key: JobKey) -> Result<Vec<InputRow>, StoreError> {
        self.core.input_rows(key)
    }

    fn members(&mut self, asked: &Members) -> Result<(Vec<JobKey>, Option<JobKey>), StoreError> {
        self.core.rows().members(asked)
    }
}
