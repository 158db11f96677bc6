//! Checks submissions: refused for a valid reason, or applied completely and once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{
    Answer, FailurePolicy, Graph, JobKey, JobState, Namespace, Outcome, Rejection, Reply, UniqueKey,
};

use super::admission::{MemberOutcome, due_of, edges};
use super::job::{DueTime, ModelJob, PossibleState, Slot};
use super::{CheckResult, IdempotencyModel, Oracle, UniqueHolder};

/// Time for which an idempotency key is kept.
const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(86_400);

impl Oracle {
    pub(super) fn enqueue(&mut self, cmd: &Enqueue, answer: &Answer) -> CheckResult {
        if let Some(judged) = self.repeated_submission(cmd, answer) {
            return judged;
        }
        let mut objections = self.objections(cmd);
        let member_outcomes = self.member_outcomes(cmd);
        if self.is_too_much(cmd, &member_outcomes) {
            objections.insert("queue_full");
        }
        match answer {
            Err(rejection) => self.refused(rejection, &objections),
            Ok(Reply::Enqueued {
                jobs,
                graph,
                repeat: false,
            }) if objections.is_empty() => {
                self.admitted(cmd, &member_outcomes, jobs, graph.as_ref())
            }
            Ok(reply) => {
                let what = format!("{reply:?}, although it had to be refused: {objections:?}");
                Err(self.wrong("G7", what, Vec::new()))
            }
        }
    }

    /// Checks that a refusal names a reason that applies.
    pub(super) fn refused(
        &self,
        rejection: &Rejection,
        allowed: &BTreeSet<&'static str>,
    ) -> CheckResult {
        if allowed.contains(rejection.code()) {
            return Ok(());
        }
        let what = format!(
            "refused as {} ({rejection}); that does not hold, only {allowed:?}",
            rejection.code()
        );
        Err(self.wrong("P6", what, Vec::new()))
    }

    fn repeated_submission(&mut self, cmd: &Enqueue, answer: &Answer) -> Option<CheckResult> {
        let key = cmd.idempotency_key.as_ref()?;
        let earlier = self
            .idempotency_records
            .get(&(cmd.namespace.clone(), key.clone()))?;
        let same = earlier.submission.jobs == cmd.jobs && earlier.submission.graph == cmd.graph;
        let right = match answer {
            Ok(Reply::Enqueued {
                jobs, repeat: true, ..
            }) => {
                same && jobs
                    .iter()
                    .map(|job| (job.key, job.id.clone()))
                    .eq(earlier.jobs.iter().cloned())
            }
            Err(Rejection::IdempotencyConflict) => !same,
            _ => false,
        };
        if right {
            self.goals.reach(if same {
                "idempotency-key-repeated"
            } else {
                "idempotency-key-conflict"
            });
            return Some(Ok(()));
        }
        let what = format!(
            "a repeat under the idempotency key {key} (same content: {same}) was answered {answer:?} instead of {:?}",
            earlier.jobs
        );
        Some(Err(self.wrong("P1", what, Vec::new())))
    }

