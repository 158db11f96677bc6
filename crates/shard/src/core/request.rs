//! What goes into the core and what comes out of it.

use std::time::Duration;

use ganger_store::StoredJob;
use ganger_types::command::{Held, Lease};
use ganger_types::{
    Command, Event, JobId, KeyWait, Namespace, Popped, QlessMessage, Queue, QueueCounts, Reply,
    RequestId, Timestamp,
};

use super::pop::UndeliveredElement;
use crate::{CallError, Delivery};

/// The name of a request that may wait; chosen by the caller, never used twice, smaller waits longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Where an answer goes: a channel in the server, a number in the simulator.
pub trait Ticket {
    /// Whether nobody waits for the answer any more.
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
    /// Takes jobs with what their programs need, waiting for the first one if need be.
    Lease {
        /// The lease request with its queues.
        lease: Box<Lease>,
        /// How long to wait.
        wait_for: Duration,
        /// Its name while it waits.
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
        /// How long to wait.
        wait_for: Duration,
        /// Its name while it waits.
        waiter: WaiterId,
        /// Where the answer goes.
        ticket: T,
    },
    /// Takes an element from the first of some lists that has one, waiting for it if need be.
    Pop {
        /// The lists to take from, and the end.
        wait: Box<KeyWait>,
        /// How long to wait; `None`: forever.
        wait_for: Option<Duration>,
        /// Its name while it waits.
        waiter: WaiterId,
        /// Where the answer goes.
        ticket: T,
    },
    /// An element that was taken for somebody who has gone: it goes back.
    ReturnElement(Box<UndeliveredElement>),
    /// The caller that waited with this id has gone.
    CancelWaiter(WaiterId),
    /// Grants that nobody picked up: they go back to their old places, uncounted.
    Undelivered {
        /// The leases that go back.
        held: Vec<Held>,
        /// The request that asked for them, if it named itself.
        request: Option<(Namespace, RequestId)>,
        /// Which lease request it was.
        waiter: WaiterId,
    },
    /// Counts of every queue, for metrics. Answered with the turn like a command.
    QueueSnapshot {
        /// Where the answer goes.
        ticket: T,
    },
}

/// A queue as metrics see it: namespace, queue, counts, age of the oldest ready job in seconds.
pub type QueueGauge = (Namespace, Queue, QueueCounts, f64);

/// What an answer gives.
#[derive(Clone, Debug, PartialEq)]
pub enum CallReply {
    /// Answer to [`Request::Call`]: the engine's reply.
    Reply(Reply),
    /// To [`Request::CallAll`], in order.
    Replies(Vec<Result<Reply, CallError>>),
    /// To [`Request::Lease`]; none when the wait was over.
    Deliveries(Vec<Delivery>),
    /// To [`Request::AwaitEnd`]: the job as it is now, or `None` if there is no such job.
    Job(Option<Box<StoredJob>>),
    /// Answer to [`Request::Pop`]: the list and the element, or none when the wait was over.
    Popped(Popped),
    /// Answer to [`Request::QueueSnapshot`]: one entry per queue.
    QueueSnapshot(Vec<QueueGauge>),
}

/// What comes out once it is durable, in order.
#[derive(Debug)]
pub enum Output<T> {
    /// An answer to the request with this ticket.
    Answer(T, Result<CallReply, CallError>),
    /// Events of one turn.
    Events(Vec<Event>),
    /// Messages of qless, of one turn, for subscribers.
    Messages(Vec<(Namespace, QlessMessage)>),
    /// Messages for other shards have come to wait.
    Outbox,
}
