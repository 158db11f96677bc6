//! Leases and reports.

use std::time::Duration;

use ganger_proto::{convert, v1};
use ganger_types::command::{
    AppendLog, Complete, Fail, Lease, LeaseRef, Next, Release, Renew, TakeFrom,
};
use ganger_types::reference::read_held;
use ganger_types::{Command, Group, LeaseToken, Namespace, RequestId, ShardId, Worker, limits};

use super::{At, at_most, bounded, each_job, ms, name, progress, queue, unless_empty, wait_for};
use crate::problem::Problem;

/// Longest session name of a stream, so that a batch number fits behind it.
const SESSION_BYTES_MAX: usize = 64;

/// A lease request and how long to wait.
pub(crate) fn lease(wire: &v1::LeaseRequest) -> Result<(Lease, Duration), Problem> {
    let command = Lease {
        namespace: super::namespace(&wire.namespace)?,
        queues: queues(&wire.queues)?,
        mode: convert::take_mode(At::top("mode"), wire.mode)?,
        worker: Some(name(At::top("worker"), &wire.worker, Worker::new)?),
        jobs_max: bounded(
            At::top("jobs_max"),
            wire.jobs_max,
            1,
            limits::LEASE_JOBS_MAX,
        )?,
        lease_for: wire.lease_ms.map(ms),
        request: unless_empty(At::top("request_id"), &wire.request_id, RequestId::new)?,
    };
    Ok((command, wait_for(At::top("wait_ms"), wire.wait_ms)?))
}

/// What a worker's hello asks for: the lease request that the stream repeats, without its number of jobs and request id.
pub(crate) struct StreamSettings {
    pub(crate) lease: Lease,
    pub(crate) session: String,
    pub(crate) batches_received: u64,
}

pub(crate) fn hello(wire: v1::Hello) -> Result<StreamSettings, Problem> {
    at_most(
        At::top("hello.session"),
        wire.session.len(),
        SESSION_BYTES_MAX,
    )?;
    let lease = Lease {
        namespace: super::namespace(&wire.namespace)?,
        queues: queues(&wire.queues)?,
        mode: convert::take_mode(At::top("mode"), wire.mode)?,
        worker: Some(name(At::top("hello.worker"), &wire.worker, Worker::new)?),
        jobs_max: 0,
        lease_for: wire.lease_ms.map(ms),
        request: None,
    };
    Ok(StreamSettings {
        lease,
        session: wire.session,
        batches_received: wire.batches_received,
    })
}

fn queues(wire: &[v1::TakeFrom]) -> Result<Vec<TakeFrom>, Problem> {
    let at = At::top("queues");
    if wire.is_empty() {
        return Err(Problem::missing(at, "name at least one queue"));
    }
    at_most(at, wire.len(), limits::LEASE_QUEUES_MAX)?;
    let take = |(index, take): (usize, &v1::TakeFrom)| {
        Ok(TakeFrom {
            queue: queue(at.entry(index).field("queue"), &take.queue)?,
            weight: take.weight.max(1),
        })
    };
    wire.iter().enumerate().map(take).collect()
}

pub(crate) fn held(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    wire: Option<&v1::Held>,
) -> Result<LeaseRef, Problem> {
    let at = at.field("held");
    let wire = wire.ok_or_else(|| Problem::missing(at, "name the job and show its token"))?;
    let token = LeaseToken::from_bytes(&wire.token).ok_or_else(|| {
        let bytes = wire.token.len();
        Problem::invalid(
            at.field("token"),
            format_args!("{bytes} bytes are no token: send the 28 that came with the job"),
        )
    })?;
    Ok(LeaseRef {
        namespace: namespace.clone(),
        job: name(at.field("job"), &wire.job, |text| {
            read_held(text.as_bytes(), here)
        })?,
        token,
    })
}

/// One report as a command.
pub(crate) fn report(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    wire: v1::report::What,
) -> Result<Command, Problem> {
    use v1::report::What;
    match wire {
        What::Complete(item) => complete(here, at, namespace, item),
        What::Fail(item) => fail(here, at, namespace, item),
        What::Release(item) => release(here, at, namespace, item),
        What::Renew(item) => renew(here, at, namespace, item),
        What::Log(item) => log(here, at, namespace, item),
    }
}

fn complete(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    item: v1::Completion,
) -> Result<Command, Problem> {
    let held = held(here, at, namespace, item.held.as_ref())?;
    let next = item
        .next
        .map(|next| next_queue(here, at.field("next"), next))
        .transpose()?;
    Ok(Command::Complete(Box::new(Complete {
        held,
        result: item.result,
        next,
    })))
}

fn next_queue(here: &ShardId, at: At<'_>, wire: v1::Next) -> Result<Next, Problem> {
    at_most(at.field("after"), wire.after.len(), limits::INPUTS_MAX)?;
    Ok(Next {
        queue: queue(at.field("queue"), &wire.queue)?,
        delay: ms(wire.delay_ms),
        after: each_job(here, at.field("after"), &wire.after)?,
        payload: wire.payload,
    })
}

fn fail(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    item: v1::FailureReport,
) -> Result<Command, Problem> {
    Ok(Command::Fail(Box::new(Fail {
        held: held(here, at, namespace, item.held.as_ref())?,
        group: name(at.field("group"), &item.group, Group::new)?,
        message: cut(item.message),
        permanent: item.permanent,
        retry_after: item.retry_after_ms.map(ms),
        lost: item.lost,
    })))
}

fn release(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    item: v1::Releasing,
) -> Result<Command, Problem> {
    Ok(Command::Release(Box::new(Release {
        held: held(here, at, namespace, item.held.as_ref())?,
        delay: ms(item.delay_ms),
        counted: item.counted,
        by_server: false,
        keep_place: item.keep_place,
        reason: cut(item.reason),
    })))
}

fn renew(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    item: v1::Renewal,
) -> Result<Command, Problem> {
    Ok(Command::Renew(Box::new(Renew {
        held: held(here, at, namespace, item.held.as_ref())?,
        lease_for: item.lease_ms.map(ms),
        progress: item
            .progress
            .map(|wire| progress(at.field("progress"), wire))
            .transpose()?,
        payload: item.payload,
    })))
}

fn log(
    here: &ShardId,
    at: At<'_>,
    namespace: &Namespace,
    item: v1::LogLines,
) -> Result<Command, Problem> {
    at_most(
        at.field("bytes"),
        item.bytes.len(),
        limits::LOG_CHUNK_BYTES_MAX,
    )?;
    Ok(Command::AppendLog(Box::new(AppendLog {
        held: held(here, at, namespace, item.held.as_ref())?,
        offset: item.offset,
        bytes: item.bytes,
    })))
}

/// A message as long as it is kept, cut between characters: a report must not fail for its length.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(limits::MESSAGE_BYTES_MAX));
    text
}
