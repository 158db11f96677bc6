//! Checks queries: answers must agree with the model (`rel D4`).

use ganger_types::query::Query;
use ganger_types::{Answer, JobState, Namespace, Reply};

use super::{CheckResult, Oracle};

impl Oracle {
    /// Checks the answer to a query (`rel D4`).
    pub(super) fn query(&mut self, query: &Query, answer: &Answer) -> CheckResult {
        match (query, answer) {
            (Query::Audit, Ok(Reply::Audit(lines))) if !lines.is_empty() => {
                Err(self.wrong("A1", format!("the audit says {lines:?}"), Vec::new()))
            }
            (Query::Queue(namespace, queue), Ok(Reply::Queue(view))) => {
                self.check_counts(namespace, queue, &view.counts)
            }
            (Query::Queues(namespace, ..), Ok(Reply::Queues(views))) => views
                .iter()
                .try_for_each(|view| self.check_counts(namespace, &view.queue, &view.counts)),
            (Query::Why(namespace, id), Ok(Reply::Why(why))) => match self.find(namespace, id) {
                Some(key) if self.known(key).may_be(why.state) => Ok(()),
                Some(key) => Err(self.broken("D4", key, format!("`why` says {}", why.state))),
                None => Err(self.wrong(
                    "K5",
                    format!("`why` knows the removed job {id}"),
                    Vec::new(),
                )),
            },
            _ => Ok(()),
        }
    }

    fn check_counts(
        &self,
        namespace: &Namespace,
        queue: &ganger_types::Queue,
        counts: &ganger_types::QueueCounts,
    ) -> CheckResult {
        let here = || {
            self.jobs
                .values()
                .filter(|job| job.namespace == *namespace && job.queue == *queue)
        };
        if here().any(|job| !job.is_certain()) {
            return Ok(());
        }
        for state in JobState::ALL {
            let count = here().filter(|job| job.state() == Some(state)).count();
            if u64::try_from(count).ok() != Some(counts.of(state)) {
                let what = format!(
                    "queue {queue} shows {} {state} jobs, there are {count}",
                    counts.of(state)
                );
                return Err(self.wrong("A1", what, Vec::new()));
            }
        }
        Ok(())
    }
}
