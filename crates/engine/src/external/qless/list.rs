//! Jobs of qless in listings, in order of their jids.

use ganger_qless::Qless;
use ganger_types::qless::QlessJob;
use ganger_types::query::JobQuery;
use ganger_types::{ExternalJob, JobId};

use super::as_job;
use crate::external::{ExternalJobScan, ScanLimits, asks_for};

/// The jobs after one of them that a query may match.
pub(super) fn scan(
    qless: &Qless,
    query: &JobQuery,
    after: Option<&ExternalJob>,
    measure: ScanLimits,
) -> ExternalJobScan {
    let mut looked = ExternalJobScan::NONE;
    let after = after.and_then(|after| match after {
        ExternalJob::Qless(jid) => Some(jid),
        ExternalJob::Item { .. } => None,
    });
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

/// Whether a query may match a job, by conditions that are cheap to check before the record is built.
fn may_be_asked_for(query: &JobQuery, job: &QlessJob) -> bool {
    let queue = || as_job::queue(job);
    let wanted = query.queue.as_ref();
    asks_for(query, as_job::state(job))
        && wanted.is_none_or(|wanted| queue() == wanted.as_bytes())
        && (query.kind.as_ref()).is_none_or(|kind| job.klass.starts_with(kind.as_bytes()))
        && (query.tags.is_empty() || !job.tags.is_empty())
        && (query.group.is_none() || job.failure.is_some())
        && (query.worker.is_none() || !job.worker.is_empty())
        && (query.schedule.is_none() || job.spawned_from.is_some())
}
