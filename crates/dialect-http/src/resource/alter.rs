//! Changes of a job and of its dependencies.

use axum::response::Response;
use ganger_document::Shards as _;
use ganger_document::labels::{LabelChanges, Rank};
use ganger_document::names::{JobReference, QueueName, TagName};
use ganger_document::one_of::PolicyWord;
use ganger_document::raw_json::{self, Base64, RawJson};
use ganger_document::request::job::start;
use ganger_document::time::{Moment, Span};
use ganger_document::view::tags;
use ganger_types::command::{AddDependencies, Alter, RemoveDependencies};
use ganger_types::{Command, Reply};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::{self, JsonBody, MaybeDoc};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::jobs::find;

/// Changes to a job. Absent fields do not change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"priority\": -1}"
)]
#[schema(as = Alter)]
pub(crate) struct AlterIn {
    /// New priority of the job; smaller runs first. Unchanged if absent.
    priority: Option<Rank>,
    /// New queue, for a job that does not run.
    queue: Option<QueueName>,
    /// New start as a delay from now, for a job that is scheduled or ready.
    delay: Option<Span>,
    /// New start as a time, for a job that is scheduled or ready.
    run_at: Option<Moment>,
    /// New payload, for a job that does not run.
    #[serde(default, deserialize_with = "raw_json::given")]
    payload: Option<RawJson>,
    /// New payload of the job, as base64.
    payload_base64: Option<Base64>,
    /// Tags that the job gets, unless it has them.
    #[serde(default)]
    tags_add: Vec<TagName>,
    /// Tags that the job loses; those that it does not have are ignored.
    #[serde(default)]
    tags_remove: Vec<TagName>,
    /// Labels to set; null removes one.
    #[serde(default)]
    labels: LabelChanges,
    /// Whether to track the job.
    tracked: Option<bool>,
    /// Note to add to the history.
    note: Option<NoteIn>,
}

/// A note in the history of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"text\": \"...\"}"
)]
#[schema(as = Note)]
struct NoteIn {
    /// Text of the note.
    text: String,
    /// Data of the note: any JSON value.
    #[serde(default, deserialize_with = "raw_json::given")]
    data: Option<RawJson>,
}

/// The job after the change.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Altered)]
pub(crate) struct AlteredView {
    /// Tags of the job after the change.
    tags: Vec<TagName>,
    /// State of the job after the change.
    state: &'static str,
}

/// Dependencies to add to a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"on\": [\"a1\"]}"
)]
#[schema(as = NewDependencies)]
pub(crate) struct DependenciesIn {
    /// Ids of the jobs to wait for.
    on: Vec<JobReference>,
    /// What happens if one of them does not succeed; `fail` if absent.
    #[serde(default)]
    policy: PolicyWord,
}

/// Dependencies to remove from a job.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"on\": [\"a1\"]}"
)]
#[schema(as = OldDependencies)]
pub(crate) struct UndependIn {
    /// Ids of the dependencies; all if absent.
    on: Option<Vec<JobReference>>,
}

pub(crate) async fn alter(
    context: RequestContext,
    JsonBody(given): JsonBody<AlterIn>,
) -> Result<Response, Problem> {
    let command = given.convert(&context)?;
    match context.call(Command::Alter(Box::new(command))).await? {
        Reply::Altered { tags: now, state } => Ok(json::ok(&AlteredView {
            tags: tags(&now),
            state: state.as_str(),
        })),
        _ => Err(unexpected_reply()),
    }
}

impl AlterIn {
    fn convert(self, context: &RequestContext) -> Result<Alter, Problem> {
        let has_start = self.delay.is_some() || self.run_at.is_some();
        let start = start(self.delay, self.run_at, "")?;
        Ok(Alter {
            namespace: context.namespace.clone(),
            job: Some(context.job()?),
            priority: self.priority.map(|rank| rank.0),
            queue: self.queue.map(|queue| queue.0),
            start: has_start.then_some(start),
            payload: raw_json::take(self.payload, self.payload_base64, "payload", "")?,
            tags_added: self.tags_add.into_iter().map(|tag| tag.0).collect(),
            tags_removed: self.tags_remove.into_iter().map(|tag| tag.0).collect(),
            labels_set: self.labels.set,
            labels_removed: self.labels.removed,
            tracked: self.tracked,
            note: self.note.map(|note| {
                let data = note.data.map(|data| data.0.get().to_owned());
                (note.text, data.unwrap_or_default())
            }),
        })
    }
}

pub(crate) async fn depend(
    context: RequestContext,
    JsonBody(given): JsonBody<DependenciesIn>,
) -> Result<Response, Problem> {
    let command = AddDependencies {
        namespace: context.namespace.clone(),
        job: context.job()?,
        on: context.api.own_jobs(&given.on, "/on")?,
        policy: given.policy.0,
    };
    context.call(Command::AddDependencies(command)).await?;
    altered(&context).await
}

pub(crate) async fn undepend(
    context: RequestContext,
    MaybeDoc(given): MaybeDoc<UndependIn>,
) -> Result<Response, Problem> {
    let on = given
        .on
        .map(|on| context.api.own_jobs(&on, "/on"))
        .transpose()?;
    let command = RemoveDependencies {
        namespace: context.namespace.clone(),
        job: context.job()?,
        on,
    };
    context.call(Command::RemoveDependencies(command)).await?;
    altered(&context).await
}

/// Answers with the state of the job after a change.
async fn altered(context: &RequestContext) -> Result<Response, Problem> {
    let record = find(context).await?.record;
    Ok(json::ok(&AlteredView {
        tags: tags(&record.tags),
        state: record.state.as_str(),
    }))
}
