//! Creates, replaces and removes schedules, and runs them.

use crate::check::{at_most, check_named, check_size};
use std::time::Duration;

use ganger_types::command::{
    Enqueue, NewJob, PauseSchedule, PutSchedule, RemoveSchedule, RunSchedule,
};
use ganger_types::limits::{SCHEDULE_BACKLOG_MAX, SCHEDULES_MAX};
use ganger_types::{
    Answer, CatchUp, Change, Due, Happening, JobId, JobKey, Now, Overlap, Rejection, Reply,
    ScheduleId, ScheduleRecord, Timestamp,
};

use super::enqueue::check_retry;
use crate::engine::Engine;
use crate::recurrence::{Recurrence, check_spec};
use crate::state::{SpaceIndex, Timer};
use crate::turn::Turn;

/// Delay up to which a run counts as on time instead of missed.
const ON_TIME: Duration = Duration::from_secs(5);

impl Engine {
    pub(crate) fn put_schedule(&mut self, cmd: PutSchedule, turn: &mut Turn<'_>) -> Answer {
        let mut schedule = cmd.schedule;
        let recurrence = self.check_schedule(turn.now, &schedule)?;
        self.check_new_queues(&schedule.namespace, [&schedule.queue])?;
        self.check_new_schedule(&schedule)?;

        let space = self.make_space(&schedule.namespace);
        let old = self.disarm_schedule(space, &schedule.id);
        schedule.created_at = old.as_ref().map_or(turn.now.wall, |old| old.created_at);
        schedule.runs = old.as_ref().map_or(0, |old| old.runs);
        schedule.last_job = old.as_ref().and_then(|old| old.last_job.clone());
        let same = old.filter(|old| old.spec == schedule.spec);
        schedule.next_at = match (same, &recurrence) {
            (Some(old), _) => old.next_at,
            (None, Recurrence::Interval { first_at, .. }) => Some(*first_at),
            (None, Recurrence::Cron { .. }) => recurrence.after(turn.now.wall),
        };
        let queue = self.make_queue(space, &schedule.queue, turn.now.wall);
        self.queues[queue].known = true;
        self.queues.mark_changed(queue);
        let happening = Happening::ScheduleChanged {
            schedule: schedule.id.clone(),
        };
        self.store_schedule(space, schedule, turn);
        self.announce(space, turn.now.wall, happening, turn);
        Ok(Reply::Done)
    }

    /// Refuses a new schedule if the namespace has too many.
    fn check_new_schedule(&self, schedule: &ScheduleRecord) -> Result<(), Rejection> {
        let space = self.find_space(&schedule.namespace);
        let Some(schedules) = space.map(|space| &self.spaces[space].schedules) else {
            return Ok(());
        };
        if schedules.contains_key(&schedule.id) {
            return Ok(());
        }
        let [have, limit] = [schedules.len() + 1, SCHEDULES_MAX]
            .map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        at_most("the number of schedules of the namespace", have, limit)
    }

    fn check_schedule(&self, now: Now, schedule: &ScheduleRecord) -> Result<Recurrence, Rejection> {
        check_named("the id of a schedule", schedule.id.as_bytes())?;
        check_named("the name of a queue", schedule.queue.as_bytes())?;
        for tag in &schedule.tags {
            check_named("a tag", tag.as_bytes())?;
        }
        for (key, _) in &schedule.labels {
            check_named("the key of a label", key.as_bytes())?;
        }
        if schedule.kind.is_empty() {
            return Err(Rejection::KindMissing { index: 0 });
        }
        if let CatchUp::All { max } = schedule.catch_up {
            let limit = u64::from(SCHEDULE_BACKLOG_MAX);
            at_most(
                "the number of missed runs to make up for",
                u64::from(max),
                limit,
            )?;
        }
        if let Some(retry) = &schedule.retry {
            check_retry(retry)?;
        }
        let limit = self.settings(&schedule.namespace).payload_bytes_max;
        check_size(
            "the size of a payload in bytes",
            Some(&schedule.payload),
            limit,
        )?;
        check_spec(&schedule.spec, now.wall)?;
        Recurrence::read(&schedule.spec)
    }

