//! What goes into the core and what comes out of it.

use std::time::Duration;

use ganger_store::StoredJob;
use ganger_types::command::{Held, Lease, NewInput, NewJob};
use ganger_types::keys::KeyCall;
use ganger_types::{
    Bytes, Carried, Command, Event, ImportRecord, JobId, KeyWait, Message, Namespace, OutboxRecord,
    Popped, QlessMessage, Queue, QueueCounts, Reply, RequestId, Timestamp,
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
    /// Applies one command.
    Call {
        /// It.
        command: Command,
        /// The caller's time, for namespaces that run on their callers' clocks.
        at: Option<Timestamp>,
        /// Where the answer goes.
        ticket: T,
    },
    /// Applies commands in order, within one turn.
    CallAll {
        /// They.
        commands: Vec<Command>,
        /// Where the answers go.
        ticket: T,
    },
    /// Takes jobs with what their programs need, waiting for the first one if need be.
    Lease {
        /// It.
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
        /// Whose.
        namespace: Namespace,
        /// Which.
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
        /// From where.
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
        /// The leases.
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
    /// To [`Request::Call`].
    Reply(Reply),
    /// To [`Request::CallAll`], in order.
    Replies(Vec<Result<Reply, CallError>>),
    /// To [`Request::Lease`]; none when the wait was over.
    Deliveries(Vec<Delivery>),
    /// To [`Request::AwaitEnd`]: the job as it is now, or `None` if there is no such job.
    Job(Option<Box<StoredJob>>),
    /// To [`Request::Pop`].
    Popped(Popped),
    /// To [`Request::QueueSnapshot`].
    QueueSnapshot(Vec<QueueGauge>),
}

/// What comes out once it is durable, in order.
#[derive(Debug)]
pub enum Output<T> {
    /// An answer.
    Answer(T, Result<CallReply, CallError>),
    /// Events of one turn.
    Events(Vec<Event>),
    /// Messages of qless, of one turn, for subscribers.
    Messages(Vec<(Namespace, QlessMessage)>),
    /// Messages for other shards have come to wait.
    Outbox,
}

/// Whether a command moves no jobs by itself, so that it needs no time of its own.
pub(super) fn is_setting(command: &Command) -> bool {
    matches!(
        command,
        Command::ConfigureQueue(_) | Command::ForgetQueue(_) | Command::ConfigureNamespace(_)
    )
}

/// Whether a command brings new work, which a full device refuses (`rel D9`).
pub(super) fn is_new_work(command: &Command) -> bool {
    match command {
        Command::Enqueue(_)
        | Command::PutSchedule(_)
        | Command::Prepare(_)
        | Command::Import(_) => true,
        Command::Keys(cmd) => cmd.calls.iter().any(KeyCall::is_new),
        Command::Qless(call) => call.request.is_new(),
        _ => false,
    }
}

/// Bytes of payloads that a command carries, to bound what is in flight.
pub(crate) fn bytes_of(command: &Command) -> usize {
    match command {
        Command::Enqueue(cmd) => bytes_of_jobs(&cmd.jobs),
        Command::Prepare(part) => bytes_of_jobs(&part.jobs),
        Command::Receive(cmd) => cmd.messages.iter().map(bytes_of_message).sum(),
        Command::Complete(cmd) => {
            let next = cmd.next.as_ref().and_then(|next| next.payload.as_ref());
            cmd.result.as_ref().map_or(0, Bytes::len) + next.map_or(0, Bytes::len)
        }
        Command::Renew(cmd) => cmd.payload.as_ref().map_or(0, Bytes::len),
        Command::Alter(cmd) => cmd.payload.as_ref().map_or(0, Bytes::len),
        Command::AppendLog(cmd) => cmd.bytes.len(),
        Command::PutSchedule(cmd) => cmd.schedule.payload.len(),
        Command::Keys(cmd) => cmd.calls.iter().map(KeyCall::bytes).sum(),
        Command::Qless(call) => call.request.bytes(),
        Command::Import(cmd) => cmd.records.iter().map(ImportRecord::bytes).sum(),
        _ => 0,
    }
}

fn bytes_of_jobs(jobs: &[NewJob]) -> usize {
    let of_input = |input: &NewInput| match input {
        NewInput::Value(bytes) => bytes.len(),
        NewInput::Result(_) => 0,
    };
    jobs.iter()
        .map(|job| job.payload.len() + job.inputs.iter().map(of_input).sum::<usize>())
        .sum()
}

fn bytes_of_message(record: &OutboxRecord) -> usize {
    match &record.message {
        Message::Ended {
            result: Carried::Bytes(bytes),
            ..
        } => bytes.len(),
        _ => 0,
    }
}
