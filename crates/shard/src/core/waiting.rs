//! Lease requests and waits: registering, waking exactly, and removing them.
//!
//! A request is tried and registered as waiting in one step of the shard, so no wake-up is missed. One ready job
//! tries one waiting request: the one that has waited longest at that queue.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ganger_store::{Reader, StoredJob};
use ganger_types::command::{Lease, LeaseRef, Release};
use ganger_types::query::Query;
use ganger_types::{Command, JobId, Namespace, Now, Queue, Reply, RequestId};

use super::Core;
use super::deliver::Taken;
use super::request::{CallReply, Output, Request, Ticket, WaiterId};
use super::turn::{Turn, WaitingLease};
use super::waiters::{EndWaiter, LeaseWaiter, Waiter};
use crate::CallError;

impl<R: Reader, T: Ticket> Core<R, T> {
    pub(super) fn take_lease(
        &mut self,
        now: Now,
        lease: Box<Lease>,
        wait_for: Duration,
        id: WaiterId,
        ticket: T,
    ) {
        if ticket.is_gone() {
            return;
        }
        if let Some(request) = &lease.request {
            self.latest_requests.note(&lease.namespace, request, id);
        }
        let deadline = now.elapsed.after(wait_for.min(self.settings.wait_for_max));
        let answer = if self.may_deliver(now) {
            self.take_jobs(now, &lease, u32::MAX)
        } else {
            Err(self.undeliverable())
        };
        if !self.must_wait(now, &answer) || wait_for.is_zero() {
            let request = (!wait_for.is_zero()).then_some(WaitingLease {
                id,
                lease,
                deadline,
            });
            self.answer_taken(now, ticket, answer, request);
            return;
        }
        self.waiters.wait_for_job(
            id,
            LeaseWaiter {
                lease,
                deadline,
                ticket,
            },
        );
    }

    /// Tries waiting requests wherever a job may have become leasable, or a list has grown.
    pub(super) fn serve_woken(&mut self, now: Now) {
        self.serve_grown(now);
        loop {
            let woken = self.live().engine.take_woken();
            if woken.is_empty() || !self.waiters.has_leases() {
                return;
            }
            for (namespace, queue) in woken {
                self.serve(now, &namespace, &queue);
            }
        }
    }

    /// Tries the waiting requests of every queue, for an engine that was just loaded.
    pub(super) fn serve_all(&mut self, now: Now) {
        for (namespace, queue) in self.waiters.queues() {
            self.serve(now, &namespace, &queue);
        }
        for list in self.waiters.lists() {
            self.serve_list(now, &list);
        }
        self.serve_woken(now);
    }

    /// Shares the ready jobs of a queue out to the requests that wait there, evenly, so that none idles while another
    /// one gets many.
    fn serve(&mut self, now: Now, namespace: &Namespace, queue: &Queue) {
        let mut tried = None;
        loop {
            let leasable = self.live().engine.leasable(namespace, queue);
            if leasable == 0 {
                return;
            }
            if !self.may_deliver(now) {
                self.delivery.holds_back = true;
                return;
            }
            let Some(id) = self.waiters.longest_waiting_at(namespace, queue, tried) else {
                return;
            };
            let waiting = self.waiters.waiting_at(namespace, queue);
            let Some(waiter) = self.waiters.take_lease(id) else {
                return;
            };
            if waiter.ticket.is_gone() {
                continue;
            }
            self.metrics.counters.wakes_total.inc();
            let share = leasable.div_ceil(waiting.max(1));
            let jobs_max = u32::try_from(share).unwrap_or(u32::MAX);
            let answer = self.take_jobs(now, &waiter.lease, jobs_max);
            if self.must_wait(now, &answer) {
                self.waiters.wait_for_job(id, waiter);
                tried = Some(id);
                continue;
            }
            self.metrics.counters.wakes_served_total.inc();
            let LeaseWaiter {
                lease,
                deadline,
                ticket,
            } = waiter;
            let request = WaitingLease {
                id,
                lease,
                deadline,
            };
            self.answer_taken(now, ticket, answer, Some(request));
        }
    }

