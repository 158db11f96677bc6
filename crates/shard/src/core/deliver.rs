//! Delivers jobs with what their programs need: payload, inputs, results of dependencies.

use std::collections::BTreeSet;

use ganger_store::{Line, Reader, StoreError};
use ganger_types::command::{Fail, Lease, LeaseRef};
use ganger_types::{Bytes, Command, Grant, Group, InputState, JobKey, JobRef, Now, Reply, limits};

use super::Core;
use super::request::Ticket;
use crate::{CallError, Delivery};

/// Number of jobs leased before their payloads are read, which bounds the memory beyond the limit.
const SLICE_JOBS: u32 = 64;
/// Value of an input whose dependency did not succeed or left no result.
const NULL: Bytes = Bytes::from_static(b"null");
/// The failure group of jobs whose payload or inputs cannot be read (`kickq R20`).
const DAMAGED: &str = "damaged";

/// What a lease request got.
pub(super) struct Taken {
    pub(super) deliveries: Vec<Delivery>,
    /// Number of the read that completes the deliveries; `None` if they are complete.
    pub(super) unread: Option<u64>,
}

/// A delivery whose inputs, and perhaps payload, are read beside the shard.
pub(super) struct UnreadJob {
    /// Place among the deliveries of its request.
    index: usize,
    lacks_payload: bool,
}

/// What was read for an unread delivery: its payload, if it lacked it, and its inputs.
type ReadJob = Result<(Option<Bytes>, Vec<Bytes>), DeliveryFault>;

/// Why a job cannot be delivered.
pub(super) enum DeliveryFault {
    /// Its bytes are damaged; the job is failed.
    Damaged(String),
    /// The store cannot be read.
    Unreadable(StoreError),
}

