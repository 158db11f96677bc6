//! Enqueues one job, many, or a graph: all or none (`rel G7`).

mod check;
mod plan;

use std::time::Duration;

use ganger_types::change::UniqueRecord;
use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob, Start};
use ganger_types::reply::Enqueued;
use ganger_types::{
    Answer, Change, Due, FailurePolicy, Graph, IdTag, IdempotencyRecord, InputRow, InputState,
    JobId, JobKey, JobRef, JobState, Now, Outcome, Rejection, Reply, RetryPolicy, SubmissionAnswer,
    SubmittedJobs,
};

use self::check::check_sizes;
pub(crate) use self::check::{check_references, check_retry};
pub(crate) use self::plan::Member;
use super::fingerprint::Fingerprint;
use crate::endings::DEPENDENCY_GROUP;
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::state::{Edge, Job, JobDetails, RemoteEdge, SpaceIndex, Timer};
use crate::transition::Move;
use crate::turn::Turn;

/// Time for which an idempotency key is kept.
const IDEMPOTENCY_KEY_FOR: Duration = Duration::from_secs(86_400);

/// An edge of a new job with the present state of its dependency.
struct PlannedEdge {
    slot: u32,
    policy: FailurePolicy,
    dependency: PlannedDependency,
}

enum PlannedDependency {
    Here {
        key: JobKey,
        id: JobId,
        /// Outcome of the dependency; `None` if it is live.
        ended: Option<Outcome>,
    },
    Elsewhere {
        job: JobRef,
        is_member: bool,
    },
}

/// What jobs that are enqueued together have in common.
pub(crate) struct Batch {
    pub space: SpaceIndex,
    pub graph: Option<Graph>,
    pub id_tag: IdTag,
}

impl Engine {
    pub(crate) fn enqueue(&mut self, cmd: Enqueue, turn: &mut Turn<'_>) -> Answer {
        if let Some(answer) = self.repeated_submission(turn.now, &cmd)? {
            return Ok(answer);
        }
        let members = self.check_submission(turn.now, &cmd, turn.known)?;

        Ok(self.write_submission(cmd, &members, turn))
    }

    /// Checks a submission and plans each of its members.
    pub(crate) fn check_submission(
        &self,
        now: Now,
        cmd: &Enqueue,
        known: &FinishedIndex,
    ) -> Result<Vec<Member>, Rejection> {
        let settings = self.settings(&cmd.namespace);
        check_sizes(cmd, &settings, now)?;
        check_references(&cmd.jobs.iter().collect::<Vec<_>>())?;
        let members = self.plan_members(now, cmd, known)?;
        self.check_dependencies(cmd, &members, known)?;
        self.check_room(cmd, &members, &settings)?;
        Ok(members)
    }
}

/// The writes: nothing below can fail.
impl Engine {
    fn write_submission(&mut self, cmd: Enqueue, members: &[Member], turn: &mut Turn<'_>) -> Reply {
        let space = self.make_space(&cmd.namespace);
        let jobs = self.name_members(&cmd, members);
        let graph = graph_name(&cmd, &jobs);
        self.write_answer(space, &cmd, &jobs, graph.as_ref(), turn);
        let prints: Vec<Option<u64>> = members.iter().map(Member::fingerprint).collect();
        let batch = Batch {
            space,
            graph: graph.clone(),
            id_tag: self.random.id_tag(),
        };
        self.write_jobs(&batch, cmd.jobs, (&jobs, &prints), turn);
        Reply::Enqueued {
            jobs,
            graph,
            repeat: false,
        }
    }

