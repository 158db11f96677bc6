//! A job as submitted.

use std::collections::HashMap;

use ganger_types::command::{Dependency, NewEdge, NewInput, NewJob, Start, Unique};
use ganger_types::{Bytes, FailurePolicy, JobName, ShardId};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::DocumentError;
use crate::labels::{Labels, Rank};
use crate::names::{JobReference, KindName, QueueName, TagName, UniqueName, read, show};
use crate::one_of::PolicyWord;
use crate::raw_json::{self, Base64, RawJson};
use crate::reference::Shards;
use crate::retry::{KeepFor, RetryDocument};
use crate::short::{ShortOr, or_string};
use crate::time::{Moment, Span};

/// A job to enqueue. Only `kind` is required.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"kind\": \"resize\", \"payload\": {\"file\": \"a.png\"}}"
)]
#[schema(as = NewJob)]
pub struct JobIn {
    /// Name of the job, for references within this submission and for people. It is stored and shown.
    pub name: Option<String>,
    /// Id of the job; the server makes one if absent.
    pub id: Option<JobReference>,
    /// Shard that runs the job; the one that is asked if absent.
    shard: Option<String>,
    /// Queue that the job enters; `default` if absent.
    queue: Option<QueueName>,
    /// Kind of the job: the program that runs it.
    pub kind: KindName,
    /// Payload of the job: any JSON value, kept as its exact text.
    #[serde(default, deserialize_with = "raw_json::given")]
    payload: Option<RawJson>,
    /// Payload as base64, instead of `payload`.
    payload_base64: Option<Base64>,
    /// Positional inputs of the job, in order; none if absent.
    #[serde(default)]
    inputs: Vec<InputIn>,
    /// Jobs to wait for without taking their results.
    #[serde(default)]
    after: Vec<AfterIn>,
    /// Priority: smaller runs first; 0 if absent.
    priority: Option<Rank>,
    /// Delay before the job may run. Not together with `run_at`.
    delay: Option<Span>,
    /// Earliest start; a time in the past is now.
    run_at: Option<Moment>,
    /// Time after which no attempt is started; none if absent.
    deadline: Option<Moment>,
    /// Maximum time of one attempt; no limit if absent.
    timeout: Option<Span>,
    /// Retry policy; that of the queue or namespace if absent.
    retry: Option<RetryDocument>,
    /// Tags of the job; none if absent.
    #[serde(default)]
    tags: Vec<TagName>,
    /// Labels of the job: indexed key-value pairs; none if absent.
    #[serde(default)]
    labels: Labels,
    /// Whether the job appears in the list of tracked jobs.
    #[serde(default)]
    tracked: bool,
    /// Unique key: enqueueing a second job under it returns the id of the first.
    unique: Option<UniqueIn>,
    /// How long to keep the job after success: a duration or `forever`; as the queue says if absent.
    keep_succeeded: Option<KeepFor>,
    /// How long to keep the job after failure or cancellation: as `keep_succeeded`.
    keep_failed: Option<KeepFor>,
}

/// One positional input: exactly one of `value`, `value_base64`, `result_of`, `result_of_job`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"value\": 1} or {\"result_of\": \"left\"}"
)]
#[schema(as = NewInput)]
pub struct InputIn {
    /// Any JSON value, kept as its exact text.
    #[serde(default, deserialize_with = "raw_json::given")]
    value: Option<RawJson>,
    /// Value of the input as arbitrary bytes in base64.
    value_base64: Option<Base64>,
    /// The result of the job of this name in the same submission.
    result_of: Option<String>,
    /// The result of an existing job, by its id.
    result_of_job: Option<JobReference>,
    /// What happens when that job does not succeed; `fail` if absent.
    policy: Option<PolicyWord>,
}

/// A job to wait for: exactly one of `name` and `job`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEdge)]
pub struct EdgeIn {
    /// The job of this name in the same submission.
    name: Option<String>,
    /// An existing job, by its id.
    job: Option<JobReference>,
    /// What happens when that job does not succeed; `fail` if absent.
    policy: Option<PolicyWord>,
}

/// A job to wait for. A string is the name of a job of the same submission or, if none has it, the id of an
/// existing job.
#[derive(Debug)]
pub enum AfterIn {
    /// A name or an id.
    Short(String),
    /// The object form, with a failure policy.
    Long(EdgeIn),
}

