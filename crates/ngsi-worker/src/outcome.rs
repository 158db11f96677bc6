//! How an attempt ended, and what the server is told of it.

use bytes::Bytes;
use ganger_client::{Failing, Releasing, Report};

/// Failures of inserts share this group.
const GROUP: &str = "ngsi";

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The rows are in the database.
    Inserted {
        /// Number of rows in the database.
        rows: u64,
    },
    /// Nothing of it is in the database.
    Failed {
        /// Why, as lists show it.
        message: String,
        /// Whether another attempt may go well.
        is_curable: bool,
    },
    /// Its process died of it.
    Lost,
    /// It was not begun, or is to be begun again.
    Unstarted,
    /// Nobody wants to know: the lease is lost.
    Dropped,
}

/// Outcomes as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskResult {
    Inserted,
    Failed,
    Refused,
    Lost,
    Released,
    Dropped,
}

impl TaskResult {
    /// All, in the order of [`Self::index`].
    pub(crate) const ALL: [Self; 6] = [
        Self::Inserted,
        Self::Failed,
        Self::Refused,
        Self::Lost,
        Self::Released,
        Self::Dropped,
    ];

    /// The word for it in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Failed => "failed",
            Self::Refused => "failed_for_good",
            Self::Lost => "lost",
            Self::Released => "released",
            Self::Dropped => "dropped",
        }
    }

    /// Its place among all.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Inserted => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::Lost => 3,
            Self::Released => 4,
            Self::Dropped => 5,
        }
    }
}

impl Outcome {
    /// Whether an attempt was made and came to an end of its own.
    pub(crate) fn is_attempt(&self) -> bool {
        !matches!(self, Self::Unstarted | Self::Dropped)
    }

    /// As what it is counted, if the server takes it.
    pub(crate) fn counted(&self) -> TaskResult {
        match self {
            Self::Inserted { .. } => TaskResult::Inserted,
            Self::Failed {
                is_curable: true, ..
            } => TaskResult::Failed,
            Self::Failed { .. } => TaskResult::Refused,
            Self::Lost => TaskResult::Lost,
            Self::Unstarted => TaskResult::Released,
            Self::Dropped => TaskResult::Dropped,
        }
    }

    /// What the server is told; `None`: nothing.
    pub(crate) fn report(self) -> Option<Report> {
        match self {
            Self::Inserted { rows } => Some(Report::Complete {
                result: Some(Bytes::from(format!("{{\"rows\":{rows}}}"))),
                next: None,
            }),
            Self::Failed {
                message,
                is_curable,
            } => Some(Report::Fail(Failing {
                group: GROUP.into(),
                message,
                permanent: !is_curable,
                ..Failing::default()
            })),
            Self::Lost => Some(Report::Fail(Failing {
                group: GROUP.into(),
                message: "the process that ran it died".into(),
                lost: true,
                ..Failing::default()
            })),
            Self::Unstarted => Some(given_back("the worker stops")),
            Self::Dropped => None,
        }
    }
}

/// Gives a task back, to its old place and uncounted.
pub(crate) fn given_back(reason: &str) -> Report {
    Report::Release(Releasing {
        keep_place: true,
        reason: reason.into(),
        ..Releasing::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_its_place() {
        for (index, counted) in TaskResult::ALL.into_iter().enumerate() {
            assert_eq!(counted.index(), index, "{}", counted.as_str());
        }
    }

    #[test]
    fn a_success_tells_how_many_rows_there_are() {
        let report = Outcome::Inserted { rows: 12 }.report();
        let wanted = Report::Complete {
            result: Some(Bytes::from_static(b"{\"rows\":12}")),
            next: None,
        };
        assert_eq!(report, Some(wanted));
    }

    #[test]
    fn only_an_incurable_failure_rules_retries_out_and_only_a_death_is_lost() {
        let failed = |is_curable| Outcome::Failed {
            message: "no".into(),
            is_curable,
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
    fn what_was_not_begun_goes_back_uncounted() {
        let Some(Report::Release(releasing)) = Outcome::Unstarted.report() else {
            panic!("a release");
        };
        assert!(releasing.keep_place && !releasing.counted);
        assert_eq!(Outcome::Dropped.report(), None);
    }
}
