//! Effects of time: leases expire, pauses end, deadlines pass.

use std::time::Duration;

use ganger_types::limits::RETENTION_DISTRUST_FOR;
use ganger_types::{Due, DueOrder, Elapsed, JobKey, JobState, Now, Timestamp};

use super::job::{DueTime, LeaseModel, ModelJob, PossibleState, TokenEnd};
use super::{CheckResult, Oracle};

impl Oracle {
    /// Advances to `now` and fires due timers, each at its own time.
    pub(super) fn step_to(&mut self, now: Now) -> CheckResult {
        if now.elapsed < self.now.elapsed {
            let what = format!("elapsed time went back from {}", self.now.elapsed);
            return Err(self.wrong("C1", what, Vec::new()));
        }
        let before = std::mem::replace(&mut self.now, now);
        self.settled = self.settled.max(before.elapsed);
        if self.is_of_callers {
            // Earlier timers fire as of the command that carries the time.
            self.settled = now.elapsed;
        }
        self.watch_wall(now);
        let wall = now.wall;
        self.uniques
            .retain(|_, occupied| occupied.until.is_none_or(|until| until > wall));
        let idempotency_records = self.idempotency_records.len();
        self.idempotency_records
            .retain(|_, claimed| claimed.until > wall);
        if self.idempotency_records.len() < idempotency_records {
            self.goals.reach("idempotency-key-outlived-its-window");
        }
        self.due_now.clear();
        let due = self.live_jobs();
        let due = due.filter(|(_, job)| self.timer_of(job).is_some());
        let due: Vec<JobKey> = due.map(|(key, _)| key).collect();
        if due.len() > 1 {
            self.goals.reach("two-timers-in-one-step");
        }
        if self.is_of_callers && !due.is_empty() {
            self.goals.reach("settled-by-a-callers-clock");
            if due.iter().any(|key| self.known(*key).hold.is_some()) {
                self.goals.reach("lease-ended-by-a-callers-clock");
            }
        }
        let is_any_due = !due.is_empty();
        self.due_now.extend(due);
        self.replacing = self.schedules_that_replace();
        // An end can make other timers due only through a pause of zero, which `fire` handles; a cascade only ends
        // jobs or makes them ready.
        let mut rounds = 0;
        while is_any_due && let Some((_, key)) = self.first_due() {
            self.fire(key);
            rounds += 1;
            if rounds > 100_000 {
                return Err(self.broken(
                    "oracle",
                    key,
                    "a timer of the oracle never settles".into(),
                ));
            }
        }
        self.ripen_open();
        Ok(())
    }

    /// Jobs whose pause has jitter may have become due already, in a turn with several times.
    fn ripen_open(&mut self) {
        let now = self.now.elapsed;
        let may_ripen =
            |stand: &PossibleState| matches!(stand.due, DueTime::Between(first, _) if first <= now);
        let open = self.live_jobs();
        let open = open.filter(|(_, job)| job.may.iter().any(may_ripen));
        let open: Vec<JobKey> = open.map(|(key, _)| key).collect();
        for key in open {
            let stands = self.ripened(key, self.known(key).may.clone());
            self.known_mut(key).becomes(stands);
        }
    }

    fn first_due(&self) -> Option<(Turn, JobKey)> {
        self.live_jobs()
            .filter_map(|(key, job)| Some((self.timer_of(job)?, key)))
            .min()
    }

    /// The position of the first due timer of a job that has not fired.
    fn timer_of(&self, job: &ModelJob) -> Option<Turn> {
        if job.has_ended() {
            return None;
        }
        if let Some(hold) = &job.hold {
            let first = hold_ends(hold).0;
            let settled = !job.is_certain() && self.now.elapsed < hold_ends(hold).1;
            let is_due = first <= self.now.elapsed && !settled;
            return is_due.then(|| turn_of(Due::Elapsed(first), self.now));
        }
        let late = job
            .spec
            .deadline
            .filter(|deadline| *deadline <= self.now.wall);
        if let Some(deadline) = late {
            return Some(turn_of(Due::Wall(deadline), self.now));
        }
        job.may
            .iter()
            .filter_map(|stand| due_for_certain(stand, self.now))
            .min()
    }

    fn fire(&mut self, key: JobKey) {
        let now = self.now;
        if self.known(key).hold.is_some() {
            return self.lease_ends(key);
        }
        let job = self.known(key);
        if job
            .spec
            .deadline
            .is_some_and(|deadline| deadline <= now.wall)
        {
            self.goals.reach("deadline-passed-before-start");
            self.note(key, "its deadline passed", 0);
            return self.ends_without_success(key, JobState::Failed);
        }
        let order = self
            .settings(&job.namespace.clone(), &job.queue.clone())
            .due_order;
        let settled = self.settled;
        let job = self.known_mut(key);
        for stand in &mut job.may {
            *stand = ripen(*stand, now, settled, order);
        }
        job.start = None;
        job.is_ahead = false;
        self.note(key, "fell due", 0);
    }

