//! Reasons to refuse a submission: all that apply, because their order is not specified.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Dependency, Enqueue, NewInput, NewJob, Start};
use ganger_types::{Backoff, JobId, JobKey, Queue};

use super::Oracle;

/// The outcome of one member of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberOutcome {
    New,
    Existing(JobKey),
    SameAs(usize),
}

pub(super) fn edges(job: &NewJob) -> impl Iterator<Item = &ganger_types::command::NewEdge> {
    let inputs = job.inputs.iter().filter_map(|input| match input {
        NewInput::Result(edge) => Some(edge),
        NewInput::Value(_) => None,
    });
    inputs.chain(&job.after)
}

impl Oracle {
    /// The codes of all reasons to refuse the submission; empty if it must be accepted.
    pub(super) fn objections(&self, cmd: &Enqueue) -> BTreeSet<&'static str> {
        let mut codes = BTreeSet::new();
        if cmd.jobs.is_empty() {
            codes.insert("nothing_submitted");
        }
        let mut ids = BTreeSet::new();
        let bytes_max = self.namespace(&cmd.namespace).payload_bytes_max;
        for (job, fate) in cmd.jobs.iter().zip(self.member_outcomes(cmd)) {
            // A repeat is not refused because of later changes of its dependencies.
            let is_repeat = job.id.is_some() && matches!(fate, MemberOutcome::Existing(_));
            self.object_to_job(cmd, job, is_repeat, &mut codes);
            if job.id.as_ref().is_some_and(|id| !ids.insert(id)) {
                codes.insert("duplicate_id");
            }
            let values = job.inputs.iter().filter_map(|input| match input {
                NewInput::Value(value) => Some(value.len()),
                NewInput::Result(_) => None,
            });
            let longest = values.chain([job.payload.len()]).max().unwrap_or(0);
            if u64::try_from(longest).is_ok_and(|longest| longest > bytes_max) {
                codes.insert("too_large");
            }
        }
        if has_cycle(cmd) {
            codes.insert("cycle");
        }
        codes
    }

    fn object_to_job(
        &self,
        cmd: &Enqueue,
        job: &NewJob,
        is_repeat: bool,
        codes: &mut BTreeSet<&'static str>,
    ) {
        if job.kind.is_empty() {
            codes.insert("kind_missing");
        }
        for edge in edges(job) {
            match &edge.dependency {
                Dependency::Member(member) => {
                    if usize::try_from(*member).map_or(true, |place| place >= cmd.jobs.len()) {
                        codes.insert("member_not_found");
                    }
                }
                Dependency::Job(id) => {
                    if !is_repeat && self.find(&cmd.namespace, id).is_none() {
                        codes.insert("dependency_not_found");
                    }
                }
                Dependency::Remote { .. } => {}
            }
        }
        if let Some(id) = &job.id {
            self.object_to_id(cmd, job, id, codes);
        }
        if job
            .deadline
            .is_some_and(|deadline| deadline <= self.now.wall)
        {
            codes.insert("deadline_passed");
        }
        if let Some(retry) = &job.retry {
            let empty = matches!(&retry.backoff, Backoff::List(pauses) if pauses.is_empty());
            if empty || retry.jitter_percent > 100 {
                codes.insert("out_of_range");
            }
        }
    }

    fn object_to_id(
        &self,
        cmd: &Enqueue,
        job: &NewJob,
        id: &JobId,
        codes: &mut BTreeSet<&'static str>,
    ) {
        if id.parts().is_some() {
            codes.insert("id_reserved");
        }
        if let Some(key) = self.find(&cmd.namespace, id)
            && !same_content(&self.known(key).spec, job)
        {
            codes.insert("id_taken");
        }
    }

    /// The outcome of each member if the submission is accepted.
    pub(super) fn member_outcomes(&self, cmd: &Enqueue) -> Vec<MemberOutcome> {
        let mut keys = BTreeMap::new();
        let mut member_outcomes = Vec::new();
        for (place, job) in cmd.jobs.iter().enumerate() {
            let by_id = job.id.as_ref().and_then(|id| self.find(&cmd.namespace, id));
            let fate = match (by_id, &job.unique) {
                (Some(key), _) => MemberOutcome::Existing(key),
                (None, Some(unique)) => {
                    let name = (cmd.namespace.clone(), unique.key.clone());
                    let holder = self.uniques.get(&name).filter(|occupied| {
                        occupied.until.is_none_or(|until| until > self.now.wall)
                    });
                    match (keys.get(&unique.key), holder) {
                        (Some(earlier), _) => MemberOutcome::SameAs(*earlier),
                        (None, Some(occupied)) => MemberOutcome::Existing(occupied.job),
                        (None, None) => MemberOutcome::New,
                    }
                }
                (None, None) => MemberOutcome::New,
            };
            if let (Some(unique), true) = (&job.unique, by_id.is_none()) {
                keys.entry(&unique.key).or_insert(place);
            }
            member_outcomes.push(fate);
        }
        member_outcomes
    }

    /// Whether the submission must be refused for lack of room in a queue or the namespace.
    pub(super) fn is_too_much(&self, cmd: &Enqueue, member_outcomes: &[MemberOutcome]) -> bool {
        let mut coming: BTreeMap<&Queue, u64> = BTreeMap::new();
        for (job, fate) in cmd.jobs.iter().zip(member_outcomes) {
            if *fate == MemberOutcome::New {
                *coming.entry(&job.queue).or_default() += 1;
            }
        }
        let all: u64 = coming.values().sum();
        let space_max = self.namespace(&cmd.namespace).live_max;
        let live = self.count_live(|job| job.namespace == cmd.namespace);
        if all > 0 && space_max.is_some_and(|limit| live + all > limit) {
            return true;
        }
        coming.into_iter().any(|(queue, more)| {
            let limit = self.settings(&cmd.namespace, queue).live_max;
            let live = self.count_live(|job| job.namespace == cmd.namespace && job.queue == *queue);
            limit.is_some_and(|limit| live + more > limit)
        })
    }

    pub(super) fn count_live(&self, is_meant: impl Fn(&super::ModelJob) -> bool) -> u64 {
        let count = self
            .live
            .iter()
            .filter(|key| is_meant(self.known(**key)))
            .count();
        u64::try_from(count).expect("a count fits")
    }
}

/// Whether two submitted jobs have the same content, so that the second is a repeat.
pub(super) fn same_content(one: &NewJob, other: &NewJob) -> bool {
    one == other
}

/// Whether members wait for each other in a cycle: removes members without dependencies until nothing changes.
fn has_cycle(cmd: &Enqueue) -> bool {
    let mut left: BTreeSet<usize> = (0..cmd.jobs.len()).collect();
    loop {
        let free: Vec<usize> = left
            .iter()
            .copied()
            .filter(|place| {
                !edges(&cmd.jobs[*place]).any(|edge| match edge.dependency {
                    Dependency::Member(member) => {
                        usize::try_from(member).is_ok_and(|member| left.contains(&member))
                    }
                    Dependency::Job(_) | Dependency::Remote { .. } => false,
                })
            })
            .collect();
        if free.is_empty() {
            return !left.is_empty();
        }
        left.retain(|place| !free.contains(place));
    }
}

/// When a submitted job is due, seen from `now`; `None`: at once.
pub(super) fn due_of(start: Start, now: ganger_types::Now) -> Option<ganger_types::Due> {
    let due = match start {
        Start::Now => return None,
        Start::After(delay) => ganger_types::Due::Elapsed(now.elapsed.after(delay)),
        Start::At(at) => ganger_types::Due::Wall(at),
    };
    (!due.is_past(now)).then_some(due)
}
