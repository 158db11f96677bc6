//! Operations as shown.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ganger_types::operation::{JobFilter, OperationRecord};
use ganger_types::{JobState, OperationState, ShardId};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::word;
use crate::request::bulk::TagsIn;
use crate::time::{Moment, Span, calendar, moment, moment_if_any, span_if_any};

/// An operation: an action on all jobs that match a filter, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Operation {
    /// Name of the operation, such as `op-7`.
    pub operation: String,
    /// Shard whose jobs the operation is about.
    pub shard: String,
    /// What the operation does with each job: `retry`, `cancel`, `delete` or `alter`.
    pub action: String,
    /// Conditions on the jobs.
    pub filter: Filter,
    /// State of the operation: `running`, `done`, `stopped` or `failed`.
    #[serde(serialize_with = "word")]
    #[schema(value_type = String)]
    pub state: OperationState,
    /// Why the operation ended, for people; absent if there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of jobs that met the conditions when they were counted; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<u64>,
    /// Number of jobs that were changed.
    pub done: u64,
    /// Number of jobs that were left out, because their states or other jobs did not allow the change.
    pub skipped: u64,
    /// Number of jobs whose change was refused for another reason, such as a full queue.
    pub failed: u64,
    /// The first 100 jobs that were skipped or failed, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// Maximum number of jobs to change; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
    /// Time over which the changes are spread; absent: as soon as possible.
    #[serde(
        serialize_with = "span_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Span>)]
    pub spread_over: Option<Duration>,
    /// Reason, for people; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who started the operation.
    pub by: String,
    /// Time at which the operation was started.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub began_at: SystemTime,
    /// Time at which the operation ended; absent while it runs.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub ended_at: Option<SystemTime>,
}

/// A job that an operation did not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LeftOut {
    /// The job, as `shard/id`.
    pub job: String,
    /// The reason, for people.
    pub reason: String,
}

/// Conditions on jobs. Absent ones are not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OperationFilter)]
pub struct Filter {
    /// Queue that the jobs are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// States of the jobs; absent: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub state: Vec<String>,
    /// Kind of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What the kinds of the jobs begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind_prefix: Option<String>,
    /// What the ids of the jobs begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_prefix: Option<String>,
    /// Tag of the jobs; a list of tags, which a job must all have, if there are several.
    #[serde(serialize_with = "one_or_list", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = TagsIn, required = false)]
    pub tag: Vec<String>,
    /// Labels of the jobs, which a job must all have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub label: BTreeMap<String, String>,
    /// Graph that the jobs belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Schedule that made the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Group in which the jobs failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Text that the failure message contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_text: Option<String>,
    /// Worker that holds the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Unique key of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Whether the jobs are tracked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracked: Option<bool>,
    /// Smallest number of attempts of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_min: Option<u32>,
    /// Earliest time at which the jobs were enqueued.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub created_from: Option<SystemTime>,
    /// Time before which the jobs were enqueued.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub created_before: Option<SystemTime>,
    /// Earliest time at which the jobs ended.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub finished_from: Option<SystemTime>,
    /// Time before which the jobs ended.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub finished_before: Option<SystemTime>,
}

/// For `#[serde(serialize_with)]`: a single text alone, several as a list.
fn one_or_list<S: Serializer>(texts: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    match texts {
        [text] => text.serialize(serializer),
        texts => texts.serialize(serializer),
    }
}

/// A page of operations.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Operations {
    /// The operations, newest first.
    pub operations: Vec<Operation>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Operation {
    /// The document of an operation of this shard.
    pub fn new(shard: &ShardId, record: OperationRecord) -> Self {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let left_out = record.left_out.into_iter();
        Self {
            operation: record.number.to_string(),
            shard: shard.to_string(),
            action: record.action.as_str().to_owned(),
            filter: Filter::from(record.filter),
            state: record.state,
            message: some(record.message),
            matching: record.matching,
            done: record.done,
            skipped: record.skipped,
            failed: record.failed,
            left_out: left_out
                .map(|left_out| LeftOut {
                    job: full_name(shard, &left_out.job),
                    reason: left_out.reason,
                })
                .collect(),
            at_most: record.at_most,
            spread_over: record.spread_over,
            reason: some(record.reason),
            by: record.by,
            began_at: calendar(record.began_at),
            ended_at: record.ended_at.map(calendar),
        }
    }

    /// Whether the operation may still change jobs.
    pub fn is_running(&self) -> bool {
        self.state == OperationState::Running
    }
}

impl From<JobFilter> for Filter {
    fn from(filter: JobFilter) -> Self {
        let states = if filter.states.is_all() {
            Vec::new()
        } else {
            let words = filter.states.iter().map(JobState::as_str);
            words.map(str::to_owned).collect()
        };
        let label = filter.labels.into_iter();
        Self {
            queue: filter.queue.map(|name| text(name.as_bytes())),
            state: states,
            kind: filter.kind.map(|name| text(name.as_bytes())),
            kind_prefix: filter.kind_prefix.map(|prefix| text(&prefix)),
            id_prefix: filter.id_prefix.map(|prefix| text(&prefix)),
            tag: filter
                .tags
                .iter()
                .map(|name| text(name.as_bytes()))
                .collect(),
            label: label
                .map(|(key, value)| (text(key.as_bytes()), text(value.as_bytes())))
                .collect(),
            graph: filter.graph.map(|name| text(name.as_bytes())),
            schedule: filter.schedule.map(|name| text(name.as_bytes())),
            group: filter.group.map(|name| text(name.as_bytes())),
            failure_text: filter.failure_text,
            worker: filter.worker.map(|name| text(name.as_bytes())),
            unique_key: filter.unique_key.map(|name| text(name.as_bytes())),
            tracked: filter.tracked,
            attempt_min: filter.attempt_min,
            created_from: filter.created_from.map(calendar),
            created_before: filter.created_before.map(calendar),
            finished_from: filter.finished_from.map(calendar),
            finished_before: filter.finished_before.map(calendar),
        }
    }
}
