//! Submissions and changes.

use std::collections::HashMap;

use ganger_engine::ShardedSubmission;
use ganger_proto::{convert, v1};
use ganger_types::command::{Alter, Dependency, NewEdge, NewInput, NewJob, Start, Unique};
use ganger_types::{IdempotencyKey, JobName, Kind, ShardId, Timestamp, UniqueKey, limits};

use super::place::Shards;
use super::{At, at_most, keys, labels, ms, name, priority, queue, retry, tags, unless_empty};
use crate::problem::Problem;

/// Places of the members by the names that the client gave them.
type Names = HashMap<String, u32>;

/// Jobs with their shards, and their names in the submission.
type Placed = (Vec<(ShardId, NewJob)>, Vec<String>);

/// A submission. Also gives the names of its members, to be put into the answer.
pub(crate) fn enqueue(
    shards: Shards<'_>,
    request: v1::EnqueueRequest,
) -> Result<(ShardedSubmission, Vec<String>), Problem> {
    let namespace = super::namespace(&request.namespace)?;
    let idempotency_key = unless_empty(
        At::top("idempotency_key"),
        &request.idempotency_key,
        IdempotencyKey::new,
    )?;
    let (jobs, names) = members(shards, request.jobs)?;
    let submission = ShardedSubmission {
        namespace,
        idempotency_key,
        jobs,
    };
    Ok((submission, names))
}

/// The members of a submission, and their names in order.
pub(crate) fn members(shards: Shards<'_>, wire: Vec<v1::NewJob>) -> Result<Placed, Problem> {
    let at = At::top("jobs");
    at_most(at, wire.len(), limits::GRAPH_JOBS_MAX)?;
    let places = places(&wire)?;
    let mut names = Vec::with_capacity(wire.len());
    let mut jobs = Vec::with_capacity(wire.len());
    for (index, mut job) in wire.into_iter().enumerate() {
        let name = std::mem::take(&mut job.name);
        let called = unless_empty(at.entry(index).field("name"), &name, JobName::new)?;
        let (home, mut job) = new_job(shards, at.entry(index), job, &places)?;
        job.name = called;
        names.push(name);
        jobs.push((home, job));
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

fn new_job(
    shards: Shards<'_>,
    at: At<'_>,
    wire: v1::NewJob,
    places: &Names,
) -> Result<(ShardId, NewJob), Problem> {
    let (home, id) = shards.home(at, &wire.shard, wire.id.as_deref())?;
    let refers = Refers {
        shards,
        home: &home,
        places,
    };
    let kind = Kind::new(&wire.kind).map_err(|error| Problem::invalid(at.field("kind"), error))?;
    at_most(
        at.field("inputs"),
        wire.inputs.len() + wire.after.len(),
        limits::INPUTS_MAX,
    )?;
    let inputs = wire.inputs.into_iter().enumerate();
    let after = wire.after.into_iter().enumerate();
    let job = NewJob {
        id,
        name: None,
        queue: queue(at.field("queue"), &wire.queue)?,
        kind,
        payload: wire.payload,
        inputs: inputs
            .map(|(index, input)| new_input(&refers, at.field("inputs").entry(index), input))
            .collect::<Result<_, _>>()?,
        after: after
            .map(|(index, edge)| new_edge(&refers, at.field("after").entry(index), edge))
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
    };
    Ok((home, job))
}

/// The earliest start of a job; `None` if the message names none.
pub(crate) fn start(wire: Option<v1::Start>) -> Option<Start> {
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

/// What the references of a job may mean.
struct Refers<'a> {
    shards: Shards<'a>,
    /// Shard of the job that has the references.
    home: &'a ShardId,
    places: &'a Names,
}

fn new_input(refers: &Refers<'_>, at: At<'_>, wire: v1::Input) -> Result<NewInput, Problem> {
    match wire.input {
        Some(v1::input::Input::Value(value)) => Ok(NewInput::Value(value)),
        Some(v1::input::Input::Result(edge)) => Ok(NewInput::Result(new_edge(
            refers,
            at.field("result"),
            edge,
        )?)),
        None => Err(Problem::missing(at, "give a value or the result of a job")),
    }
}

fn new_edge(refers: &Refers<'_>, at: At<'_>, wire: v1::Edge) -> Result<NewEdge, Problem> {
    use v1::edge::Dependency as Wire;
    let dependency = match wire.dependency {
        Some(Wire::Member(place)) => Dependency::Member(place),
        Some(Wire::Job(id)) => refers
            .shards
            .dependency(at.field("job"), &id, refers.home)?,
        Some(Wire::Name(name)) => match refers.places.get(&name) {
            Some(place) => Dependency::Member(*place),
            None => {
                let reason = format!("{}: no member is named {name:?}", at.field("name"));
                return Err(Problem::new("unknown_reference", reason));
            }
        },
        None => {
            return Err(Problem::missing(
                at,
                "name the dependency by member, name or job",
            ));
        }
    };
    let policy = convert::failure_policy(at.field("policy"), wire.policy)?;
    Ok(NewEdge { dependency, policy })
}

/// A change to a job.
pub(crate) fn alter(here: &ShardId, wire: v1::AlterRequest) -> Result<Alter, Problem> {
    let note = wire.note.map(|note| (note.text, note.data));
    if let Some((text, data)) = &note {
        let at = At::top("note");
        at_most(at.field("text"), text.len(), limits::MESSAGE_BYTES_MAX)?;
        at_most(at.field("data"), data.len(), limits::MESSAGE_BYTES_MAX)?;
    }
    Ok(Alter {
        namespace: super::namespace(&wire.namespace)?,
        job: Some(super::job_id(here, At::top("job"), &wire.job)?),
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
        labels_removed: keys(At::top("labels_removed"), &wire.labels_removed)?,
        tracked: wire.tracked,
        note,
    })
}
