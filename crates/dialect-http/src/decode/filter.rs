//! Which jobs: filters of listings and of bulk actions.

use std::borrow::Cow;

use crate::decode::word::words;
use ganger_types::query::JobQuery;
use ganger_types::{
    JobState, JobStates, LabelKey, LabelValue, Namespace, PageCursor, limits::PAGE_JOBS_MAX,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::arguments::{Arguments, refused};
use crate::decode::shape::Labels;
use crate::names::{
    GraphName, GroupName, JobReference, KindName, QueueName, ScheduleName, TagName, WorkerName,
    read,
};
use crate::problem::Problem;
use crate::time::Moment;

/// Jobs on a page unless the request says otherwise.
const PAGE_JOBS_DEFAULT: usize = 100;

/// The query parameters of a listing of jobs.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[
    ("queue", "in this queue"),
    (
        "state",
        "in this state: blocked, scheduled, ready, running, succeeded, failed, cancelled; several with commas, \
         or the parameter repeated",
    ),
    ("kind", "of this kind"),
    ("tag", "with this tag"),
    ("label", "with this label, as KEY=VALUE"),
    ("graph", "of this graph"),
    ("schedule", "made by this schedule"),
    ("group", "failed in this group"),
    ("failure_text", "whose failure message contains this text"),
    ("worker", "held by this worker"),
    ("created_from", "created at or after this time"),
    ("created_before", "created before this time"),
    ("order", "oldest (default) or newest first"),
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "jobs on a page, 1 to 1000; 100 if absent"),
];

/// Those of a count: the same but for the page.
pub(crate) const CONDITIONS: &[(&str, &str)] = PARAMETERS.split_at(PARAMETERS.len() - 3).0;

/// Reads the parameters of a listing.
pub(crate) fn from_arguments(
    arguments: &Arguments,
    namespace: Namespace,
) -> Result<JobQuery, Problem> {
    let mut query = conditions(arguments, namespace)?;
    query.newest_first = arguments
        .word("order", &[("oldest", false), ("newest", true)])?
        .unwrap_or(false);
    query.limit = limit(arguments)?;
    go_on(&mut query, arguments)?;
    Ok(query)
}

/// Reads which jobs are meant: the parameters of a listing but for its page.
pub(crate) fn conditions(arguments: &Arguments, namespace: Namespace) -> Result<JobQuery, Problem> {
    Ok(JobQuery {
        namespace,
        queue: arguments.name("queue")?,
        states: states(arguments)?,
        kind: arguments.name("kind")?,
        tag: arguments.name("tag")?,
        label: label(arguments)?,
        graph: arguments.name("graph")?,
        schedule: arguments.name("schedule")?,
        group: arguments.name("group")?,
        failure_text: arguments.text("failure_text")?.map(str::to_owned),
        worker: arguments.name("worker")?,
        created_from: arguments.moment("created_from")?,
        created_before: arguments.moment("created_before")?,
        ..JobQuery::default()
    })
}

/// The states asked for: words with commas, or the parameter given many times, or both.
fn states(arguments: &Arguments) -> Result<JobStates, Problem> {
    let given = arguments.texts("state")?;
    if given.is_empty() {
        return Ok(JobStates::ALL);
    }
    let given = given.join(",");
    JobStates::parse(&given).ok_or_else(|| {
        let known = JobState::ALL.map(JobState::as_str).join(", ");
        refused(
            "state",
            &format!("must be one of {known}, or several with commas, not {given:?}"),
        )
    })
}

/// The number of jobs on a page.
pub(crate) fn limit(arguments: &Arguments) -> Result<usize, Problem> {
    let most = u64::try_from(PAGE_JOBS_MAX).unwrap_or(u64::MAX);
    let given = arguments.number("limit", 1, most)?;
    Ok(given
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(PAGE_JOBS_DEFAULT))
}

