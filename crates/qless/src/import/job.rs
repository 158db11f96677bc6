//! Imports a job with its history, its place in a queue, and its links.

use bytes::Bytes;
use ganger_types::import::QlessJobSource;
use ganger_types::qless::{
    QlessFailure, QlessHistoryEntry, QlessPlace, QlessSet, QlessState, QlessTag, QlessTime,
};

use super::{Fields, ImportError, excerpt, history};
use crate::json;
use crate::number;
use crate::procedures::links;
use crate::state::Qless;

/// Divisor that the script applies to the time in the score of a ready job.
const SCORE_STEP: f64 = 1e10;

/// The checked fields of a job to import. Each has the meaning of the field of the same name in `QlessJob`.
struct ImportedJob {
    klass: Bytes,
    data: Bytes,
    state: QlessState,
    queue: Bytes,
    worker: Bytes,
    priority: f64,
    expires: f64,
    retries: f64,
    remaining: f64,
    tags: Vec<QlessTag>,
    failure: Option<QlessFailure>,
    spawned_from: Option<Bytes>,
    history: Vec<QlessHistoryEntry>,
    time: f64,
    is_warned: bool,
    scheduled: Option<QlessTime>,
    place: Option<QlessPlace>,
    /// Time since which it waits for a throttle; `None` if it does not.
    throttled_at: Option<QlessTime>,
    throttles: Vec<Bytes>,
}

/// Imports a job. Returns false, and changes nothing, if one with its jid exists.
pub(super) fn import(state: &mut Qless, source: &QlessJobSource) -> Result<bool, ImportError> {
    if state.job(&source.jid).is_some() {
        return Ok(false);
    }
    let job = read(source)?;
    write(state, source, job);
    Ok(true)
}

fn read(source: &QlessJobSource) -> Result<ImportedJob, ImportError> {
    let fields = Fields(&source.fields);
    let state = state_of(&fields)?;
    let queue = fields.text("queue")?;
    let priority = fields.number("priority", Some(0.0))?;
    let time = fields.number("time", Some(0.0))?;
    let retries = fields.number("retries", Some(5.0))?;
    let failure = failure(&fields)?;
    if state == QlessState::Failed && failure.is_none() {
        return Err("it has failed, and does not say why".to_owned());
    }
    let (place, throttled_at) = place_of(source, state, &queue, priority, time)?;
    let spawned_from = fields.get("spawned_from_jid").cloned();
    let scheduled = fields.get("scheduled").filter(|text| !text.is_empty());
    let scheduled = scheduled.and_then(|text| number::parse(text));
    Ok(ImportedJob {
        klass: fields.text("klass")?,
        data: fields.json("data")?,
        state,
        worker: fields.get("worker").cloned().unwrap_or_default(),
        expires: fields.number("expires", Some(0.0))?,
        remaining: fields.number("remaining", Some(retries))?,
        tags: fields.list("tags")?,
        failure,
        spawned_from: spawned_from.filter(|jid| !jid.is_empty()),
        history: history::read(fields.get("history"), &source.history)?,
        is_warned: fields.number("grace", Some(0.0))? != 0.0,
        scheduled: scheduled.map(QlessTime::new),
        throttles: links::jids(&fields.list("throttles")?),
        place,
        throttled_at,
        queue,
        priority,
        retries,
        time,
    })
}

fn state_of(fields: &Fields<'_>) -> Result<QlessState, ImportError> {
    let text = fields.text("state")?;
    let known = QlessState::ALL.into_iter().find(|it| text == it.as_str());
    known.ok_or_else(|| format!("its state is none of qless: {}", excerpt(&text)))
}

/// Returns the job's last failure; `None` if none is stored. The script keeps earlier failures, so the job may be in
/// any state.
fn failure(fields: &Fields<'_>) -> Result<Option<QlessFailure>, ImportError> {
    let Some(text) = fields.get("failure").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let members = json::object(text);
    let members =
        members.map_err(|wrong| format!("its field \"failure\" is no object: {wrong}"))?;
    if members.is_empty() {
        return Ok(None);
    }
    let member = |name: &str| members.iter().find(|(key, _)| key == name);
    let text = |name: &str| {
        let list = member(name).map(|(_, value)| json::list(&[b"[", &value[..], b"]"].concat()));
        let first = list
            .and_then(Result::ok)
            .and_then(|list| list.first().cloned());
        first.map_or(Bytes::new(), |it| json::tag_text(&it))
    };
    let when = member("when").and_then(|(_, value)| number::parse(value));
    Ok(Some(QlessFailure {
        group: text("group"),
        message: text("message"),
        when: when.unwrap_or(0.0),
        worker: text("worker"),
    }))
}

