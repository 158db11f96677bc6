//! What workers of ours do with jobs of qless that the script has no command for: they take them for a length of their
//! own and under tokens, keep them for another length, and give them back without cost.

use bytes::Bytes;
use ganger_types::job::ReportKind;
use ganger_types::qless::{
    Generation, QlessJob, QlessLease, QlessMessage, QlessRefusal, QlessSet, QlessState,
};
use ganger_types::{Elapsed, LeaseToken, RequestId};

use crate::call::{Call, json_of};
use crate::commands::pop::{Wanted, room, take};
use crate::procedures::{ending, links};
use crate::state::Qless;

/// What a worker of ours asks for.
#[derive(Clone, Debug)]
pub struct Loan {
    /// The queue to take jobs from.
    pub queue: Bytes,
    /// The worker that gets the jobs.
    pub worker: Bytes,
    /// At most so many.
    pub count: usize,
    /// Seconds for which the locks are good.
    pub seconds: f64,
    /// The request, if it names itself.
    pub request: Option<RequestId>,
}

/// How a worker of ours keeps a job.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Seconds from now for which its lock is good at least.
    pub seconds: f64,
    /// Replaces the job's data.
    pub data: Option<Bytes>,
}

impl Qless {
    /// Hands jobs out as a pop at `now` does, and notes the token that is drawn for each. A pop by this way heeds both
    /// what limits there are: those of concurrency, which only older forms of the script know, and throttles.
    ///
    /// # Errors
    /// If the script would refuse the pop, because an option is no number.
    pub fn lend(
        &mut self,
        server: Elapsed,
        now: f64,
        loan: &Loan,
        draw: &mut dyn FnMut() -> LeaseToken,
        messages: &mut Vec<QlessMessage>,
    ) -> Result<Vec<Bytes>, QlessRefusal> {
        let mut call = script_call(now, server, Generation::Two, messages);
        let room = room(self, &call, &loan.queue)?;
        call.generation = Generation::Three;
        let wanted = Wanted {
            queue: &loan.queue,
            worker: &loan.worker,
            count: loan.count.min(room),
            heartbeat: loan.seconds,
        };
        let handed = take(self, &mut call, wanted)?;
        for jid in &handed {
            let lease = QlessLease {
                token: draw(),
                request: loan.request.clone(),
                report: None,
            };
            self.edit(jid, |job| *job.lease = Some(lease));
        }
        Ok(handed)
    }

    /// Keeps a job that runs: its lock is good for so many seconds, and never for less than before. When it runs out
    /// then.
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
        let mut silent = Vec::new();
        let call = script_call(now, Elapsed::default(), Generation::Two, &mut silent);
        let expires = call.after(heartbeat.seconds.max(job.expires - now));
        self.edit(jid, |job| {
            *job.expires = expires.seconds();
            if let Some(data) = heartbeat.data {
                *job.data = data;
            }
        });
        self.list(jid, &worker, Some(expires));
        self.place_at(jid, &queue, QlessSet::Locks, expires);
        self.see_worker(&worker, Some(call.at()));
        Ok(expires.seconds())
    }

    /// Takes a job that runs from its holder and puts it back in line, after `delay` seconds if that is more than 0. It
    /// costs no retry.
    pub fn give_back(&mut self, server: Elapsed, now: f64, jid: &Bytes, delay: f64) {
        let Some(queue) = self.job(jid).map(|job| job.queue.clone()) else {
            return;
        };
        let mut silent = Vec::new();
        let call = script_call(now, server, Generation::Three, &mut silent);
        ending::stop(self, &call, jid);
        self.edit(jid, |job| {
            *job.is_warned = false;
            *job.worker = Bytes::new();
            *job.expires = 0.0;
        });
        if delay > 0.0 {
            self.place_at(jid, &queue, QlessSet::Scheduled, call.after(delay));
            self.edit(jid, |job| *job.state = QlessState::Scheduled);
        } else {
            links::make_ready(self, jid, &queue, call.at());
        }
    }

    /// Remembers the report that ended a job's lease, if the job is still there.
    pub fn note_report(&mut self, jid: &Bytes, kind: ReportKind) {
        self.edit(jid, |job| {
            if let Some(lease) = job.lease {
                lease.report = Some(kind);
            }
        });
    }

    /// Keeps what a worker of ours gave as the result of a job, if that is complete and still there.
    pub fn keep_result(&mut self, jid: &Bytes, result: Option<Bytes>) {
        self.edit(jid, |job| *job.result = result);
    }

    /// The jobs that a worker holds under a lease of that request.
    pub fn lent_to(&self, worker: &[u8], request: &RequestId) -> Vec<Bytes> {
        let jobs = self.worker_jobs(&Bytes::copy_from_slice(worker)).iter();
        let jobs = jobs.filter_map(|(_, jid)| self.job(jid));
        let is_of_it = |job: &&QlessJob| {
            live_lease(job).is_some_and(|lease| lease.request.as_ref() == Some(request))
        };
        jobs.filter(is_of_it).map(|job| job.jid.clone()).collect()
    }

    /// Whether the queue has a job that a pop would look at now.
    pub fn has_ready(&self, queue: &[u8]) -> bool {
        let queue = Bytes::copy_from_slice(queue);
        !self.is_paused(&queue) && self.size(&queue, QlessSet::Work) > 0
    }
}

/// The lease of ours under which a job runs, if it does.
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
