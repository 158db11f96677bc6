//! Jobs handed out, as documents.

use std::collections::BTreeMap;

use ganger_types::{Bytes, Grant, ShardId};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::names::{
    GraphName, JobName, KindName, Named, NamespaceName, QueueName, TagName, full_name,
};
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
