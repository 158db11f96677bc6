//! Enqueues one job, many, or a graph: all or none (`rel G7`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::change::{ClaimRecord, UniqueRecord};
use ganger_types::command::{Enqueue, NewEdge, NewInput, NewJob, Start, Upstream};
use ganger_types::limits;
use ganger_types::reply::Enqueued;
use ganger_types::{
    Answer, Backoff, Change, Due, FailurePolicy, Graph, InputRow, InputState, JobId, JobKey,
    JobState, NamespaceSettings, Now, Outcome, Queue, Rejection, Reply, RetryPolicy, UniqueKey,
};

use super::fingerprint::Fingerprint;
use crate::endings::UPSTREAM_GROUP;
use crate::engine::Engine;
use crate::index::{Edge, Timer};
use crate::job::{Extra, Job};
use crate::names::SpaceIndex;
use crate::transition::Move;
use crate::{Effects, Known};

/// How long an idempotency key is remembered.
const CLAIM_FOR: Duration = Duration::from_secs(86_400);

/// What becomes of one member of the submission.
enum Member {
    /// It makes a job.
    New { fingerprint: u64 },
    /// A job with its id or unique key is there already.
    Existing(JobKey, JobId),
    /// An earlier member has its unique key.
    SameAs(usize),
}

/// An edge of a new job, with what is known of its upstream now.
struct PlannedEdge {
    slot: u32,
    upstream: JobKey,
    id: JobId,
    policy: FailurePolicy,
    /// How the upstream has ended, if it has.
    ended: Option<Outcome>,
}

impl Engine {
    pub(crate) fn enqueue(
        &mut self,
        now: Now,
        cmd: Enqueue,
        known: &Known,
        out: &mut Effects,
    ) -> Answer {
        if let Some(answer) = self.repeated_claim(&cmd)? {
            return Ok(answer);
        }
        let settings = self.settings(&cmd.namespace);
        check_sizes(&cmd, &settings, now)?;
        check_references(&cmd)?;
        let members = self.plan_members(now, &cmd, known)?;
        self.check_upstreams(&cmd, known)?;
        self.check_room(&cmd, &members, &settings)?;

        Ok(self.write_submission(now, cmd, &members, known, out))
    }

    fn repeated_claim(&self, cmd: &Enqueue) -> Result<Option<Reply>, Rejection> {
        let Some(claim) = &cmd.claim else {
            return Ok(None);
        };
        let earlier = self
            .find_space(&cmd.namespace)
            .and_then(|space| self.spaces[space.at()].claims.get(claim));
        let Some(earlier) = earlier else {
            return Ok(None);
        };
        if earlier.fingerprint != Fingerprint::of_submission(cmd) {
            return Err(Rejection::ClaimConflict);
        }
        let answer = |(key, id): &(JobKey, JobId)| Enqueued {
            key: *key,
            id: id.clone(),
            existed: true,
        };
        Ok(Some(Reply::Enqueued {
            jobs: earlier.jobs.iter().map(answer).collect(),
            graph: earlier.graph.clone(),
            repeat: true,
        }))
    }

    fn plan_members(
        &self,
        now: Now,
        cmd: &Enqueue,
        known: &Known,
    ) -> Result<Vec<Member>, Rejection> {
        let mut ids = BTreeSet::new();
        let mut keys: BTreeMap<&UniqueKey, usize> = BTreeMap::new();
        let mut members = Vec::with_capacity(cmd.jobs.len());
        for (index, job) in cmd.jobs.iter().enumerate() {
            if let Some(id) = &job.id {
                if !ids.insert(id) {
                    return Err(Rejection::DuplicateId {
                        index,
                        job: id.clone(),
                    });
                }
                if id.parts().is_some() {
                    return Err(Rejection::IdReserved { job: id.clone() });
                }
            }
            let needs_print = job.id.is_some();
            let fingerprint = if needs_print {
                Fingerprint::of_job(job)
            } else {
                0
            };
            let same_id = self.same_id(cmd, job, fingerprint, known)?;
            let member = match (same_id, &job.unique) {
                (Some((key, id)), _) => Member::Existing(key, id),
                (None, Some(unique)) => match keys.get(&unique.key) {
                    Some(earlier) => Member::SameAs(*earlier),
                    None => {
                        keys.insert(&unique.key, index);
                        self.holder_of(now, cmd, &unique.key)
                            .unwrap_or(Member::New { fingerprint })
                    }
                },
                (None, None) => Member::New { fingerprint },
            };
            members.push(member);
        }
        Ok(members)
    }

