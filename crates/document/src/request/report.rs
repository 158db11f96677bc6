//! Reports on leased jobs, as documents.

use std::borrow::Cow;

use ganger_types::command::{AppendLog, Complete, Fail, LeaseRef, Next, Release, Renew};
use ganger_types::reference::read_held;
use ganger_types::{Bytes, Command, Group, LeaseToken, Namespace, Progress};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::DocumentError;
use crate::names::{GroupName, JobReference, QueueName};
use crate::raw_json::{self, Base64, RawJson};
use crate::reference::Shards;
use crate::time::Span;

/// A report that becomes a command.
pub trait Report: Sized {
    /// Converts the report to a command. `pointer` is its place in the body.
    ///
    /// # Errors
    /// If a field is out of its range or a reference is of another shard; the error names the field.
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError>;
}

/// A lease token on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Token(pub LeaseToken);

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        LeaseToken::parse(&text).map(Self).ok_or_else(|| {
            D::Error::custom("a lease token is the 56 hexadecimal digits that came with the job")
        })
    }
}

impl PartialSchema for Token {
    fn schema() -> RefOr<Schema> {
        let about = "The proof of a lease: 56 hexadecimal digits.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for Token {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("LeaseToken")
    }
}

/// The lease that a report is about.
fn held(
    shards: &dyn Shards,
    namespace: &Namespace,
    pointer: &str,
    job: &JobReference,
    token: Token,
) -> Result<LeaseRef, DocumentError> {
    let job = read_held(&job.0, shards.own()).map_err(|error| {
        let pointer = format!("{pointer}/job");
        DocumentError::new("invalid_value", format!("{pointer}: {error}")).at(pointer)
    })?;
    Ok(LeaseRef {
        namespace: namespace.clone(),
        job,
        token: token.0,
    })
}

/// Progress of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"fraction\": 0.5, \"message\": \"...\"}"
)]
#[schema(as = NewProgress)]
struct ProgressIn {
    /// Part that is done, from 0 to 1.
    fraction: f64,
    /// What the job is doing, for people.
    #[serde(default)]
    message: String,
}

/// Renewal of a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"job\": \"a1\", \"token\": \"...\"}"
)]
#[schema(as = Renew)]
pub struct RenewIn {
    /// Id of the job whose lease to renew.
    job: JobReference,
    /// Token of the lease, from the delivery.
    token: Token,
    /// Length of the lease from now on; as granted if absent.
    lease_for: Option<Span>,
    /// Progress of the job; as before if absent.
    progress: Option<ProgressIn>,
    /// New payload of the job, as JSON; the payload stays if both forms are absent.
    #[serde(default, deserialize_with = "raw_json::given")]
    payload: Option<RawJson>,
    /// New payload of the job, as base64.
    payload_base64: Option<Base64>,
}

impl Report for RenewIn {
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError> {
        let progress = self
            .progress
            .map(|given| given.convert(pointer))
            .transpose()?;
        Ok(Command::Renew(Box::new(Renew {
            held: held(shards, namespace, pointer, &self.job, self.token)?,
            lease_for: self.lease_for.map(|span| span.0),
            progress,
            payload: raw_json::take(self.payload, self.payload_base64, "payload", pointer)?,
        })))
    }
}

impl ProgressIn {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the fraction is checked to lie between 0 and 1"
    )]
    fn convert(self, pointer: &str) -> Result<Progress, DocumentError> {
        if !(0.0..=1.0).contains(&self.fraction) {
            return Err(DocumentError::new(
                "invalid_value",
                format!(
                    "{pointer}/progress/fraction: must be from 0 to 1, not {}",
                    self.fraction
                ),
            )
            .at(format!("{pointer}/progress/fraction")));
        }
        let millionths = (self.fraction * 1e6).round() as u32;
        Ok(Progress {
            millionths,
            message: self.message,
        })
    }
}

/// Ends an attempt with success.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"job\": \"a1\", \"token\": \"...\", \"result\": 1}"
)]
#[schema(as = Complete)]
pub struct CompleteIn {
    /// Id of the job that is complete.
    job: JobReference,
    /// Token of the lease, from the delivery.
    token: Token,
    /// Result: any JSON value, kept as its exact text.
    #[serde(default, deserialize_with = "raw_json::given")]
    result: Option<RawJson>,
    /// Result as base64, instead of `result`.
    result_base64: Option<Base64>,
    /// Queue in which the job continues instead of ending; it ends if absent.
    next: Option<NextIn>,
}