impl ShortOr for AfterIn {
    type Long = EdgeIn;
    const EXPECTED: &'static str =
        "the name or id of a job, or an object such as {\"name\": \"left\"} or {\"job\": \"a1\"}";

    fn short<E: serde::de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self::Short(text.to_owned()))
    }

    fn long(edge: EdgeIn) -> Self {
        Self::Long(edge)
    }
}
or_string!(AfterIn as "After");

/// A unique key, and the time for which it stays taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Unique)]
pub struct UniqueKeyIn {
    /// The key, within the namespace.
    key: UniqueName,
    /// Time for which the key stays taken after the first job was enqueued; until that job has ended if absent.
    window: Option<Span>,
}

/// A unique key. A string is a key without a window.
#[derive(Debug)]
pub struct UniqueIn(UniqueKeyIn);

impl ShortOr for UniqueIn {
    type Long = UniqueKeyIn;
    const EXPECTED: &'static str =
        "a key such as \"user-1\", or an object such as {\"key\": \"user-1\", \"window\": \"1h\"}";

    fn short<E: serde::de::Error>(text: &str) -> Result<Self, E> {
        let key = UniqueName::from_text(text).map_err(E::custom)?;
        Ok(Self(UniqueKeyIn { key, window: None }))
    }

    fn long(unique: UniqueKeyIn) -> Self {
        Self(unique)
    }
}
or_string!(UniqueIn as "UniqueOrKey");

/// The jobs of a submission by name, with their indexes.
pub type Members = HashMap<String, u32>;

impl JobIn {
    /// Converts the document to a new job and its shard. `pointer` is its place in the body.
    ///
    /// # Errors
    /// If fields exclude each other, or a reference names no job; the error names the field.
    pub fn convert(
        self,
        shards: &dyn Shards,
        members: &Members,
        pointer: &str,
    ) -> Result<(ShardId, NewJob), DocumentError> {
        let (home, id) = shards.home(self.shard.as_deref(), self.id.as_ref(), pointer)?;
        let start = start(self.delay, self.run_at, pointer)?;
        let payload = raw_json::take(self.payload, self.payload_base64, "payload", pointer)?;
        let refers = Refers {
            shards,
            members,
            home: &home,
        };
        let name = self.name.as_deref().map(|name| called(name, pointer));
        let job = NewJob {
            id,
            name: name.transpose()?,
            queue: self.queue.map(|queue| queue.0).unwrap_or_default(),
            kind: self.kind.0,
            payload: payload.unwrap_or_default(),
            inputs: inputs(self.inputs, &refers, pointer)?,
            after: edges(self.after, &refers, pointer)?,
            priority: self.priority.map(|rank| rank.0).unwrap_or_default(),
            start,
            deadline: self.deadline.map(|time| time.0),
            timeout: self.timeout.map(|span| span.0),
            retry: self.retry.map(Into::into),
            tags: self.tags.into_iter().map(|tag| tag.0).collect(),
            labels: self.labels.0,
            tracked: self.tracked,
            unique: self.unique.map(|UniqueIn(given)| Unique {
                key: given.key.0,
                window: given.window.map(|span| span.0),
            }),
            keep_succeeded: self.keep_succeeded.map(|keep| keep.0),
            keep_failed: self.keep_failed.map(|keep| keep.0),
        };
        Ok((home, job))
    }

    /// Converts a job that is submitted alone, without other jobs to refer to.
    ///
    /// # Errors
    /// As [`JobIn::convert`].
    pub fn convert_alone(self, shards: &dyn Shards) -> Result<(ShardId, NewJob), DocumentError> {
        self.convert(shards, &Members::new(), "")
    }
}

/// The name of a job, checked.
fn called(name: &str, pointer: &str) -> Result<JobName, DocumentError> {
    JobName::new(read(name.as_bytes())).map_err(|error| {
        let pointer = format!("{pointer}/name");
        DocumentError::new("invalid_value", format!("{pointer}: {error}")).at(pointer)
    })
}

