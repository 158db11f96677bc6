//! `put` and `requeue`: put a new job into a queue, or move an existing job there in any state.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::qless::{
    Generation, QlessAnswer, QlessJob, QlessRefusal, QlessReply, QlessSet, QlessState, QlessTag,
    QlessTime,
};

use crate::call::{Arguments, Call, Pairs, data_of, list_of, refuse};
use crate::events;
use crate::procedures::history::{self, Limit};
use crate::procedures::{ending, links, tags, throttles};
use crate::state::Qless;

/// The checked arguments of a put.
struct PutRequest<'a> {
    /// Name of the caller; `None` in the first generation, whose calls do not contain it.
    worker: Option<&'a Bytes>,
    /// The queue to put the job into.
    queue: &'a Bytes,
    /// The id of the job, new or existing.
    jid: &'a Bytes,
    /// Name of the class that runs the job.
    klass: &'a Bytes,
    /// Data of the job, as JSON text.
    data: &'a Bytes,
    /// Seconds until the job may run; at 0 or less it may run now.
    delay: f64,
    /// The options of the call.
    options: Options,
    /// Maximum number of entries of the job's history.
    history: Limit,
}

/// Options of a put. An existing job keeps its retries, tags and priority if they are absent; a new job gets the
/// defaults.
struct Options {
    /// Number of retries after the first attempt.
    retries: Option<f64>,
    /// Tags of the job, which replace its present ones.
    tags: Option<Vec<QlessTag>>,
    /// Priority: larger runs first.
    priority: Option<f64>,
    /// Ids of the jobs to wait for. If there are any, they replace the present ones.
    depends: Vec<Bytes>,
    /// Ids of the throttles that the job needs besides that of its queue; empty in generations without throttles.
    throttles: Vec<Bytes>,
}

/// `put worker queue jid klass data delay [option value]...`: puts a job and returns its jid. The first generation has
/// no argument `worker`.
pub(super) fn put(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let (worker, rest) = match call.generation {
        Generation::One => (None, arguments),
        _ => (arguments.get(0), Arguments(arguments.from(1))),
    };
    let queue = rest.queue(0)?;
    let put = PutRequest {
        worker,
        queue,
        jid: rest.required(1, "Put(): Arg \"jid\" missing")?,
        klass: rest.required(2, "Put(): Arg \"klass\" missing")?,
        data: data_of(rest.get(3), "Put(): Arg \"data\" missing or not JSON: ")?,
        delay: rest.number(4, "Put(): Arg \"delay\" not a number: ")?,
        options: options(rest.pairs(5)?, call)?,
        history: history::limit(state)?,
    };
    Ok(QlessReply::Text(apply(state, call, put)))
}

/// `requeue`: a put of a job that must exist.
pub(super) fn requeue(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(2)?;
    if state.job(jid).is_none() {
        return Err(refuse(&[b"Requeue(): Job ", jid, b" does not exist"]));
    }
    put(state, call, arguments)
}

fn options(pairs: Pairs<'_>, call: &Call<'_>) -> Result<Options, QlessRefusal> {
    let list = |option| pairs.get(option).map(list_of).transpose();
    let retries = pairs.number("retries", "Put(): Arg \"retries\" not a number: ")?;
    let tags = list("tags")?;
    let priority = pairs.number("priority", "Put(): Arg \"priority\" not a number")?;
    let depends = list("depends")?.unwrap_or_default();
    let throttles = if call.has_throttles() {
        list("throttles")?.unwrap_or_default()
    } else {
        Vec::new()
    };
    Ok(Options {
        retries,
        tags,
        priority,
        depends: links::jids(&depends),
        throttles: links::jids(&throttles),
    })
}