    /// Writes the jobs that have a fingerprint, under the given numbers and ids; the others exist already.
    pub(crate) fn write_jobs(
        &mut self,
        batch: &Batch,
        jobs: Vec<NewJob>,
        (answers, prints): (&[Enqueued], &[Option<u64>]),
        turn: &mut Turn<'_>,
    ) {
        // The dependencies of a job that exists already may have been removed.
        let planned: Vec<_> = jobs
            .iter()
            .zip(prints)
            .map(|(job, print)| match print {
                Some(_) => self.plan_edges(batch.space, job, answers, turn.known),
                None => Vec::new(),
            })
            .collect();
        let firsts: Vec<Move> = jobs.iter().map(|job| first_move(turn.now, job)).collect();
        let mut rows = Vec::with_capacity(jobs.len());
        for ((job, print), answer) in jobs.into_iter().zip(prints).zip(answers) {
            rows.push(print.map(|print| self.add_job(batch, job, answer, print, turn)));
        }
        for (((row, edges), first), answer) in
            rows.into_iter().zip(planned).zip(firsts).zip(answers)
        {
            let Some((payload, values)) = row else {
                continue;
            };
            self.start_job(answer.key, edges, first, turn);
            turn.out.changes.push(Change::PutPayload {
                key: answer.key,
                payload,
            });
            turn.out
                .changes
                .extend(values.into_iter().map(Change::PutInput));
        }
    }

    /// Stores the answer for a repeat under the same key.
    fn write_answer(
        &mut self,
        space: SpaceIndex,
        cmd: &Enqueue,
        jobs: &[Enqueued],
        graph: Option<&Graph>,
        turn: &mut Turn<'_>,
    ) {
        let Some(key) = &cmd.idempotency_key else {
            return;
        };
        let members = cmd.jobs.iter().zip(jobs);
        let answer = SubmissionAnswer {
            fingerprint: Fingerprint::of_submission(cmd),
            jobs: SubmittedJobs::collect(
                members.map(|(job, made)| (made.key, &made.id, job.id.as_ref() == Some(&made.id))),
            ),
            graph: graph.cloned(),
            until: turn.now.wall.after(IDEMPOTENCY_KEY_FOR),
        };
        let state = &mut self.spaces[space];
        state.remember(key.clone(), answer.clone());
        turn.out
            .changes
            .push(Change::PutIdempotencyRecord(Box::new(IdempotencyRecord {
                namespace: cmd.namespace.clone(),
                key: key.clone(),
                answer,
            })));
    }

    /// Gives numbers and ids to all members, in order.
    fn name_members(&mut self, cmd: &Enqueue, members: &[Member]) -> Vec<Enqueued> {
        let mut jobs: Vec<Enqueued> = Vec::with_capacity(members.len());
        for (job, member) in cmd.jobs.iter().zip(members) {
            let answer = match member {
                Member::Existing(key, id) => Enqueued {
                    key: *key,
                    id: id.clone(),
                    existed: true,
                },
                Member::SameAs(earlier) => Enqueued {
                    existed: true,
                    ..jobs[*earlier].clone()
                },
                Member::New { .. } => {
                    let key = self.meta.next_key;
                    self.meta.next_key = JobKey(key.0 + 1);
                    let id = job
                        .id
                        .clone()
                        .unwrap_or_else(|| JobId::made(key, self.random.id_tag()));
                    Enqueued {
                        key,
                        id,
                        existed: false,
                    }
                }
            };
            jobs.push(answer);
        }
        jobs
    }

    fn plan_edges(
        &self,
        space: SpaceIndex,
        job: &NewJob,
        jobs: &[Enqueued],
        known: &FinishedIndex,
    ) -> Vec<PlannedEdge> {
        let namespace = &self.spaces[space].name;
        let data = job
            .inputs
            .iter()
            .zip(0_u32..)
            .filter_map(|(input, slot)| match input {
                NewInput::Value(_) => None,
                NewInput::Result(edge) => Some((slot, edge)),
            });
        let pure = job
            .after
            .iter()
            .zip(InputRow::EDGE_FIRST..)
            .map(|(edge, slot)| (slot, edge));
        data.chain(pure)
            .map(|(slot, edge)| PlannedEdge {
                slot,
                policy: edge.policy,
                dependency: self.plan_dependency(namespace, &edge.dependency, jobs, known),
            })
            .collect()
    }

