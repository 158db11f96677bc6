//! Leases of qless jobs by ganger's own workers. The script has no commands for them: these workers choose the length
//! of the lock, get a lease token, extend leases, and release jobs without losing a retry.

use bytes::Bytes;
use ganger_types::job::ReportKind;
use ganger_types::qless::{
    Generation, QlessJob, QlessLease, QlessMessage, QlessRefusal, QlessSet, QlessState,
};
use ganger_types::{Elapsed, LeaseToken, RequestId};

use crate::call::{Call, json_of};
use crate::commands::pop::{PopRequest, concurrency_left, pop_jobs};
use crate::procedures::{ending, links};
use crate::state::Qless;

/// Options of a lease request by one of ganger's own workers.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The queue to take jobs from.
    pub queue: Bytes,
    /// Name of the worker that gets the jobs.
    pub worker: Bytes,
    /// Maximum number of jobs to lease.
    pub count: usize,
    /// Length of the locks in seconds, counted from the time of the call.
    pub seconds: f64,
    /// Id of the lease request, so that a repeat gets the same jobs; `None` if it has none.
    pub request: Option<RequestId>,
}

/// A heartbeat of one of ganger's own workers.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Minimum length of the lock from now, in seconds.
    pub seconds: f64,
    /// New data of the job, as JSON text; `None` keeps the old data.
    pub data: Option<Bytes>,
}

impl Qless {
    /// Leases jobs like a pop at `now`, and stores the token that `draw` gives for each. Returns their jids. Both kinds
    /// of limits apply: the limits of concurrency, which only older generations of the script have, and throttles.
    ///
    /// # Errors
    /// If the script would refuse the pop, because an option is not a number.
    pub fn lease_jobs(
        &mut self,
        server: Elapsed,
        now: f64,
        options: &LeaseOptions,
        draw: &mut dyn FnMut() -> LeaseToken,
        messages: &mut Vec<QlessMessage>,
    ) -> Result<Vec<Bytes>, QlessRefusal> {
        let mut call = script_call(now, server, Generation::Two, messages);
        let room = concurrency_left(self, &call, &options.queue)?;
        call.generation = Generation::Three;
        let request = PopRequest {
            queue: &options.queue,
            worker: &options.worker,
            count: options.count.min(room),
            heartbeat: options.seconds,
        };
        let popped = pop_jobs(self, &mut call, request)?;
        for jid in &popped {
            let lease = QlessLease {
                token: draw(),
                request: options.request.clone(),
                report: None,
            };
            self.edit(jid, |job| *job.lease = Some(lease));
        }
        Ok(popped)
    }

    /// Extends the lock of a running job and returns its new expiry in seconds since the epoch. A lock never gets
    /// shorter. Returns `now` if the job does not exist.
    ///
    /// # Errors
    /// If the data is not JSON.
    pub fn keep(
        &mut self,
        now: f64,
        jid: &Bytes,
        heartbeat: Heartbeat,
    ) -> Result<f64, QlessRefusal> {
        heartbeat.data.as_ref().map(json_of).transpose()?;
        let Some(job) = self.job(jid) else {
            return Ok(now);
        };
        let (queue, worker) = (job.queue.clone(), job.worker.clone());
        let mut discarded = Vec::new();
        let call = script_call(now, Elapsed::default(), Generation::Two, &mut discarded);
        let expires = call.after(heartbeat.seconds.max(job.expires - now));
        self.edit(jid, |job| {
            *job.expires = expires.seconds();
            if let Some(data) = heartbeat.data {
                *job.data = data;
            }
        });
        self.set_worker_entry(jid, &worker, Some(expires));
        self.move_to_set(jid, &queue, QlessSet::Locks, expires);
        self.set_worker_seen(&worker, Some(call.at()));
        Ok(expires.seconds())
    }

    /// Releases a running job and puts it back in its queue, after `delay` seconds if that is more than 0. It costs
    /// no retry.
    pub fn give_back(&mut self, server: Elapsed, now: f64, jid: &Bytes, delay: f64) {
        let Some(queue) = self.job(jid).map(|job| job.queue.clone()) else {
            return;
        };
        let mut discarded = Vec::new();
        let call = script_call(now, server, Generation::Three, &mut discarded);
        ending::stop_running(self, &call, jid);
        self.edit(jid, |job| {
            *job.is_warned = false;
            *job.worker = Bytes::new();
            *job.expires = 0.0;
        });
        if delay > 0.0 {
            self.move_to_set(jid, &queue, QlessSet::Scheduled, call.after(delay));
            self.edit(jid, |job| *job.state = QlessState::Scheduled);
        } else {
            links::make_ready(self, jid, &queue, call.at());
        }
    }

    /// Records the report that ended a job's lease, if the job still exists.
    pub fn note_report(&mut self, jid: &Bytes, kind: ReportKind) {
        self.edit(jid, |job| {
            if let Some(lease) = job.lease {
                lease.report = Some(kind);
            }
        });
    }

    /// Stores the result from one of ganger's own workers, if the job is complete and still exists.
    pub fn keep_result(&mut self, jid: &Bytes, result: Option<Bytes>) {
        self.edit(jid, |job| *job.result = result);
    }

    /// Returns the jids of the jobs that the worker holds from that lease request.
    pub fn leased_to_request(&self, worker: &[u8], request: &RequestId) -> Vec<Bytes> {
        let jobs = self.worker_jobs(&Bytes::copy_from_slice(worker)).iter();
        let jobs = jobs.filter_map(|(_, jid)| self.job(jid));
        let is_from_request = |job: &&QlessJob| {
            live_lease(job).is_some_and(|lease| lease.request.as_ref() == Some(request))
        };
        jobs.filter(is_from_request)
            .map(|job| job.jid.clone())
            .collect()
    }

    /// Whether the queue has a ready job and is not paused.
    pub fn has_ready(&self, queue: &[u8]) -> bool {
        let queue = Bytes::copy_from_slice(queue);
        !self.is_paused(&queue) && self.size(&queue, QlessSet::Work) > 0
    }
}

/// Returns the live lease of a job; `None` if the job does not run or has no lease of ganger's own workers.
pub fn live_lease(job: &QlessJob) -> Option<&QlessLease> {
    let lease = job.lease.as_ref().filter(|lease| lease.report.is_none());
    lease.filter(|_| job.state == QlessState::Running)
}

fn script_call(
    now: f64,
    server: Elapsed,
    generation: Generation,
    messages: &mut Vec<QlessMessage>,
) -> Call<'_> {
    Call {
        now,
        server,
        generation,
        messages,
    }
}