    pub(crate) fn remove_schedule(&mut self, cmd: &RemoveSchedule, turn: &mut Turn<'_>) -> Answer {
        let space = self.find_space(&cmd.namespace);
        let found = space.filter(|space| self.spaces[*space].schedules.contains_key(&cmd.id));
        let space = found.ok_or_else(|| Rejection::ScheduleNotFound { id: cmd.id.clone() })?;

        self.disarm_schedule(space, &cmd.id);
        turn.out.changes.push(Change::RemoveSchedule(
            cmd.namespace.clone(),
            cmd.id.clone(),
        ));
        let happening = Happening::ScheduleChanged {
            schedule: cmd.id.clone(),
        };
        self.announce(space, turn.now.wall, happening, turn);
        Ok(Reply::Done)
    }

    /// Enqueues a job of a schedule and returns the schedule, which contains the id of the job.
    pub(crate) fn run_schedule_now(&mut self, cmd: &RunSchedule, turn: &mut Turn<'_>) -> Answer {
        let space = self.find_space(&cmd.namespace);
        let found = space.and_then(|space| {
            let schedule = self.spaces[space].schedules.get(&cmd.id)?;
            Some((space, schedule.clone()))
        });
        let (space, mut schedule) =
            found.ok_or_else(|| Rejection::ScheduleNotFound { id: cmd.id.clone() })?;
        self.make_job_of(&mut schedule, turn)?;

        self.disarm_schedule(space, &cmd.id);
        self.store_schedule(space, schedule.clone(), turn);
        Ok(Reply::Schedule(Box::new(schedule)))
    }

    /// Pauses or resumes a schedule. Runs that became due while it was paused are handled as missed ones.
    pub(crate) fn pause_schedule(&mut self, cmd: &PauseSchedule, turn: &mut Turn<'_>) -> Answer {
        let space = self.find_space(&cmd.namespace);
        let found = space.and_then(|space| {
            let schedule = self.spaces[space].schedules.get(&cmd.id)?;
            Some((space, schedule.clone()))
        });
        let (space, mut schedule) =
            found.ok_or_else(|| Rejection::ScheduleNotFound { id: cmd.id.clone() })?;

        self.disarm_schedule(space, &cmd.id);
        schedule.paused = cmd.is_paused;
        let happening = Happening::ScheduleChanged {
            schedule: cmd.id.clone(),
        };
        self.store_schedule(space, schedule.clone(), turn);
        self.announce(space, turn.now.wall, happening, turn);
        Ok(Reply::Schedule(Box::new(schedule)))
    }

    /// Removes a schedule and its timer.
    fn disarm_schedule(&mut self, space: SpaceIndex, id: &ScheduleId) -> Option<ScheduleRecord> {
        let state = &mut self.spaces[space];
        let old = state.schedules.remove(id)?;
        if let Some(next_at) = old.next_at {
            state
                .timers
                .disarm_if_armed(Due::Wall(next_at), Timer::Schedule(id.clone()));
        }
        Some(old)
    }

    fn store_schedule(&mut self, space: SpaceIndex, schedule: ScheduleRecord, turn: &mut Turn<'_>) {
        turn.out
            .changes
            .push(Change::PutSchedule(Box::new(schedule.clone())));
        self.arm_schedule(space, schedule);
    }

    /// Adds a schedule, and its timer unless it is paused.
    pub(crate) fn arm_schedule(&mut self, space: SpaceIndex, schedule: ScheduleRecord) {
        let state = &mut self.spaces[space];
        if let Some(next_at) = schedule.next_at.filter(|_| !schedule.paused) {
            state
                .timers
                .arm(Due::Wall(next_at), Timer::Schedule(schedule.id.clone()));
        }
        state.schedules.insert(schedule.id.clone(), schedule);
    }

