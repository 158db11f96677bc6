//! Leased jobs.

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

/// The answer to a lease request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Deliveries)]
pub struct DeliveriesView {
    /// Leased jobs; empty if none was ready.
    pub jobs: Vec<DeliveryView>,
}

/// A leased job with everything that its program needs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryView {
    /// Id of the job, unique in its namespace.
    id: JobName,
    /// Global name of the job, `shard/id`.
    r#ref: String,
    /// Namespace that owns the job.
    namespace: NamespaceName,
    /// Queue of the job.
    queue: QueueName,
    /// Kind of the job: the program that runs it.
    kind: KindName,
    /// Number of the attempt, from 1.
    attempt: u32,
    /// Number of retries left after this attempt.
    retries_left: u32,
    /// Token of the lease, to send with every report.
    token: String,
    /// Length of the lease from now, in seconds.
    lease_for_seconds: f64,
    /// Maximum time of the attempt in seconds; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<f64>,
    /// Time after which no attempt is started; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Moment>,
    /// Time at which the job was enqueued.
    created_at: Moment,
    /// Priority of the job: smaller runs first.
    #[schema(value_type = f64)]
    priority: Number,
    /// Graph of the job; absent if it belongs to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphName>,
    /// Tags of the job.
    tags: Vec<TagName>,
    /// Labels of the job: indexed key-value pairs.
    labels: BTreeMap<String, String>,
    /// Payload, if it is JSON.
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
    /// Value, if it is JSON.
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

/// The document of a leased job.
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