impl From<StoreError> for DeliveryFault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } => Self::Damaged(error.to_string()),
            other => Self::Unreadable(other),
        }
    }
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Leases jobs and reads what they need. A job that cannot be read is failed as damaged; the others are
    /// delivered. A request with a request id is leased in one piece, so that repeating it gives the same jobs.
    ///
    /// At most `jobs_max` jobs are leased if the request asks for more.
    pub(super) fn take_jobs(
        &mut self,
        now: Now,
        lease: &Lease,
        jobs_max: u32,
    ) -> Result<Taken, CallError> {
        let mut deliveries = Vec::new();
        let mut unread = Vec::new();
        let mut bytes = 0;
        let mut left = lease.jobs_max;
        if left <= limits::LEASE_JOBS_MAX {
            left = left.min(jobs_max);
        }
        let is_whole = lease.request.is_some() || left > limits::LEASE_JOBS_MAX;
        loop {
            let slice = if is_whole { left } else { left.min(SLICE_JOBS) };
            let command = Lease {
                jobs_max: slice,
                ..lease.clone()
            };
            let grants = match self.apply(now, Command::Lease(Box::new(command)), None) {
                Ok(Reply::Leased(grants)) => grants,
                Ok(_) => Vec::new(),
                Err(error) if deliveries.is_empty() => return Err(error),
                Err(_) => break,
            };
            let granted = u32::try_from(grants.len()).unwrap_or(u32::MAX);
            let trouble = if self.rows_beside.is_some() {
                self.read_beside(grants, &mut deliveries, &mut unread, &mut bytes);
                None
            } else {
                self.read_all(now, grants, &mut deliveries, &mut bytes)
            };
            left = left.saturating_sub(granted.max(1));
            match trouble {
                Some(error) if deliveries.is_empty() => return Err(error),
                None if !is_whole
                    && granted == slice
                    && left > 0
                    && bytes < self.settings.delivery_bytes_max => {}
                _ => break,
            }
        }
        let unread = (!unread.is_empty()).then(|| self.read_for_turn(unread));
        Ok(Taken { deliveries, unread })
    }

    /// Completes the deliveries of what is in memory, and asks for the rest, which is read beside the shard.
    fn read_beside(
        &mut self,
        grants: Vec<Grant>,
        deliveries: &mut Vec<Delivery>,
        unread: &mut Vec<UnreadJob>,
        bytes: &mut usize,
    ) {
        for grant in grants {
            let payload = self.known_payload(&grant);
            let lacks_payload = payload.is_none();
            let payload = payload.unwrap_or_default();
            *bytes += if lacks_payload {
                drop(self.rows().payloads(&[grant.key]));
                usize::try_from(grant.payload_bytes).unwrap_or(usize::MAX)
            } else {
                payload.len()
            };
            let lacked = self.rows_lacking();
            let inputs = self.read_inputs_of(&grant);
            let is_complete = !lacks_payload && self.rows_lacking() == lacked && inputs.is_ok();
            let inputs = inputs.unwrap_or_default();
            *bytes += inputs.iter().map(Bytes::len).sum::<usize>();
            if !is_complete {
                unread.push(UnreadJob {
                    index: deliveries.len(),
                    lacks_payload,
                });
            }
            deliveries.push(Delivery {
                grant,
                payload,
                inputs,
            });
        }
    }

    /// Reads what these deliveries lack among the rows that were read beside the shard.
    pub(super) fn read_unread(
        &mut self,
        deliveries: &[Delivery],
        unread: &[UnreadJob],
    ) -> Vec<ReadJob> {
        let mut read = |job: &UnreadJob| {
            let grant = &deliveries[job.index].grant;
            let payload = if job.lacks_payload {
                let payload = self.rows().payloads(&[grant.key]).pop();
                let payload = payload.expect("each payload was read")?;
                Some(payload.ok_or_else(|| missing_payload(grant))?)
            } else {
                None
            };
            Ok((payload, self.read_inputs_of(grant)?))
        };
        unread.iter().map(&mut read).collect()
    }

    /// Puts what was read into the deliveries; jobs that cannot be read are failed or given back, and removed.
    pub(super) fn complete(
        &mut self,
        now: Now,
        deliveries: &mut Vec<Delivery>,
        unread: &[UnreadJob],
        read: Vec<ReadJob>,
    ) -> Option<CallError> {
        let mut trouble = None;
        let mut failed = BTreeSet::new();
        for (job, read) in unread.iter().zip(read) {
            match read {
                Ok((payload, inputs)) => {
                    let delivery = &mut deliveries[job.index];
                    delivery.payload = payload.unwrap_or_else(|| delivery.payload.clone());
                    delivery.inputs = inputs;
                }
                Err(fault) => {
                    failed.insert(job.index);
                    let grant = deliveries[job.index].grant.clone();
                    trouble = self.not_delivered(now, &grant, fault).or(trouble);
                }
            }
        }
        if trouble.is_none() {
            self.delivery.note_success();
        }
        let mut index = 0;
        deliveries.retain(|_| {
            index += 1;
            !failed.contains(&(index - 1))
        });
        trouble
    }

    /// Fails a job whose bytes are damaged, and gives back one that cannot be read now; returns the error then.
    fn not_delivered(
        &mut self,
        now: Now,
        grant: &Grant,
        fault: DeliveryFault,
    ) -> Option<CallError> {
        match fault {
            DeliveryFault::Damaged(what) => {
                self.set_aside(now, grant, &what);
                None
            }
            DeliveryFault::Unreadable(error) => {
                // The attempt does not count, since the store failed, and the job is not tried again at once.
                self.give_back(now, held(grant), true, "its payload could not be read");
                self.note_unread(now, &error);
                Some(CallError::from_read(&self.settings.shard, &error))
            }
        }
    }

    /// Reads what each grant needs; jobs that cannot be read are failed or given back.
    fn read_all(
        &mut self,
        now: Now,
        grants: Vec<Grant>,
        deliveries: &mut Vec<Delivery>,
        bytes: &mut usize,
    ) -> Option<CallError> {
        let mut trouble = None;
        let before = deliveries.len();
        let payloads = self.read_payloads(&grants);
        for (grant, payload) in grants.into_iter().zip(payloads) {
            match payload.and_then(|payload| Ok((payload, self.read_inputs_of(&grant)?))) {
                Ok((payload, inputs)) => {
                    *bytes += payload.len() + inputs.iter().map(Bytes::len).sum::<usize>();
                    deliveries.push(Delivery {
                        grant,
                        payload,
                        inputs,
                    });
                }
                Err(fault) => trouble = self.not_delivered(now, &grant, fault).or(trouble),
            }
        }
        if trouble.is_none() && deliveries.len() > before {
            self.delivery.note_success();
        }
        trouble
    }

    fn note_unread(&mut self, now: Now, error: &StoreError) {
        self.delivery.note_failure(now.elapsed);
        let shard = &self.settings.shard;
        match self.failures.occur(now.elapsed) {
            Some(Line::First) => {
                tracing::error!(%shard, %error, "jobs cannot be handed out: the store cannot be read");
            }
            Some(Line::Again { times }) => {
                tracing::error!(%shard, %error, times, "jobs still cannot be handed out");
            }
            None => {}
        }
    }

    /// Whether jobs are delivered now: not while the store cannot be read, and not while it uses its reserve.
    pub(super) fn may_deliver(&self, now: Now) -> bool {
        !self.delivery.is_on(now.elapsed) && !self.is_on_reserve()
    }

    /// Returns the error for callers that do not wait until deliveries resume.
    pub(super) fn undeliverable(&self) -> CallError {
        if self.is_on_reserve() {
            return self.full();
        }
        self.unavailable("the store cannot be read")
    }

    /// Serves the requests that were held back, once deliveries resume.
    pub(super) fn resume_deliveries(&mut self, now: Now) {
        if self.delivery.holds_back && self.may_deliver(now) {
            self.delivery.holds_back = false;
            self.serve_all(now);
        }
    }

    /// Fails a job that cannot be read: it stays for inspection, and the queue continues.
    fn set_aside(&mut self, now: Now, grant: &Grant, what: &str) {
        let (job, queue) = (&grant.job, &grant.queue);
        let fail = Fail {
            held: held(grant),
            group: Group::from_static(DAMAGED),
            message: what.to_owned(),
            permanent: true,
            retry_after: None,
            lost: false,
        };
        // A job that has ended or was removed since it was granted is not damaged.
        if self.apply(now, Command::Fail(Box::new(fail)), None).is_ok() {
            tracing::error!(%job, %queue, %what, "job set aside as damaged");
            self.metrics.counters.damaged_total.inc();
        }
    }

    fn read_inputs_of(&mut self, grant: &Grant) -> Result<Vec<Bytes>, DeliveryFault> {
        if grant.inputs == 0 || grant.key.is_of_external_job() {
            return Ok(Vec::new());
        }
        self.read_inputs(grant)
    }

    /// Reads the payload of each grant: those that no uncommitted turn and no cache has, together.
    fn read_payloads(&mut self, grants: &[Grant]) -> Vec<Result<Bytes, DeliveryFault>> {
        let known: Vec<_> = grants
            .iter()
            .map(|grant| self.known_payload(grant))
            .collect();
        let rest = grants.iter().zip(&known);
        let rest: Vec<_> = rest
            .filter(|(_, known)| known.is_none())
            .map(|(grant, _)| grant.key)
            .collect();
        let mut read = match rest.as_slice() {
            [] => Vec::new(),
            rest => self.rows().payloads(rest),
        }
        .into_iter();
        let mut payload_of = |(grant, known): (&Grant, Option<Bytes>)| match known {
            Some(payload) => Ok(payload),
            None => match read.next().expect("each payload was read")? {
                Some(payload) => Ok(payload),
                None => Err(missing_payload(grant)),
            },
        };
        grants.iter().zip(known).map(&mut payload_of).collect()
    }

    /// The payload if it is in memory.
    fn known_payload(&mut self, grant: &Grant) -> Option<Bytes> {
        if grant.key.is_of_external_job() {
            let payload = self.live().engine.external_payload(grant);
            return Some(payload.unwrap_or_default());
        }
        if grant.payload_bytes == 0 {
            return Some(Bytes::new());
        }
        let found = self
            .pending()
            .payload(grant.key)
            .or_else(|| self.blobs.take_payload(grant.key));
        let counters = &self.metrics.counters;
        match &found {
            Some(_) => counters.blob_hits_total.inc(),
            None => counters.blob_misses_total.inc(),
        }
        found
    }

    /// Reads the inputs of a job: rows of the store, overlaid by rows that are not committed yet.
    fn read_inputs(&mut self, grant: &Grant) -> Result<Vec<Bytes>, DeliveryFault> {
        let wanted = usize::try_from(grant.inputs).unwrap_or(usize::MAX);
        let mut slots: Vec<Option<InputState>> = vec![None; wanted];
        let mut put = |slot: u32, state: Option<InputState>| {
            if let Some(place) = usize::try_from(slot)
                .ok()
                .and_then(|slot| slots.get_mut(slot))
            {
                *place = state;
            }
        };
        let pending = self.pending().inputs(grant.key);
        // Dependencies without a slot, and several changes of one slot, must not count as inputs already known.
        let overlaid: BTreeSet<u32> = pending
            .iter()
            .filter_map(|row| row.as_ref().ok())
            .map(|row| row.slot)
            .filter(|slot| *slot < grant.inputs)
            .collect();
        if overlaid.len() < wanted {
            let mut from = 0;
            while from < grant.inputs {
                let page = self.rows().inputs(grant.key, from)?;
                let Some(last) = page.last() else { break };
                from = last.slot.saturating_add(1);
                for row in page {
                    put(row.slot, Some(row.state));
                }
            }
        }
        for row in pending {
            match row {
                Ok(row) => put(row.slot, Some(row.state)),
                Err(slot) => put(slot, None),
            }
        }
        slots
            .into_iter()
            .enumerate()
            .map(|(slot, state)| self.read_input(grant.key, slot, state))
            .collect()
    }

    fn read_input(
        &mut self,
        key: JobKey,
        slot: usize,
        state: Option<InputState>,
    ) -> Result<Bytes, DeliveryFault> {
        match state {
            Some(InputState::Value(bytes) | InputState::Received { value: bytes, .. }) => Ok(bytes),
            Some(InputState::Delivered { dependency, .. }) => self.read_result(dependency),
            Some(InputState::Ignored { .. }) => Ok(NULL),
            Some(
                InputState::Missing { id, .. }
                | InputState::Remote {
                    dependency: JobRef { id, .. },
                    ..
                },
            ) => Err(DeliveryFault::Damaged(format!(
                "input {slot} of job {key} still waits for job {id}, though the job is ready"
            ))),
            None => Err(DeliveryFault::Damaged(format!(
                "input {slot} of job {key} is missing"
            ))),
        }
    }

    fn read_result(&mut self, dependency: JobKey) -> Result<Bytes, DeliveryFault> {
        if let Some(result) = self.pending().result(dependency) {
            self.metrics.counters.blob_hits_total.inc();
            return Ok(result.unwrap_or(NULL));
        }
        if let Some(result) = self.blobs.result(dependency) {
            self.metrics.counters.blob_hits_total.inc();
            return Ok(result.clone());
        }
        self.metrics.counters.blob_misses_total.inc();
        let mut rows = self.rows();
        if let Some(result) = rows.result(dependency)? {
            return Ok(result);
        }
        let record = rows.job(dependency)?.map(|job| job.record);
        let expected = record
            .as_ref()
            .and_then(|record| record.finished.as_ref()?.result_bytes);
        match (record, expected) {
            (None, _) => Err(DeliveryFault::Damaged(format!(
                "job {dependency}, an input, is missing"
            ))),
            (Some(_), Some(bytes)) if bytes > 0 => Err(DeliveryFault::Damaged(format!(
                "the result of {bytes} bytes of job {dependency}, an input, is missing"
            ))),
            (Some(_), Some(_)) => Ok(Bytes::new()),
            (Some(_), None) => Ok(NULL),
        }
    }
}

fn missing_payload(grant: &Grant) -> DeliveryFault {
    DeliveryFault::Damaged(format!(
        "the payload of {} bytes of job {} is missing",
        grant.payload_bytes, grant.key
    ))
}

fn held(grant: &Grant) -> LeaseRef {
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}
