//! Checks schedules: each run fires once, by its policy, in one commit (`rel T7`, `C2`, `C3`).

use std::collections::BTreeSet;

use ganger_types::command::{NewJob, PauseSchedule, PutSchedule, RemoveSchedule, RunSchedule};
use ganger_types::{
    Answer, CatchUp, Command, JobId, JobKey, JobRecord, JobState, Namespace, Overlap, Reply,
    ScheduleId, ScheduleRecord, ScheduleSpec, Timestamp,
};

use super::job::{ModelJob, PossibleState, TokenEnd};
use super::{CheckResult, Oracle, Turn};
use crate::rows::Rows;

/// The model of a schedule.
pub(crate) struct Plan {
    record: ScheduleRecord,
    next_at: Timestamp,
    last: Option<JobKey>,
}

impl Oracle {
    /// Checks the schedules that are due; they fire before the commands of the same time.
    pub(super) fn schedules_fire(&mut self, rows: &Rows) -> CheckResult {
        let now = self.now.wall;
        let is_due = |plan: &Plan| plan.next_at <= now && !plan.record.paused;
        let names: Vec<_> = self
            .schedules
            .iter()
            .filter(|(_, plan)| is_due(plan))
            .collect();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name.clone()).collect();
        for name in names {
            self.schedule_fires(&name, rows)?;
        }
        Ok(())
    }

    /// The number of due schedules that cancel their earlier run.
    pub(super) fn schedules_that_replace(&self) -> usize {
        let is_due = |plan: &&Plan| plan.next_at <= self.now.wall && !plan.record.paused;
        let due = self.schedules.values().filter(is_due);
        due.filter(|plan| plan.record.overlap == Overlap::Replace)
            .count()
    }

    fn schedule_fires(&mut self, name: &(Namespace, ScheduleId), rows: &Rows) -> CheckResult {
        let made = self.new_of_schedule(name, rows);
        let plan = &self.schedules[name];
        let (record, last) = (plan.record.clone(), plan.last);
        let count = points(&plan.record, plan.next_at, self.now.wall);
        let allowed = self.allowed(plan, count);
        if count > 1 {
            self.goals.reach(match record.catch_up {
                CatchUp::None => "schedule-missed-none",
                CatchUp::Last => "schedule-missed-last",
                CatchUp::All { .. } => "schedule-missed-all",
            });
        }
        if !allowed.contains(&made.len()) {
            let what = format!(
                "schedule {} ({:?}, {:?}, paused {}) had {count} due points and made {made:?} instead of {allowed:?} jobs",
                record.id, record.catch_up, record.overlap, record.paused
            );
            let earlier = vec![format!("it was due at {}", self.schedules[name].next_at)];
            return Err(self.wrong("T7", what, earlier));
        }
        let may_be_refused = self.is_full(&record.namespace, &record.queue);
        if record.overlap == Overlap::Replace && made.is_empty() && may_be_refused {
            // The earlier job was cancelled, and the queue was still full.
            self.may_be_replaced(last);
        }
        let mut previous = last;
        for key in made {
            if record.overlap == Overlap::Replace {
                self.replaced(previous);
            }
            self.learn_scheduled(rows.record(key).expect("listed from the rows"), rows);
            previous = Some(key);
        }
        let plan = self.schedules.get_mut(name).expect("it was there");
        plan.next_at = next_after(&plan.record, self.now.wall);
        plan.last = previous;
        Ok(())
    }

    /// The jobs that a schedule made at this time, in order.
    fn new_of_schedule(&self, name: &(Namespace, ScheduleId), rows: &Rows) -> Vec<JobKey> {
        let from = self.key_before.map_or(JobKey(0), |max| JobKey(max.0 + 1));
        let live = rows.live.range(from..).map(|(_, record)| record);
        let finished = rows.finished.range(from..).map(|(_, row)| &row.record);
        let mut keys: Vec<JobKey> = live
            .chain(finished)
            .filter(|record| {
                record.schedule.as_ref() == Some(&name.1) && record.namespace == name.0
            })
            .filter(|record| {
                record.created_at == self.now.wall && !self.jobs.contains_key(&record.key)
            })
            .filter(|record| !self.run_by_hand.contains(&record.id))
            .map(|record| record.key)
            .collect();
        keys.sort_unstable();
        keys
    }

    /// The allowed numbers of jobs for this number of due runs.
    fn allowed(&self, plan: &Plan, points: usize) -> BTreeSet<usize> {
        let schedule = &plan.record;
        let mut by_policy: BTreeSet<usize> = match schedule.catch_up {
            // Whether the newest run counts as missed depends on the delay of the step.
            CatchUp::None => BTreeSet::from([0, 1]),
            CatchUp::Last => BTreeSet::from([1]),
            CatchUp::All { max } => {
                // Without its own limit it enqueues the 10,000 newest.
                let max = if max == 0 { 10_000 } else { max };
                BTreeSet::from([points.min(usize::try_from(max).expect("a small number"))])
            }
        };
        if self.is_full(&schedule.namespace, &schedule.queue) {
            by_policy = (0..=by_policy.into_iter().max().unwrap_or(0)).collect();
        }
        if schedule.overlap != Overlap::Skip {
            return by_policy;
        }
        match plan.last.and_then(|key| self.jobs.get(&key)) {
            Some(job) if self.due_now.contains(&job.key) => BTreeSet::from([0, 1]),
            Some(job) if !job.may_have_ended() => BTreeSet::from([0]),
            Some(job) if !job.has_ended() => BTreeSet::from([0, 1]),
            _ => by_policy.into_iter().map(|count| count.min(1)).collect(),
        }
    }

    /// Whether a full queue or namespace may refuse the runs of a schedule.
    fn is_full(&self, namespace: &Namespace, queue: &ganger_types::Queue) -> bool {
        self.settings(namespace, queue).live_max.is_some()
            || self.namespace(namespace).live_max.is_some()
    }

    fn may_be_replaced(&mut self, last: Option<JobKey>) {
        let Some(key) = last.filter(|key| self.live.contains(key)) else {
            return;
        };
        let job = self.known_mut(key);
        let cancelled: Vec<PossibleState> = job
            .may
            .iter()
            .map(|s| s.moved(JobState::Cancelled))
            .collect();
        job.may.extend(cancelled);
    }

    /// Cancels the earlier job of a schedule that replaces it.
    fn replaced(&mut self, last: Option<JobKey>) {
        let Some(key) = last.filter(|key| self.live.contains(key)) else {
            return;
        };
        self.note(key, "was replaced by the next run of its schedule", 0);
        self.goals.reach("schedule-replaced-a-run");
        self.known_mut(key).end_hold(TokenEnd::Cancelled);
        self.ends_without_success(key, JobState::Cancelled);
    }

    fn learn_scheduled(&mut self, record: &JobRecord, rows: &Rows) {
        let spec = NewJob {
            queue: record.queue.clone(),
            kind: record.kind.clone(),
            priority: record.priority,
            timeout: record.timeout,
            ..NewJob::default()
        };
        let job = ModelJob {
            key: record.key,
            id: record.id.clone(),
            namespace: record.namespace.clone(),
            queue: record.queue.clone(),
            payload: rows.payloads.get(&record.key).cloned().unwrap_or_default(),
            priority: record.priority,
            retry: record.retry.clone(),
            graph: None,
            tags: record.tags.iter().cloned().collect(),
            start: None,
            may: vec![PossibleState::new(JobState::Ready)],
            attempt: 0,
            inputs: Vec::new(),
            after: Vec::new(),
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
            spec,
        };
        self.add_to_model(job);
        self.goals.reach("schedule-fired");
    }

    pub(super) fn put_schedule(&mut self, cmd: &PutSchedule, answer: &Answer) -> CheckResult {
        let name = (cmd.schedule.namespace.clone(), cmd.schedule.id.clone());
        match answer {
            Err(rejection) => {
                let codes = [
                    "cron_unreadable",
                    "time_zone_unknown",
                    "out_of_range",
                    "kind_missing",
                    "too_large",
                ];
                self.refused(rejection, &BTreeSet::from(codes))
            }
            Ok(Reply::Done) => {
                let last = self.schedules.get(&name).and_then(|plan| plan.last);
                let same = self
                    .schedules
                    .get(&name)
                    .filter(|plan| plan.record.spec == cmd.schedule.spec);
                let next_at = same.map_or_else(
                    || match cmd.schedule.spec {
                        // The first run, even if that time has passed.
                        ScheduleSpec::Interval { first_at, .. } => first_at,
                        ScheduleSpec::Cron { .. } => next_after(&cmd.schedule, self.now.wall),
                    },
                    |plan| plan.next_at,
                );
                self.schedules.insert(
                    name,
                    Plan {
                        record: cmd.schedule.clone(),
                        next_at,
                        last,
                    },
                );
                Ok(())
            }
            Ok(other) => Err(self.wrong("P6", format!("answered {other:?}"), Vec::new())),
        }
    }

    /// Checks a run by command: one job, regardless of the policies; the times do not change.
    pub(super) fn run_schedule(
        &mut self,
        cmd: &RunSchedule,
        answer: &Answer,
        rows: &Rows,
    ) -> CheckResult {
        let name = (cmd.namespace.clone(), cmd.id.clone());
        let known = self.schedules.get(&name).map(|plan| plan.record.clone());
        let (schedule, answered) = match (known, answer) {
            (Some(schedule), Ok(Reply::Schedule(answered))) => (schedule, answered),
            (Some(schedule), Err(rejection))
                if self.is_full(&schedule.namespace, &schedule.queue) =>
            {
                return self.refused(rejection, &BTreeSet::from(["queue_full"]));
            }
            (None, Err(rejection)) => {
                return self.refused(rejection, &BTreeSet::from(["schedule_not_found"]));
            }
            (_, other) => {
                let what = format!("running schedule {}: {other:?}", cmd.id);
                return Err(self.wrong("P6", what, Vec::new()));
            }
        };
        let record = answered.last_job.as_ref().and_then(|id| {
            let live = rows.live.values();
            let all = live.chain(rows.finished.values().map(|row| &row.record));
            let mut all = all.filter(|record| record.namespace == cmd.namespace);
            all.find(|record| record.id == *id)
        });
        let is_it = |record: &&JobRecord| {
            record.schedule.as_ref() == Some(&cmd.id)
                && record.queue == schedule.queue
                && record.kind == schedule.kind
                && !self.jobs.contains_key(&record.key)
        };
        let Some(record) = record.filter(is_it) else {
            let what = format!("running schedule {} made {:?}", cmd.id, answered.last_job);
            return Err(self.wrong("T7", what, Vec::new()));
        };
        let key = record.key;
        self.learn_scheduled(record, rows);
        self.goals.reach("schedule-run-by-hand");
        let plan = self.schedules.get_mut(&name).expect("it was there");
        plan.last = Some(key);
        Ok(())
    }

    /// Checks a pause or its end: nothing else of the schedule changes.
    pub(super) fn pause_schedule(&mut self, cmd: &PauseSchedule, answer: &Answer) -> CheckResult {
        let name = (cmd.namespace.clone(), cmd.id.clone());
        match (self.schedules.get_mut(&name), answer) {
            (Some(plan), Ok(Reply::Schedule(answered)))
                if answered.paused == cmd.is_paused && answered.spec == plan.record.spec =>
            {
                plan.record.paused = cmd.is_paused;
                Ok(())
            }
            (None, Err(rejection)) => {
                self.refused(rejection, &BTreeSet::from(["schedule_not_found"]))
            }
            (_, other) => {
                let what = format!("pausing schedule {}: {other:?}", cmd.id);
                Err(self.wrong("P6", what, Vec::new()))
            }
        }
    }

    pub(super) fn remove_schedule(&mut self, cmd: &RemoveSchedule, answer: &Answer) -> CheckResult {
        let name = (cmd.namespace.clone(), cmd.id.clone());
        let was_there = self.schedules.remove(&name).is_some();
        match answer {
            Ok(Reply::Done) if was_there => Ok(()),
            Err(rejection) if !was_there => {
                self.refused(rejection, &BTreeSet::from(["schedule_not_found"]))
            }
            other => Err(self.wrong(
                "P6",
                format!("removing schedule {}: {other:?}", cmd.id),
                Vec::new(),
            )),
        }
    }
}