    fn admitted(
        &mut self,
        cmd: &Enqueue,
        member_outcomes: &[MemberOutcome],
        jobs: &[Enqueued],
        graph: Option<&Graph>,
    ) -> CheckResult {
        if jobs.len() != cmd.jobs.len() {
            let what = format!(
                "{} jobs were submitted, {} answered",
                cmd.jobs.len(),
                jobs.len()
            );
            return Err(self.wrong("G7", what, Vec::new()));
        }
        let has_edges = cmd.jobs.len() > 1
            && cmd
                .jobs
                .iter()
                .any(|job| edges(job).any(|e| matches!(e.dependency, Dependency::Member(_))));
        let are_new = member_outcomes
            .iter()
            .all(|fate| *fate == MemberOutcome::New);
        if are_new && graph.is_some() != (cmd.graph || has_edges) {
            return Err(self.wrong("G7", format!("the graph is named {graph:?}"), Vec::new()));
        }
        for ((place, fate), answered) in member_outcomes.iter().enumerate().zip(jobs) {
            self.check_fate(cmd, place, fate, answered, jobs)?;
        }
        let keys: Vec<JobKey> = jobs.iter().map(|job| job.key).collect();
        let mut is_new = BTreeMap::new();
        for ((place, fate), answered) in member_outcomes.iter().enumerate().zip(jobs) {
            if *fate == MemberOutcome::New {
                is_new.insert(place, answered);
            }
        }
        for (place, answered) in &is_new {
            let graph = graph.cloned();
            self.learn(cmd, &cmd.jobs[*place], answered, &keys, graph);
        }
        for answered in is_new.values() {
            let dependencies: Vec<JobKey> = self
                .known(answered.key)
                .slots()
                .filter_map(dependency_of)
                .collect();
            for dependency in dependencies {
                if let Some(other) = self.jobs.get_mut(&dependency) {
                    other.dependents.insert(answered.key);
                }
            }
        }
        let keys: Vec<JobKey> = is_new.values().map(|answered| answered.key).collect();
        self.settle_new(keys);
        if let Some(key) = &cmd.idempotency_key {
            let claimed = IdempotencyModel {
                submission: cmd.clone(),
                jobs: jobs.iter().map(|job| (job.key, job.id.clone())).collect(),
                until: self.now.wall.after(IDEMPOTENCY_WINDOW),
            };
            self.idempotency_records
                .insert((cmd.namespace.clone(), key.clone()), claimed);
        }
        Ok(())
    }

    fn check_fate(
        &mut self,
        cmd: &Enqueue,
        place: usize,
        fate: &MemberOutcome,
        answered: &Enqueued,
        jobs: &[Enqueued],
    ) -> CheckResult {
        let right = match fate {
            MemberOutcome::New => {
                let is_fresh = self.key_max.is_none_or(|max| answered.key > max);
                let is_named = cmd.jobs[place]
                    .id
                    .as_ref()
                    .is_none_or(|id| *id == answered.id);
                let is_free = self.find(&cmd.namespace, &answered.id).is_none();
                is_fresh && is_named && is_free && !answered.existed
            }
            MemberOutcome::Existing(key) => answered.key == *key && answered.existed,
            MemberOutcome::SameAs(earlier) => answered.key == jobs[*earlier].key,
        };
        if *fate == MemberOutcome::New {
            self.key_max = self.key_max.max(Some(answered.key));
        } else {
            self.goals.reach("existing-job-answered");
        }
        if right {
            return Ok(());
        }
        let what = format!("member {place} should be {fate:?} and was answered {answered:?}");
        Err(self.broken("P1", answered.key, what))
    }

    pub(super) fn learn(
        &mut self,
        cmd: &Enqueue,
        spec: &NewJob,
        answered: &Enqueued,
        keys: &[JobKey],
        graph: Option<Graph>,
    ) {
        let key = answered.key;
        let settings = self.settings(&cmd.namespace, &spec.queue);
        let default = settings
            .retry
            .unwrap_or_else(|| self.namespace(&cmd.namespace).retry);
        let start = due_of(spec.start, self.now);
        let inputs: Vec<Slot> = spec
            .inputs
            .iter()
            .map(|input| self.slot(cmd, input, keys))
            .collect();
        let after = spec
            .after
            .iter()
            .map(|edge| self.edge(cmd, edge, keys))
            .collect();
        let job = ModelJob {
            key,
            id: answered.id.clone(),
            namespace: cmd.namespace.clone(),
            queue: spec.queue.clone(),
            payload: spec.payload.clone(),
            priority: spec.priority,
            retry: spec.retry.clone().unwrap_or(default),
            graph,
            tags: spec.tags.iter().cloned().collect(),
            start,
            may: vec![PossibleState::new(JobState::Blocked)],
            attempt: 0,
            inputs,
            after,
            dependents: BTreeSet::new(),
            hold: None,
            last_report: None,
            past: Vec::new(),
            result: None,
            is_ahead: false,
            failed_with: None,
            is_retried: false,
            jumps_at_end: 0,
            notes: Vec::new(),
            spec: spec.clone(),
        };
        self.add_to_model(job);
        if let Some(unique) = &spec.unique {
            let until = unique.window.map(|window| self.now.wall.after(window));
            self.occupy(
                &cmd.namespace,
                &unique.key,
                UniqueHolder { job: key, until },
            );
        }
    }

