//! Conversion of jobs, submissions, lists, inputs, logs, and changes.

use ganger_proto::convert::{self, At};
use ganger_proto::v1;

use super::{at, labels, ms, some, us, wire_policy, wire_state};
use crate::error::Error;
use crate::model::{
    Accepted, Alteration, BulkResult, ChangeResult, Dependency, Edge, Enqueued, Input, InputView,
    JobCount, JobFilter, JobOrder, LogChunk, LogPage, LogPosition, NewJob, Page, Start, Unique,
};

impl From<NewJob> for v1::NewJob {
    fn from(job: NewJob) -> Self {
        Self {
            id: job.id,
            name: job.name,
            queue: job.queue,
            kind: job.kind,
            payload: job.payload,
            inputs: job.inputs.into_iter().map(Into::into).collect(),
            after: job.after.into_iter().map(Into::into).collect(),
            priority: job.priority,
            start: start(job.start),
            deadline_at_us: job.deadline.map(us),
            timeout_ms: job.timeout.map(ms),
            retry: job.retry.as_ref().map(Into::into),
            tags: job.tags,
            labels: labels(job.labels),
            tracked: job.tracked,
            unique: job.unique.map(Into::into),
            keep_succeeded: job.keep_succeeded.map(Into::into),
            keep_failed: job.keep_failed.map(Into::into),
            shard: job.shard.unwrap_or_default(),
        }
    }
}

/// The start of an existing job. An immediate one is sent explicitly, since absence means "unchanged".
pub(crate) fn new_start(when: Start) -> v1::Start {
    start(when).unwrap_or(v1::Start {
        when: Some(v1::start::When::AfterMs(0)),
    })
}

fn start(start: Start) -> Option<v1::Start> {
    let when = match start {
        Start::Now => return None,
        Start::After(pause) => v1::start::When::AfterMs(ms(pause)),
        Start::At(at) => v1::start::When::AtUs(us(at)),
    };
    Some(v1::Start { when: Some(when) })
}

impl From<Input> for v1::Input {
    fn from(input: Input) -> Self {
        let input = match input {
            Input::Value(value) => v1::input::Input::Value(value),
            Input::Result(edge) => v1::input::Input::Result(edge.into()),
        };
        Self { input: Some(input) }
    }
}

impl From<Edge> for v1::Edge {
    fn from(edge: Edge) -> Self {
        let dependency = match edge.dependency {
            Dependency::Member(place) => v1::edge::Dependency::Member(place),
            Dependency::Name(name) => v1::edge::Dependency::Name(name),
            Dependency::Job(id) => v1::edge::Dependency::Job(id),
        };
        Self {
            dependency: Some(dependency),
            policy: wire_policy(edge.policy),
        }
    }
}

impl From<Unique> for v1::Unique {
    fn from(unique: Unique) -> Self {
        Self {
            key: unique.key,
            window_ms: unique.window.map(ms),
        }
    }
}

impl From<v1::EnqueueReply> for Accepted {
    fn from(reply: v1::EnqueueReply) -> Self {
        Self {
            jobs: reply.jobs.into_iter().map(Into::into).collect(),
            graph: some(reply.graph),
            repeat: reply.repeat,
        }
    }
}

impl From<v1::Enqueued> for Enqueued {
    fn from(job: v1::Enqueued) -> Self {
        Self {
            id: job.id,
            name: job.name,
            shard: job.shard,
            existed: job.existed,
        }
    }
}

