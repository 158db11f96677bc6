//! A lease request, as a document.

use std::time::Duration;

use ganger_types::command::{Lease, TakeFrom};
use ganger_types::{Namespace, Queue};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::names::{QueueName, RequestName, WorkerName};
use crate::one_of::TakeModeWord;
use crate::short::{ShortOr, or_string};
use crate::time::Span;

/// Leases jobs to a worker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"worker\": \"me\", \"queues\": [\"mail\"], \"wait\": \"30s\"}"
)]
#[schema(as = LeaseRequest)]
pub struct LeaseIn {
    /// Queues to lease from; the queue `default` if absent.
    queues: Option<Vec<FromIn>>,
    /// How to choose among several queues; `ordered` if absent.
    #[serde(default)]
    mode: TakeModeWord,
    /// Name of the worker that will hold the leases.
    worker: WorkerName,
    /// Maximum number of jobs; 1 if absent.
    max: Option<u32>,
    /// Length of the leases; the queue's if absent.
    lease_for: Option<Span>,
    /// Maximum time to wait for the first job; 0 if absent.
    wait: Option<Span>,
    /// Id of the request: a repeat under the same id gets the same jobs while their leases live.
    request_id: Option<RequestName>,
}

/// A queue to lease from.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseQueue)]
pub struct QueueIn {
    /// Name of the queue to lease from.
    queue: QueueName,
    /// Share of the queue under `weighted`; 1 if absent.
    weight: Option<u32>,
}

/// A queue to lease from. A string is its name.
#[derive(Debug)]
pub struct FromIn(QueueIn);

impl ShortOr for FromIn {
    type Long = QueueIn;
    const EXPECTED: &'static str =
        "the name of a queue, or an object such as {\"queue\": \"mail\", \"weight\": 2}";

    fn short<E: serde::de::Error>(text: &str) -> Result<Self, E> {
        let queue = QueueName::from_text(text).map_err(E::custom)?;
        Ok(Self(QueueIn {
            queue,
            weight: None,
        }))
    }

    fn long(queue: QueueIn) -> Self {
        Self(queue)
    }
}
or_string!(FromIn as "LeaseFrom");

impl LeaseIn {
    /// Converts the document to the command and the time to wait.
    pub fn convert(self, namespace: Namespace) -> (Lease, Duration) {
        let queues = match self.queues {
            None => vec![TakeFrom {
                queue: Queue::default(),
                weight: 1,
            }],
            Some(given) => given
                .into_iter()
                .map(|FromIn(it)| TakeFrom {
                    queue: it.queue.0,
                    weight: it.weight.unwrap_or(1),
                })
                .collect(),
        };
        let lease = Lease {
            namespace,
            queues,
            mode: self.mode.0,
            worker: Some(self.worker.0),
            jobs_max: self.max.unwrap_or(1),
            lease_for: self.lease_for.map(|span| span.0),
            request: self.request_id.map(|id| id.0),
        };
        (lease, self.wait.map_or(Duration::ZERO, |span| span.0))
    }
}
