//! The jobs of a bulk action.

use std::borrow::Cow;

use ganger_types::limits::{CONDITION_VALUES_MAX, PAGE_JOBS_MAX};
use ganger_types::query::JobQuery;
use ganger_types::{JobStates, Namespace, Tag};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::error::DocumentError;
use crate::labels::Labels;
use crate::names::{
    GraphName, GroupName, JobReference, KindName, NamePrefix, QueueName, ScheduleName, TagName,
    UniqueName, WorkerName,
};
use crate::one_of::StateWord;
use crate::time::Moment;

/// The jobs of a bulk action: `jobs`, or `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"filter\": {\"queue\": \"mail\"}} or {\"jobs\": [\"a1\"]}"
)]
#[schema(as = Bulk)]
pub struct BulkIn {
    /// Ids of the jobs to act on.
    pub jobs: Option<Vec<JobReference>>,
    /// Conditions on the jobs to act on; at least one must be given.
    pub filter: Option<FilterIn>,
    /// Reason of a cancellation, for people.
    pub reason: Option<String>,
    /// Queue that retried jobs enter; their own if absent.
    pub queue: Option<QueueName>,
    /// Whether to retry also the jobs that ended because these did.
    pub dependents: Option<bool>,
    /// With `filter`: maximum number of jobs to look at, 1 to 100,000; 100,000 if absent. `next` in the answer
    /// continues.
    pub limit: Option<u32>,
    /// With `filter`: only jobs that were enqueued before this time, such as `as_of` of a dry run.
    pub created_before: Option<Moment>,
    /// With `filter`: maximum number of jobs to change. The call ends when it is reached, and `next` in the answer
    /// continues.
    pub at_most: Option<u64>,
    /// With `filter`: the `next` of the previous answer, to continue there.
    pub after: Option<String>,
}

/// Conditions on jobs; a job must meet all that are given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"queue\": \"mail\", \"state\": \"failed\"}"
)]
#[schema(as = JobFilter)]
pub struct FilterIn {
    /// Queue that the jobs are in.
    queue: Option<QueueName>,
    /// State of the jobs, or a list of states.
    state: Option<StatesIn>,
    /// Kind of the jobs.
    kind: Option<KindName>,
    /// What the kinds of the jobs begin with; no condition if it is empty.
    kind_prefix: Option<NamePrefix>,
    /// What the ids of the jobs begin with; no condition if it is empty.
    id_prefix: Option<NamePrefix>,
    /// Tag of the jobs, or a list of 1 to 16 tags, which a job must all have.
    tag: Option<TagsIn>,
    /// Labels of the jobs: an object with 1 to 16 pairs, which a job must all have.
    label: Option<Labels>,
    /// Graph that the jobs belong to.
    graph: Option<GraphName>,
    /// Schedule that made the jobs.
    schedule: Option<ScheduleName>,
    /// Group in which the jobs failed.
    group: Option<GroupName>,
    /// Text that the failure message contains.
    failure_text: Option<String>,
    /// Worker that holds the jobs.
    worker: Option<WorkerName>,
    /// Unique key of the jobs.
    unique_key: Option<UniqueName>,
    /// Whether the jobs are tracked.
    tracked: Option<bool>,
    /// Smallest number of attempts of the jobs.
    attempt_min: Option<u32>,
    /// Earliest time at which the jobs were enqueued.
    created_from: Option<Moment>,
    /// Time before which the jobs were enqueued.
    created_before: Option<Moment>,
    /// Earliest time at which the jobs ended.
    finished_from: Option<Moment>,
    /// Time before which the jobs ended.
    finished_before: Option<Moment>,
}

/// Reads one value or a list of them. Looks at the first byte of the value, so that an error is about the form that the
/// client used.
fn one_or_list<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let text = raw.get();
    let values = if text.starts_with('[') {
        serde_json::from_str::<Vec<T>>(text)
    } else {
        serde_json::from_str(text).map(|value| vec![value])
    };
    values.map_err(|error| {
        let text = error.to_string();
        D::Error::custom(text.split(" at line ").next().unwrap_or_default())
    })
}