/// Returns the job's place in its queue, and the time since which it waits for a throttle; `None` for either if it has
/// none.
fn place_of(
    source: &QlessJobSource,
    state: QlessState,
    queue: &Bytes,
    priority: f64,
    time: f64,
) -> Result<(Option<QlessPlace>, Option<QlessTime>), ImportError> {
    let wanted: &[QlessSet] = match state {
        QlessState::Waiting => &[QlessSet::Work, QlessSet::Scheduled],
        QlessState::Scheduled => &[QlessSet::Scheduled],
        QlessState::Depends => &[QlessSet::Depends],
        QlessState::Running => &[QlessSet::Locks],
        QlessState::Stalled => &[QlessSet::Work],
        QlessState::Throttled => &[QlessSet::Work, QlessSet::Throttled],
        QlessState::Failed | QlessState::Complete => return Ok((None, None)),
    };
    let found = wanted.iter().find_map(|set| {
        let mut places = source.places.iter();
        places.find(|(it, _)| it == set).copied()
    });
    let Some((set, score)) = found else {
        return Err(format!(
            "it is {}, but in no set of its queue {} where such jobs are: qless would never run it",
            state.as_str(),
            excerpt(queue)
        ));
    };
    if set == QlessSet::Throttled {
        if source.pending.is_empty() {
            return Err("it waits for a throttle, but is in no throttle's list".to_owned());
        }
        return Ok((None, Some(QlessTime::new(score))));
    }
    let (rank, at) = match set {
        QlessSet::Work => rank_of(priority, score, time),
        _ => (0.0, score),
    };
    let place = QlessPlace {
        queue: queue.clone(),
        set,
        rank: rank + 0.0,
        at: QlessTime::new(at),
    };
    Ok((Some(place), None))
}

/// Returns the rank and the time that the score of a ready job stands for. The score has fewer digits than the time, so
/// the job's own time counts if it gives that score.
fn rank_of(priority: f64, score: f64, time: f64) -> (f64, f64) {
    if !score.is_finite() {
        return (score, 0.0);
    }
    let is_its_time = (priority - time / SCORE_STEP).total_cmp(&score).is_eq();
    let at = if is_its_time {
        time
    } else {
        (priority - score) * SCORE_STEP
    };
    (priority, at)
}

fn write(state: &mut Qless, source: &QlessJobSource, job: ImportedJob) {
    let jid = &source.jid;
    state.ensure_job(jid);
    write_indexes(state, source, &job);
    state.edit(jid, |fields| {
        *fields.klass = job.klass;
        *fields.data = job.data;
        *fields.state = job.state;
        *fields.queue = job.queue;
        *fields.worker = job.worker;
        *fields.priority = job.priority;
        *fields.expires = job.expires;
        *fields.retries = job.retries;
        *fields.remaining = job.remaining;
        *fields.tags = job.tags;
        *fields.spawned_from = job.spawned_from;
        *fields.history = job.history;
        *fields.time = job.time;
        *fields.is_warned = job.is_warned;
        *fields.scheduled = job.scheduled;
        *fields.throttles = job.throttles;
    });
    if job.state == QlessState::Depends {
        links::link(state, jid, &source.dependencies);
    }
    if job.state != QlessState::Complete {
        for dependent in &source.dependents {
            let waits = |it: &ganger_types::qless::QlessJob| it.state == QlessState::Depends;
            if state.job(dependent).is_some_and(waits) {
                state.link(dependent, jid);
            }
        }
    }
}

fn write_indexes(state: &mut Qless, source: &QlessJobSource, job: &ImportedJob) {
    let jid = &source.jid;
    match (&job.failure, job.state) {
        (Some(failure), QlessState::Failed) => state.join_failure_group(jid, failure.clone()),
        (failure, _) => state.set_failure(jid, failure.clone()),
    }
    state.move_to(jid, job.place.clone());
    if let Some(at) = job.throttled_at {
        state.set_throttled(jid, Some((job.queue.clone(), at)));
        for (throttle, since) in &source.pending {
            state.set_pending_since(jid, throttle, Some(*since));
        }
    }
    for (tag, at) in &source.tagged {
        state.set_tag_time(jid, tag, Some(*at));
    }
    if let Some(until) = source.listed_until.filter(|_| !job.worker.is_empty()) {
        state.set_worker_entry(jid, &job.worker, Some(until));
    }
    if job.state == QlessState::Complete {
        let at = source.completed_at.unwrap_or(QlessTime::new(job.time));
        state.set_completed_at(jid, Some(at));
    }
    for (throttle, since) in &source.holds {
        state.set_held_since(jid, throttle, Some(*since));
    }
}