    fn plan_dependency(
        &self,
        namespace: &ganger_types::Namespace,
        dependency: &Dependency,
        jobs: &[Enqueued],
        known: &FinishedIndex,
    ) -> PlannedDependency {
        let (key, id) = match dependency {
            Dependency::Member(place) => {
                let member = &jobs[usize::try_from(*place).expect("places were checked")];
                (member.key, member.id.clone())
            }
            Dependency::Job(id) => {
                let live = self.find_job(namespace, id);
                let key = live.or_else(|| known.find(namespace, id).map(|record| record.key));
                (key.expect("dependencies were checked"), id.clone())
            }
            Dependency::Remote { job, is_member } => {
                return PlannedDependency::Elsewhere {
                    job: job.clone(),
                    is_member: *is_member,
                };
            }
        };
        let finished = known
            .by_key(key)
            .and_then(|record| record.finished.as_ref());
        let ended = finished
            .filter(|_| !self.is_live(key))
            .map(|finished| finished.outcome);
        PlannedDependency::Here { key, id, ended }
    }

    /// Adds a new job to the table, but to no index yet. Returns its payload and input values, which are still to be
    /// written.
    fn add_job(
        &mut self,
        batch: &Batch,
        job: NewJob,
        answer: &Enqueued,
        fingerprint: u64,
        turn: &mut Turn<'_>,
    ) -> (ganger_types::Bytes, Vec<InputRow>) {
        let space = batch.space;
        let queue = self.make_queue(space, &job.queue, turn.now.wall);
        self.queues.mark_changed(queue);
        let state = &mut self.queues[queue];
        state.known = true;
        state.enqueued_total += 1;
        let retry: &RetryPolicy = job
            .retry
            .as_ref()
            .or(state.settings.retry.as_ref())
            .unwrap_or(&self.spaces[space].settings.retry);
        let retry = self.names.retry_index(retry);
        let key = answer.key;
        let values = job
            .inputs
            .iter()
            .zip(0_u32..)
            .filter_map(|(input, slot)| match input {
                NewInput::Value(bytes) => Some(InputRow {
                    job: key,
                    slot,
                    state: InputState::Value(bytes.clone()),
                }),
                NewInput::Result(_) => None,
            })
            .collect();
        let details = JobDetails::of_new(&job, fingerprint, batch.graph.as_ref());
        self.jobs.insert(Job {
            key,
            priority: job.priority,
            created_at: turn.now.wall,
            ready_at: turn.now.elapsed,
            queue,
            kind: self.names.kind_index(&job.kind),
            retry,
            id_tag: batch.id_tag,
            attempt: 0,
            attempts_counted: 0,
            payload_bytes: u32::try_from(job.payload.len()).expect("payloads were checked"),
            state: JobState::Blocked,
            details: (!details.is_plain()).then(|| Box::new(details)),
        });
        self.register(space, key, &job, answer, turn);
        (job.payload, values)
    }

    /// Registers a new job by its id, graph, tags and unique key.
    fn register(
        &mut self,
        space: SpaceIndex,
        key: JobKey,
        job: &NewJob,
        answer: &Enqueued,
        turn: &mut Turn<'_>,
    ) {
        let state = &mut self.spaces[space];
        state.live += 1;
        if let Some(id) = &job.id {
            state.given.insert(id.clone(), key);
        }
        job.tags.iter().for_each(|tag| state.count_tag(tag, 1));
        if job.tracked {
            state.tracked.insert(answer.id.clone(), turn.now.wall);
            let name = state.name.clone();
            turn.out.changes.push(Change::PutTracked(
                name,
                answer.id.clone(),
                Some(turn.now.wall),
            ));
        }
        if let Some(unique) = &job.unique {
            let until = unique.window.map(|window| turn.now.wall.after(window));
            if let Some(until) = until {
                state
                    .timers
                    .arm(Due::Wall(until), Timer::UniqueEnd(unique.key.clone()));
            }
            let record = UniqueRecord {
                namespace: state.name.clone(),
                key: unique.key.clone(),
                job: key,
                id: answer.id.clone(),
                until,
            };
            turn.out
                .changes
                .push(Change::PutUnique(Box::new(record.clone())));
            if let Some(old) = state.unique.insert(unique.key.clone(), record)
                && let Some(until) = old.until
            {
                state
                    .timers
                    .disarm_if_armed(Due::Wall(until), Timer::UniqueEnd(unique.key.clone()));
            }
        }
        if let Some(graph) = self.job(key).graph().cloned() {
            self.spaces[space]
                .graphs
                .entry(graph)
                .or_default()
                .insert(key);
        }
    }

