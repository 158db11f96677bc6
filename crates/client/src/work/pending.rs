//! Reports without an answer: kept whole, so that they can be sent again over a new connection.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Call, closed};
use crate::model::{LeaseRef, Report, ReportResult};

/// Maximum number of reports without an answer; beyond it no calls are accepted.
const REPORTS_MAX: usize = 8_192;
/// Maximum bytes of results, payloads and logs in them.
const BYTES_MAX: usize = 64 << 20;

/// A report without an answer.
pub(crate) struct Pending {
    pub(crate) lease: LeaseRef,
    pub(crate) report: Report,
    /// Time at which it was last sent.
    pub(crate) sent_at: Instant,
    /// The call it belongs to, and its index there; `None` for the driver's own renewals.
    origin: Option<(u64, usize)>,
}

/// A call whose answers are not complete.
struct OpenCall {
    answers: Vec<Option<ReportResult>>,
    missing: usize,
    answer: oneshot::Sender<Vec<ReportResult>>,
}

/// Reports that were sent and have no answer yet.
#[derive(Default)]
pub(crate) struct PendingReports {
    reports: BTreeMap<u64, Pending>,
    calls: BTreeMap<u64, OpenCall>,
    next_number: u64,
    next_call: u64,
    bytes: usize,
}

impl PendingReports {
    /// Whether more calls may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.reports.len() < REPORTS_MAX && self.bytes < BYTES_MAX
    }

    /// Whether no report waits for an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Adds a call; returns the numbers of its reports.
    pub(crate) fn take(&mut self, call: Call, now: Instant) -> Vec<u64> {
        let id = self.next_call;
        self.next_call += 1;
        let count = call.reports.len();
        self.calls.insert(
            id,
            OpenCall {
                answers: (0..count).map(|_| None).collect(),
                missing: count,
                answer: call.answer,
            },
        );
        let reports = call.reports.into_iter().enumerate();
        let numbers = reports
            .map(|(place, (lease, report))| self.add(lease, report, Some((id, place)), now))
            .collect();
        self.flush();
        numbers
    }

    /// Adds a renewal of the driver.
    pub(crate) fn add_renewal(&mut self, lease: LeaseRef, now: Instant) -> u64 {
        let report = Report::Renew(crate::RenewalReport::default());
        self.add(lease, report, None, now)
    }

    fn add(
        &mut self,
        lease: LeaseRef,
        report: Report,
        origin: Option<(u64, usize)>,
        now: Instant,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.bytes += bytes_of(&report);
        let pending = Pending {
            lease,
            report,
            sent_at: now,
            origin,
        };
        self.reports.insert(number, pending);
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Pending> {
        self.reports.get(&number)
    }

    /// Removes a report that has its answer.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.reports.remove(&number)?;
        self.bytes -= bytes_of(&pending.report);
        Some(pending)
    }

    /// Stores an answer with its call, and finishes complete calls, in order.
    pub(crate) fn answer(&mut self, pending: &Pending, result: ReportResult) {
        let Some((call, place)) = pending.origin else {
            return;
        };
        if let Some(open) = self.calls.get_mut(&call) {
            if open.answers[place].replace(result).is_none() {
                open.missing -= 1;
            }
            if open.missing == 0 {
                self.finish(call);
            }
        }
        self.flush();
    }

    fn finish(&mut self, call: u64) {
        // An empty call waits for all earlier calls; see `flush`.
        if self
            .calls
            .get(&call)
            .is_some_and(|open| open.answers.is_empty())
        {
            return;
        }
        if let Some(open) = self.calls.remove(&call) {
            let answers = open
                .answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(|| Err(closed())));
            open.answer.send(answers.collect()).ok();
        }
    }

    /// Answers empty calls without an earlier unanswered call.
    fn flush(&mut self) {
        while let Some(first) = self.calls.first_entry() {
            if !first.get().answers.is_empty() {
                return;
            }
            first.remove().answer.send(Vec::new()).ok();
        }
    }

    /// Returns all numbers in order, for a new connection; the driver's own renewals are made again instead of
    /// repeated.
    pub(crate) fn for_a_new_stream(&mut self, now: Instant) -> Vec<u64> {
        self.reports.retain(|_, pending| pending.origin.is_some());
        self.reports
            .iter_mut()
            .map(|(number, pending)| {
                pending.sent_at = now;
                *number
            })
            .collect()
    }
}

fn bytes_of(report: &Report) -> usize {
    match report {
        Report::Complete { result, next } => {
            let payload = next.as_ref().and_then(|next| next.payload.as_ref());
            result.as_ref().map_or(0, bytes::Bytes::len) + payload.map_or(0, bytes::Bytes::len)
        }
        Report::Fail(failing) => failing.message.len(),
        Report::Release(releasing) => releasing.reason.len(),
        Report::Renew(renewing) => renewing.payload.as_ref().map_or(0, bytes::Bytes::len),
        Report::Log { bytes, .. } => bytes.len(),
    }
}
