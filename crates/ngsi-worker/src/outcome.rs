//! The outcome of an attempt, and its report to the server.

use bytes::Bytes;
use ganger_client::{FailureReport, ReleaseReport, Report};

/// Failure group of all failed inserts.
const GROUP: &str = "ngsi";

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The rows are in the database.
    Inserted {
        /// Number of rows in the database.
        rows: u64,
    },
    /// The insert failed; no row is in the database.
    Failed {
        /// Reason, as listings show it.
        message: String,
        /// Whether another attempt may succeed.
        is_retryable: bool,
    },
    /// The process died while inserting it.
    Lost,
    /// The task was not started, so it is released.
    Unstarted,
    /// The lease has ended, so the outcome is not reported.
    Dropped,
}

/// Results of tasks, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskResult {
    Inserted,
    Failed,
    FailedPermanently,
    Lost,
    Released,
    Dropped,
}

impl TaskResult {
    /// All results, in the order of [`Self::index`].
    pub(crate) const ALL: [Self; 6] = [
        Self::Inserted,
        Self::Failed,
        Self::FailedPermanently,
        Self::Lost,
        Self::Released,
        Self::Dropped,
    ];

    /// Returns the name of the result in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Failed => "failed",
            Self::FailedPermanently => "failed_for_good",
            Self::Lost => "lost",
            Self::Released => "released",
            Self::Dropped => "dropped",
        }
    }

    /// Returns its index in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Inserted => 0,
            Self::Failed => 1,
            Self::FailedPermanently => 2,
            Self::Lost => 3,
            Self::Released => 4,
            Self::Dropped => 5,
        }
    }
}

impl Outcome {
    /// Whether an attempt was made and ended by itself.
    pub(crate) fn is_attempt(&self) -> bool {
        !matches!(self, Self::Unstarted | Self::Dropped)
    }

    /// Returns the result to count, if the server accepts the report.
    pub(crate) fn counted(&self) -> TaskResult {
        match self {
            Self::Inserted { .. } => TaskResult::Inserted,
            Self::Failed {
                is_retryable: true, ..
            } => TaskResult::Failed,
            Self::Failed { .. } => TaskResult::FailedPermanently,
            Self::Lost => TaskResult::Lost,
            Self::Unstarted => TaskResult::Released,
            Self::Dropped => TaskResult::Dropped,
        }
    }

    /// Returns the report to the server; `None` if none is sent.
    pub(crate) fn report(self) -> Option<Report> {
        match self {
            Self::Inserted { rows } => Some(Report::Complete {
                result: Some(Bytes::from(format!("{{\"rows\":{rows}}}"))),
                next: None,
            }),
            Self::Failed {
                message,
                is_retryable,
            } => Some(Report::Fail(FailureReport {
                group: GROUP.into(),
                message,
                permanent: !is_retryable,
                ..FailureReport::default()
            })),
            Self::Lost => Some(Report::Fail(FailureReport {
                group: GROUP.into(),
                message: "the process that ran it died".into(),
                lost: true,
                ..FailureReport::default()
            })),
            Self::Unstarted => Some(release_report("the worker stops")),
            Self::Dropped => None,
        }
    }
}

/// Returns the report that releases a task to its old position without counting the attempt.
pub(crate) fn release_report(reason: &str) -> Report {
    Report::Release(ReleaseReport {
        keep_place: true,
        reason: reason.into(),
        ..ReleaseReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_its_index() {
        for (index, counted) in TaskResult::ALL.into_iter().enumerate() {
            assert_eq!(counted.index(), index, "{}", counted.as_str());
        }
    }

    #[test]
    fn a_success_reports_the_number_of_rows() {
        let report = Outcome::Inserted { rows: 12 }.report();
        let wanted = Report::Complete {
            result: Some(Bytes::from_static(b"{\"rows\":12}")),
            next: None,
        };
        assert_eq!(report, Some(wanted));
    }

    #[test]
    fn only_a_permanent_failure_prevents_retries_and_only_a_death_is_lost() {
        let failed = |is_retryable| Outcome::Failed {
            message: "no".into(),
            is_retryable,
        };
        let flags = |outcome: Outcome| match outcome.report() {
            Some(Report::Fail(failing)) => (failing.permanent, failing.lost),
            other => panic!("a failure: {other:?}"),
        };
        assert_eq!(flags(failed(true)), (false, false));
        assert_eq!(flags(failed(false)), (true, false));
        assert_eq!(flags(Outcome::Lost), (false, true));
    }

    #[test]
    fn an_unstarted_task_is_released_uncounted() {
        let Some(Report::Release(releasing)) = Outcome::Unstarted.report() else {
            panic!("a release");
        };
        assert!(releasing.keep_place && !releasing.counted);
        assert_eq!(Outcome::Dropped.report(), None);
    }
}