/// One tag or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct TagsIn(Vec<Tag>);

impl<'de> Deserialize<'de> for TagsIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tags: Vec<TagName> = one_or_list(deserializer)?;
        if !(1..=CONDITION_VALUES_MAX).contains(&tags.len()) {
            return Err(D::Error::custom(format_args!(
                "a list of {} tags: give 1 to {CONDITION_VALUES_MAX}",
                tags.len()
            )));
        }
        Ok(Self(tags.into_iter().map(|tag| tag.0).collect()))
    }
}

impl PartialSchema for TagsIn {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(TagName::schema())
            .item(ArrayBuilder::new().items(TagName::schema()))
            .into()
    }
}

impl ToSchema for TagsIn {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Tags")
    }
}

/// One state or a list of them.
#[derive(Clone, Copy, Debug)]
struct StatesIn(JobStates);

impl<'de> Deserialize<'de> for StatesIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let states: Vec<StateWord> = one_or_list(deserializer)?;
        if states.is_empty() {
            return Err(D::Error::custom("an empty list of states matches nothing"));
        }
        Ok(Self(states.into_iter().map(|state| state.0).collect()))
    }
}

impl PartialSchema for StatesIn {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(StateWord::schema())
            .item(ArrayBuilder::new().items(StateWord::schema()))
            .into()
    }
}

impl ToSchema for StatesIn {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("States")
    }
}

impl FilterIn {
    /// The query for the first page. A filter without conditions is refused, because it would match every job.
    ///
    /// # Errors
    /// If there is no condition, or too many labels.
    pub fn convert(self, namespace: Namespace) -> Result<JobQuery, DocumentError> {
        let labels = match self.label.map(|labels| labels.0) {
            None => Vec::new(),
            Some(pairs) if (1..=CONDITION_VALUES_MAX).contains(&pairs.len()) => pairs,
            Some(pairs) => {
                let detail = format!(
                    "/filter/label: has {} pairs: give 1 to {CONDITION_VALUES_MAX}",
                    pairs.len()
                );
                return Err(DocumentError::new("invalid_value", detail).at("/filter/label"));
            }
        };
        let prefix = |given: Option<NamePrefix>| given.map(|it| it.0).filter(|it| !it.is_empty());
        let query = JobQuery {
            namespace,
            queue: self.queue.map(|it| it.0),
            states: self.state.map_or(JobStates::ALL, |it| it.0),
            kind: self.kind.map(|it| it.0),
            kind_prefix: prefix(self.kind_prefix),
            id_prefix: prefix(self.id_prefix),
            tags: self.tag.map(|it| it.0).unwrap_or_default(),
            labels,
            graph: self.graph.map(|it| it.0),
            schedule: self.schedule.map(|it| it.0),
            group: self.group.map(|it| it.0),
            failure_text: self.failure_text,
            worker: self.worker.map(|it| it.0),
            unique_key: self.unique_key.map(|it| it.0),
            tracked: self.tracked,
            attempt_min: self.attempt_min,
            created_from: self.created_from.map(|it| it.0),
            created_before: self.created_before.map(|it| it.0),
            finished_from: self.finished_from.map(|it| it.0),
            finished_before: self.finished_before.map(|it| it.0),
            limit: PAGE_JOBS_MAX,
            ..JobQuery::default()
        };
        let nothing = JobQuery {
            namespace: query.namespace.clone(),
            limit: PAGE_JOBS_MAX,
            ..JobQuery::default()
        };
        if query == nothing {
            let detail = "/filter: without conditions it would mean every job: give at least one";
            return Err(DocumentError::new("invalid_value", detail).at("/filter"));
        }
        Ok(query)
    }
}
