//! Writes jobs and recurring jobs as JSON, in the form that clients of the script expect.

use ganger_types::qless::{Generation, QlessHistoryEntry, QlessJob, QlessRecurring};

use crate::json::Writer;
use crate::state::Qless;

/// Estimates the length of a job's JSON in bytes.
pub(crate) fn json_bytes_estimate(job: &QlessJob) -> usize {
    const BYTES_OF_FIELDS: usize = 512;
    const BYTES_OF_ENTRY: usize = 64;
    BYTES_OF_FIELDS + job.data.len() + job.data.len() / 8 + job.history.len() * BYTES_OF_ENTRY
}

/// Writes a job in the form that all commands return. Only the third generation gets the throttles.
pub(crate) fn job(out: &mut Writer, state: &Qless, generation: Generation, job: &QlessJob) {
    out.begin();
    out.key("jid").string(&job.jid);
    out.key("klass").string(&job.klass);
    out.key("state").string(job.state.as_str());
    out.key("queue").string(&job.queue);
    out.key("worker").string(&job.worker);
    out.key("tracked").boolean(state.is_tracked(&job.jid));
    out.key("priority").number(job.priority);
    out.key("expires").number(job.expires);
    out.key("retries").number(job.retries);
    out.key("remaining").number(job.remaining.floor());
    out.key("data").string(&job.data);
    out.key("tags").tags(&job.tags);
    out.key("history").list(&job.history, history_entry);
    out.key("failure");
    failure(out, job);
    out.key("spawned_from_jid");
    match &job.spawned_from {
        Some(jid) => out.string(jid),
        None => out.boolean(false),
    }
    out.key("dependents").strings(&job.dependents);
    out.key("dependencies").strings(&job.dependencies);
    if generation >= Generation::Three {
        out.key("throttles").strings(&job.throttles);
    }
    out.end();
}

/// Writes a recurring job. Only the third generation gets the throttles.
pub(crate) fn recurring(out: &mut Writer, generation: Generation, job: &QlessRecurring) {
    out.begin();
    out.key("jid").string(&job.jid);
    out.key("klass").string(&job.klass);
    out.key("state").string("recur");
    out.key("queue").string(&job.queue);
    out.key("priority").number(job.priority);
    out.key("interval").number(job.interval);
    out.key("retries").number(job.retries);
    out.key("count")
        .number(crate::number::from_count(job.count));
    out.key("data").string(&job.data);
    out.key("tags").tags(&job.tags);
    out.key("backlog").number(job.backlog);
    if generation >= Generation::Three {
        out.key("throttles").strings(&job.throttles);
    }
    out.end();
}

/// Writes an entry of the history. The entry's own `what` and `when` win over further keys with these names.
fn history_entry(out: &mut Writer, entry: &QlessHistoryEntry) {
    out.begin();
    out.key("what").string(&entry.what);
    out.key("when").number(entry.when);
    for (key, value) in &entry.extra {
        if key != "what" && key != "when" {
            out.key(key).raw(value);
        }
    }
    out.end();
}

fn failure(out: &mut Writer, job: &QlessJob) {
    out.begin();
    if let Some(failure) = &job.failure {
        out.key("group").string(&failure.group);
        out.key("message").string(&failure.message);
        out.key("when").number(failure.when);
        out.key("worker").string(&failure.worker);
    }
    out.end();
}
