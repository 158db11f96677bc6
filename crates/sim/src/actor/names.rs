//! Names in a run: only a few, so that they collide.

use ganger_types::query::Query;
use ganger_types::{
    Clock, Command, Group, IdempotencyKey, Kind, LabelKey, LabelValue, Namespace, Queue,
    ScheduleId, Tag, UniqueKey, Worker,
};

use crate::plan::{Feature, Plan};
use crate::rng::Rng;

const SHORT: &str = "a name of the simulator is short";

pub(crate) fn namespace(plan: &Plan, rng: &mut Rng) -> Namespace {
    if plan.does(Feature::CallersClock) && rng.chance(300) {
        return callers();
    }
    if plan.does(Feature::Namespaces) && rng.chance(250) {
        Namespace::from_static("other")
    } else {
        Namespace::default()
    }
}

/// The namespace that runs on its callers' clocks.
pub(crate) fn callers() -> Namespace {
    Namespace::from_static("callers")
}

/// The namespace whose clock applies to a command; `None` if it concerns the whole shard.
pub(crate) fn namespace_of(command: &Command) -> Option<&Namespace> {
    Some(match command {
        Command::Enqueue(cmd) => &cmd.namespace,
        Command::Lease(cmd) => &cmd.namespace,
        Command::Renew(cmd) => &cmd.held.namespace,
        Command::Complete(cmd) => &cmd.held.namespace,
        Command::Fail(cmd) => &cmd.held.namespace,
        Command::Release(cmd) => &cmd.held.namespace,
        Command::AppendLog(cmd) => &cmd.held.namespace,
        Command::Cancel(cmd) => &cmd.namespace,
        Command::Retry(cmd) => &cmd.namespace,
        Command::TimeOut(cmd) => &cmd.namespace,
        Command::Delete(cmd) => &cmd.namespace,
        Command::Alter(cmd) => &cmd.namespace,
        Command::AddDependencies(cmd) => &cmd.namespace,
        Command::RemoveDependencies(cmd) => &cmd.namespace,
        Command::ConfigureQueue(cmd) => &cmd.namespace,
        Command::ForgetQueue(cmd) => &cmd.namespace,
        Command::ConfigureNamespace(cmd) => &cmd.namespace,
        Command::PutSchedule(cmd) => &cmd.schedule.namespace,
        Command::RemoveSchedule(cmd) => &cmd.namespace,
        Command::RunSchedule(cmd) => &cmd.namespace,
        Command::PauseSchedule(cmd) => &cmd.namespace,
        Command::DeregisterWorker(cmd) => &cmd.namespace,
        Command::Import(cmd) => &cmd.namespace,
        Command::Query(query) => match &**query {
            Query::Queues(namespace, ..)
            | Query::Queue(namespace, _)
            | Query::Workers(namespace, ..)
            | Query::Counts(namespace, _)
            | Query::NextJobs(namespace, ..)
            | Query::QueueWhy(namespace, _)
            | Query::Schedules(namespace)
            | Query::Why(namespace, _) => namespace,
            _ => return None,
        },
        _ => return None,
    })
}

/// The clock of a namespace.
pub(crate) fn clock(namespace: &Namespace) -> Clock {
    if *namespace == callers() {
        Clock::Caller
    } else {
        Clock::Server
    }
}

pub(crate) fn namespaces(plan: &Plan) -> Vec<Namespace> {
    let mut all = vec![Namespace::default()];
    if plan.does(Feature::Namespaces) {
        all.push(Namespace::from_static("other"));
    }
    if plan.does(Feature::CallersClock) {
        all.push(callers());
    }
    all
}

pub(crate) fn queue_number(number: usize) -> Queue {
    Queue::new(format!("q{number}")).expect(SHORT)
}

pub(crate) fn queue(plan: &Plan, rng: &mut Rng) -> Queue {
    queue_number(rng.index(plan.queues))
}

pub(crate) fn worker(number: usize, incarnation: u64) -> Worker {
    Worker::new(format!("w{number}.{incarnation}")).expect(SHORT)
}

pub(crate) fn kind(rng: &mut Rng) -> Kind {
    Kind::from_static(rng.word(&["fetch", "count", "merge"]))
}

pub(crate) fn group(rng: &mut Rng) -> Group {
    Group::from_static(rng.word(&["network", "bad-input"]))
}

pub(crate) fn tag(rng: &mut Rng) -> Tag {
    Tag::from_static(rng.word(&["red", "green", "blue"]))
}

pub(crate) fn label(rng: &mut Rng) -> (LabelKey, LabelValue) {
    let value = LabelValue::from_static(rng.word(&["one", "two"]));
    (LabelKey::from_static("tenant"), value)
}

pub(crate) fn idempotency_key(plan: &Plan, rng: &mut Rng) -> IdempotencyKey {
    IdempotencyKey::new(format!("key{}", rng.index(plan.keys * 4))).expect(SHORT)
}

pub(crate) fn unique(plan: &Plan, rng: &mut Rng) -> UniqueKey {
    UniqueKey::new(format!("unique{}", rng.index(plan.keys))).expect(SHORT)
}

pub(crate) fn schedule(plan: &Plan, rng: &mut Rng) -> ScheduleId {
    ScheduleId::new(format!("every{}", rng.index(plan.keys))).expect(SHORT)
}