    /// The job that has the id already, if the content is the same (`rel P1`).
    fn same_id(
        &self,
        cmd: &Enqueue,
        job: &NewJob,
        fingerprint: u64,
        known: &Known,
    ) -> Result<Option<(JobKey, JobId)>, Rejection> {
        let Some(id) = &job.id else { return Ok(None) };
        let found = match self.find_job(&cmd.namespace, id) {
            Some(key) => {
                let print = self
                    .job(key)
                    .extra
                    .as_deref()
                    .map_or(0, |extra| extra.fingerprint);
                Some((key, print))
            }
            None => known
                .find(&cmd.namespace, id)
                .map(|record| (record.key, record.fingerprint)),
        };
        match found {
            None => Ok(None),
            Some((key, print)) if print == fingerprint => Ok(Some((key, id.clone()))),
            Some(_) => Err(Rejection::IdTaken { job: id.clone() }),
        }
    }

    fn holder_of(&self, now: Now, cmd: &Enqueue, key: &UniqueKey) -> Option<Member> {
        let space = self.find_space(&cmd.namespace)?;
        let record = self.spaces[space.at()].unique.get(key)?;
        let is_held = record.until.is_none_or(|until| until > now.wall);
        is_held.then(|| Member::Existing(record.job, record.id.clone()))
    }

