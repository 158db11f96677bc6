//! Reply channels to the tasks that called.

mod external;

use std::sync::{Arc, Mutex, PoisonError};

use ganger_store::StoredJob;
use ganger_types::command::LeaseRef;
use ganger_types::{Grant, Namespace, Reply, RequestId};

use crate::admission::Permit;
use crate::core::{CallReply, QueueGauge, Request, Ticket, WaiterId};
use crate::inbox::InboxSender;
use crate::reply_slot::{self, Wake};
use crate::{CallError, Delivery};
pub(crate) use external::{PopOrigin, UndeliveredPop};

/// A message for the shard thread.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all messages are requests, and none is kept"
)]
pub(crate) enum ThreadMessage {
    /// A request from a caller.
    Request(Request<ReplyChannel>),
    /// Requests that one turn applies, in order.
    Requests(Vec<Request<ReplyChannel>>),
    /// The store has reported, or the clock was moved: the core must run.
    Look,
    /// The shard is asked to stop.
    Stop,
}

/// Place for the reply to a call.
type Answer<V> = reply_slot::Answer<Result<V, CallError>>;

/// The last snapshot of the queues.
#[derive(Default)]
pub(crate) struct QueueSnapshot {
    pub(crate) queues: Vec<QueueGauge>,
    pub(crate) is_asked: bool,
}

/// The lease request that grants belong to, so that they can be given back.
pub(crate) struct LeaseOrigin {
    pub(crate) home: InboxSender<ThreadMessage>,
    pub(crate) waiter: WaiterId,
    pub(crate) request: Option<(Namespace, RequestId)>,
}

impl LeaseOrigin {
    fn give_back<'a>(&self, grants: impl Iterator<Item = &'a Grant>) {
        let held: Vec<_> = grants
            .map(|grant| LeaseRef {
                namespace: grant.namespace.clone(),
                job: grant.job.clone(),
                token: grant.token,
            })
            .collect();
        if held.is_empty() {
            return;
        }
        let (request, waiter) = (self.request.clone(), self.waiter);
        // If the shard has ended, the leases expire after the next start.
        drop(self.home.send(ThreadMessage::Request(Request::Undelivered {
            held,
            request,
            waiter,
        })));
    }
}

/// Jobs on their way to their caller. If they are dropped before they are taken out, they are given back.
pub(crate) struct UndeliveredJobs {
    deliveries: Vec<Delivery>,
    origin: LeaseOrigin,
}

impl UndeliveredJobs {
    pub(crate) fn open(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for UndeliveredJobs {
    fn drop(&mut self) {
        self.origin
            .give_back(self.deliveries.iter().map(|delivery| &delivery.grant));
    }
}

/// The channel for a reply. The permit is returned before the reply is sent, so that a caller with a reply finds room
/// for the next request.
pub(crate) enum ReplyChannel {
    /// One reply. With an origin it answers a lease command, whose grants are given back if the caller has gone.
    Call(Answer<Reply>, Permit, Option<LeaseOrigin>),
    /// One reply for each of several commands.
    CallAll(Answer<Vec<Result<Reply, CallError>>>, Permit),
    /// Leased jobs, given back if the caller has gone.
    Lease(Answer<UndeliveredJobs>, Permit, LeaseOrigin),
    /// A job that has ended.
    End(Answer<Option<StoredJob>>, Permit),
    /// An element of a list, put back if the caller has gone.
    Pop(Answer<UndeliveredPop>, Permit, Box<PopOrigin>),
    /// A snapshot of the queues, for metrics.
    QueueSnapshot(Option<Answer<()>>, Arc<Mutex<QueueSnapshot>>),
}

impl Ticket for ReplyChannel {
    fn is_gone(&self) -> bool {
        match self {
            Self::Call(answer, ..) => answer.is_closed(),
            Self::CallAll(answer, _) => answer.is_closed(),
            Self::Lease(answer, ..) => answer.is_closed(),
            Self::End(answer, _) => answer.is_closed(),
            Self::Pop(answer, ..) => answer.is_closed(),
            Self::QueueSnapshot(..) => false,
        }
    }
}

impl ReplyChannel {
    /// Sends the reply; a caller that has gone is no error. The caller is woken when the returned value is dropped.
    pub(crate) fn send(self, answer: Result<CallReply, CallError>) -> Option<Wake> {
        match self {
            Self::Call(channel, permit, origin) => {
                drop(permit);
                let reply = answer.map(|value| match value {
                    CallReply::Reply(reply) => reply,
                    _ => unreachable!("a call is answered with a reply"),
                });
                let sent = channel.send(reply);
                if let Err(Ok(Reply::Leased(grants))) = &sent
                    && let Some(origin) = origin
                {
                    origin.give_back(grants.iter());
                }
                sent.ok()
            }
            Self::CallAll(channel, permit) => {
                drop(permit);
                let replies = answer.map(|value| match value {
                    CallReply::Replies(replies) => replies,
                    _ => unreachable!("calls are answered with replies"),
                });
                channel.send(replies).ok()
            }
            Self::Lease(channel, permit, origin) => {
                drop(permit);
                let jobs = answer.map(|value| match value {
                    CallReply::Deliveries(deliveries) => UndeliveredJobs { deliveries, origin },
                    _ => unreachable!("a lease is answered with deliveries"),
                });
                channel.send(jobs).ok()
            }
            Self::End(channel, permit) => {
                drop(permit);
                let job = answer.map(|value| match value {
                    CallReply::Job(job) => job.map(|job| *job),
                    _ => unreachable!("a wait is answered with a job"),
                });
                channel.send(job).ok()
            }
            Self::Pop(channel, permit, origin) => {
                drop(permit);
                let element = answer.map(|value| match value {
                    CallReply::Popped(popped) => UndeliveredPop::new(popped, origin),
                    _ => unreachable!("a pop is answered with an element"),
                });
                channel.send(element).ok()
            }
            Self::QueueSnapshot(channel, snapshot) => send_snapshot(channel, &snapshot, answer),
        }
    }
}

fn send_snapshot(
    channel: Option<Answer<()>>,
    snapshot: &Mutex<QueueSnapshot>,
    answer: Result<CallReply, CallError>,
) -> Option<Wake> {
    let mut shared = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
    shared.is_asked = false;
    let done = answer.map(|value| {
        if let CallReply::QueueSnapshot(queues) = value {
            shared.queues = queues;
        }
    });
    drop(shared);
    channel?.send(done).ok()
}
