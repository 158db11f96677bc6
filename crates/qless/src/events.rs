//! Messages that calls publish to subscribers. The order of the keys in a payload is part of the contract.

use bytes::Bytes;

use crate::call::Call;
use crate::json::Writer;
use crate::state::Qless;

/// The channel that gets all messages but those about tracked jobs.
const LOG: Bytes = Bytes::from_static(b"ql:log");

/// Publishes the jid on the channel `what`, if the job is tracked.
pub(crate) fn publish_if_tracked(
    state: &Qless,
    call: &mut Call<'_>,
    what: &'static str,
    jid: &Bytes,
) {
    if state.is_tracked(jid) {
        call.publish(what, jid.clone());
    }
}

/// Publishes that a job was put into `queue`.
pub(crate) fn put(call: &mut Call<'_>, jid: &Bytes, queue: &Bytes) {
    let payload = object(&[("jid", jid), ("event", b"put"), ("queue", queue)]);
    call.publish(LOG, payload);
}

/// Publishes that a job is complete.
pub(crate) fn completed(call: &mut Call<'_>, jid: &Bytes, queue: &Bytes) {
    let payload = object(&[("jid", jid), ("event", b"completed"), ("queue", queue)]);
    call.publish(LOG, payload);
}

/// Publishes that a job is complete in `queue` and moves to the queue `to`.
pub(crate) fn advanced(call: &mut Call<'_>, jid: &Bytes, queue: &Bytes, to: &Bytes) {
    let payload = object(&[
        ("jid", jid),
        ("to", to),
        ("event", b"advanced"),
        ("queue", queue),
    ]);
    call.publish(LOG, payload);
}

/// Publishes that a job failed.
pub(crate) fn failed(
    call: &mut Call<'_>,
    jid: &Bytes,
    group: &[u8],
    message: &[u8],
    worker: &Bytes,
) {
    let payload = object(&[
        ("message", message),
        ("jid", jid),
        ("group", group),
        ("event", b"failed"),
        ("worker", worker),
    ]);
    call.publish(LOG, payload);
}

/// Publishes that a worker lost the lock of a job, first on the worker's own channel.
pub(crate) fn lock_lost(call: &mut Call<'_>, jid: &Bytes, worker: &Bytes) {
    let payload = object(&[("jid", jid), ("event", b"lock_lost"), ("worker", worker)]);
    call.publish(worker_channel(worker), payload.clone());
    call.publish(LOG, payload);
}

/// Publishes that a job was cancelled, then tells its worker. `queue` and `worker` are `None` if the job does not
/// exist.
pub(crate) fn canceled(
    call: &mut Call<'_>,
    jid: &Bytes,
    queue: Option<&Bytes>,
    worker: Option<&Bytes>,
) {
    let mut json = Writer::default();
    json.begin();
    json.key("jid").string(jid);
    text_or_false(&mut json, "queue", queue);
    json.key("event").string("canceled");
    text_or_false(&mut json, "worker", worker);
    json.end();
    let payload = Bytes::from(json.finish());
    call.publish(LOG, payload.clone());
    if let Some(worker) = worker.filter(|it| !it.is_empty()) {
        call.publish(worker_channel(worker), payload);
    }
}

/// Publishes the new value of an option.
pub(crate) fn config_set(call: &mut Call<'_>, option: &Bytes, value: &Bytes) {
    let payload = object(&[
        ("option", option),
        ("event", b"config_set"),
        ("value", value),
    ]);
    call.publish(LOG, payload);
}

/// Publishes that an option has its default again.
pub(crate) fn config_unset(call: &mut Call<'_>, option: &Bytes) {
    let payload = object(&[("event", b"config_unset"), ("option", option)]);
    call.publish(LOG, payload);
}

/// Returns the channel with the messages for one worker.
fn worker_channel(worker: &Bytes) -> Bytes {
    [b"ql:w:", &worker[..]].concat().into()
}

fn object(members: &[(&str, &[u8])]) -> Bytes {
    // Quotes, a colon and a comma for each member, and the braces.
    let lengths = members.iter().map(|(key, text)| key.len() + text.len() + 6);
    let mut json = Writer::with_capacity(lengths.sum::<usize>() + 1);
    json.begin();
    for (key, text) in members {
        json.key(key).string(text);
    }
    json.end();
    json.finish().into()
}

fn text_or_false(json: &mut Writer, key: &str, text: Option<&Bytes>) {
    match text {
        Some(text) => json.key(key).string(text),
        None => json.key(key).boolean(false),
    }
}