/// Where a completed job continues.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"queue\": \"mail\"}"
)]
#[schema(as = Next)]
struct NextIn {
    /// Queue in which the job continues.
    queue: QueueName,
    /// Delay before the job is ready in that queue; none if absent.
    delay: Option<Span>,
    /// Ids of jobs that must succeed first; none if absent.
    #[serde(default)]
    after: Vec<JobReference>,
    /// New payload of the job, as JSON; the payload stays if both forms are absent.
    #[serde(default, deserialize_with = "raw_json::given")]
    payload: Option<RawJson>,
    /// New payload of the job, as base64.
    payload_base64: Option<Base64>,
}

impl NextIn {
    fn convert(self, shards: &dyn Shards, pointer: &str) -> Result<Next, DocumentError> {
        let pointer = format!("{pointer}/next");
        Ok(Next {
            queue: self.queue.0,
            delay: self.delay.map(|span| span.0).unwrap_or_default(),
            after: shards.own_jobs(&self.after, &format!("{pointer}/after"))?,
            payload: raw_json::take(self.payload, self.payload_base64, "payload", &pointer)?,
        })
    }
}

impl Report for CompleteIn {
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError> {
        Ok(Command::Complete(Box::new(Complete {
            held: held(shards, namespace, pointer, &self.job, self.token)?,
            result: raw_json::take(self.result, self.result_base64, "result", pointer)?,
            next: self
                .next
                .map(|next| next.convert(shards, pointer))
                .transpose()?,
        })))
    }
}

/// Ends an attempt with a failure.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"job\": \"a1\", \"token\": \"...\", \"message\": \"no such file\"}"
)]
#[schema(as = Fail)]
pub struct FailIn {
    /// Id of the job whose attempt failed.
    job: JobReference,
    /// Token of the lease, from the delivery.
    token: Token,
    /// Group of the failure: failures with one cause share it; `error` if absent.
    group: Option<GroupName>,
    /// Message of the failure, for people; empty if absent.
    #[serde(default)]
    message: String,
    /// Whether to fail the job without further retries.
    #[serde(default)]
    permanent: bool,
    /// Pause before the next retry; as the retry policy says if absent.
    retry_after: Option<Span>,
    /// Whether the worker or its program died. The job then continues at once as if its lease had expired, and the
    /// other fields are ignored.
    #[serde(default)]
    lost: bool,
}

impl Report for FailIn {
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError> {
        Ok(Command::Fail(Box::new(Fail {
            held: held(shards, namespace, pointer, &self.job, self.token)?,
            group: self
                .group
                .map_or_else(|| Group::from_static("error"), |group| group.0),
            message: self.message,
            permanent: self.permanent,
            retry_after: self.retry_after.map(|span| span.0),
            lost: self.lost,
        })))
    }
}

/// Gives a leased job back to its queue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"job\": \"a1\", \"token\": \"...\"}"
)]
#[schema(as = Release)]
pub struct ReleaseIn {
    /// Id of the job to release.
    job: JobReference,
    /// Token of the lease, from the delivery.
    token: Token,
    /// Delay before the job is ready again; none if absent.
    delay: Option<Span>,
    /// Whether the attempt counts against the retries.
    #[serde(default)]
    counted: bool,
    /// Whether the job returns to its old position instead of the end of the queue.
    #[serde(default)]
    keep_place: bool,
    /// Reason of the release, for people; empty if absent.
    #[serde(default)]
    reason: String,
}

impl Report for ReleaseIn {
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError> {
        Ok(Command::Release(Box::new(Release {
            held: held(shards, namespace, pointer, &self.job, self.token)?,
            delay: self.delay.map(|span| span.0).unwrap_or_default(),
            counted: self.counted,
            by_server: false,
            keep_place: self.keep_place,
            reason: self.reason,
        })))
    }
}

/// Appends to the log of an attempt: `text` or `data_base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"job\": \"a1\", \"token\": \"...\", \"offset\": 0, \"text\": \"...\"}"
)]
#[schema(as = AppendLog)]
pub struct LogIn {
    /// Id of the job that writes the log.
    job: JobReference,
    /// Token of the lease, from the delivery.
    token: Token,
    /// Position of the chunk in the log of this attempt, by which the server recognises a repeat.
    offset: u64,
    /// Chunk of the log, as text.
    text: Option<String>,
    /// Chunk of the log, as arbitrary bytes in base64.
    data_base64: Option<Base64>,
}

impl Report for LogIn {
    fn convert(
        self,
        shards: &dyn Shards,
        namespace: &Namespace,
        pointer: &str,
    ) -> Result<Command, DocumentError> {
        let bytes = match (self.text, self.data_base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(data)) => data.0,
            _ => {
                let detail = format!("{pointer}: give exactly one of \"text\" and \"data_base64\"");
                return Err(DocumentError::new("invalid_value", detail).at(pointer));
            }
        };
        Ok(Command::AppendLog(Box::new(AppendLog {
            held: held(shards, namespace, pointer, &self.job, self.token)?,
            offset: self.offset,
            bytes,
        })))
    }
}
