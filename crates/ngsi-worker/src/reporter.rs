//! Reports the outcomes of tasks to the server, counts and measures them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ganger_client::{Delivery, ReleaseReport, Report, ReportResult};
use ganger_ngsi::task::TASK_TYPE;
use ganger_ngsi::telemetry::{DURATION, Sampler};
use ganger_worker::{Pool, Reports};

use crate::Error;
use crate::metrics::Metrics;
use crate::outcome::{Outcome, TaskResult};
use crate::slot::FinishedTask;

/// Delay before a job of another kind is ready again, for a worker with a handler for it.
const OTHER_KIND_DELAY: Duration = Duration::from_secs(30);

/// Reports the outcomes of tasks.
pub(crate) struct Reporter {
    counts: Arc<Counts>,
}

struct Counts {
    metrics: Arc<Metrics>,
    durations: Option<Sampler>,
    label: String,
    /// Number of outcomes without an answer yet.
    undelivered: AtomicU64,
}

impl Reporter {
    /// Creates a reporter, with samples of durations in a directory if one is named.
    pub(crate) fn open(metrics: Arc<Metrics>, directory: Option<&Path>) -> Result<Self, Error> {
        let durations = directory
            .map(|directory| Sampler::open(directory, DURATION))
            .transpose()?;
        let counts = Counts {
            metrics,
            durations,
            label: format!("task: {TASK_TYPE}"),
            undelivered: AtomicU64::default(),
        };
        Ok(Self {
            counts: Arc::new(counts),
        })
    }

    /// Reports outcomes in a separate task; the server's answers are returned through the pool.
    pub(crate) fn report_outcomes<R: Reports>(
        &self,
        pool: &mut Pool<R, Vec<TaskResult>>,
        ended: Vec<FinishedTask>,
    ) {
        let (reports, counts) = (pool.reports().clone(), Arc::clone(&self.counts));
        counts.note_undelivered(ended.len());
        pool.report(async move {
            let mut results = Vec::with_capacity(ended.len());
            let mut reports_to_send = Vec::with_capacity(ended.len());
            let mut measured = Vec::with_capacity(ended.len());
            for one in ended {
                counts.note_rows(&one.outcome);
                let counted = one.outcome.counted();
                let is_wanted = reports.expires_at(&one.held).is_some();
                let began_at = one.outcome.is_attempt().then_some(one.began_at);
                match one.outcome.report().filter(|_| is_wanted) {
                    Some(report) => {
                        reports_to_send.push((one.held, report));
                        measured.push((counted, began_at));
                    }
                    None => results.push(TaskResult::Dropped),
                }
            }
            let jobs: Vec<_> = reports_to_send
                .iter()
                .map(|(held, _)| held.job.clone())
                .collect();
            let answers = reports.report_all(reports_to_send).await;
            for ((answer, job), (counted, began_at)) in answers.iter().zip(jobs).zip(measured) {
                results.push(task_result(answer, &job, counted));
                if let Some(began_at) = began_at {
                    counts.measure(began_at);
                }
            }
            counts.count_results(&results);
            results
        });
    }

    /// Releases a job of another kind, which does not belong in this queue.
    pub(crate) fn release_foreign_job<R: Reports>(
        &self,
        pool: &mut Pool<R, Vec<TaskResult>>,
        job: Delivery,
    ) {
        let (reports, counts) = (pool.reports().clone(), Arc::clone(&self.counts));
        tracing::warn!(job = %job.lease.job, kind = %job.kind, "released a job of another kind: this worker only inserts");
        counts.note_undelivered(1);
        pool.report(async move {
            let releasing = ReleaseReport {
                delay: OTHER_KIND_DELAY,
                reason: format!("this worker has no handler for kind {}", job.kind),
                ..ReleaseReport::default()
            };
            let report = vec![(job.lease, Report::Release(releasing))];
            reports.report_all(report).await;
            let results = vec![TaskResult::Released];
            counts.count_results(&results);
            results
        });
    }

    /// Number of outcomes without an answer yet.
    pub(crate) fn undelivered(&self) -> u64 {
        self.counts.undelivered.load(Ordering::Acquire)
    }

    /// Writes the collected samples.
    pub(crate) fn flush(&self) {
        if let Some(Err(error)) = self.counts.durations.as_ref().map(Sampler::flush) {
            tracing::warn!("{error}");
        }
    }
}

impl Counts {
    fn note_undelivered(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.undelivered.fetch_add(count, Ordering::AcqRel);
    }

    fn note_rows(&self, outcome: &Outcome) {
        if let Outcome::Inserted { rows } = outcome {
            self.metrics.count_rows(*rows);
        }
    }

    fn measure(&self, began_at: Instant) {
        let took = began_at.elapsed();
        self.metrics.observe_attempt(took);
        let sampled = self
            .durations
            .as_ref()
            .map(|durations| durations.sample(&self.label, took.as_secs_f64()));
        if let Some(Err(error)) = sampled {
            tracing::warn!("{error}");
        }
    }

    fn count_results(&self, results: &[TaskResult]) {
        for counted in results {
            self.metrics.count_task(*counted);
        }
        let count = u64::try_from(results.len()).unwrap_or(u64::MAX);
        self.undelivered.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Returns the result to count, given the server's answer.
fn task_result(answer: &ReportResult, job: &str, counted: TaskResult) -> TaskResult {
    match answer {
        Ok(_) => counted,
        Err(error) => {
            tracing::warn!(job, code = error.code(), "the outcome is dropped: {error}");
            TaskResult::Dropped
        }
    }
}