    /// Whether a lease request must wait: there are no jobs, or they cannot be delivered now.
    fn must_wait(&mut self, now: Now, answer: &Result<Taken, CallError>) -> bool {
        match answer {
            Ok(taken) => taken.deliveries.is_empty(),
            Err(CallError::Rejected(_)) => false,
            Err(_) => {
                let is_held_back = !self.may_deliver(now);
                self.delivery.holds_back |= is_held_back;
                is_held_back
            }
        }
    }

    /// Registers a wait for the end of a job, unless it has durably ended already.
    ///
    /// If the job ends in an uncommitted turn, the wait is answered when that turn is released.
    pub(super) fn take_await(
        &mut self,
        now: Now,
        namespace: Namespace,
        id: JobId,
        wait_for: Duration,
        waiter: WaiterId,
        ticket: T,
    ) {
        if ticket.is_gone() {
            return;
        }
        let answer = self.read_job(&namespace, &id);
        let has_external_jobs = self.live().engine.external_job_namespaces() > 0;
        let is_external_job = has_external_jobs && matches!(&answer, Ok(CallReply::Job(None)));
        let answer = if is_external_job {
            self.ask_for_job(now, namespace.clone(), id.clone())
        } else {
            answer
        };
        let waits = !wait_for.is_zero() && end_is_announced(&answer);
        if waits {
            let deadline = now.elapsed.after(wait_for.min(self.settings.wait_for_max));
            let waiting = EndWaiter {
                namespace,
                id,
                is_external: is_external_job,
                deadline,
                ticket,
            };
            self.waiters.wait_for_end(waiter, waiting);
        } else if is_external_job {
            // The engine's answer about an external job may not be durable before this turn is.
            self.answer(now, ticket, answer);
        } else {
            self.outputs.push(Output::Answer(ticket, answer));
        }
    }

    fn read_job(&mut self, namespace: &Namespace, id: &JobId) -> Result<CallReply, CallError> {
        let found = self.rows().find(namespace, id);
        let found = found.map_err(|error| CallError::from_read(&self.settings.shard, &error))?;
        let found = match self.released_since(namespace, id) {
            Some(ended) => ended.map(|record| StoredJob {
                record,
                lease: None,
            }),
            None => found,
        };
        Ok(CallReply::Job(found.map(Box::new)))
    }

    /// Asks for a job that is not stored as an ordinary job: it may be an external job.
    fn ask_for_job(
        &mut self,
        now: Now,
        namespace: Namespace,
        id: JobId,
    ) -> Result<CallReply, CallError> {
        let query = Command::Query(Box::new(Query::ExternalJob(namespace, id)));
        let found = match self.apply(now, query, None)? {
            Reply::ExternalJob(found) => found,
            _ => None,
        };
        let stored = found.map(|job| Box::new(StoredJob::new(job.record, job.lease)));
        Ok(CallReply::Job(stored))
    }

    /// Checks in a newly loaded engine the external jobs for whose ends requests wait, and answers those that have
    /// ended.
    pub(super) fn check_external_ends(&mut self, now: Now) {
        for (namespace, id) in self.waiters.external_jobs() {
            let answer = self.ask_for_job(now, namespace.clone(), id.clone());
            if end_is_announced(&answer) {
                continue;
            }
            for waiter in self.waiters.take_ended_external(&namespace, &id) {
                self.answer(now, waiter.ticket, answer.clone());
            }
        }
    }

