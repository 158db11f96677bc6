//! The worker within the server: leases messages of alerts, posts them, and reports what came of it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ganger_attention::alert::{Alerts, NAMESPACE, QUEUE, alert_of};
use ganger_shard::{Delivery, Handle};
use ganger_types::command::{Complete, Fail, Lease, LeaseRef, TakeFrom};
use ganger_types::{Bytes, Command, Group, Namespace, Queue, Worker};

use super::webhook;

/// Messages that are sent at once.
const AT_ONCE: u32 = 4;
/// Length of a lease: longer than a try takes.
const LEASE_FOR: Duration = Duration::from_secs(60);
/// Longest wait for messages in one request.
const WAIT: Duration = Duration::from_secs(30);
/// Pause after a lease request that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Delivers messages until the task is dropped or the shard ends.
pub(super) async fn run(shard: Handle, alerts: Arc<Alerts>) {
    let worker = format!("alerts of shard {}", shard.id());
    let lease = Lease {
        namespace: Namespace::from_static(NAMESPACE),
        queues: vec![TakeFrom {
            queue: Queue::from_static(QUEUE),
            weight: 1,
        }],
        worker: Worker::new(worker).ok(),
        jobs_max: AT_ONCE,
        lease_for: Some(LEASE_FOR),
        ..Lease::default()
    };
    loop {
        match shard.lease(lease.clone(), WAIT).await {
            Ok(deliveries) => {
                let each = deliveries
                    .into_iter()
                    .map(|delivery| one(&shard, &alerts, delivery));
                join_all(each).await;
            }
            Err(error) => {
                tracing::debug!(%error, "messages of alerts cannot be leased");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn one(shard: &Handle, alerts: &Alerts, delivery: Delivery) {
    let id = delivery.grant.job.to_text().into_owned();
    let held = LeaseRef {
        namespace: Namespace::from_static(NAMESPACE),
        job: delivery.grant.job.clone(),
        token: delivery.grant.token,
    };
    let name = alert_of(&delivery.payload).unwrap_or_default();
    let webhook = alerts.find(&name).and_then(|alert| alert.webhook.as_ref());
    let command = match webhook {
        None => fail(
            held,
            "the configuration has no webhook for this alert any more".to_owned(),
            true,
        ),
        Some(webhook) => {
            let result = webhook::post(webhook, &id, delivery.payload).await;
            alerts.tried(&name, result.as_ref().map(|_| ()).map_err(Clone::clone));
            match result {
                Ok(status) => Command::Complete(Box::new(Complete {
                    held,
                    result: Some(Bytes::from(status.as_u16().to_string())),
                    next: None,
                })),
                Err(reason) => {
                    tracing::warn!(
                        alert = name,
                        reason,
                        "a message of an alert was not delivered"
                    );
                    fail(held, reason, false)
                }
            }
        }
    };
    if let Err(error) = shard.call(command).await {
        // The lease expires, and the message is sent again: receivers know it by its id.
        tracing::warn!(alert = name, %error, "the delivery of a message cannot be recorded");
    }
}

fn fail(held: LeaseRef, message: String, permanent: bool) -> Command {
    Command::Fail(Box::new(Fail {
        held,
        group: Group::from_static("webhook"),
        message,
        permanent,
        retry_after: None,
        lost: false,
    }))
}