    /// Handles a lease that may or must have ended.
    fn lease_ends(&mut self, key: JobKey) {
        let job = self.known(key);
        let hold = job.hold.clone().expect("only a held job's lease can end");
        let (first, last) = hold_ends(&hold);
        let settings = self.settings(&job.namespace, &job.queue);
        let ran_out = hold.ends.0.max(self.settled);
        let is_out_of_time = hold.times_out.is_some_and(|(first, _)| first <= ran_out);
        let grace = settings.grace_for.filter(|grace| !grace.is_zero());
        if let Some(grace) = grace.filter(|_| !hold.is_warned && !is_out_of_time) {
            let (settled, last) = (self.settled, hold.ends.1);
            self.note(key, "its holder was warned", 0);
            let hold = self.known_mut(key).hold.as_mut().expect("looked up above");
            hold.is_warned = true;
            hold.ends = (
                first.max(settled).after(grace),
                last.max(settled).after(grace),
            );
            return;
        }
        // States from earlier in the turn stay possible.
        let (running, mut stands): (Vec<PossibleState>, Vec<PossibleState>) = job
            .may
            .iter()
            .copied()
            .partition(|stand| stand.state == JobState::Running);
        if self.now.elapsed < last {
            stands.extend(running.iter().copied());
        }
        for stand in running {
            stands.extend(self.after_expiry(key, &hold, stand));
        }
        self.note(key, "its lease may have run out, attempt", 0);
        self.known_mut(key).is_ahead = false;
        if stands.iter().all(|stand| stand.state != JobState::Running) {
            self.known_mut(key).end_hold(TokenEnd::Expired);
        }
        self.set_states_with_consequences(key, stands);
    }

    /// Makes each possible state that has become due ready.
    pub(super) fn ripened(&self, key: JobKey, stands: Vec<PossibleState>) -> Vec<PossibleState> {
        let job = self.known(key);
        let order = self.settings(&job.namespace, &job.queue).due_order;
        let mut all = Vec::with_capacity(stands.len());
        for stand in stands {
            // With jitter, or if the end is not known exactly, it may still be scheduled.
            if let DueTime::Between(_, last) = stand.due
                && last > self.now.elapsed
            {
                all.push(stand);
            }
            all.push(ripen(stand, self.now, self.settled, order));
        }
        all
    }

    /// Detects jumps of the wall clock.
    fn watch_wall(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.looked, now);
        let moved = now.elapsed.since(before.elapsed);
        // Drift and rounding are not jumps.
        let slack = moved.mul_f64(0.2) + Duration::from_secs(60);
        let is_first = before.elapsed == Elapsed(0);
        if !is_first && now.wall > before.wall.after(moved + slack) {
            self.wall_jumps(now);
        }
    }

    /// Records a jump of the wall clock at `now`; a start counts as one.
    pub(super) fn wall_jumps(&mut self, now: Now) {
        self.looked = now;
        self.wall_jumped = Some(now.elapsed);
        self.jumps += 1;
    }

    /// Whether retention may trust the wall clock for a job (`rel C4`): the clock has been stable for long, or the
    /// job ended after the jump.
    pub(super) fn wall_is_trusted(&self, job: &ModelJob) -> bool {
        self.wall_jumped.is_none_or(|jumped_at| {
            let stable_for = self.now.elapsed.since(jumped_at);
            stable_for >= RETENTION_DISTRUST_FOR || job.jumps_at_end == self.jumps
        })
    }
}

/// The position of a timer in the order in which those of one step fire: by time, with wall times converted as of
/// now.
type Turn = (Elapsed, bool, Timestamp);

fn turn_of(due: Due, now: Now) -> Turn {
    match due {
        Due::Elapsed(at) => (at, false, Timestamp(0)),
        Due::Wall(at) => (now.elapsed.before(now.wall.since(at)), true, at),
    }
}

fn hold_ends(hold: &LeaseModel) -> (Elapsed, Elapsed) {
    match hold.times_out {
        Some((first, last)) => (hold.ends.0.min(first), hold.ends.1.min(last)),
        None => hold.ends,
    }
}

fn due_by(stand: &PossibleState, now: Now) -> Option<Elapsed> {
    match stand.due {
        DueTime::Never => None,
        DueTime::At(Due::Elapsed(at)) => (at <= now.elapsed).then_some(at),
        DueTime::At(Due::Wall(at)) => (at <= now.wall).then_some(now.elapsed),
        DueTime::Between(first, _) => (first <= now.elapsed).then_some(first),
    }
}

fn due_for_certain(stand: &PossibleState, now: Now) -> Option<Turn> {
    match stand.due {
        DueTime::Never => None,
        DueTime::Between(first, last) => {
            (last <= now.elapsed).then(|| turn_of(Due::Elapsed(first), now))
        }
        DueTime::At(due) => due.is_past(now).then(|| turn_of(due, now)),
    }
}

/// Makes a due state ready, as of the time at which it became due.
fn ripen(stand: PossibleState, now: Now, settled: Elapsed, order: DueOrder) -> PossibleState {
    if stand.state != JobState::Scheduled || due_by(&stand, now).is_none() {
        return stand;
    }
    let ready_at = match (stand.due, order) {
        (DueTime::At(Due::Elapsed(at)), DueOrder::Behind) => Some(at.max(settled)),
        _ => None,
    };
    PossibleState {
        ready_at,
        ..stand.moved(JobState::Ready)
    }
}
