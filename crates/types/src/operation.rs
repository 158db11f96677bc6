//! Operations: actions on all jobs that match a filter, done page by page while other work goes on.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cursor::PageCursor;
use crate::id::{JobId, JobKey};
use crate::job::{JobState, Priority, Start};
use crate::limits::{OPERATION_PAGE_INTERVAL, OPERATION_PAGE_MAX};
use crate::name::{
    Graph, Group, Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag, UniqueKey, Worker,
};
use crate::query::JobQuery;
use crate::states::JobStates;
use crate::time::{MICROS_PER_SECOND, Timestamp, micros};
use crate::words::words;

/// Number of an operation, unique within its shard. Its text form is `op-7`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationNumber(pub u64);

impl fmt::Display for OperationNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op-{}", self.0)
    }
}

impl OperationNumber {
    /// Parses the text form; `None` if it is not the text of a number.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("op-")?;
        let number = digits.parse().ok()?;
        (Self(number).to_string() == text).then_some(Self(number))
    }
}

/// What an operation does with each job.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationAction {
    /// Puts the job back on its queue, if it has ended.
    Retry {
        /// Queue that the job enters; `None`: its own.
        queue: Option<Queue>,
    },
    /// Cancels the job, if it has not ended.
    Cancel,
    /// Removes the job with everything stored about it.
    Delete,
    /// Changes fields of the job.
    Alter(AlteredFields),
}

impl OperationAction {
    /// Whether a job in this state would be changed. Conditions on other jobs and limits are not checked.
    pub fn accepts(&self, state: JobState) -> bool {
        match self {
            Self::Retry { .. } => state.is_terminal(),
            Self::Cancel => !state.is_terminal(),
            Self::Delete => true,
            Self::Alter(fields) => {
                let is_moved = fields.queue.is_some() || fields.start.is_some();
                let needs_live = is_moved || fields.priority.is_some();
                !(needs_live && state.is_terminal() || is_moved && state == JobState::Running)
            }
        }
    }

    /// Whether [`Self::accepts`] tells exactly which jobs would be changed: no other job and no limit can stand in the
    /// way.
    pub fn is_foreseeable(&self) -> bool {
        match self {
            Self::Cancel => true,
            Self::Retry { .. } | Self::Delete => false,
            Self::Alter(fields) => {
                fields.queue.is_none()
                    && fields.tags_added.is_empty()
                    && fields.labels_set.is_empty()
            }
        }
    }

    /// The word for the action in every API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
            Self::Alter(_) => "alter",
        }
    }
}

/// Fields that an operation changes in each job. Those that are `None` or empty stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlteredFields {
    /// New priority, for jobs that have not ended.
    pub priority: Option<Priority>,
    /// New queue, for jobs that do not run.
    pub queue: Option<Queue>,
    /// New start, for jobs that are scheduled or ready. A delay counts from the change of each job.
    pub start: Option<Start>,
    /// Tags to add to those of the job.
    pub tags_added: Vec<Tag>,
    /// Tags to remove from those of the job.
    pub tags_removed: Vec<Tag>,
    /// Labels to add or replace.
    pub labels_set: Vec<(LabelKey, LabelValue)>,
    /// Keys of labels to remove.
    pub labels_removed: Vec<LabelKey>,
}

/// Conditions on jobs, as an operation stores them. A job must meet all that are given; at least one is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobFilter {
    /// Only jobs of this queue, if given.
    pub queue: Option<Queue>,
    /// Only jobs in one of these states; all by default.
    pub states: JobStates,
    /// Only jobs of this kind, if given.
    pub kind: Option<Kind>,
    /// Only jobs whose kind begins with these bytes, if given.
    pub kind_prefix: Option<Vec<u8>>,
    /// Only jobs whose id begins with these bytes, if given.
    pub id_prefix: Option<Vec<u8>>,
    /// Only jobs with all of these tags.
    pub tags: Vec<Tag>,
    /// Only jobs with all of these labels.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Only members of this graph, if given.
    pub graph: Option<Graph>,
    /// Only jobs that this schedule made, if given.
    pub schedule: Option<ScheduleId>,
    /// Only jobs that failed in this group, if given.
    pub group: Option<Group>,
    /// Only jobs whose failure message contains this text, if given.
    pub failure_text: Option<String>,
    /// Only jobs that this worker holds, if given.
    pub worker: Option<Worker>,
    /// Only jobs enqueued at this time or later, if given.
    pub created_from: Option<Timestamp>,
    /// Only jobs enqueued before this time, if given.
    pub created_before: Option<Timestamp>,
    /// Only jobs that ended at this time or later, if given.
    pub finished_from: Option<Timestamp>,
    /// Only jobs that ended before this time, if given.
    pub finished_before: Option<Timestamp>,
    /// Only jobs that are tracked, or that are not, if given.
    pub tracked: Option<bool>,
    /// Only jobs with at least this number of attempts, if given.
    pub attempt_min: Option<u32>,
    /// Only jobs with this unique key, if given.
    pub unique_key: Option<UniqueKey>,
}

