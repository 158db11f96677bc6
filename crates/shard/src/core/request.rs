//! The core's requests and outputs.

use std::time::Duration;

use ganger_store::StoredJob;
use ganger_types::command::{Lease, LeaseRef};
use ganger_types::{
    Command, Event, ExternalMessage, JobId, KeyWait, Namespace, Popped, Queue, QueueCounts, Reply,
    RequestId, Timestamp,
};

use super::external::UndeliveredElement;
use crate::{CallError, Delivery};

/// Identifies a request that may wait. The caller chooses it and never reuses it; a smaller id has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Identifies where a reply goes: a channel in the server, a number in the simulator.
pub trait Ticket {
    /// Whether the caller has gone.
    fn is_gone(&self) -> bool {
        false
    }
}

impl Ticket for u64 {}

/// A request to the shard.
#[derive(Debug)]
pub enum Request<T> {
    /// Applies one command to the engine.
    Call {
        /// The command to apply.
        command: Command,
        /// The caller's time, for namespaces that run on their callers' clocks.
        at: Option<Timestamp>,
        /// Where the answer goes.
        ticket: T,
    },
    /// Applies commands in order, within one turn.
    CallAll {
        /// The commands in the order of application.
        commands: Vec<Command>,
        /// Where the answers go.
        ticket: T,
    },
    /// Leases jobs with what their programs need, and waits for the first one if there is none.
    Lease {
        /// The lease request with its queues.
        lease: Box<Lease>,
        /// Maximum time to wait.
        wait_for: Duration,
        /// Id of the request while it waits.
        waiter: WaiterId,
        /// Where the answer goes.
        ticket: T,
    },
    /// Waits until a job has ended.
    AwaitEnd {
        /// The namespace that owns the job.
        namespace: Namespace,
        /// The id of the job.
        id: JobId,
        /// Maximum time to wait.
        wait_for: Duration,
        /// Id of the request while it waits.
        waiter: WaiterId,
        /// Where the answer goes.
        ticket: T,
    },
    /// Takes an element from the first of some lists that has one, waiting for it if need be.
    Pop {
        /// The lists to take from, and at which end.
        wait: Box<KeyWait>,
        /// Maximum time to wait; `None` for no limit.
        wait_for: Option<Duration>,
        /// Id of the request while it waits.
        waiter: WaiterId,
        /// Where the answer goes.
        ticket: T,
    },
    /// Puts back an element that was taken for a client that has gone.
    ReturnElement(Box<UndeliveredElement>),
    /// Removes the waiting request whose caller has gone.
    CancelWaiter(WaiterId),
    /// Releases grants whose caller has gone. The jobs go back to their old positions, and the attempts do not count.
    Undelivered {
        /// The leases to release.
        held: Vec<LeaseRef>,
        /// The request id of the lease request; `None` if it had none.
        request: Option<(Namespace, RequestId)>,
        /// The id of the lease request while it waited.
        waiter: WaiterId,
    },
    /// Counts every queue, for metrics. Answered with the turn like a command.
    QueueSnapshot {
        /// Where the answer goes.
        ticket: T,
    },
}

impl<T> Request<T> {
    /// Whether the request takes ready jobs of a queue.
    pub(super) fn takes_jobs(&self) -> bool {
        match self {
            Self::Lease { .. } => true,
            Self::Call { command, .. } => matches!(command, Command::Lease(_)),
            Self::CallAll { commands, .. } => commands
                .iter()
                .any(|command| matches!(command, Command::Lease(_))),
            _ => false,
        }
    }
}

/// Metrics of a queue: namespace, queue, counts, age of the oldest ready job in seconds.
pub type QueueGauge = (Namespace, Queue, QueueCounts, f64);

/// A reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum CallReply {
    /// Answer to [`Request::Call`]: the engine's reply.
    Reply(Reply),
    /// Answer to [`Request::CallAll`]: one reply per command, in order.
    Replies(Vec<Result<Reply, CallError>>),
    /// Answer to [`Request::Lease`]; empty if the wait ended without a job.
    Deliveries(Vec<Delivery>),
    /// Answer to [`Request::AwaitEnd`]: the job as it is now, or `None` if there is no such job.
    Job(Option<Box<StoredJob>>),
    /// Answer to [`Request::Pop`]: the list and the element, or none if the wait ended without an element.
    Popped(Popped),
    /// Answer to [`Request::QueueSnapshot`]: one entry per queue.
    QueueSnapshot(Vec<QueueGauge>),
}

/// Outputs of the core, in order; each is durable.
#[derive(Debug)]
pub enum Output<T> {
    /// An answer to the request with this ticket.
    Answer(T, Result<CallReply, CallError>),
    /// Events of one turn.
    Events(Vec<Event>),
    /// Messages for subscribers of external systems, from one turn.
    Messages(Vec<ExternalMessage>),
    /// New messages for other shards are in the outbox.
    Outbox,
    /// An operation has begun, made progress or ended.
    Operations,
}
