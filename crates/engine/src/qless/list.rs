//! Jobs of qless in listings, in order of their jids.

use ganger_types::qless::QlessJob;
use ganger_types::query::JobQuery;
use ganger_types::{Bytes, ExternalJob, JobId};

use super::{QlessSpaces, as_job};
use crate::external_jobs::{ExternalJobScan, Measure, asks_for};

impl QlessSpaces {
    /// Jobs behind that jid: those that a query may ask for.
    pub(crate) fn jobs(
        &self,
        query: &JobQuery,
        after: Option<&Bytes>,
        measure: Measure,
    ) -> ExternalJobScan {
        let mut looked = ExternalJobScan::NONE;
        let Some(qless) = self.space(&query.namespace) else {
            return looked;
        };
        for job in qless.jobs_after(after) {
            looked.count += 1;
            if may_be_asked_for(query, job)
                && let Ok(id) = JobId::new(&job.jid)
                && let Some(view) = as_job::view_of(qless, &query.namespace, &id, job)
            {
                let external_job = ExternalJob::Qless(job.jid.clone());
                looked.found.push((external_job, view));
            }
            if looked.count >= measure.looked_at || looked.found.len() >= measure.found {
                looked.rest = Some(ExternalJob::Qless(job.jid.clone()));
                break;
            }
        }
        looked
    }
}

/// What is quick to see: a whole record is made only of those that pass.
fn may_be_asked_for(query: &JobQuery, job: &QlessJob) -> bool {
    let queue = || as_job::queue(job);
    let wanted = query.queue.as_ref();
    asks_for(query, as_job::state(job))
        && wanted.is_none_or(|wanted| queue() == wanted.as_bytes())
        && (query.kind.as_ref()).is_none_or(|kind| job.klass.starts_with(kind.as_bytes()))
        && (query.tag.is_none() || !job.tags.is_empty())
        && (query.group.is_none() || job.failure.is_some())
        && (query.worker.is_none() || !job.worker.is_empty())
        && (query.schedule.is_none() || job.spawned_from.is_some())
}