    /// Enqueues the jobs that are due and sets the next run, in one commit (`rel T7`). Each run is strictly after the
    /// previous one, so a clock that jumps back fires nothing twice (`rel C2`).
    pub(crate) fn run_schedule(&mut self, space: SpaceIndex, id: &ScheduleId, turn: &mut Turn<'_>) {
        let Some(mut schedule) = self.spaces[space].schedules.remove(id) else {
            return;
        };
        let recurrence =
            Recurrence::read(&schedule.spec).expect("schedules are checked when they are made");
        if let Some(from) = schedule.next_at {
            let runs = due_runs(&recurrence, schedule.catch_up, from, turn.now.wall);
            for _ in &runs {
                self.run_once(&mut schedule, turn);
            }
            schedule.next_at = recurrence.after(turn.now.wall.max(from));
        }
        self.store_schedule(space, schedule, turn);
    }

    /// Whether the queue and the namespace of a schedule have room for a job that replaces this one.
    fn has_room_instead_of(&self, key: JobKey, schedule: &ScheduleRecord) -> bool {
        let from = self.job(key).queue;
        let space = &self.spaces[self.queues[from].space];
        let fits = |limit: Option<u64>, live: u64| limit.is_none_or(|limit| live < limit);
        let to = self.find_queue(&schedule.namespace, &schedule.queue);
        let has_queue_room = to.is_none_or(|to| {
            let queue = &self.queues[to];
            fits(
                queue.settings.live_max,
                queue.counts.live() - u64::from(to == from),
            )
        });
        has_queue_room && fits(space.settings.live_max, space.live - 1)
    }

    fn run_once(&mut self, schedule: &mut ScheduleRecord, turn: &mut Turn<'_>) {
        let earlier = schedule
            .last_job
            .as_ref()
            .and_then(|job| self.find_job(&schedule.namespace, job));
        match (earlier, schedule.overlap) {
            // If the new job would be refused, the old one stays.
            (Some(key), Overlap::Replace) if self.has_room_instead_of(key, schedule) => {
                let reason = format!("schedule {} replaced it", schedule.id);
                self.cancel_job(key, &reason, turn);
            }
            (Some(_), Overlap::Skip | Overlap::Replace) => return,
            _ => {}
        }
        // A full queue refuses this run; the next run is tried at its own time.
        let _ = self.make_job_of(schedule, turn);
    }

    /// Enqueues a job of a schedule and records it there.
    fn make_job_of(
        &mut self,
        schedule: &mut ScheduleRecord,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let cmd = Enqueue {
            namespace: schedule.namespace.clone(),
            jobs: vec![job_of(schedule)],
            ..Enqueue::default()
        };
        let Reply::Enqueued { jobs, .. } = self.enqueue(cmd, turn)? else {
            return Ok(());
        };
        let job = &jobs[0];
        self.job_mut(job.key).details_mut().schedule = Some(schedule.id.clone());
        self.put(job.key, turn);
        schedule.runs += 1;
        schedule.last_job = Some(JobId::clone(&job.id));
        Ok(())
    }
}

/// The runs between `from` and `now` for which to enqueue jobs, oldest first.
fn due_runs(
    recurrence: &Recurrence,
    catch_up: CatchUp,
    from: Timestamp,
    now: Timestamp,
) -> Vec<Timestamp> {
    let max = match catch_up {
        CatchUp::None | CatchUp::Last => 1,
        CatchUp::All { max: 0 } => SCHEDULE_BACKLOG_MAX,
        CatchUp::All { max } => max.min(SCHEDULE_BACKLOG_MAX),
    };
    let mut runs = recurrence.newest_between(from, now, usize::try_from(max).unwrap_or(usize::MAX));
    if catch_up == CatchUp::None {
        runs.retain(|run| now.since(*run) <= ON_TIME);
    }
    runs
}

fn job_of(schedule: &ScheduleRecord) -> NewJob {
    NewJob {
        queue: schedule.queue.clone(),
        kind: schedule.kind.clone(),
        payload: schedule.payload.clone(),
        priority: schedule.priority,
        timeout: schedule.timeout,
        retry: schedule.retry.clone(),
        tags: schedule.tags.clone(),
        labels: schedule.labels.clone(),
        ..NewJob::default()
    }
}
