//! `complete jid worker queue data [option value]...`: completes a job, or moves it to the next queue.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessJob, QlessRefusal, QlessReply, QlessSet, QlessState};

use crate::call::{Arguments, Call, Pairs, data_of, list_of, refuse};
use crate::events;
use crate::number;
use crate::procedures::ending::stop_running;
use crate::procedures::history::{self, Limit};
use crate::procedures::links;
use crate::procedures::retention::{Retention, prune, retention};
use crate::state::Qless;
use crate::statistics;

/// The next queue of a job, from the options `next`, `delay` and `depends`.
struct Next<'a> {
    /// The queue where the job runs next.
    queue: &'a Bytes,
    /// Seconds until the job may run there; at 0 or less it may run now.
    delay: f64,
    /// Ids of the jobs that it waits for there.
    depends: Vec<Bytes>,
}

/// Completes a job and returns its new state: `complete`, `scheduled`, `depends` or `waiting`.
pub(super) fn complete(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let worker = arguments.required(1, "Complete(): Arg \"worker\" missing")?;
    let queue = arguments.required(2, "Complete(): Arg \"queue\" missing")?;
    let data = data_of(
        arguments.get(3),
        "Complete(): Arg \"data\" missing or not JSON: ",
    )?;
    let next = next(Pairs(arguments.from(4)))?;
    let history = history::limit(state)?;
    let retention = retention(state)?;
    check(state, jid, worker, queue)?;

    end_run(state, call, jid, data, history);
    let outcome = match next {
        Some(next) => advance(state, call, jid, queue, &next, history),
        None => complete_job(state, call, jid, queue, retention),
    };
    Ok(QlessReply::Text(Bytes::from_static(outcome.as_bytes())))
}

fn next(options: Pairs<'_>) -> Result<Option<Next<'_>>, QlessRefusal> {
    let delay = options.number("delay", "Complete(): Arg \"delay\" not a number: ")?;
    let depends = options.get("depends").map(list_of).transpose()?;
    let Some(queue) = options.get("next") else {
        let wrong = match (delay, depends) {
            (Some(_), _) => "delay",
            (None, Some(_)) => "depends",
            (None, None) => return Ok(None),
        };
        let message = format!("Complete(): \"{wrong}\" cannot be used without a \"next\".");
        return Err(QlessRefusal(message.into()));
    };
    Ok(Some(Next {
        queue,
        delay: delay.unwrap_or(0.0),
        depends: links::jids(&depends.unwrap_or_default()),
    }))
}

/// Refuses the call unless the job runs in that queue and that worker holds it.
fn check(state: &Qless, jid: &Bytes, worker: &Bytes, queue: &Bytes) -> Result<(), QlessRefusal> {
    let of_job = |what: &str, name: &[u8]| {
        let parts: [&[u8]; 4] = [b"Complete(): Job ", jid, what.as_bytes(), name];
        Err(refuse(&parts))
    };
    match state.job(jid) {
        None => of_job(" does not exist", b""),
        Some(QlessJob { state, .. }) if *state != QlessState::Running => {
            of_job(" is not currently running: ", state.as_str().as_bytes())
        }
        Some(job) if job.worker != worker => {
            of_job(" has been handed out to another worker: ", &job.worker)
        }
        Some(job) if job.queue != queue => of_job(" running in another queue: ", &job.queue),
        Some(_) => Ok(()),
    }
}

/// Ends the run: history, lock, statistics, and the fields of the job. Both outcomes start with this.
fn end_run(state: &mut Qless, call: &mut Call<'_>, jid: &Bytes, data: &Bytes, limit: Limit) {
    let Some((queue, since)) = state.job(jid).map(|job| (job.queue.clone(), job.time)) else {
        return;
    };
    let what = Bytes::from_static(b"done");
    history::append(state, jid, limit, what, call.now, Vec::new());
    stop_running(state, call, jid);
    let ran = number::sum(call.now, -since);
    state.edit_statistics(&queue, statistics::day(call.now), |it| {
        statistics::add(&mut it.run, ran);
    });
    state.edit(jid, |job| {
        *job.data = data.clone();
        *job.worker = Bytes::new();
        *job.expires = 0.0;
        *job.remaining = *job.retries;
        *job.time = call.now;
    });
    state.set_failure(jid, None);
    events::publish_if_tracked(state, call, "ql:completed", jid);
}

/// Puts the job into the next queue. The jobs that depend on it keep waiting.
fn advance(
    state: &mut Qless,
    call: &mut Call<'_>,
    jid: &Bytes,
    queue: &Bytes,
    next: &Next<'_>,
    limit: Limit,
) -> &'static str {
    let now = call.at();
    events::advanced(call, jid, queue, next.queue);
    history::put(state, jid, limit, next.queue, call.now);
    state.register_queue(next.queue, now);
    state.edit(jid, |job| {
        // The state stays `waiting` even if the job is scheduled, as in the script.
        *job.state = QlessState::Waiting;
        *job.queue = next.queue.clone();
    });
    let scheduled = (next.delay > 0.0).then(|| call.after(next.delay));
    if let (Some(at), true) = (scheduled, next.depends.is_empty()) {
        state.move_to_set(jid, next.queue, QlessSet::Scheduled, at);
        return "scheduled";
    }
    links::link(state, jid, &next.depends);
    if links::is_waiting(state, jid) {
        links::wait_for_dependencies(state, jid, next.queue, now, scheduled);
        return "depends";
    }
    // A delay is ignored if dependencies were given and all of them are met.
    state.make_ready(jid, next.queue, now);
    "waiting"
}

/// Completes the job, which then runs nowhere else. Deletes old completed jobs, which may include this one; its
/// dependents continue in any case.
fn complete_job(
    state: &mut Qless,
    call: &mut Call<'_>,
    jid: &Bytes,
    queue: &Bytes,
    retention: Retention,
) -> &'static str {
    events::completed(call, jid, queue);
    state.edit(jid, |job| {
        *job.state = QlessState::Complete;
        *job.queue = Bytes::new();
    });
    state.set_completed_at(jid, Some(call.at()));
    let dependents = state.release_dependents(jid);
    prune(state, call, retention);
    links::resume_dependents(state, &dependents, call.at());
    "complete"
}