    /// Gives a new job its edges and its first state.
    fn start_job(
        &mut self,
        key: JobKey,
        edges: Vec<PlannedEdge>,
        first: Move,
        turn: &mut Turn<'_>,
    ) {
        let mut failed = None;
        let mut inputs = Vec::with_capacity(edges.len());
        let mut missing = 0;
        for PlannedEdge {
            slot,
            policy,
            dependency,
        } in edges
        {
            let (dependency, id, ended) = match dependency {
                PlannedDependency::Here { key, id, ended } => (key, id, ended),
                PlannedDependency::Elsewhere { job, is_member } => {
                    missing += 1;
                    let edge = RemoteEdge {
                        dependency: job,
                        policy,
                        is_member,
                    };
                    inputs.push(self.link(key, slot, edge, turn));
                    continue;
                }
            };
            let state = match (ended, policy) {
                (Some(Outcome::Succeeded), _) => InputState::Delivered {
                    dependency,
                    id,
                    policy,
                },
                (Some(_), FailurePolicy::Ignore) => InputState::Ignored { id },
                (ended, _) => {
                    if let (Some(outcome), FailurePolicy::Fail) = (ended, policy) {
                        failed = Some(format!("dependency {id} {}", outcome.state()));
                    }
                    missing += 1;
                    InputState::Missing {
                        dependency,
                        id,
                        policy,
                    }
                }
            };
            if !matches!(state, InputState::Ignored { .. }) {
                let is_delivered = matches!(state, InputState::Delivered { .. });
                self.edges.add(
                    key,
                    slot,
                    Edge {
                        dependency,
                        policy,
                        is_delivered,
                    },
                );
            }
            inputs.push(InputRow {
                job: key,
                slot,
                state,
            });
        }
        let to = if missing == 0 {
            first
        } else {
            let details = self.job_mut(key).details_mut();
            details.missing = missing;
            if let Move::Scheduled(due) = first {
                details.due = Some(due);
            }
            Move::Blocked
        };
        self.admit(key, to, "", turn);
        turn.out
            .changes
            .extend(inputs.into_iter().map(Change::PutInput));
        if let Some(message) = failed {
            self.fail_unstarted(key, DEPENDENCY_GROUP, message, turn);
        }
    }
}

fn first_move(now: Now, job: &NewJob) -> Move {
    let due = match job.start {
        Start::Now => {
            return Move::Ready {
                at: now.elapsed,
                is_ahead: false,
            };
        }
        Start::After(delay) => Due::Elapsed(now.elapsed.after(delay)),
        Start::At(at) => Due::Wall(at),
    };
    if due.is_past(now) {
        Move::Ready {
            at: now.elapsed,
            is_ahead: false,
        }
    } else {
        Move::Scheduled(due)
    }
}

fn graph_name(cmd: &Enqueue, jobs: &[Enqueued]) -> Option<Graph> {
    let has_members = || {
        cmd.jobs
            .iter()
            .flat_map(edges_of)
            .any(|edge| matches!(edge.dependency, Dependency::Member(_)))
    };
    if !cmd.graph && !has_members() {
        return None;
    }
    let first = jobs.iter().find(|job| !job.existed)?;
    Some(Graph::new(first.id.as_bytes()).expect("an id is as long as a name at most"))
}

pub(crate) fn edges_of(job: &NewJob) -> impl Iterator<Item = &NewEdge> {
    let data = job.inputs.iter().filter_map(|input| match input {
        NewInput::Value(_) => None,
        NewInput::Result(edge) => Some(edge),
    });
    data.chain(&job.after)
}
