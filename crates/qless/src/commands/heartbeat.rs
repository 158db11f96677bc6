//! `heartbeat jid worker [data]`: extends the lock of a job for the worker that holds it. The lock may have expired, if
//! no other worker has got the job since.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessJob, QlessRefusal, QlessReply, QlessSet, QlessState};

use crate::call::{Arguments, Call, json_of, refuse};
use crate::number;
use crate::procedures::configuration;
use crate::state::Qless;

/// Extends the lock and returns its new expiry in whole seconds since the epoch, rounded towards 0.
pub(super) fn heartbeat(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let worker = arguments.required(1, "Heartbeat(): Arg \"worker\" missing")?;
    let data = arguments.get(2);
    data.map(json_of).transpose()?;
    let queue = check(state, jid, worker)?.queue.clone();
    let expires = call.after(configuration::heartbeat(state, &queue)?);

    state.edit(jid, |job| {
        *job.expires = expires.seconds();
        if let Some(data) = data {
            *job.data = data.clone();
        }
    });
    state.set_worker_entry(jid, worker, Some(expires));
    state.move_to_set(jid, &queue, QlessSet::Locks, expires);
    state.set_worker_seen(worker, Some(call.at()));
    Ok(QlessReply::Number(number::truncate(expires.seconds())))
}

/// Returns the job if it runs and that worker holds it; refuses the call otherwise.
fn check<'a>(state: &'a Qless, jid: &Bytes, worker: &Bytes) -> Result<&'a QlessJob, QlessRefusal> {
    let of_job = |what: &str, name: &[u8]| {
        let parts: [&[u8]; 4] = [b"Heartbeat(): Job ", jid, what.as_bytes(), name];
        Err(refuse(&parts))
    };
    match state.job(jid) {
        None => of_job(" does not exist", b""),
        Some(QlessJob { state, .. }) if *state != QlessState::Running => {
            of_job(" not currently running: ", state.as_str().as_bytes())
        }
        Some(job) if job.worker != worker || worker.is_empty() => {
            of_job(" given out to another worker: ", &job.worker)
        }
        Some(job) => Ok(job),
    }
}