impl JobFilter {
    pub(crate) fn into_wire(self, namespace: String) -> v1::ListRequest {
        v1::ListRequest {
            namespace,
            queue: self.queue,
            state: self.states.into_iter().map(wire_state).collect(),
            kind: self.kind,
            kind_prefix: self.kind_prefix,
            id_prefix: self.id_prefix,
            tag: self.tags,
            label: labels(self.labels),
            graph: self.graph,
            schedule: self.schedule,
            group: self.group,
            failure_text: self.failure_text,
            worker: self.worker,
            unique_key: self.unique_key,
            tracked: self.tracked,
            attempt_min: self.attempt_min,
            created_from_us: self.created_from.map(us),
            created_before_us: self.created_before.map(us),
            finished_from_us: self.finished_from.map(us),
            finished_before_us: self.finished_before.map(us),
            newest_first: self.order == JobOrder::Newest,
            order: match self.order {
                JobOrder::Oldest | JobOrder::Newest => v1::ListOrder::Unspecified,
                JobOrder::FinishedNewest => v1::ListOrder::FinishedNewest,
                JobOrder::RunsNext => v1::ListOrder::RunsNext,
            }
            .into(),
            budget_ms: self.budget.map(ms),
            cursor: self.cursor.unwrap_or_default(),
            limit: self.limit,
            brief: self.brief,
            summary: self.summary,
        }
    }
}

/// Converts a page of jobs.
pub(crate) fn page(page: v1::ListReply) -> Result<Page, Error> {
    Ok(Page {
        jobs: page
            .jobs
            .into_iter()
            .map(convert::job)
            .collect::<Result<_, _>>()?,
        next: some(page.next),
        complete: page.complete,
        looked_at: page.looked_at,
        looked_back_to: page.looked_back_to_us.map(at),
        unreachable: page.unreachable,
    })
}

/// Converts a count of jobs.
pub(crate) fn count(reply: v1::CountReply) -> JobCount {
    JobCount {
        count: reply.count,
        exact: reply.exact,
        unreachable: reply.unreachable,
    }
}

impl TryFrom<v1::InputView> for InputView {
    type Error = Error;

    fn try_from(input: v1::InputView) -> Result<Self, Error> {
        Ok(Self {
            slot: input.slot,
            state: input.state,
            dependency: some(input.dependency),
            policy: convert::failure_policy(At::top("policy"), input.policy)?,
            value: input.value,
        })
    }
}

impl From<v1::LogReply> for LogPage {
    fn from(page: v1::LogReply) -> Self {
        let chunks = page.chunks.into_iter().map(|chunk| LogChunk {
            attempt: chunk.attempt,
            offset: chunk.offset,
            at: at(chunk.at_us),
            bytes: chunk.bytes,
        });
        Self {
            chunks: chunks.collect(),
            next: LogPosition {
                attempt: page.attempt,
                offset: page.offset,
            },
            end: page.end,
        }
    }
}

impl Alteration {
    pub(crate) fn into_wire(self, namespace: String, job: String) -> v1::AlterRequest {
        let start = self.start.map(new_start);
        v1::AlterRequest {
            namespace,
            job,
            priority: self.priority,
            queue: self.queue,
            start,
            payload: self.payload,
            tags_added: self.tags_added,
            tags_removed: self.tags_removed,
            labels_set: labels(self.labels_set),
            labels_removed: self.labels_removed,
            tracked: self.tracked,
            note: self.note.map(|(text, data)| v1::Note { text, data }),
        }
    }
}

impl From<v1::Matched> for BulkResult {
    fn from(done: v1::Matched) -> Self {
        Self {
            changed: done.changed,
            skipped: done.skipped,
            skipped_jobs: done.skipped_jobs,
            by_state: done.by_state.into_iter().collect(),
            by_queue: done.by_queue.into_iter().collect(),
            sample: done.sample,
            passed_on: done.passed_on.into_iter().collect(),
            next: some(done.next),
            exact: done.exact,
            other_queues: done.other_queues,
            as_of: done.as_of_us.map(at),
        }
    }
}

impl From<v1::Changed> for ChangeResult {
    fn from(changed: v1::Changed) -> Self {
        Self {
            count: changed.count,
            skipped: changed.skipped,
            dependents: changed.dependents,
            passed_on: changed.passed_on.into_iter().collect(),
        }
    }
}
