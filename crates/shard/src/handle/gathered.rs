//! Requests that reach the shard together, so that it is woken once and one turn applies them.

use std::time::Duration;

use ganger_types::command::Lease;
use ganger_types::{Command, Reply};

use super::{CancelOnDrop, Handle};
use crate::core::Request;
use crate::ownership::may_need_no_commit;
use crate::reply_slot::{Answered, reply_slot};
use crate::ticket::{ReplyChannel, ThreadMessage, UndeliveredJobs};
use crate::{CallError, Delivery};

/// Requests that reach the shard together and in order. One flush serves them all, unless they do not fit into one
/// turn. Nothing is sent before [`GatheredRequests::send`].
#[must_use = "requests are sent by `send`"]
pub struct GatheredRequests {
    handle: Handle,
    requests: Vec<Request<ReplyChannel>>,
}

impl GatheredRequests {
    /// Adds commands, as [`Handle::call_all`] applies them. The future completes only after the requests were sent.
    ///
    /// # Errors
    /// The future's: see [`CallError`].
    pub fn call_all(
        &mut self,
        commands: Vec<Command>,
    ) -> impl Future<Output = Result<Vec<Result<Reply, CallError>>, CallError>> + Send + use<> {
        let added = self.handle.replies_to(commands);
        let replies = added.map(|(request, replies)| {
            self.requests.push(request);
            replies
        });
        async move { replies?.receive().await }
    }

    /// Adds a lease request, as [`Handle::lease`] makes it. The future completes only after the requests were sent;
    /// dropping it ends the wait.
    ///
    /// # Errors
    /// The future's: see [`CallError`].
    pub fn lease(
        &mut self,
        lease: Lease,
        wait_for: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery>, CallError>> + Send + use<> {
        let added = self.handle.jobs_for(lease, wait_for);
        let jobs = added.map(|(request, jobs)| {
            self.requests.push(request);
            jobs
        });
        async move { jobs?.receive().await }
    }

    /// Sends the requests. If the shard has ended, their futures say so.
    pub fn send(self) {
        if !self.requests.is_empty() {
            let message = ThreadMessage::Requests(self.requests);
            drop(self.handle.shared.inbox.send(message));
        }
    }
}

/// Replies to commands that come when their effects are durable.
pub(super) struct PendingReplies {
    handle: Handle,
    answered: Answered<Result<Vec<Result<Reply, CallError>>, CallError>>,
    /// Which of the commands are reads; empty if their answers need no check.
    reads: Vec<bool>,
}

impl PendingReplies {
    pub(super) async fn receive(self) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        let replies = self.handle.receive(self.answered).await?;
        if self.reads.is_empty() {
            return Ok(replies);
        }
        let check = &self.handle.shared.check;
        let replies = replies.into_iter().zip(self.reads);
        let checked = replies.map(|(reply, is_read)| check.pass_reply(reply, is_read));
        Ok(checked.collect())
    }
}

/// Jobs that come when they are leased. Dropping this ends the wait.
pub(super) struct PendingJobs {
    handle: Handle,
    answered: Answered<Result<UndeliveredJobs, CallError>>,
    guard: CancelOnDrop,
}

impl PendingJobs {
    pub(super) async fn receive(mut self) -> Result<Vec<Delivery>, CallError> {
        let jobs = self.handle.receive(self.answered).await;
        self.guard.waiter = None;
        Ok(jobs?.open())
    }
}

impl Handle {
    /// Begins to gather requests.
    pub fn gather(&self) -> GatheredRequests {
        GatheredRequests {
            handle: self.clone(),
            requests: Vec::new(),
        }
    }

    /// Makes the request that applies commands.
    pub(super) fn replies_to(
        &self,
        commands: Vec<Command>,
    ) -> Result<(Request<ReplyChannel>, PendingReplies), CallError> {
        self.refuse_held_up(&commands)?;
        let bytes = commands.iter().map(Command::bytes).sum();
        let permit = self.shared.admission.enter(commands.len(), bytes)?;
        let reads = if self.shared.check.ownership.is_some() {
            commands.iter().map(may_need_no_commit).collect()
        } else {
            Vec::new()
        };
        let (answer, answered) = reply_slot();
        let ticket = ReplyChannel::CallAll(answer, permit);
        let handle = self.clone();
        let replies = PendingReplies {
            handle,
            answered,
            reads,
        };
        Ok((Request::CallAll { commands, ticket }, replies))
    }

    /// Makes the request that leases jobs.
    pub(super) fn jobs_for(
        &self,
        lease: Lease,
        wait_for: Duration,
    ) -> Result<(Request<ReplyChannel>, PendingJobs), CallError> {
        let admission = &self.shared.admission;
        let permit = if wait_for.is_zero() {
            admission.enter(1, 0)?
        } else {
            admission.enter_waiting()?
        };
        let now = self.shared.clock.wall();
        self.shared.metrics.workers().ask(&lease, wait_for, now);
        let origin = self.origin(&lease);
        let waiter = origin.waiter;
        let (answer, answered) = reply_slot();
        let request = Request::Lease {
            lease: Box::new(lease),
            wait_for,
            waiter,
            ticket: ReplyChannel::Lease(answer, permit, origin),
        };
        let guard = CancelOnDrop {
            inbox: self.shared.inbox.clone(),
            waiter: Some(waiter),
        };
        let handle = self.clone();
        Ok((
            request,
            PendingJobs {
                handle,
                answered,
                guard,
            },
        ))
    }
}
