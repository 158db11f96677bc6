//! What a page asks every shard of its view, wherever the shard is.
//!
//! A question about a shard of another server is sent to the dashboard there, on behalf of the viewer, and answered like
//! one about a shard here: with the viewer's rights, and when it is its turn. Questions and answers are JSON. Servers of
//! two versions may not understand each other; then the shard counts as one that cannot be reached.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use ganger_access::{Outcome, Record};
use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_types::{Namespace, ShardId};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::fault::Fault;
use crate::format::span;
use crate::links::Links;
use crate::view::{SHARD_WAIT, View, silent};

/// Path of questions below `/ui`.
pub(crate) const PATH: &str = "/ask";
/// Parameter with the name of the question.
pub(crate) const WHAT: &str = "what";
/// Bytes of a question.
pub(crate) const QUESTION_BYTES_MAX: usize = 256 << 10;
/// Characters of what was changed in a line of the audit log.
pub(crate) const TARGET_CHARACTERS: usize = 1_000;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// A question that any shard can be asked.
pub(crate) trait Question: Serialize + DeserializeOwned + Send + Sync {
    /// Its name between servers.
    const NAME: &'static str;
    /// Whether asking changes something.
    const IS_CHANGE: bool = false;
    /// How long a page waits for the answer of one shard.
    const WAIT: Duration = SHARD_WAIT;
    /// What a shard answers.
    type Answer: Serialize + DeserializeOwned + Send;

    /// The operation of the API whose right the viewer needs in the namespace of the view.
    fn operation(&self) -> &'static str;

    /// What it changes, for the audit log.
    fn target(&self) -> String {
        String::new()
    }

    /// Asks a shard of this process.
    fn ask(
        &self,
        view: &View,
        shard: &Handle,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}

/// A shard of a view.
#[derive(Clone)]
pub(crate) enum Shard {
    /// One that this process runs.
    Here(Handle),
    /// One that another server or node runs.
    Elsewhere(ShardId),
}

impl Shard {
    pub(crate) fn id(&self) -> &ShardId {
        match self {
            Self::Here(shard) => shard.id(),
            Self::Elsewhere(shard) => shard,
        }
    }

    /// Asks it, at most for [`Question::WAIT`]. If it does not answer, the fault has the code `unavailable`.
    pub(crate) async fn ask<Q: Question>(
        &self,
        view: &View,
        question: &Q,
    ) -> Result<Q::Answer, Fault> {
        let answer = async {
            match self {
                Self::Here(shard) => question.ask(view, shard).await,
                Self::Elsewhere(shard) => ask_elsewhere(view, shard, question).await,
            }
        };
        let answer = timeout(Q::WAIT, answer).await;
        answer.unwrap_or_else(|_| {
            Err(match self {
                Self::Here(shard) => silent(shard, Q::WAIT),
                Self::Elsewhere(shard) => unanswered::<Q>(shard, &late(Q::WAIT)),
            })
        })
    }
}

async fn ask_elsewhere<Q: Question>(
    view: &View,
    shard: &ShardId,
    question: &Q,
) -> Result<Q::Answer, Fault> {
    let wrong = |reason: String| unanswered::<Q>(shard, &reason);
    let body = serde_json::to_vec(question).map_err(|error| wrong(error.to_string()))?;
    let request = request::<Q>(view.namespace(), shard, body);
    let others = view.site.settings.others.as_deref();
    let others = others.ok_or_else(|| wrong("this server knows no others".to_owned()))?;
    let answer = others.send(shard, request, view.rights.identity()).await;
    let answer = answer.map_err(wrong)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
    let body = body.await.map_err(|error| wrong(error.to_string()))?;
    let body = body.to_bytes();
    if status != StatusCode::OK {
        let Ok(refusal) = serde_json::from_slice::<Refusal>(&body) else {
            return Err(wrong(format!("its server answered {status}")));
        };
        return Err(refusal.into_fault(shard, status));
    }
    serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))
}

