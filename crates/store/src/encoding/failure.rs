//! Failures, progress, reports: what attempts leave on a job.

use ganger_types::job::{LastReport, ReportKind};
use ganger_types::{Failure, Group, LeaseToken, Progress, Timestamp, Worker};

use super::{Cursor, DecodeError, Writer};

pub(super) fn write_failure(out: &mut Writer<'_>, failure: &Failure) {
    out.bytes(failure.group.as_bytes());
    out.bytes(failure.message.as_bytes());
    out.number(failure.at.0);
    out.option(failure.worker.as_ref(), |out, worker| {
        out.bytes(worker.as_bytes());
    });
}

pub(super) fn read_failure(from: &mut Cursor<'_>) -> Result<Failure, DecodeError> {
    Ok(Failure {
        group: from.name(Group::new)?,
        message: from.text()?.to_owned(),
        at: Timestamp(from.number()?),
        worker: from.option(|from| from.name(Worker::new))?,
    })
}

pub(super) fn write_progress(out: &mut Writer<'_>, progress: &Progress) {
    out.number(u64::from(progress.millionths));
    out.bytes(progress.message.as_bytes());
}

pub(super) fn read_progress(from: &mut Cursor<'_>) -> Result<Progress, DecodeError> {
    Ok(Progress {
        millionths: from.small()?,
        message: from.text()?.to_owned(),
    })
}

pub(super) fn write_token(out: &mut Writer<'_>, token: LeaseToken) {
    out.raw(&token.to_bytes());
}

pub(super) fn read_token(from: &mut Cursor<'_>) -> Result<LeaseToken, DecodeError> {
    let raw = from.raw(28)?;
    Ok(LeaseToken::from_bytes(raw).expect("a token has 28 bytes"))
}

pub(super) fn write_report(out: &mut Writer<'_>, report: &LastReport) {
    write_token(out, report.token);
    write_kind(out, report.kind);
}

pub(super) fn write_kind(out: &mut Writer<'_>, kind: ReportKind) {
    out.byte(match kind {
        ReportKind::Complete => 1,
        ReportKind::Fail => 2,
        ReportKind::Release => 3,
    });
}

pub(super) fn read_report(from: &mut Cursor<'_>) -> Result<LastReport, DecodeError> {
    let token = read_token(from)?;
    let kind = read_kind(from)?;
    Ok(LastReport { token, kind })
}

pub(super) fn read_kind(from: &mut Cursor<'_>) -> Result<ReportKind, DecodeError> {
    Ok(match from.byte()? {
        1 => ReportKind::Complete,
        2 => ReportKind::Fail,
        3 => ReportKind::Release,
        _ => return Err(from.error("has an unknown kind of report")),
    })
}