/// The earliest start, from two fields of which at most one may be given.
///
/// # Errors
/// If both are given.
pub fn start(
    delay: Option<Span>,
    run_at: Option<Moment>,
    pointer: &str,
) -> Result<Start, DocumentError> {
    match (delay, run_at) {
        (Some(_), Some(_)) => Err(DocumentError::new(
            "invalid_value",
            format!("{pointer}/run_at: delay and run_at are both given: give one"),
        )
        .at(format!("{pointer}/run_at"))),
        (Some(delay), None) => Ok(Start::After(delay.0)),
        (None, Some(time)) => Ok(Start::At(time.0)),
        (None, None) => Ok(Start::Now),
    }
}

fn inputs(
    given: Vec<InputIn>,
    refers: &Refers<'_>,
    pointer: &str,
) -> Result<Vec<NewInput>, DocumentError> {
    let each = given.into_iter().enumerate();
    each.map(|(place, input)| input.convert(refers, &format!("{pointer}/inputs/{place}")))
        .collect()
}

fn edges(
    given: Vec<AfterIn>,
    refers: &Refers<'_>,
    pointer: &str,
) -> Result<Vec<NewEdge>, DocumentError> {
    let each = given.into_iter().enumerate();
    each.map(|(place, after)| {
        let pointer = format!("{pointer}/after/{place}");
        match after {
            AfterIn::Short(text) => refers.named(&text, &pointer),
            AfterIn::Long(edge) => {
                let dependency =
                    refers.dependency(edge.name, edge.job, &pointer, ("name", "job"))?;
                let policy = edge.policy.unwrap_or_default().0;
                Ok(NewEdge { dependency, policy })
            }
        }
    })
    .collect()
}

impl InputIn {
    fn convert(self, refers: &Refers<'_>, pointer: &str) -> Result<NewInput, DocumentError> {
        let is_reference = self.result_of.is_some() || self.result_of_job.is_some();
        let value: Option<Bytes> = raw_json::take(self.value, self.value_base64, "value", pointer)?;
        match value {
            Some(_) if is_reference || self.policy.is_some() => Err(DocumentError::new(
                "invalid_value",
                format!("{pointer}: an input is a value or the result of a job, not both"),
            )
            .at(pointer)),
            Some(value) => Ok(NewInput::Value(value)),
            None => {
                let fields = ("result_of", "result_of_job");
                let dependency =
                    refers.dependency(self.result_of, self.result_of_job, pointer, fields)?;
                let policy = self.policy.unwrap_or_default().0;
                Ok(NewInput::Result(NewEdge { dependency, policy }))
            }
        }
    }
}

/// The context of the references of a job.
struct Refers<'a> {
    shards: &'a dyn Shards,
    members: &'a Members,
    /// Shard of the job that has the references.
    home: &'a ShardId,
}

impl Refers<'_> {
    /// The edge for a string: to the job of this name in the submission, else to an existing job.
    fn named(&self, text: &str, pointer: &str) -> Result<NewEdge, DocumentError> {
        let dependency = match self.members.get(text) {
            Some(place) => Dependency::Member(*place),
            None => {
                let job = JobReference(read(text.as_bytes()));
                self.shards.dependency(&job, self.home, pointer)?
            }
        };
        let policy = FailurePolicy::default();
        Ok(NewEdge { dependency, policy })
    }

    /// The dependency that one of two fields names.
    fn dependency(
        &self,
        member: Option<String>,
        job: Option<JobReference>,
        pointer: &str,
        fields: (&str, &str),
    ) -> Result<Dependency, DocumentError> {
        match (member, job) {
            (Some(name), None) => {
                let place = self.members.get(&name).copied();
                place.map(Dependency::Member).ok_or_else(|| {
                    let detail = format!(
                        "{pointer}: no job of this submission is named {name:?}; an existing job goes into {:?}",
                        fields.1
                    );
                    DocumentError::new("unknown_reference", detail)
                        .at(format!("{pointer}/{}", fields.0))
                })
            }
            (None, Some(job)) => {
                let pointer = format!("{pointer}/{}", fields.1);
                self.shards.dependency(&job, self.home, &pointer)
            }
            _ => {
                let (one, other) = fields;
                let detail = format!("{pointer}: give exactly one of {one:?} and {other:?}");
                Err(DocumentError::new("invalid_value", detail).at(pointer))
            }
        }
    }
}

/// The name of a job in errors: its name, else its id.
pub fn caption(name: Option<&str>, id: Option<&JobReference>) -> Option<String> {
    name.map(str::to_owned)
        .or_else(|| id.map(|id| show(&id.0).into_owned()))
}
