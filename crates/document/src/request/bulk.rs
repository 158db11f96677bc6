//! Which jobs a bulk action is for.

use std::borrow::Cow;

use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{JobStates, Namespace};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::error::DocumentError;
use crate::labels::Labels;
use crate::names::{
    GraphName, GroupName, JobReference, KindName, QueueName, ScheduleName, TagName, WorkerName,
};
use crate::one_of::StateWord;
use crate::time::Moment;

/// Which jobs a bulk action is for: `jobs`, or `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"filter\": {\"queue\": \"mail\"}} or {\"jobs\": [\"a1\"]}"
)]
#[schema(as = Bulk)]
pub struct BulkIn {
    /// Ids of the jobs to act on.
    pub jobs: Option<Vec<JobReference>>,
    /// All that fulfil every given condition; at least one must be given.
    pub filter: Option<FilterIn>,
    /// For people; of cancel only.
    pub reason: Option<String>,
    /// Into another queue than their own; of retry only.
    pub queue: Option<QueueName>,
    /// With the jobs that ended because these did; of retry only.
    pub dependents: Option<bool>,
    /// Of a filter: looks at so many jobs at most, 1 to 100,000; 100,000 if absent. `next` says where to go on.
    pub limit: Option<u32>,
    /// Of a filter: goes on where a call ended, the `next` of its answer.
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
    /// In this state, or in one of a list of them.
    state: Option<StatesIn>,
    /// Kind of the jobs.
    kind: Option<KindName>,
    /// Tag that the jobs bear.
    tag: Option<TagName>,
    /// With this label: an object of one pair.
    label: Option<Labels>,
    /// Graph that the jobs belong to.
    graph: Option<GraphName>,
    /// Made by this schedule.
    schedule: Option<ScheduleName>,
    /// Failed in this group.
    group: Option<GroupName>,
    /// Whose failure message contains this text.
    failure_text: Option<String>,
    /// Held by this worker.
    worker: Option<WorkerName>,
    /// Created at or after this time.
    created_from: Option<Moment>,
    /// Created before this time.
    created_before: Option<Moment>,
}

/// One state or a list of them.
#[derive(Clone, Copy, Debug)]
struct StatesIn(JobStates);

impl<'de> Deserialize<'de> for StatesIn {
    /// Looks at the first byte of the value, so that what is refused is said of the form that was meant.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let states = if text.starts_with('[') {
            serde_json::from_str::<Vec<StateWord>>(text)
        } else {
            serde_json::from_str(text).map(|state| vec![state])
        };
        let states = states.map_err(|error| {
            let text = error.to_string();
            D::Error::custom(text.split(" at line ").next().unwrap_or_default())
        })?;
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
    /// The query for its first page. A filter without conditions would mean everything: refused.
    ///
    /// # Errors
    /// If there is no condition, or not exactly one label.
    pub fn convert(self, namespace: Namespace) -> Result<JobQuery, DocumentError> {
        let label = match self.label.map(|labels| labels.0) {
            None => None,
            Some(mut pairs) if pairs.len() == 1 => pairs.pop(),
            Some(_) => {
                return Err(DocumentError::new(
                    "invalid_value",
                    "/filter/label: give exactly one pair",
                )
                .at("/filter/label"));
            }
        };
        let query = JobQuery {
            namespace,
            queue: self.queue.map(|it| it.0),
            states: self.state.map_or(JobStates::ALL, |it| it.0),
            kind: self.kind.map(|it| it.0),
            tag: self.tag.map(|it| it.0),
            label,
            graph: self.graph.map(|it| it.0),
            schedule: self.schedule.map(|it| it.0),
            group: self.group.map(|it| it.0),
            failure_text: self.failure_text,
            worker: self.worker.map(|it| it.0),
            created_from: self.created_from.map(|it| it.0),
            created_before: self.created_before.map(|it| it.0),
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