/// Asks for the page behind the one whose `next` was sent: opaque to clients, a place in the listing to us.
pub(crate) fn go_on(query: &mut JobQuery, arguments: &Arguments) -> Result<(), Problem> {
    let Some(text) = arguments.text("after")? else {
        return Ok(());
    };
    let place: PageCursor = text.parse().map_err(|_| {
        refused(
            "after",
            &format!("{text:?} is not the `next` of a page: send that unchanged"),
        )
    })?;
    query.go_on(place);
    Ok(())
}

fn label(arguments: &Arguments) -> Result<Option<(LabelKey, LabelValue)>, Problem> {
    let Some(text) = arguments.text("label")? else {
        return Ok(None);
    };
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| refused("label", "must be KEY=VALUE"))?;
    let too_long = |error: ganger_types::NameError| refused("label", &error.to_string());
    let key = LabelKey::new(read(key.as_bytes())).map_err(too_long)?;
    let value = LabelValue::new(read(value.as_bytes())).map_err(too_long)?;
    Ok(Some((key, value)))
}

/// Which jobs a bulk action is for: `jobs`, or `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"filter\": {\"queue\": \"mail\"}} or {\"jobs\": [\"a1\"]}"
)]
#[schema(as = Bulk)]
pub(crate) struct BulkIn {
    /// Ids of the jobs to act on.
    pub(crate) jobs: Option<Vec<JobReference>>,
    /// All that fulfil every given condition; at least one must be given.
    pub(crate) filter: Option<FilterIn>,
    /// For people; of cancel only.
    pub(crate) reason: Option<String>,
    /// Into another queue than their own; of retry only.
    pub(crate) queue: Option<QueueName>,
    /// With the jobs that ended because these did; of retry only.
    pub(crate) dependents: Option<bool>,
    /// Of a filter: looks at so many jobs at most, 1 to 100,000; 100,000 if absent. `next` says where to go on.
    pub(crate) limit: Option<u32>,
    /// Of a filter: goes on where a call ended, the `next` of its answer.
    pub(crate) after: Option<String>,
}

/// Conditions on jobs; a job must meet all that are given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"queue\": \"mail\", \"state\": \"failed\"}"
)]
#[schema(as = JobFilter)]
pub(crate) struct FilterIn {
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

#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(rename_all = "snake_case")]
enum StateIn {
    Blocked,
    Scheduled,
    Ready,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}
words!(StateIn { "blocked" => Blocked, "scheduled" => Scheduled, "ready" => Ready, "running" => Running, "succeeded" => Succeeded, "failed" => Failed, "cancelled" => Cancelled });

/// One state or a list of them.
#[derive(Clone, Copy, Debug)]
struct StatesIn(JobStates);

impl<'de> Deserialize<'de> for StatesIn {
    /// Looks at the first byte of the value, so that what is refused is said of the form that was meant.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let states = if text.starts_with('[') {
            serde_json::from_str::<Vec<StateIn>>(text)
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
        Ok(Self(states.into_iter().map(JobState::from).collect()))
    }
}

impl PartialSchema for StatesIn {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(StateIn::schema())
            .item(ArrayBuilder::new().items(StateIn::schema()))
            .into()
    }
}

impl ToSchema for StatesIn {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("States")
    }
}

impl From<StateIn> for JobState {
    fn from(state: StateIn) -> Self {
        match state {
            StateIn::Blocked => Self::Blocked,
            StateIn::Scheduled => Self::Scheduled,
            StateIn::Ready => Self::Ready,
            StateIn::Running => Self::Running,
            StateIn::Succeeded => Self::Succeeded,
            StateIn::Failed => Self::Failed,
            StateIn::Cancelled => Self::Cancelled,
        }
    }
}

impl FilterIn {
    /// The query for its first page. A filter without conditions would mean everything: refused.
    pub(crate) fn convert(self, namespace: Namespace) -> Result<JobQuery, Problem> {
        let label = match self.label.map(|labels| labels.0) {
            None => None,
            Some(mut pairs) if pairs.len() == 1 => pairs.pop(),
            Some(_) => {
                return Err(
                    Problem::new("invalid_value", "/filter/label: give exactly one pair")
                        .at("/filter/label"),
                );
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
            return Err(Problem::new("invalid_value", detail).at("/filter"));
        }
        Ok(query)
    }
}
