//! Submissions and changes.

use std::collections::HashMap;

use ganger_proto::v1;
use ganger_types::command::{Alter, Enqueue, NewEdge, NewInput, NewJob, Start, Unique, Upstream};
use ganger_types::{ClaimKey, JobId, Kind, Timestamp, UniqueKey, limits};

use super::{
    At, at_most, labels, maybe, ms, name, policy, priority, queue, retry, tags, unless_empty,
};
use crate::problem::Problem;

/// Places of the members by the names that the client gave them.
type Names = HashMap<String, u32>;

/// A submission. Also gives the names of its members, to be put into the answer.
pub(crate) fn enqueue(request: v1::EnqueueRequest) -> Result<(Enqueue, Vec<String>), Problem> {
    let namespace = super::namespace(&request.namespace)?;
    let claim = unless_empty(
        At::top("idempotency_key"),
        &request.idempotency_key,
        ClaimKey::new,
    )?;
    let (jobs, names) = members(request.jobs)?;
    let command = Enqueue {
        namespace,
        jobs,
        claim,
        graph: request.graph,
    };
    Ok((command, names))
}

/// The members of a submission, and their names in order.
pub(crate) fn members(wire: Vec<v1::NewJob>) -> Result<(Vec<NewJob>, Vec<String>), Problem> {
    let at = At::top("jobs");
    at_most(at, wire.len(), limits::GRAPH_JOBS_MAX)?;
    let places = places(&wire)?;
    let mut names = Vec::with_capacity(wire.len());
    let mut jobs = Vec::with_capacity(wire.len());
    for (index, mut job) in wire.into_iter().enumerate() {
        names.push(std::mem::take(&mut job.name));
        jobs.push(new_job(at.entry(index), job, &places)?);
    }
    Ok((jobs, names))
}

fn places(wire: &[v1::NewJob]) -> Result<Names, Problem> {
    let mut places = Names::new();
    for (index, job) in wire.iter().enumerate() {
        if job.name.is_empty() {
            continue;
        }
        let at = At::top("jobs").entry(index);
        at_most(at.field("name"), job.name.len(), limits::NAME_BYTES_MAX)?;
        let place = u32::try_from(index).expect("members are limited to a million");
        if let Some(first) = places.insert(job.name.clone(), place) {
            let reason = format_args!(
                "{:?} names member {first} already: choose another name",
                job.name
            );
            return Err(Problem::new(
                "duplicate_field",
                format!("{}: {reason}", at.field("name")),
            ));
        }
    }
    Ok(places)
}

fn new_job(at: At<'_>, wire: v1::NewJob, places: &Names) -> Result<NewJob, Problem> {
    let kind = Kind::new(&wire.kind).map_err(|error| Problem::invalid(at.field("kind"), error))?;
    at_most(
        at.field("inputs"),
        wire.inputs.len() + wire.after.len(),
        limits::INPUTS_MAX,
    )?;
    let inputs = wire.inputs.into_iter().enumerate();
    let after = wire.after.into_iter().enumerate();
    Ok(NewJob {
        id: maybe(at.field("id"), wire.id.as_deref(), JobId::new)?,
        queue: queue(at.field("queue"), &wire.queue)?,
        kind,
        payload: wire.payload,
        inputs: inputs
            .map(|(index, input)| new_input(at.field("inputs").entry(index), input, places))
            .collect::<Result<_, _>>()?,
        after: after
            .map(|(index, edge)| new_edge(at.field("after").entry(index), edge, places))
            .collect::<Result<_, _>>()?,
        priority: priority(at.field("priority"), wire.priority)?,
        start: start(wire.start).unwrap_or_default(),
        deadline: wire.deadline_at_us.map(Timestamp),
        timeout: wire.timeout_ms.map(ms),
        retry: wire
            .retry
            .map(|policy| retry(at.field("retry"), &policy))
            .transpose()?,
        tags: tags(at.field("tags"), &wire.tags)?,
        labels: labels(at.field("labels"), &wire.labels)?,
        tracked: wire.tracked,
        unique: wire
            .unique
            .map(|key| unique(at.field("unique"), &key))
            .transpose()?,
        keep_succeeded: wire.keep_succeeded.map(|keep| keep.for_ms.map(ms)),
        keep_failed: wire.keep_failed.map(|keep| keep.for_ms.map(ms)),
    })
}

fn start(wire: Option<v1::Start>) -> Option<Start> {
    match wire?.when? {
        v1::start::When::AfterMs(0) => Some(Start::Now),
        v1::start::When::AfterMs(pause) => Some(Start::After(ms(pause))),
        v1::start::When::AtUs(at) => Some(Start::At(Timestamp(at))),
    }
}

fn unique(at: At<'_>, wire: &v1::Unique) -> Result<Unique, Problem> {
    Ok(Unique {
        key: name(at.field("key"), &wire.key, UniqueKey::new)?,
        window: wire.window_ms.map(ms),
    })
}

fn new_input(at: At<'_>, wire: v1::Input, places: &Names) -> Result<NewInput, Problem> {
    match wire.input {
        Some(v1::input::Input::Value(value)) => Ok(NewInput::Value(value)),
        Some(v1::input::Input::Result(edge)) => Ok(NewInput::Result(new_edge(
            at.field("result"),
            edge,
            places,
        )?)),
        None => Err(Problem::missing(at, "give a value or the result of a job")),
    }
}

fn new_edge(at: At<'_>, wire: v1::Edge, places: &Names) -> Result<NewEdge, Problem> {
    use v1::edge::Upstream as Wire;
    let upstream = match wire.upstream {
        Some(Wire::Member(place)) => Upstream::Member(place),
        Some(Wire::Job(id)) => Upstream::Job(super::job_id(at.field("job"), &id)?),
        Some(Wire::Name(name)) => match places.get(&name) {
            Some(place) => Upstream::Member(*place),
            None => {
                let reason = format!("{}: no member is named {name:?}", at.field("name"));
                return Err(Problem::new("unknown_reference", reason));
            }
        },
        None => {
            return Err(Problem::missing(
                at,
                "name the upstream by member, name or job",
            ));
        }
    };
    let policy = policy(at.field("policy"), wire.policy)?;
    Ok(NewEdge { upstream, policy })
}

/// A change to a job.
pub(crate) fn alter(wire: v1::AlterRequest) -> Result<Alter, Problem> {
    let note = wire.note.map(|note| (note.text, note.data));
    if let Some((text, data)) = &note {
        let at = At::top("note");
        at_most(at.field("text"), text.len(), limits::MESSAGE_BYTES_MAX)?;
        at_most(at.field("data"), data.len(), limits::MESSAGE_BYTES_MAX)?;
    }
    Ok(Alter {
        namespace: super::namespace(&wire.namespace)?,
        job: Some(super::job_id(At::top("job"), &wire.job)?),
        priority: wire
            .priority
            .map(|value| priority(At::top("priority"), value))
            .transpose()?,
        queue: wire
            .queue
            .map(|text| queue(At::top("queue"), &text))
            .transpose()?,
        start: start(wire.start),
        payload: wire.payload,
        tags_added: tags(At::top("tags_added"), &wire.tags_added)?,
        tags_removed: tags(At::top("tags_removed"), &wire.tags_removed)?,
        labels_set: labels(At::top("labels_set"), &wire.labels_set)?,
        tracked: wire.tracked,
        note,
    })
}