    fn occupy(&mut self, namespace: &Namespace, key: &UniqueKey, occupied: UniqueHolder) {
        self.uniques
            .insert((namespace.clone(), key.clone()), occupied);
    }

    /// Adds a new job to the model.
    pub(super) fn add_to_model(&mut self, job: ModelJob) {
        let key = job.key;
        self.key_max = self.key_max.max(Some(key));
        self.ids
            .insert((job.namespace.clone(), job.id.clone()), key);
        self.jobs.insert(key, job);
        self.live.insert(key);
        self.note(key, "was enqueued as number", key.0);
    }

    fn slot(&self, cmd: &Enqueue, input: &NewInput, keys: &[JobKey]) -> Slot {
        match input {
            NewInput::Value(value) => Slot::Value(value.clone()),
            NewInput::Result(edge) => self.edge(cmd, edge, keys),
        }
    }

    /// The slot of an edge, by the present state of its dependency.
    fn edge(&self, cmd: &Enqueue, edge: &NewEdge, keys: &[JobKey]) -> Slot {
        let dependency = match &edge.dependency {
            Dependency::Member(member) => keys[usize::try_from(*member).expect("checked")],
            Dependency::Job(id) => self.find(&cmd.namespace, id).expect("checked"),
            Dependency::Remote { .. } => unreachable!("there is one shard"),
        };
        self.slot_for(dependency, edge.policy)
    }

    pub(super) fn slot_for(&self, dependency: JobKey, policy: FailurePolicy) -> Slot {
        match self.jobs.get(&dependency) {
            Some(job) if job.outcome() == Some(Outcome::Succeeded) => Slot::Delivered(dependency),
            // The dependency failed or was cancelled, so there is nothing to wait for.
            Some(job) if job.has_failed() && policy == FailurePolicy::Ignore => Slot::Ignored,
            _ => Slot::Missing(dependency, policy),
        }
    }

    /// Sets the first states of new jobs. Those with a failed dependency all fail before any consequences are
    /// applied.
    pub(super) fn settle_new(&mut self, keys: Vec<JobKey>) {
        let mut failed = Vec::new();
        for key in keys {
            let job = self.known(key);
            let is_dead = |dependency: &JobKey| {
                let has_ended = self.jobs.get(dependency).is_some_and(ModelJob::has_ended);
                has_ended && job.policy_towards(*dependency) == Some(FailurePolicy::Fail)
            };
            let Some(dependency) = job.missing().into_iter().find(is_dead) else {
                self.begin(key);
                continue;
            };
            self.goals.reach("enqueued-behind-a-failed-dependency");
            self.note(key, "its dependency had not succeeded:", dependency.0);
            self.known_mut(key).moves_to(JobState::Failed);
            failed.push(key);
        }
        self.apply_endings(&failed);
    }

    /// Sets the first state of a new job: blocked, scheduled or ready.
    fn begin(&mut self, key: JobKey) {
        let job = self.known(key);
        let blank = PossibleState::new(JobState::Ready);
        let stand = if job.missing().is_empty() {
            match job.start {
                Some(due) => blank.scheduled(DueTime::At(due)),
                None => blank,
            }
        } else {
            PossibleState::new(JobState::Blocked)
        };
        self.known_mut(key).becomes(vec![stand]);
    }

    /// Frees the unique key of an ended job, if the key has no window.
    pub(super) fn free_unique_of(&mut self, key: JobKey) {
        let job = self.known(key);
        let Some(unique) = &job.spec.unique else {
            return;
        };
        let name = (job.namespace.clone(), unique.key.clone());
        let frees = |occupied: &UniqueHolder| occupied.job == key && occupied.until.is_none();
        if self.uniques.get(&name).is_some_and(frees) {
            self.uniques.remove(&name);
        }
    }
}

pub(super) fn dependency_of(slot: &Slot) -> Option<JobKey> {
    match slot {
        Slot::Missing(dependency, _) | Slot::Delivered(dependency) => Some(*dependency),
        Slot::Value(_) | Slot::Ignored => None,
    }
}