/// Why another server did not answer a question.
#[derive(Serialize, Deserialize)]
pub(crate) struct Refusal {
    heading: String,
    detail: String,
}

impl From<&Fault> for Refusal {
    fn from(fault: &Fault) -> Self {
        Self {
            heading: fault.heading.clone(),
            detail: fault.detail.clone(),
        }
    }
}

impl Refusal {
    /// The fault here: a page of several shards goes on without one whose server cannot answer now.
    fn into_fault(self, shard: &ShardId, status: StatusCode) -> Fault {
        let heading = format!("Shard {shard}: {}", self.heading);
        match status {
            StatusCode::FORBIDDEN => Fault::new("permission_denied", heading, self.detail),
            StatusCode::TOO_MANY_REQUESTS => Fault::new("overloaded", heading, self.detail),
            _ if status.is_client_error() => Fault::new("invalid_value", heading, self.detail),
            _ => {
                Fault::new("unavailable", heading, self.detail).retry_after(Duration::from_secs(1))
            }
        }
    }
}

fn request<Q: Question>(namespace: &Namespace, shard: &ShardId, body: Vec<u8>) -> Request<Body> {
    let links = Links::new("".into(), namespace.clone(), Some(shard.clone()));
    let address = links.to(PATH).with(WHAT, Q::NAME);
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = http::Method::POST;
    // An address of ours is one.
    *request.uri_mut() = address.as_str().parse().unwrap_or_default();
    request
}

fn late(wait: Duration) -> String {
    format!("its server has not answered within {}", span(wait))
}

/// No answer came. What was asked to change may have been changed all the same.
fn unanswered<Q: Question>(shard: &ShardId, reason: &str) -> Fault {
    let heading = format!("Shard {shard} cannot be reached");
    let detail = if Q::IS_CHANGE {
        format!("{reason}; whether it was done there is not known, so look before you repeat it")
    } else {
        reason.to_owned()
    };
    Fault::new("unavailable", heading, detail).retry_after(Duration::from_secs(1))
}

/// Answers a question of another server about a shard of this one, the only one of the view.
pub(crate) async fn answer<Q: Question>(view: &View, question: &[u8]) -> Result<Bytes, Fault> {
    let question: Q = serde_json::from_slice(question)
        .map_err(|error| Fault::value("question", &error.to_string()))?;
    let done = answer_checked(view, &question).await;
    if Q::IS_CHANGE {
        record(view, &question, done.as_ref().err());
    }
    let answer = serde_json::to_vec(&done?);
    let answer = answer.map_err(|error| Fault::value("answer", &error.to_string()))?;
    Ok(answer.into())
}

async fn answer_checked<Q: Question>(view: &View, question: &Q) -> Result<Q::Answer, Fault> {
    view.rights.check(question.operation())?;
    if Q::IS_CHANGE && view.rights.is_read_only() {
        return Err(read_only());
    }
    let shard = view.shards().first();
    let shard = shard.ok_or_else(|| Fault::value("shard", "is missing"))?;
    question.ask(view, shard).await
}

/// Nobody may change anything here.
pub(crate) fn read_only() -> Fault {
    Fault::new(
        "permission_denied",
        "This dashboard is read only",
        "The setting ui.read_only allows nobody to change anything here.",
    )
}

/// Writes a change that another server asked for into the audit log.
fn record<Q: Question>(view: &View, question: &Q, fault: Option<&Fault>) {
    let outcome = match fault {
        None => Outcome::Done,
        Some(fault) if fault.code == "permission_denied" => Outcome::Denied,
        Some(_) => Outcome::Refused,
    };
    let who = view.rights.identity().to_string();
    view.site.settings.audit.write(&Record {
        on: Some(question.target().chars().take(TARGET_CHARACTERS).collect()),
        namespace: Some(show(view.namespace().as_bytes()).into_owned()),
        detail: fault.map(|fault| fault.code.to_owned()),
        via: Some("ui"),
        ..Record::new(who, question.operation(), outcome)
    });
}
