//! Leases jobs and sends reports, one call each. For throughput use [`Client::work`].

use std::time::{Duration, Instant};

use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::client::Repeat;
use crate::convert::{answer, deliveries, ms, wire_report};
use crate::error::Error;
use crate::model::{Delivery, LeaseRef, LeaseRequest, Report, ReportResult};
use crate::pause::random_key;

/// Longest wait of one request. The client counts a lease from before the request was sent, so a long wait would use
/// up most of it.
const WAIT_SLICE_MAX: Duration = Duration::from_secs(10);

impl Client {
    /// Leases jobs; waits until there is at least one, and returns none after `wait_for`. If the answer is lost, the
    /// request is repeated with the same id and gets the same jobs.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn lease(&self, take: LeaseRequest) -> Result<Vec<Delivery>, Error> {
        let until = Instant::now() + take.wait_for;
        let slice_max = take
            .lease_for
            .map_or(WAIT_SLICE_MAX, |lease| (lease / 4).min(WAIT_SLICE_MAX));
        loop {
            let slice = until
                .saturating_duration_since(Instant::now())
                .min(slice_max);
            let request = v1::LeaseRequest {
                namespace: self.namespace(),
                queues: take.queues.iter().cloned().map(Into::into).collect(),
                mode: i32::from(v1::TakeMode::from(take.mode)),
                worker: take.worker.clone(),
                jobs_max: take.jobs_max,
                lease_ms: take.lease_for.map(ms),
                request_id: random_key(),
                wait_ms: ms(slice),
            };
            let since = Instant::now();
            let call = || {
                let request = request.clone();
                async move { self.leases_wire().lease(request).await }
            };
            let reply = self.call(Repeat::Safe, slice, call).await?;
            if !reply.deliveries.is_empty() || Instant::now() >= until {
                return Ok(deliveries(reply.deliveries, since));
            }
        }
    }

    /// Sends reports of any kinds; returns one answer for each, in order. Consecutive reports of the same kind share a
    /// request.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses a request as a whole. Reports are safe to repeat.
    pub async fn report(
        &self,
        reports: Vec<(LeaseRef, Report)>,
    ) -> Result<Vec<ReportResult>, Error> {
        let mut answers = Vec::with_capacity(reports.len());
        let mut reports = reports
            .into_iter()
            .filter_map(|(lease, report)| wire_report(0, lease, report).what)
            .peekable();
        while let Some(first) = reports.next() {
            let mut same_kind = vec![first];
            while let Some(next) = reports.next_if(|next| {
                std::mem::discriminant(next) == std::mem::discriminant(&same_kind[0])
            }) {
                same_kind.push(next);
            }
            let reply = self.send_same_kind(same_kind).await?;
            answers.extend(reply.answers.into_iter().map(answer));
        }
        Ok(answers)
    }

    async fn send_same_kind(
        &self,
        reports: Vec<v1::report::What>,
    ) -> Result<v1::ReportReply, Error> {
        let namespace = self.namespace();
        match SameKindReports::from(reports) {
            SameKindReports::Complete(items) => {
                call!(
                    self,
                    Safe,
                    leases_wire.complete(v1::CompleteRequest { namespace, items })
                )
            }
            SameKindReports::Fail(items) => call!(
                self,
                Safe,
                leases_wire.fail(v1::FailRequest { namespace, items })
            ),
            SameKindReports::Release(items) => {
                call!(
                    self,
                    Safe,
                    leases_wire.release(v1::ReleaseRequest { namespace, items })
                )
            }
            SameKindReports::Renew(items) => {
                call!(
                    self,
                    Safe,
                    leases_wire.renew(v1::RenewRequest { namespace, items })
                )
            }
            SameKindReports::Log(items) => {
                call!(
                    self,
                    Safe,
                    leases_wire.append_log(v1::AppendLogRequest { namespace, items })
                )
            }
        }
    }

    /// Deregisters a worker: its jobs are released, and the server forgets its name.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn deregister(&self, worker: &str) -> Result<(), Error> {
        let request = v1::DeregisterWorkerRequest {
            namespace: self.namespace(),
            worker: worker.to_owned(),
        };
        call!(self, Safe, leases_wire.deregister_worker(request)).map(|_| ())
    }

    /// Deregisters a worker that an operator takes for dead: its leases end as released. Returns their number, 0 for a
    /// worker that is not known.
    ///
    /// # Errors
    /// If the caller may not operate, or the server cannot be reached.
    pub async fn release_worker(&self, worker: &str) -> Result<u64, Error> {
        let request = v1::DeregisterWorkerRequest {
            namespace: self.namespace(),
            worker: worker.to_owned(),
        };
        let reply = call!(self, Safe, leases_wire.release_worker(request))?;
        Ok(reply.changed)
    }
}

/// Consecutive reports of the same kind, which one request carries.
enum SameKindReports {
    Complete(Vec<v1::Completion>),
    Fail(Vec<v1::FailureReport>),
    Release(Vec<v1::Releasing>),
    Renew(Vec<v1::Renewal>),
    Log(Vec<v1::LogLines>),
}

impl From<Vec<v1::report::What>> for SameKindReports {
    fn from(reports: Vec<v1::report::What>) -> Self {
        use v1::report::What;
        macro_rules! all {
            ($kind:ident) => {
                Self::$kind(
                    reports
                        .into_iter()
                        .filter_map(|what| {
                            if let What::$kind(item) = what {
                                Some(item)
                            } else {
                                None
                            }
                        })
                        .collect(),
                )
            };
        }
        match reports.first() {
            Some(What::Fail(_)) => all!(Fail),
            Some(What::Release(_)) => all!(Release),
            Some(What::Renew(_)) => all!(Renew),
            Some(What::Log(_)) => all!(Log),
            Some(What::Complete(_)) | None => all!(Complete),
        }
    }
}