/// Jobs that commands of a turn enqueued for schedules, by the answers.
pub(super) fn run_by_hand(turn: &Turn) -> BTreeSet<JobId> {
    let applied = turn.moments.iter().flat_map(|moment| &moment.applied);
    let runs = applied.filter_map(|one| match (&one.command, &one.answer) {
        (Command::RunSchedule(_), Ok(Reply::Schedule(schedule))) => schedule.last_job.clone(),
        _ => None,
    });
    runs.collect()
}

/// The number of runs from `next` to `now`, both included.
fn points(schedule: &ScheduleRecord, next: Timestamp, now: Timestamp) -> usize {
    let (_, every) = grid(schedule);
    usize::try_from((now.0 - next.0) / every).expect("a bounded number of points") + 1
}

/// The first run after `now`.
fn next_after(schedule: &ScheduleRecord, now: Timestamp) -> Timestamp {
    let (first, every) = grid(schedule);
    if now.0 < first {
        return Timestamp(first);
    }
    Timestamp(first + ((now.0 - first) / every + 1) * every)
}

/// First run and interval in microseconds. The simulator only uses cron expressions with equal intervals in UTC.
fn grid(schedule: &ScheduleRecord) -> (u64, u64) {
    let minute = 60_000_000;
    match &schedule.spec {
        ScheduleSpec::Interval { every, first_at } => {
            (first_at.0, ganger_types::time::micros(*every))
        }
        ScheduleSpec::Cron { expression, .. } => match expression.as_str() {
            "* * * * *" => (0, minute),
            "*/5 * * * *" => (0, 5 * minute),
            "0 * * * *" => (0, 60 * minute),
            other => unreachable!("the simulator does not use {other}"),
        },
    }
}