fn apply(state: &mut Qless, call: &mut Call<'_>, mut put: PutRequest<'_>) -> Bytes {
    let (jid, now) = (put.jid, call.at());
    let before = state.job(jid).cloned();
    tags::remove_all(state, call, jid);
    drop_dependencies(state, jid, &put.options.depends);
    events::put(call, jid, put.queue);
    state.ensure_job(jid);
    history::put(state, jid, put.history, put.queue, call.now);
    if let Some(before) = &before {
        remove_from_queue(state, call, before, put.worker);
        put.options
            .throttles
            .retain(|it| *it != throttles::queue_throttle(&before.queue));
        subtract_failed_job(state, before, put.queue);
    }
    write_record(state, call, &put);
    let tags = state.job(jid).map(|job| job.tags.clone());
    tags::add_all(state, jid, &tags.unwrap_or_default(), now);
    links::link(state, jid, &put.options.depends);
    place_in_queue(state, call, &put);
    state.register_queue(put.queue, now);
    events::publish_if_tracked(state, call, "ql:put", jid);
    jid.clone()
}

/// Removes the dependencies that are not among the new ones. Does nothing if there are no new ones.
fn drop_dependencies(state: &mut Qless, jid: &Bytes, depends: &[Bytes]) {
    let Some(job) = state.job(jid).filter(|_| !depends.is_empty()) else {
        return;
    };
    let stay: BTreeSet<&Bytes> = depends.iter().collect();
    for on in job.dependencies.clone() {
        if !stay.contains(&on) {
            state.unlink(jid, &on);
        }
    }
}

/// Removes an existing job from its sets and lists. Its worker gets a message, unless that worker puts the job itself.
fn remove_from_queue(
    state: &mut Qless,
    call: &mut Call<'_>,
    before: &QlessJob,
    worker: Option<&Bytes>,
) {
    let jid = &before.jid;
    state.move_to(jid, None);
    throttles::stop_waiting(state, jid);
    state.set_completed_at(jid, None);
    state.leave_failure_group(jid);
    if !before.worker.is_empty() {
        state.set_worker_entry(jid, &before.worker, None);
        if worker != Some(&before.worker) {
            events::lock_lost(call, jid, &before.worker);
        }
    }
}

/// Subtracts one failed job from the statistics of the queue that a failed job is put into.
fn subtract_failed_job(state: &mut Qless, before: &QlessJob, queue: &Bytes) {
    if let (QlessState::Failed, Some(failure)) = (before.state, &before.failure) {
        ending::subtract_failed(state, queue, failure.when);
    }
}

fn write_record(state: &mut Qless, call: &Call<'_>, put: &PutRequest<'_>) {
    let PutRequest { options, .. } = put;
    let mut throttles = options.throttles.clone();
    throttles.push(throttles::queue_throttle(put.queue));
    state.edit(put.jid, |job| {
        *job.klass = put.klass.clone();
        *job.data = put.data.clone();
        *job.priority = options.priority.unwrap_or(*job.priority);
        if let Some(tags) = &options.tags {
            job.tags.clone_from(tags);
        }
        *job.state = if put.delay > 0.0 {
            QlessState::Scheduled
        } else {
            QlessState::Waiting
        };
        *job.worker = Bytes::new();
        *job.expires = 0.0;
        *job.queue = put.queue.clone();
        *job.retries = options.retries.unwrap_or(*job.retries);
        *job.remaining = *job.retries;
        *job.time = call.now;
        if call.has_throttles() {
            *job.throttles = throttles;
        }
    });
}

/// Moves the job into the set where it waits for other jobs, for its time or for a throttle; otherwise into the ready
/// jobs.
fn place_in_queue(state: &mut Qless, call: &Call<'_>, put: &PutRequest<'_>) {
    let (jid, queue, now) = (put.jid, put.queue, call.at());
    let scheduled: Option<QlessTime> = (put.delay > 0.0).then(|| call.after(put.delay));
    if links::is_waiting(state, jid) {
        links::wait_for_dependencies(state, jid, queue, now, scheduled);
    } else if let Some(at) = scheduled {
        state.move_to_set(jid, queue, QlessSet::Scheduled, at);
    } else if let Some(throttle) = throttles::blocking_throttle(state, jid, call) {
        throttles::wait(state, call, jid, queue, &throttle, put.history);
    } else {
        state.make_ready(jid, queue, now);
    }
}
