//! Conversion of deliveries and reports.

use std::time::{Duration, Instant};

use ganger_proto::v1;

use super::{at, ms, pairs, some, state};
use crate::error::Error;
use crate::model::{
    Delivery, FailureReport, LeaseRef, LeaseToken, Next, ReleaseReport, RenewalReport, Report,
    ReportAnswer, ReportResult, TakeFrom,
};

impl From<LeaseRef> for v1::Held {
    fn from(lease: LeaseRef) -> Self {
        Self {
            job: lease.job,
            token: lease.token.0,
        }
    }
}

impl From<TakeFrom> for v1::TakeFrom {
    fn from(take: TakeFrom) -> Self {
        Self {
            queue: take.queue,
            weight: take.weight,
        }
    }
}

/// Converts deliveries whose leases were requested at `since`, from which they are counted.
pub(crate) fn deliveries(wire: Vec<v1::Delivery>, since: Instant) -> Vec<Delivery> {
    wire.into_iter().map(|one| delivery(one, since)).collect()
}

fn delivery(wire: v1::Delivery, since: Instant) -> Delivery {
    let lease_for = Duration::from_millis(wire.lease_ms);
    Delivery {
        lease: LeaseRef {
            job: wire.job,
            token: LeaseToken(wire.token),
        },
        shard: wire.shard,
        number: wire.number,
        queue: wire.queue,
        kind: wire.kind,
        attempt: wire.attempt,
        retries_left: wire.retries_left,
        lease_for,
        expires_at: since + lease_for,
        timeout: wire.timeout_ms.map(Duration::from_millis),
        deadline: wire.deadline_at_us.map(at),
        created_at: at(wire.created_at_us),
        priority: wire.priority,
        payload: wire.payload,
        inputs: wire.inputs,
        graph: some(wire.graph),
        tags: wire.tags,
        labels: pairs(wire.labels),
    }
}

pub(crate) fn wire_report(number: u64, lease: LeaseRef, report: Report) -> v1::Report {
    use v1::report::What;
    let held = lease.into();
    let what = match report {
        Report::Complete { result, next } => What::Complete(completion(held, result, next)),
        Report::Fail(failing) => What::Fail(failure(held, failing)),
        Report::Release(releasing) => What::Release(release(held, releasing)),
        Report::Renew(renewing) => What::Renew(renewal(held, renewing)),
        Report::Log { offset, bytes } => What::Log(v1::LogLines {
            held: Some(held),
            offset,
            bytes,
        }),
    };
    v1::Report {
        number,
        what: Some(what),
    }
}

fn completion(held: v1::Held, result: Option<bytes::Bytes>, next: Option<Next>) -> v1::Completion {
    v1::Completion {
        held: Some(held),
        result,
        next: next.map(|next| v1::Next {
            queue: next.queue,
            delay_ms: ms(next.delay),
            after: next.after,
            payload: next.payload,
        }),
    }
}

fn failure(held: v1::Held, failing: FailureReport) -> v1::FailureReport {
    v1::FailureReport {
        held: Some(held),
        group: failing.group,
        message: failing.message,
        permanent: failing.permanent,
        retry_after_ms: failing.retry_after.map(ms),
        lost: failing.lost,
    }
}

fn release(held: v1::Held, releasing: ReleaseReport) -> v1::Releasing {
    v1::Releasing {
        held: Some(held),
        delay_ms: ms(releasing.delay),
        counted: releasing.counted,
        keep_place: releasing.keep_place,
        reason: releasing.reason,
    }
}

fn renewal(held: v1::Held, renewing: RenewalReport) -> v1::Renewal {
    v1::Renewal {
        held: Some(held),
        lease_ms: renewing.lease_for.map(ms),
        progress: renewing.progress.map(Into::into),
        payload: renewing.payload,
    }
}

/// Converts the answer to a report.
pub(crate) fn answer(wire: v1::ReportAnswer) -> ReportResult {
    use v1::report_answer::Outcome;
    match wire.outcome {
        Some(Outcome::Reported(reported)) => Ok(ReportAnswer::Ended {
            state: state(reported.state)?,
            retry_at: reported.retry_at_us.map(at),
            repeat: reported.repeat,
        }),
        Some(Outcome::Renewed(renewed)) => Ok(ReportAnswer::Renewed {
            lease_for: Duration::from_millis(renewed.lease_ms),
        }),
        Some(Outcome::Log(log)) => Ok(ReportAnswer::Logged {
            bytes: log.bytes,
            dropped: log.dropped,
        }),
        Some(Outcome::Refused(error)) => Err(Error::from_item(error)),
        None => Err(Error::bad_reply("an empty answer to a report")),
    }
}