    fn check_upstreams(&self, cmd: &Enqueue, known: &Known) -> Result<(), Rejection> {
        for (index, job) in cmd.jobs.iter().enumerate() {
            for edge in edges_of(job) {
                let Upstream::Job(id) = &edge.upstream else {
                    continue;
                };
                let is_there = self.find_job(&cmd.namespace, id).is_some()
                    || known.find(&cmd.namespace, id).is_some();
                if !is_there {
                    return Err(Rejection::UpstreamNotFound {
                        index,
                        upstream: id.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    fn check_room(
        &self,
        cmd: &Enqueue,
        members: &[Member],
        settings: &NamespaceSettings,
    ) -> Result<(), Rejection> {
        let mut coming: BTreeMap<&Queue, u64> = BTreeMap::new();
        for (job, member) in cmd.jobs.iter().zip(members) {
            if matches!(member, Member::New { .. }) {
                *coming.entry(&job.queue).or_default() += 1;
            }
        }
        let live_here = self
            .find_space(&cmd.namespace)
            .map_or(0, |space| self.spaces[space.at()].live);
        let all: u64 = coming.values().sum();
        for (queue, more) in coming {
            let state = self
                .find_queue(&cmd.namespace, queue)
                .map(|queue| &self.queues[queue.at()]);
            let limit = state.and_then(|state| state.settings.live_max);
            let live = state.map_or(0, |state| state.counts.live());
            if let Some(limit) = limit.filter(|limit| live + more > *limit) {
                return Err(Rejection::QueueFull {
                    queue: queue.clone(),
                    live,
                    limit,
                });
            }
            if let Some(limit) = settings.live_max.filter(|limit| live_here + all > *limit) {
                return Err(Rejection::QueueFull {
                    queue: queue.clone(),
                    live: live_here,
                    limit,
                });
            }
        }
        Ok(())
    }
}

/// The writing half: nothing below can fail.
impl Engine {
    fn write_submission(
        &mut self,
        now: Now,
        cmd: Enqueue,
        members: &[Member],
        known: &Known,
        out: &mut Effects,
    ) -> Reply {
        let fingerprint = cmd.claim.as_ref().map(|_| Fingerprint::of_submission(&cmd));
        let space = self.make_space(&cmd.namespace);
        let jobs = self.name_members(&cmd, members);
        let graph = graph_name(&cmd, &jobs);
        let planned: Vec<_> = cmd
            .jobs
            .iter()
            .map(|job| self.plan_edges(space, job, &jobs, known))
            .collect();
        let firsts: Vec<Move> = cmd.jobs.iter().map(|job| first_move(now, job)).collect();
        let mut rows = Vec::with_capacity(cmd.jobs.len());
        for ((job, member), answer) in cmd.jobs.into_iter().zip(members).zip(&jobs) {
            let Member::New { fingerprint } = member else {
                rows.push(None);
                continue;
            };
            let (payload, values) =
                self.add_job(now, space, job, answer, *fingerprint, graph.as_ref(), out);
            rows.push(Some((payload, values)));
        }
        for (((row, edges), first), answer) in rows.into_iter().zip(planned).zip(firsts).zip(&jobs)
        {
            let Some((payload, values)) = row else {
                continue;
            };
            self.start_job(now, answer.key, edges, first, out);
            out.changes.push(Change::PutPayload {
                key: answer.key,
                payload,
            });
            out.changes.extend(values.into_iter().map(Change::PutInput));
        }
        if let (Some(key), Some(fingerprint)) = (cmd.claim, fingerprint) {
            let record = ClaimRecord {
                namespace: cmd.namespace,
                key: key.clone(),
                fingerprint,
                jobs: jobs.iter().map(|job| (job.key, job.id.clone())).collect(),
                graph: graph.clone(),
                until: now.wall.after(CLAIM_FOR),
            };
            let state = &mut self.spaces[space.at()];
            state
                .timers
                .arm(Due::Wall(record.until), Timer::ClaimEnd(key.clone()));
            out.changes.push(Change::PutClaim(Box::new(record.clone())));
            state.claims.insert(key, record);
        }
        Reply::Enqueued {
            jobs,
            graph,
            repeat: false,
        }
    }

    /// Numbers and ids for all members, in order.
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
                        .unwrap_or_else(|| JobId::made(key, self.id_tag));
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
        known: &Known,
    ) -> Vec<PlannedEdge> {
        let namespace = &self.spaces[space.at()].name;
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
            .map(|(slot, edge)| {
                let (upstream, id) = match &edge.upstream {
                    Upstream::Member(place) => {
                        let member = &jobs[usize::try_from(*place).expect("places were checked")];
                        (member.key, member.id.clone())
                    }
                    Upstream::Job(id) => {
                        let live = self.find_job(namespace, id);
                        let key =
                            live.or_else(|| known.find(namespace, id).map(|record| record.key));
                        (key.expect("upstreams were checked"), id.clone())
                    }
                };
                let finished = known
                    .by_key(upstream)
                    .and_then(|record| record.finished.as_ref());
                let ended = finished
                    .filter(|_| !self.is_live(upstream))
                    .map(|finished| finished.outcome);
                PlannedEdge {
                    slot,
                    upstream,
                    id,
                    policy: edge.policy,
                    ended,
                }
            })
            .collect()
    }

    /// Puts a new job into the table, in no index yet. Gives its payload and input values back for writing.
    #[expect(clippy::too_many_arguments, reason = "one private step of one command")]
    fn add_job(
        &mut self,
        now: Now,
        space: SpaceIndex,
        job: NewJob,
        answer: &Enqueued,
        fingerprint: u64,
        graph: Option<&Graph>,
        out: &mut Effects,
    ) -> (ganger_types::Bytes, Vec<InputRow>) {
        let queue = self.make_queue(space, &job.queue, now.wall);
        let state = &mut self.queues[queue.at()];
        state.known = true;
        state.enqueued_total += 1;
        self.changed_queues.insert(queue);
        let retry: &RetryPolicy = job
            .retry
            .as_ref()
            .or(state.settings.retry.as_ref())
            .unwrap_or(&self.spaces[space.at()].settings.retry);
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
        self.jobs.insert(Job {
            key,
            priority: job.priority,
            created_at: now.wall,
            ready_at: now.elapsed,
            queue,
            kind: self.names.kind_index(&job.kind),
            retry,
            id_tag: self.id_tag,
            attempt: 0,
            attempts_counted: 0,
            payload_bytes: u32::try_from(job.payload.len()).expect("payloads were checked"),
            state: JobState::Blocked,
            extra: trimmings(&job, fingerprint, graph).map(Box::new),
        });
        self.register(now, space, key, &job, answer, out);
        (job.payload, values)
    }

    /// Makes a new job findable: by id, graph, tags, unique key.
    fn register(
        &mut self,
        now: Now,
        space: SpaceIndex,
        key: JobKey,
        job: &NewJob,
        answer: &Enqueued,
        out: &mut Effects,
    ) {
        let state = &mut self.spaces[space.at()];
        state.live += 1;
        if let Some(id) = &job.id {
            state.given.insert(id.clone(), key);
        }
        job.tags.iter().for_each(|tag| state.count_tag(tag, 1));
        if job.tracked {
            state.tracked.insert(answer.id.clone(), now.wall);
            let name = state.name.clone();
            out.changes
                .push(Change::PutTracked(name, answer.id.clone(), Some(now.wall)));
        }
        if let Some(unique) = &job.unique {
            let until = unique.window.map(|window| now.wall.after(window));
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
            out.changes
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
            self.spaces[space.at()]
                .graphs
                .entry(graph)
                .or_default()
                .insert(key);
        }
    }

    /// Brings a new job to its first state.
    fn start_job(
        &mut self,
        now: Now,
        key: JobKey,
        edges: Vec<PlannedEdge>,
        first: Move,
        out: &mut Effects,
    ) {
        let mut failed = None;
        let mut inputs = Vec::with_capacity(edges.len());
        let mut missing = 0;
        for edge in edges {
            let PlannedEdge {
                slot,
                upstream,
                id,
                policy,
                ended,
            } = edge;
            let state = match (ended, policy) {
                (Some(Outcome::Succeeded), _) => InputState::Delivered {
                    upstream,
                    id,
                    policy,
                },
                (Some(_), FailurePolicy::Ignore) => InputState::Ignored { id },
                (ended, _) => {
                    if let (Some(outcome), FailurePolicy::Fail) = (ended, policy) {
                        failed = Some(format!("upstream job {id} {}", outcome.state()));
                    }
                    missing += 1;
                    InputState::Missing {
                        upstream,
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
                        upstream,
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
            let extra = self.job_mut(key).extra_mut();
            extra.missing = missing;
            if let Move::Scheduled(due) = first {
                extra.due = Some(due);
            }
            Move::Blocked
        };
        self.admit(now, key, to, "", out);
        out.changes.extend(inputs.into_iter().map(Change::PutInput));
        if let Some(message) = failed {
            self.fail_unstarted(now, key, UPSTREAM_GROUP, message, out);
        }
    }
}

/// What this job has that few jobs have.
fn trimmings(job: &NewJob, fingerprint: u64, graph: Option<&Graph>) -> Option<Extra> {
    let extra = Extra {
        id: job.id.clone(),
        deadline: job.deadline,
        timeout: job.timeout,
        inputs: u32::try_from(job.inputs.len()).expect("inputs were checked"),
        fingerprint,
        graph: graph.cloned(),
        tags: job.tags.clone(),
        labels: job.labels.clone(),
        tracked: job.tracked,
        unique: job.unique.as_ref().map(|unique| unique.key.clone()),
        keep_succeeded: job.keep_succeeded,
        keep_failed: job.keep_failed,
        ..Extra::default()
    };
    (!extra.is_plain()).then_some(extra)
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
            .any(|edge| matches!(edge.upstream, Upstream::Member(_)))
    };
    if !cmd.graph && !has_members() {
        return None;
    }
    let first = jobs.iter().find(|job| !job.existed)?;
    Some(Graph::new(first.id.as_bytes()).expect("an id is as long as a name at most"))
}

fn edges_of(job: &NewJob) -> impl Iterator<Item = &NewEdge> {
    let data = job.inputs.iter().filter_map(|input| match input {
        NewInput::Value(_) => None,
        NewInput::Result(edge) => Some(edge),
    });
    data.chain(&job.after)
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Refuses `actual` beyond `limit`.
pub(super) fn at_most(what: &'static str, actual: u64, limit: u64) -> Result<(), Rejection> {
    if actual > limit {
        return Err(Rejection::TooLarge {
            what,
            actual,
            limit,
        });
    }
    Ok(())
}

fn check_sizes(cmd: &Enqueue, settings: &NamespaceSettings, now: Now) -> Result<(), Rejection> {
    if cmd.jobs.is_empty() {
        return Err(Rejection::NothingSubmitted);
    }
    at_most(
        "the number of jobs of a submission",
        count(cmd.jobs.len()),
        count(limits::GRAPH_JOBS_MAX),
    )?;
    let mut bytes = 0;
    for (index, job) in cmd.jobs.iter().enumerate() {
        check_job(index, job, settings, now)?;
        bytes += count(job.payload.len());
        for input in &job.inputs {
            if let NewInput::Value(value) = input {
                at_most(
                    "the size of an input in bytes",
                    count(value.len()),
                    settings.payload_bytes_max,
                )?;
                bytes += count(value.len());
            }
        }
    }
    at_most(
        "the size of a submission in bytes",
        bytes,
        count(limits::GRAPH_BYTES_MAX),
    )
}

fn check_job(
    index: usize,
    job: &NewJob,
    settings: &NamespaceSettings,
    now: Now,
) -> Result<(), Rejection> {
    if job.kind.is_empty() {
        return Err(Rejection::KindMissing { index });
    }
    let payload_max = settings.payload_bytes_max.min(u64::from(u32::MAX));
    at_most(
        "the size of a payload in bytes",
        count(job.payload.len()),
        payload_max,
    )?;
    let inputs = count(job.inputs.len() + job.after.len());
    at_most(
        "the number of inputs of a job",
        inputs,
        count(limits::INPUTS_MAX),
    )?;
    at_most(
        "the number of tags of a job",
        count(job.tags.len()),
        count(limits::TAGS_MAX),
    )?;
    at_most(
        "the number of labels of a job",
        count(job.labels.len()),
        count(limits::LABELS_MAX),
    )?;
    if let Some(retry) = &job.retry {
        check_retry(retry)?;
    }
    if job.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Rejection::OutOfRange {
            what: "timeout",
            expected: "longer than zero, or absent",
        });
    }
    if let Some(deadline) = job.deadline.filter(|deadline| *deadline <= now.wall) {
        return Err(Rejection::DeadlinePassed {
            index,
            late: now.wall.since(deadline),
        });
    }
    Ok(())
}

/// Refuses a retry policy that cannot be followed.
pub(super) fn check_retry(retry: &RetryPolicy) -> Result<(), Rejection> {
    at_most(
        "the number of retries",
        u64::from(retry.retries_max),
        u64::from(limits::RETRIES_MAX),
    )?;
    if retry.jitter_percent > 100 {
        return Err(Rejection::OutOfRange {
            what: "jitter",
            expected: "between 0 and 100 per cent",
        });
    }
    match &retry.backoff {
        Backoff::List(pauses) if pauses.is_empty() => Err(Rejection::OutOfRange {
            what: "the list of pauses",
            expected: "at least one long",
        }),
        Backoff::List(pauses) => at_most("the number of pauses", count(pauses.len()), 1_000),
        Backoff::Fixed(_) | Backoff::Exponential { .. } => Ok(()),
    }
}

/// References between members: they exist, and do not go in circles.
fn check_references(cmd: &Enqueue) -> Result<(), Rejection> {
    let members = cmd.jobs.len();
    let mut waits_for = vec![0_usize; members];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); members];
    for (index, job) in cmd.jobs.iter().enumerate() {
        for edge in edges_of(job) {
            let Upstream::Member(member) = edge.upstream else {
                continue;
            };
            let place = usize::try_from(member).unwrap_or(usize::MAX);
            if place >= members {
                return Err(Rejection::MemberNotFound {
                    index,
                    member,
                    count: members,
                });
            }
            waits_for[index] += 1;
            dependents[place].push(index);
        }
    }
    let mut free: Vec<usize> = (0..members)
        .filter(|index| waits_for[*index] == 0)
        .collect();
    let mut seen = 0;
    while let Some(index) = free.pop() {
        seen += 1;
        for dependent in &dependents[index] {
            waits_for[*dependent] -= 1;
            if waits_for[*dependent] == 0 {
                free.push(*dependent);
            }
        }
    }
    if seen < members {
        let index = waits_for
            .iter()
            .position(|left| *left > 0)
            .expect("some were not seen");
        return Err(Rejection::Cycle { index });
    }
    Ok(())
}
