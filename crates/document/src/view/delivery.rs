//! Jobs handed out, and inputs shown, as documents.

use std::collections::BTreeMap;

use ganger_types::{Bytes, FailurePolicy, Grant, InputRow, InputState, ShardId};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::names::{
    GraphName, JobName, KindName, Named, NamespaceName, QueueName, TagName, full_name,
};
use crate::one_of::{OneOf, PolicyWord};
use crate::raw_json::{self, Base64, RawJson};
use crate::time::Moment;
use crate::view::{labels, priority, tags};

/// The jobs handed out; none if nothing was ready.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Deliveries)]
pub struct DeliveriesView {
    /// Jobs that the call leased.
    pub jobs: Vec<DeliveryView>,
}

/// A job handed out, with what its program needs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryView {
    /// Id of the job, unique in its namespace.
    id: JobName,
    /// Its global name, `shard/id`.
    r#ref: String,
    /// Namespace that owns the job.
    namespace: NamespaceName,
    /// Where it lined up.
    queue: QueueName,
    /// Which program runs it.
    kind: KindName,
    /// Number of the attempt, from 1.
    attempt: u32,
    /// Counted attempts left after this one.
    retries_left: u32,
    /// The proof of the lease: send it with every report.
    token: String,
    /// The lease lasts so many seconds from now.
    lease_for_seconds: f64,
    /// The attempt may run so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<f64>,
    /// Never tried again after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Moment>,
    /// When it was enqueued.
    created_at: Moment,
    /// Priority of the job: smaller runs first.
    #[schema(value_type = f64)]
    priority: Number,
    /// The graph it was submitted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphName>,
    /// Tags of the job.
    tags: Vec<TagName>,
    /// Labels of the job: indexed key-value pairs.
    labels: BTreeMap<String, String>,
    /// Its payload, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<RawJson>,
    /// Payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<Base64>,
    /// Positional inputs; empty if the payload alone is the input.
    inputs: Vec<ValueView>,
}

/// A value: JSON, or other bytes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Value)]
pub struct ValueView {
    /// If it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<RawJson>,
    /// Value in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<Base64>,
}

fn value(bytes: &Bytes) -> ValueView {
    let (value, value_base64) = raw_json::show(bytes);
    ValueView {
        value,
        value_base64,
    }
}

/// A job handed out.
pub fn view(shard: &ShardId, grant: Grant, payload: &Bytes, inputs: &[Bytes]) -> DeliveryView {
    let (payload, payload_base64) = raw_json::show(payload);
    DeliveryView {
        r#ref: full_name(shard, &grant.job),
        id: Named(grant.job),
        namespace: Named(grant.namespace),
        queue: Named(grant.queue),
        kind: Named(grant.kind),
        attempt: grant.attempt,
        retries_left: grant.retries_left,
        token: grant.token.to_string(),
        lease_for_seconds: grant.lease_for.as_secs_f64(),
        timeout_seconds: grant.timeout.map(|timeout| timeout.as_secs_f64()),
        deadline: grant.deadline.map(Moment),
        created_at: Moment(grant.created_at),
        priority: priority(grant.priority),
        graph: grant.graph.map(Named),
        tags: tags(&grant.tags),
        labels: labels(&grant.labels),
        payload,
        payload_base64,
        inputs: inputs.iter().map(value).collect(),
    }
}

/// Inputs and dependencies of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Inputs)]
pub struct InputsView {
    /// In order of their positions; dependencies without data come last.
    pub inputs: Vec<InputView>,
    /// Give this as `from` for more; absent if there is no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// One input or dependency.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Input)]
pub struct InputView {
    /// Its position among the inputs; absent for a dependency without data.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u32>,
    /// value, missing, delivered, ignored.
    state: &'static str,
    /// If it is a value and JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<RawJson>,
    /// If it is another value.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<Base64>,
    /// The job whose result it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobName>,
    /// What that job's failure means: fail, wait, ignore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyWord>,
}

/// Converts one input of a job.
pub fn input(row: InputRow) -> InputView {
    let position = (row.slot < InputRow::EDGE_FIRST).then_some(row.slot);
    let plain = |state| InputView {
        position,
        state,
        value: None,
        value_base64: None,
        job: None,
        policy: None,
    };
    match row.state {
        InputState::Value(bytes) => {
            let (value, value_base64) = raw_json::show(&bytes);
            InputView {
                value,
                value_base64,
                ..plain("value")
            }
        }
        InputState::Missing {
            id, policy: means, ..
        } => InputView {
            job: Some(Named(id)),
            policy: Some(OneOf(means)),
            ..plain("missing")
        },
        InputState::Delivered {
            id, policy: means, ..
        } => InputView {
            job: Some(Named(id)),
            policy: Some(OneOf(means)),
            ..plain("delivered")
        },
        InputState::Ignored { id } => InputView {
            job: Some(Named(id)),
            policy: Some(OneOf(FailurePolicy::Ignore)),
            ..plain("ignored")
        },
        InputState::Remote {
            dependency,
            policy: means,
            ..
        } => InputView {
            job: Some(Named(dependency.to_name())),
            policy: Some(OneOf(means)),
            ..plain("missing")
        },
        InputState::Received {
            dependency,
            policy: means,
            value,
        } => {
            let (value, value_base64) = raw_json::show(&value);
            InputView {
                job: Some(Named(dependency.to_name())),
                policy: Some(OneOf(means)),
                value,
                value_base64,
                ..plain("delivered")
            }
        }
    }
}
