//! `recur`, `recur.get`, `recur.update`, `recur.tag`, `recur.untag`, `unrecur`: recurring jobs, which create other jobs
//! ("children") at an interval.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRecurring, QlessRefusal, QlessReply, QlessTime};

use super::tag::{extend, retain};
use crate::call::{Arguments, Call, Pairs, data_of, list_of, number_of, refuse};
use crate::json::Writer;
use crate::number;
use crate::procedures::{links, throttles};
use crate::state::Qless;
use crate::view;

/// `recur queue jid klass data interval interval offset [option value]..`: creates a recurring job and returns its jid.
/// An existing one is replaced, but keeps its number of children.
pub(super) fn recur(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let queue = arguments.queue(0)?;
    let jid = arguments.required(1, "RecurringJob On(): Arg \"jid\" missing")?;
    let klass = arguments.required(2, "RecurringJob On(): Arg \"klass\" missing")?;
    let spec = arguments.required(4, "RecurringJob On(): Arg \"spec\" missing")?;
    let data = data_of(
        arguments.get(3),
        "RecurringJob On(): Arg \"data\" not JSON: ",
    )?;
    if spec != "interval" {
        return Err(refuse(&[b"Recur(): schedule type \"", spec, b"\" unknown"]));
    }
    let interval = arguments.number(5, "Recur(): Arg \"interval\" not a number: ")?;
    let offset = arguments.number(6, "Recur(): Arg \"offset\" not a number: ")?;
    if interval <= 0.0 {
        return Err(refuse(&[
            b"Recur(): Arg \"interval\" must be greater than 0",
        ]));
    }
    let job = QlessRecurring {
        jid: jid.clone(),
        klass: klass.clone(),
        data: data.clone(),
        queue: queue.clone(),
        interval,
        count: state.recurring(jid).map_or(0, |before| before.count),
        next_at: call.after(offset),
        ..options(call, queue, arguments.pairs(7)?)?
    };

    state.put_recurring(job);
    state.register_queue(queue, call.at());
    Ok(QlessReply::Text(jid.clone()))
}

/// Returns a recurring job that has only the fields that options set; the caller fills in the others.
fn options(
    call: &Call<'_>,
    queue: &Bytes,
    pairs: Pairs<'_>,
) -> Result<QlessRecurring, QlessRefusal> {
    let tags = pairs.get("tags").map(list_of).transpose()?;
    let priority = pairs.number("priority", "Recur(): Arg \"priority\" not a number: ")?;
    let retries = pairs.number("retries", "Recur(): Arg \"retries\" not a number: ")?;
    let backlog = pairs.number("backlog", "Recur(): Arg \"backlog\" not a number: ")?;
    let mut required = Vec::new();
    if call.has_throttles() {
        let list = pairs.get("throttles").map(list_of).transpose()?;
        required = links::jids(&list.unwrap_or_default());
        required.push(throttles::queue_throttle(queue));
    }
    Ok(QlessRecurring {
        jid: Bytes::new(),
        klass: Bytes::new(),
        data: Bytes::new(),
        queue: Bytes::new(),
        priority: priority.unwrap_or(0.0),
        retries: retries.unwrap_or(0.0),
        interval: 0.0,
        backlog: backlog.unwrap_or(0.0),
        count: 0,
        tags: tags.unwrap_or_default(),
        next_at: QlessTime::default(),
        throttles: required,
    })
}

/// `recur.get jid`: returns a recurring job as JSON; nil if it does not exist.
pub(super) fn get(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let Some(job) = state.recurring(arguments.recurring(0)?) else {
        return Ok(QlessReply::Nil);
    };
    let mut out = Writer::default();
    view::recurring(&mut out, call.generation, job);
    Ok(out.into())
}

/// `recur.update jid [key value]..`: changes all given fields or, if one is wrong, none.
pub(super) fn update(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.recurring(0)?;
    let Some(mut job) = state.recurring(jid).cloned() else {
        return Err(refuse(&[b"Recur(): No recurring job ", jid]));
    };
    let mut queues = Vec::new();
    for pair in arguments.from(1).chunks(2) {
        let [key, value] = pair else {
            return Err(refuse(&[b"No value provided for ", &pair[0]]));
        };
        change(&mut job, key, value)?;
        if key == "queue" {
            queues.push(value);
        }
    }

    state.put_recurring(job);
    for queue in queues {
        state.register_queue(queue, call.at());
    }
    Ok(QlessReply::Number(1))
}

/// Changes one field of a recurring job.
fn change(job: &mut QlessRecurring, key: &Bytes, value: &Bytes) -> Result<(), QlessRefusal> {
    let number = || {
        let what = String::from_utf8_lossy(key);
        number_of(
            value,
            &format!("Recur(): Arg \"{what}\" must be a number: "),
        )
    };
    match &key[..] {
        b"priority" => job.priority = number()?,
        b"retries" => job.retries = number()?,
        b"interval" => {
            let interval = number()?;
            let moved = number::sum(job.next_at.seconds(), interval - job.interval);
            job.next_at = QlessTime::new(moved);
            job.interval = interval;
        }
        b"data" => {
            let complaint = "Recur(): Arg \"data\" is not JSON-encoded: ";
            job.data = data_of(Some(value), complaint)?.clone();
        }
        b"klass" => job.klass = value.clone(),
        b"queue" => move_to(job, value),
        b"backlog" => {
            job.backlog = number_of(value, "Recur(): Arg \"backlog\" not a number: ")?;
        }
        _ => {
            return Err(refuse(&[b"Recur(): Unrecognized option \"", key, b"\""]));
        }
    }
    Ok(())
}

/// Moves a recurring job to another queue. The throttle of the new queue replaces that of the old one.
fn move_to(job: &mut QlessRecurring, queue: &Bytes) {
    let own = throttles::queue_throttle(&job.queue);
    for throttle in &mut job.throttles {
        if *throttle == own {
            *throttle = throttles::queue_throttle(queue);
        }
    }
    job.queue = queue.clone();
}

/// `recur.tag jid [tag..]`: adds tags for future children, and returns all tags.
pub(super) fn tag(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = arguments.recurring(0)?;
    let Some(mut job) = state.recurring(jid).cloned() else {
        return Err(refuse(&[b"Tag(): Job ", jid, b" does not exist"]));
    };

    extend(&mut job.tags, arguments.from(1));
    Ok(put_tags(state, job))
}

/// `recur.untag jid [tag..]`: removes tags from future children, and returns the remaining tags.
pub(super) fn untag(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = arguments.recurring(0)?;
    let Some(mut job) = state.recurring(jid).cloned() else {
        return Err(refuse(&[b"Untag(): Job ", jid, b" does not exist"]));
    };

    retain(&mut job.tags, arguments.from(1));
    Ok(put_tags(state, job))
}

/// Stores a recurring job with new tags, and returns the tags.
fn put_tags(state: &mut Qless, job: QlessRecurring) -> QlessReply {
    let mut out = Writer::default();
    out.tags(&job.tags);
    state.put_recurring(job);
    out.into()
}

/// `unrecur jid`: removes a recurring job, if it exists. Its children stay.
pub(super) fn unrecur(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    state.remove_recurring(arguments.recurring(0)?);
    Ok(QlessReply::Number(1))
}