    /// Answers the requests whose deadline has passed.
    pub(super) fn expire_waiters(&mut self, now: Now) {
        while let Some(waiter) = self.waiters.take_expired(now.elapsed) {
            let (ticket, answer) = match waiter {
                Waiter::Lease(waiter) => (waiter.ticket, Ok(CallReply::Deliveries(Vec::new()))),
                Waiter::Pop(waiter) => (waiter.ticket, Ok(CallReply::Popped(Ok(None)))),
                Waiter::End(waiter) if self.live.is_some() && waiter.is_external => {
                    let answer = self.ask_for_job(now, waiter.namespace, waiter.id);
                    self.answer(now, waiter.ticket, answer);
                    continue;
                }
                Waiter::End(waiter) if self.rows_beside.is_some() => {
                    // The job is read beside the shard, as for a request that does not wait.
                    self.inbox.push_back(Request::AwaitEnd {
                        namespace: waiter.namespace,
                        id: waiter.id,
                        wait_for: Duration::ZERO,
                        waiter: WaiterId(0),
                        ticket: waiter.ticket,
                    });
                    continue;
                }
                Waiter::End(waiter) if self.live.is_some() => {
                    (waiter.ticket, self.read_job(&waiter.namespace, &waiter.id))
                }
                Waiter::End(waiter) => (waiter.ticket, Err(self.unavailable("it is recovering"))),
            };
            self.outputs.push(Output::Answer(ticket, answer));
        }
    }

    /// Keeps the releases of the open turn, so that they are repeated if it fails.
    pub(super) fn keep_for_repeat(
        &mut self,
        now: Now,
        held: &[LeaseRef],
        request: Option<&(Namespace, RequestId)>,
        waiter: WaiterId,
    ) {
        let turn = self.open.get_or_insert_with(|| Turn::new(now));
        turn.returns.push(Request::Undelivered {
            held: held.to_vec(),
            request: request.cloned(),
            waiter,
        });
    }

    /// Releases grants whose caller has gone. The jobs return to their old positions, and the attempts do not count.
    ///
    /// If the same request was repeated since, the repeat has the same leases, and they are kept.
    pub(super) fn take_back(
        &mut self,
        now: Now,
        held: Vec<LeaseRef>,
        request: Option<(Namespace, RequestId)>,
        waiter: WaiterId,
    ) {
        let is_repeated = request.is_some_and(|(namespace, request)| {
            self.latest_requests
                .latest(&namespace, &request)
                .is_some_and(|latest| latest != waiter)
        });
        if is_repeated {
            return;
        }
        for held in held {
            self.metrics.counters.undelivered_total.inc();
            self.give_back(now, held, false, "nobody picked it up");
        }
    }

    /// Releases one lease without counting the attempt. A refusal means that the lease has ended otherwise, which is
    /// as good.
    ///
    /// `by_server`: whether the server could not deliver the job, however often.
    pub(super) fn give_back(&mut self, now: Now, held: LeaseRef, by_server: bool, reason: &str) {
        let release = Release {
            held,
            delay: Duration::ZERO,
            counted: false,
            by_server,
            keep_place: true,
            reason: reason.to_owned(),
        };
        drop(self.apply(now, Command::Release(Box::new(release)), None));
    }
}

/// Whether the job lives and its end will be announced. Not all external jobs announce it.
fn end_is_announced(answer: &Result<CallReply, CallError>) -> bool {
    let Ok(CallReply::Job(Some(job))) = answer else {
        return false;
    };
    job.record.finished.is_none() && job.record.key.announces_end()
}

/// The latest lease request for each request id, for the newest [`LATEST_REQUESTS_MAX`] ids.
#[derive(Default)]
pub(super) struct LatestRequests {
    latest: BTreeMap<(Namespace, RequestId), WaiterId>,
    order: VecDeque<((Namespace, RequestId), WaiterId)>,
}

/// Maximum number of request ids. An undelivered grant comes back within moments, and far fewer requests arrive in
/// that time.
const LATEST_REQUESTS_MAX: usize = 16_384;

impl LatestRequests {
    fn note(&mut self, namespace: &Namespace, request: &RequestId, waiter: WaiterId) {
        let name = (namespace.clone(), request.clone());
        self.latest.insert(name.clone(), waiter);
        self.order.push_back((name, waiter));
        if self.order.len() > LATEST_REQUESTS_MAX
            && let Some((name, waiter)) = self.order.pop_front()
            && self.latest.get(&name) == Some(&waiter)
        {
            self.latest.remove(&name);
        }
    }

    fn latest(&self, namespace: &Namespace, request: &RequestId) -> Option<WaiterId> {
        self.latest
            .get(&(namespace.clone(), request.clone()))
            .copied()
    }
}
