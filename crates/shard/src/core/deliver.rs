//! Delivers jobs with what their programs need: payload, inputs, results of dependencies.

use std::collections::BTreeSet;

use ganger_store::{Line, Reader, StoreError};
use ganger_types::command::{Fail, Lease, LeaseRef};
use ganger_types::{Bytes, Command, Grant, Group, InputState, JobKey, JobRef, Now, Reply, limits};

use super::request::Ticket;
use super::{Core, PendingRows};
use crate::{CallError, Delivery};

/// Number of jobs leased before their payloads are read, which bounds the memory beyond the limit.
const SLICE_JOBS: u32 = 64;
/// Number of inputs read from the store at a time.
const INPUTS_PAGE: usize = 1_000;
/// Value of an input whose dependency did not succeed or left no result.
const NULL: Bytes = Bytes::from_static(b"null");
/// The failure group of jobs whose payload or inputs cannot be read (`kickq R20`).
const DAMAGED: &str = "damaged";

/// Why a job cannot be delivered.
enum DeliveryFault {
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
    ) -> Result<Vec<Delivery>, CallError> {
        let mut deliveries = Vec::new();
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
                Err(_) => return Ok(deliveries),
            };
            let granted = u32::try_from(grants.len()).unwrap_or(u32::MAX);
            let trouble = self.read_all(now, grants, &mut deliveries, &mut bytes);
            left = left.saturating_sub(granted.max(1));
            match trouble {
                Some(error) if deliveries.is_empty() => return Err(error),
                None if !is_whole
                    && granted == slice
                    && left > 0
                    && bytes < self.settings.delivery_bytes_max => {}
                _ => return Ok(deliveries),
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
                Err(DeliveryFault::Damaged(what)) => self.set_aside(now, &grant, what),
                Err(DeliveryFault::Unreadable(error)) => {
                    trouble = Some(CallError::from_read(&self.settings.shard, &error));
                    // The attempt does not count, since the store failed, and the job is not tried again at once.
                    self.give_back(now, held(&grant), true, "its payload could not be read");
                    self.note_unread(now, &error);
                }
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
    fn set_aside(&mut self, now: Now, grant: &Grant, what: String) {
        tracing::error!(job = %grant.job, queue = %grant.queue, %what, "job set aside as damaged");
        self.metrics.counters.damaged_total.inc();
        let fail = Fail {
            held: held(grant),
            group: Group::from_static(DAMAGED),
            message: what,
            permanent: true,
            retry_after: None,
            lost: false,
        };
        drop(self.apply(now, Command::Fail(Box::new(fail)), None));
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
            rest => self.live().reader.payloads(rest),
        }
        .into_iter();
        let mut payload_of = |(grant, known): (&Grant, Option<Bytes>)| match known {
            Some(payload) => Ok(payload),
            None => match read.next().expect("each payload was read")? {
                Some(payload) => Ok(payload),
                None => Err(DeliveryFault::Damaged(format!(
                    "the payload of {} bytes of job {} is missing",
                    grant.payload_bytes, grant.key
                ))),
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
        let mut pending = PendingRows {
            open: self.open.as_mut(),
            turns_in_flight: &mut self.turns_in_flight,
        };
        let found = pending
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
                let page = self.live().reader.inputs(grant.key, from, INPUTS_PAGE)?;
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
        let reader = &mut self.live().reader;
        if let Some(result) = reader.result(dependency)? {
            return Ok(result);
        }
        let record = reader.job(dependency)?.map(|job| job.record);
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

fn held(grant: &Grant) -> LeaseRef {
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}
