//! Reads one job as the tables and the commits that wait for them show it, without writing those commits first.

use ganger_types::{Bytes, JobKey, JobRecord, LeaseRecord, StoredJob};

use super::queue::CommitsOfJob;
use crate::merge::{Body, JobChange, MergedCommit, job_of};

/// The rows of a job in the tables.
pub struct JobRows {
    /// Record among the live or the finished jobs.
    pub record: JobRecord,
    /// Live lease, if the job is live.
    pub lease: Option<LeaseRecord>,
}

/// What waiting commits say of a property of a job.
#[derive(Debug, PartialEq)]
pub enum Overlaid<T> {
    /// The property has this value, whatever the tables have.
    Is(T),
    /// The property is as in the tables.
    AsInTables,
}

/// The changes of one job in commits that wait for the tables.
pub struct JobOverlay<'a> {
    change: JobChange<'a>,
    has_inputs: bool,
}

impl<'a> JobOverlay<'a> {
    /// Merges the changes of a job; `None` if there are none.
    pub fn new(job: JobKey, found: &'a CommitsOfJob) -> Option<Self> {
        let changes = found.commits.iter().flat_map(|commit| &commit.changes);
        let changes = changes.filter(|change| job_of(change) == Some(job));
        let mut merged = MergedCommit::new(changes);
        let change = merged.jobs.remove(&job);
        let has_inputs = !merged.inputs.is_empty();
        if change.is_none() && !has_inputs && merged.logs.is_empty() {
            return None;
        }
        Some(Self {
            change: change.unwrap_or_default(),
            has_inputs,
        })
    }

    /// Returns the job, given its rows in the tables; `read` is called only if they matter.
    ///
    /// # Errors
    /// As `read`.
    pub fn job<E>(
        &self,
        read: impl FnOnce() -> Result<Option<JobRows>, E>,
    ) -> Result<Option<StoredJob>, E> {
        let JobChange {
            is_removed,
            is_retried,
            body,
            lease,
            ..
        } = self.change;
        if is_removed {
            return Ok(None);
        }
        let lease = lease.map(Option::<&LeaseRecord>::cloned);
        let (record, lease) = match (body, lease) {
            (Body::Finished(record, _) | Body::Replace(record), _) => (record.clone(), None),
            (Body::Live(record), Some(lease)) => (record.clone(), lease),
            (Body::Live(record), None) if is_retried => (record.clone(), None),
            (Body::Live(record), None) => {
                let lease = read()?.and_then(|rows| rows.lease);
                (record.clone(), lease)
            }
            (Body::Same, lease) => {
                let Some(rows) = read()? else { return Ok(None) };
                (rows.record, lease.unwrap_or(rows.lease))
            }
        };
        Ok(Some(StoredJob::new(record, lease)))
    }

    /// Returns the payload, if a waiting commit wrote or removed it.
    pub fn payload(&self) -> Overlaid<Option<Bytes>> {
        match self.change.payload {
            Some(payload) => Overlaid::Is(Some(payload.clone())),
            None if self.change.is_removed => Overlaid::Is(None),
            None => Overlaid::AsInTables,
        }
    }

    /// Returns the result, if a waiting commit wrote or removed it.
    pub fn result(&self) -> Overlaid<Option<Bytes>> {
        match self.change.body {
            Body::Finished(_, result) => Overlaid::Is(result.cloned()),
            Body::Live(_) => Overlaid::Is(None),
            _ if self.change.is_removed || self.change.is_retried => Overlaid::Is(None),
            Body::Same | Body::Replace(_) => Overlaid::AsInTables,
        }
    }

    /// Whether inputs of the job were changed, or all removed.
    pub fn changes_inputs(&self) -> bool {
        self.has_inputs || self.change.is_removed
    }
}
