//! Listings of external jobs.

use ganger_types::query::JobQuery;
use ganger_types::reply::ExternalJobView;
use ganger_types::{ExternalJob, JobId, Namespace, Now, Rejection, limits};

use crate::engine::Engine;
use crate::external::{ExternalJobScan, ExternalSystems, ScanLimits};
use crate::finished_index::FinishedIndex;

/// Maximum number of jobs that one query looks at: enough to fill most pages, and few enough not to delay other
/// commands.
const LOOKED_AT_MAX: usize = 4_000;

impl Engine {
    /// The external job with this id, unless a live job of the engine has it. The host asks if it has found no
    /// finished job.
    pub(crate) fn external_job(
        &self,
        now: Now,
        namespace: &Namespace,
        id: &JobId,
    ) -> Option<Box<ExternalJobView>> {
        if self.find_job(namespace, id).is_some() {
            return None;
        }
        let mut systems = self.external.all().into_iter();
        let view = systems.find_map(|system| system.job(now, namespace, id));
        view.map(Box::new)
    }

    /// A page of external jobs that the query may match, and the last one that was looked at if there may be more.
    pub(crate) fn external_jobs(
        &self,
        now: Now,
        query: &JobQuery,
    ) -> (Vec<(ExternalJob, ExternalJobView)>, Option<ExternalJob>) {
        // External jobs have no graph, no labels and no unique key.
        if query.graph.is_some() || query.unique_key.is_some() || !query.labels.is_empty() {
            return (Vec::new(), None);
        }
        let mut measure = ScanLimits {
            looked_at: LOOKED_AT_MAX,
            found: query.limit.clamp(1, limits::PAGE_JOBS_MAX + 1),
        };
        let mut found = Vec::new();
        let after = query.after_external_job.as_ref();
        let first = after.map_or(0, ExternalSystems::place_of);
        for place in first..self.external.all().len() {
            let after = after.filter(|_| place == first);
            let scan = self.scan_external_jobs(now, query, place, after, measure);
            measure.looked_at -= scan.count;
            measure.found -= scan.found.len();
            found.extend(scan.found);
            if scan.rest.is_some() {
                return (found, scan.rest);
            }
        }
        (found, None)
    }

    /// Scans the jobs of one system after `after`. Jobs that another job hides are omitted or get another id.
    fn scan_external_jobs(
        &self,
        now: Now,
        query: &JobQuery,
        place: usize,
        after: Option<&ExternalJob>,
        measure: ScanLimits,
    ) -> ExternalJobScan {
        let systems = self.external.all();
        let system = systems[place];
        let is_hidden = |id: &JobId| {
            let namespace = &query.namespace;
            let mut before = systems[..place].iter();
            self.find_job(namespace, id).is_some()
                || before.any(|system| system.state(namespace, id).is_some())
        };
        let mut scan = system.jobs(now, query, after, measure);
        scan.found.retain_mut(|(job, view)| {
            if !is_hidden(&view.record.id) {
                return true;
            }
            let id = system.id_when_hidden(job);
            let is_shown = id.is_some();
            view.record.id = id.unwrap_or_else(|| view.record.id.clone());
            is_shown
        });
        scan
    }

    /// Whether an external job with this id exists.
    pub(crate) fn has_external_job(&self, namespace: &Namespace, id: &JobId) -> bool {
        self.external.state(namespace, id).is_some()
    }

    /// The rejection of a command that only jobs of the engine support, for an id that no such job has.
    pub(crate) fn not_ours(&self, namespace: &Namespace, id: &JobId) -> Rejection {
        let refusal = self.external.refuse(namespace, id);
        refusal.unwrap_or_else(|| self.no_job(namespace, id))
    }

    /// The rejection of a command that names only this job, if it is an external job that no command can change.
    pub(crate) fn refuse_external_item(
        &self,
        namespace: &Namespace,
        ids: &[JobId],
        known: &FinishedIndex,
    ) -> Result<(), Rejection> {
        let [id] = ids else {
            return Ok(());
        };
        let is_other = self.find_job(namespace, id).is_some()
            || known.find(namespace, id).is_some()
            || self.external.takes_commands(namespace, id);
        let refusal = self.external.refuse(namespace, id).filter(|_| !is_other);
        refusal.map_or(Ok(()), Err)
    }

    /// Number of namespaces that have jobs or queues of external systems. If there are none, the host need not ask
    /// for them.
    pub fn external_job_namespaces(&self) -> usize {
        self.external.namespaces().len()
    }
}