impl JobFilter {
    /// The conditions of a query, without its page. Each condition of a query is one here, so that an operation never
    /// ignores one.
    pub fn of(query: JobQuery) -> Self {
        let JobQuery {
            namespace: _,
            queue,
            states,
            kind,
            kind_prefix,
            id_prefix,
            tags,
            labels,
            graph,
            schedule,
            group,
            failure_text,
            worker,
            created_from,
            created_before,
            finished_from,
            finished_before,
            tracked,
            attempt_min,
            unique_key,
            newest_first: _,
            after: _,
            after_external_job: _,
            limit: _,
            budget: _,
        } = query;
        Self {
            queue,
            states,
            kind,
            kind_prefix,
            id_prefix,
            tags,
            labels,
            graph,
            schedule,
            group,
            failure_text,
            worker,
            created_from,
            created_before,
            finished_from,
            finished_before,
            tracked,
            attempt_min,
            unique_key,
        }
    }

    /// A query for the first page of the jobs that meet the conditions, oldest first.
    pub fn query(&self, namespace: Namespace, limit: usize) -> JobQuery {
        let filter = self.clone();
        JobQuery {
            namespace,
            queue: filter.queue,
            states: filter.states,
            kind: filter.kind,
            kind_prefix: filter.kind_prefix,
            id_prefix: filter.id_prefix,
            tags: filter.tags,
            labels: filter.labels,
            graph: filter.graph,
            schedule: filter.schedule,
            group: filter.group,
            failure_text: filter.failure_text,
            worker: filter.worker,
            created_from: filter.created_from,
            created_before: filter.created_before,
            finished_from: filter.finished_from,
            finished_before: filter.finished_before,
            tracked: filter.tracked,
            attempt_min: filter.attempt_min,
            unique_key: filter.unique_key,
            limit,
            ..JobQuery::default()
        }
    }

    /// Whether no condition is given, so that every job meets it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The state of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationState {
    /// There may be more jobs to look at.
    #[default]
    Running,
    /// All jobs were looked at, or the ceiling was reached.
    Done,
    /// A person stopped it.
    Stopped,
    /// It could not go on; its message says why.
    Failed,
}
words!(OperationState {
    "running" => Running,
    "done" => Done,
    "stopped" => Stopped,
    "failed" => Failed,
});

/// A job that an operation did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutJob {
    /// The id of the job.
    pub job: JobId,
    /// The reason, for people.
    pub reason: String,
}

/// An operation, as stored: what it does, and how far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationRecord {
    /// Number of the operation.
    pub number: OperationNumber,
    /// Namespace of the jobs.
    pub namespace: Namespace,
    /// What the operation does with each job.
    pub action: OperationAction,
    /// Conditions on the jobs.
    pub filter: JobFilter,
    /// Number of the first job that the operation leaves out because it was enqueued later.
    pub end: JobKey,
    /// Maximum number of jobs to change; `None`: no limit.
    pub at_most: Option<u64>,
    /// Time over which to spread the changes; `None`: as soon as possible.
    pub spread_over: Option<Duration>,
    /// Reason for people, shown in the histories of cancelled jobs; may be empty.
    pub reason: String,
    /// Who started the operation; may be empty.
    pub by: String,
    /// Time at which the operation was started.
    pub began_at: Timestamp,
    /// Time at which the operation ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// State of the operation.
    pub state: OperationState,
    /// Why the operation ended, for people; may be empty.
    pub message: String,
    /// Number of jobs that met the conditions when they were counted; `None` before that.
    pub matching: Option<u64>,
    /// Number of jobs that were changed.
    pub done: u64,
    /// Number of jobs that were left out, because their states or other jobs did not allow the change.
    pub skipped: u64,
    /// Number of jobs whose change was refused for another reason, such as a full queue.
    pub failed: u64,
    /// The first jobs that were skipped or failed, at most [`crate::limits::OPERATION_LEFT_OUT_MAX`].
    pub left_out: Vec<LeftOutJob>,
    /// Last job that was looked at; `None` before the first.
    pub cursor: Option<PageCursor>,
}

impl OperationRecord {
    /// The query for the next page, and the pause before it after the previous one.
    ///
    /// Without [`Self::spread_over`] pages are as large as allowed and follow each other at the shortest interval, which
    /// leaves the shard time for other work. Otherwise they are so small or so rare that all jobs take that time.
    pub fn next_page(&self) -> (JobQuery, Duration) {
        let (size, pause) = self.pace();
        let left = self
            .at_most
            .map_or(u64::MAX, |most| most - self.done.min(most));
        let size = size.min(left).max(1);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut query = self.filter.query(self.namespace.clone(), size);
        if let Some(cursor) = self.cursor.clone() {
            query.go_on(cursor);
        }
        (query, pause)
    }

    /// The graph that the operation cancels as a whole: all its members that have not ended, without a ceiling. `None` if
    /// the operation does something else.
    pub fn cancelled_graph(&self) -> Option<&Graph> {
        if self.action != OperationAction::Cancel || self.at_most.is_some() {
            return None;
        }
        let graph = self.filter.graph.as_ref()?;
        let has_live_states = JobStates::LIVE.is_within(self.filter.states);
        let alone = JobFilter {
            graph: Some(graph.clone()),
            states: self.filter.states,
            created_before: self.filter.created_before,
            ..JobFilter::default()
        };
        (has_live_states && self.filter == alone).then_some(graph)
    }

    /// Size of a page, and the pause between two.
    fn pace(&self) -> (u64, Duration) {
        let page_max = u64::try_from(OPERATION_PAGE_MAX).unwrap_or(u64::MAX);
        let (Some(spread_over), Some(matching)) = (self.spread_over, self.matching) else {
            return (page_max, OPERATION_PAGE_INTERVAL);
        };
        let (span, jobs) = (micros(spread_over).max(1), matching.max(1));
        let each_second = u128::from(jobs) * u128::from(MICROS_PER_SECOND);
        let each_second = each_second.div_ceil(u128::from(span));
        let size = u64::try_from(each_second)
            .unwrap_or(page_max)
            .clamp(1, page_max);
        let pause = u128::from(span) * u128::from(size) / u128::from(jobs);
        let pause = Duration::from_micros(u64::try_from(pause).unwrap_or(u64::MAX));
        (size, pause.max(OPERATION_PAGE_INTERVAL))
    }

    /// Number of jobs that were looked at.
    pub fn looked_at(&self) -> u64 {
        self.done + self.skipped + self.failed
    }

    /// Whether the operation may change no further job.
    pub fn is_at_ceiling(&self) -> bool {
        self.at_most.is_some_and(|most| self.done >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(matching: u64, spread_over: Option<Duration>) -> OperationRecord {
        OperationRecord {
            number: OperationNumber(7),
            namespace: Namespace::default(),
            action: OperationAction::Cancel,
            filter: JobFilter::default(),
            end: JobKey(0),
            at_most: None,
            spread_over,
            reason: String::new(),
            by: String::new(),
            began_at: Timestamp(0),
            ended_at: None,
            state: OperationState::Running,
            message: String::new(),
            matching: Some(matching),
            done: 0,
            skipped: 0,
            failed: 0,
            left_out: Vec::new(),
            cursor: None,
        }
    }

    #[test]
    fn the_text_form_is_read_back_and_no_other_is() {
        let number = OperationNumber(7);
        assert_eq!(OperationNumber::parse(&number.to_string()), Some(number));
        for text in ["", "7", "op-", "op-07", "op-+7", "op--7", "OP-7", "op-7 "] {
            assert_eq!(OperationNumber::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn jobs_are_spread_over_the_time_that_was_asked_for() {
        let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
        for (matching, spread_over) in [
            (1, minutes(10)),
            (7, minutes(10)),
            (1_204, minutes(10)),
            (59_999, minutes(10)),
            (1_000_000, minutes(600)),
        ] {
            let record = record(matching, spread_over);
            let (query, pause) = record.next_page();
            let pages = matching.div_ceil(u64::try_from(query.limit).expect("small"));
            let all = pause * u32::try_from(pages).expect("few");
            let wanted = spread_over.expect("it is spread");
            assert!(
                all >= wanted * 9 / 10 && all <= wanted * 11 / 10 + pause,
                "{matching}: {all:?}"
            );
        }
    }

    #[test]
    fn without_a_time_pages_are_large_and_never_follow_each_other_at_once() {
        let (query, pause) = record(10, None).next_page();
        assert_eq!(
            (query.limit, pause),
            (OPERATION_PAGE_MAX, OPERATION_PAGE_INTERVAL)
        );
        // More jobs than can be done in the time.
        let (query, pause) = record(u64::MAX, Some(Duration::from_micros(1))).next_page();
        assert_eq!(
            (query.limit, pause),
            (OPERATION_PAGE_MAX, OPERATION_PAGE_INTERVAL)
        );
    }

    #[test]
    fn a_page_is_no_larger_than_what_may_still_be_changed() {
        let nearly = OperationRecord {
            at_most: Some(12),
            done: 9,
            ..record(100, None)
        };
        assert_eq!(nearly.next_page().0.limit, 3);
    }
}
