//! Checks grants: the right jobs in the right order, within the limits, with new tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::command::{Lease, TakeMode};
use ganger_types::limits::{LEASE_FOR_MAX, LEASE_FOR_MIN, LEASE_JOBS_MAX};
use ganger_types::{
    Answer, Bytes, Elapsed, Grant, JobKey, JobState, LeaseToken, Namespace, Queue, Reply,
};

use super::job::{DueTime, LeaseModel, ModelJob, PossibleState, Slot};
use super::{CheckResult, Oracle};
use crate::rows::Rows;

/// The jobs of one queue that may be granted, in order.
struct ReadyJobs {
    jobs: Vec<JobKey>,
    /// Number of jobs that may start within the queue's limit.
    room: usize,
    /// Whether the state of some job is not determined, so that order and number are not either.
    is_open: bool,
}

/// Returns the smallest number of jobs that a request gets if the jobs of a queue are divided among this many requests.
fn smallest_share(by_queue: &BTreeMap<Queue, ReadyJobs>, sharers: usize) -> usize {
    let rooms = by_queue.values().map(|line| line.jobs.len().min(line.room));
    rooms
        .filter(|room| *room > 0)
        .map(|room| room.div_ceil(sharers.max(1)))
        .min()
        .unwrap_or(0)
}

impl Oracle {
    pub(super) fn lease(&mut self, cmd: &Lease, answer: &Answer, rows: &Rows) -> CheckResult {
        let mut objections = BTreeSet::new();
        if cmd
            .lease_for
            .is_some_and(|length| !(LEASE_FOR_MIN..=LEASE_FOR_MAX).contains(&length))
            || cmd.jobs_max == 0
            || cmd.queues.is_empty()
            || cmd.queues.iter().any(|from| from.weight == 0)
        {
            objections.insert("out_of_range");
        }
        if cmd.jobs_max > LEASE_JOBS_MAX {
            objections.extend(["out_of_range", "too_large"]);
        }
        match answer {
            Err(rejection) => self.refused(rejection, &objections),
            Ok(Reply::Leased(grants)) => {
                if self.is_repeat(cmd, grants)? {
                    return Ok(());
                }
                self.granted(cmd, grants, rows)
            }
            Ok(other) => {
                Err(self.wrong("P6", format!("a lease was answered {other:?}"), Vec::new()))
            }
        }
    }

    /// Checks that a repeated request id gets its live grants (`rel L11`).
    fn is_repeat(&mut self, cmd: &Lease, grants: &[Grant]) -> Result<bool, super::Violation> {
        let Some(request) = &cmd.request else {
            return Ok(false);
        };
        let name = (cmd.namespace.clone(), request.clone());
        let earlier = self.requests.get(&name).cloned().unwrap_or_default();
        let held = |token: &LeaseToken| {
            let job = self.tokens.get(token).and_then(|key| self.jobs.get(key))?;
            let is_held = job.hold.as_ref().is_some_and(|hold| hold.token == *token);
            is_held.then_some(job)
        };
        let living: BTreeSet<LeaseToken> = earlier
            .into_iter()
            .filter(|it| held(it).is_some())
            .collect();
        // One that may have run out need not be given again.
        let is_certain = |token: &&LeaseToken| held(token).is_some_and(ModelJob::is_certain);
        let certain = living.iter().filter(is_certain).copied().collect();
        let given: BTreeSet<LeaseToken> = grants.iter().map(|grant| grant.token).collect();
        let is_repeat = given.is_subset(&living) && given.is_superset(&certain);
        if is_repeat && !given.is_empty() {
            self.goals.reach("lease-request-repeated");
            return Ok(true);
        }
        if certain.is_empty() && given.is_disjoint(&living) {
            return Ok(false);
        }
        let what = format!("a repeated lease request got {given:?} instead of {living:?}");
        Err(self.wrong("L11", what, Vec::new()))
    }

    fn granted(&mut self, cmd: &Lease, grants: &[Grant], rows: &Rows) -> CheckResult {
        let mut by_queue: BTreeMap<Queue, ReadyJobs> = BTreeMap::new();
        for from in &cmd.queues {
            self.late_may_end(&cmd.namespace, &from.queue);
        }
        for grant in grants {
            self.dependencies_have_ended(grant.key);
        }
        for from in &cmd.queues {
            by_queue.insert(from.queue.clone(), self.line(&cmd.namespace, &from.queue));
        }
        let is_open = by_queue.values().any(|line| line.is_open);
        let room: usize = by_queue
            .values()
            .map(|line| line.jobs.len().min(line.room))
            .sum();
        let most = usize::try_from(cmd.jobs_max)
            .expect("a small number")
            .min(room);
        let least = most.min(smallest_share(&by_queue, self.sharers));
        if !is_open && !(least..=most).contains(&grants.len()) {
            let ready: Vec<_> = by_queue
                .values()
                .flat_map(|line| line.jobs.iter())
                .take(8)
                .collect();
            let what = format!(
                "{} jobs were granted, {least} to {most} should be; first in line: {ready:?}",
                grants.len()
            );
            let key = ready.first().map_or(JobKey(u64::MAX), |key| **key);
            return Err(self.broken("T10", key, what));
        }
        for grant in grants {
            self.check_turn(cmd, grant, &mut by_queue, is_open)?;
            self.take(cmd, grant, rows)?;
        }
        if let Some(request) = &cmd.request {
            let tokens = grants.iter().map(|grant| grant.token).collect();
            self.requests
                .insert((cmd.namespace.clone(), request.clone()), tokens);
        }
        Ok(())
    }

    /// Any lease command may end jobs that became ready after their deadline.
    fn late_may_end(&mut self, namespace: &Namespace, queue: &Queue) {
        let wall = self.now.wall;
        let is_late = |job: &&ModelJob| {
            let is_here = job.namespace == *namespace && job.queue == *queue;
            let is_late = job.spec.deadline.is_some_and(|deadline| deadline <= wall);
            is_here && is_late && job.state() == Some(JobState::Ready)
        };
        let here = self.live.iter().map(|key| self.known(*key));
        let late: Vec<JobKey> = here.filter(is_late).map(|job| job.key).collect();
        for key in late {
            let job = self.known_mut(key);
            let ended: Vec<PossibleState> = job
                .may
                .iter()
                .map(|stand| stand.moved(JobState::Failed))
                .collect();
            job.may.extend(ended);
        }
    }

    fn line(&mut self, namespace: &Namespace, queue: &Queue) -> ReadyJobs {
        let settings = self.settings(namespace, queue);
        let here: Vec<&ModelJob> = self
            .live
            .iter()
            .map(|key| self.known(*key))
            .filter(|job| job.namespace == *namespace && job.queue == *queue)
            .collect();
        let running = here
            .iter()
            .filter(|job| job.may_be(JobState::Running))
            .count();
        let is_open = here.iter().any(|job| {
            !job.is_certain()
                || job
                    .may
                    .iter()
                    .any(|s| s.state == JobState::Ready && s.ready_at.is_none())
        });
        let mut jobs: Vec<_> = here
            .iter()
            .filter(|job| job.may_be(JobState::Ready))
            // A job that became ready after its deadline ends when its timer fires.
            .filter(|job| job.spec.deadline.is_none_or(|at| at > self.now.wall))
            .map(|job| (job.priority, !job.is_ahead, job.may[0].ready_at, job.key))
            .collect();
        jobs.sort();
        let limit = settings
            .running_max
            .map(|max| usize::try_from(max).expect("a small number"));
        let room = match (settings.paused, limit) {
            (true, _) => 0,
            (false, Some(max)) => max.saturating_sub(running),
            (false, None) => usize::MAX,
        };
        if limit.is_some_and(|max| running > max) {
            self.goals.reach("limit-lowered-under-running-jobs");
        }
        ReadyJobs {
            jobs: jobs.into_iter().map(|(_, _, _, key)| key).collect(),
            room,
            is_open,
        }
    }

    /// Checks that the grant is the first job of its queue, and that the queue's turn has come.
    fn check_turn(
        &self,
        cmd: &Lease,
        grant: &Grant,
        by_queue: &mut BTreeMap<Queue, ReadyJobs>,
        is_open: bool,
    ) -> CheckResult {
        let first = cmd.queues.iter().find(|from| {
            let line = &by_queue[&from.queue];
            line.room > 0 && !line.jobs.is_empty()
        });
        let out_of_turn =
            cmd.mode == TakeMode::Ordered && first.is_some_and(|first| first.queue != grant.queue);
        if out_of_turn && !is_open {
            let what = format!(
                "job {} of queue {} was granted before {first:?}",
                grant.job, grant.queue
            );
            return Err(self.broken("O1", grant.key, what));
        }
        let Some(line) = by_queue.get_mut(&grant.queue) else {
            let what = format!(
                "job {} is of queue {}, which was not asked",
                grant.job, grant.queue
            );
            return Err(self.broken("L1", grant.key, what));
        };
        if line.room == 0 && !is_open {
            let what = format!(
                "job {} was granted beyond the limit or pause of {}",
                grant.job, grant.queue
            );
            return Err(self.broken("O6", grant.key, what));
        }
        let Some(place) = line.jobs.iter().position(|key| *key == grant.key) else {
            let what = format!(
                "job {} ({}) was granted, but it is not ready",
                grant.job, grant.key
            );
            return Err(self.broken("L1", grant.key, what));
        };
        if place > 0 && !is_open {
            let ahead = line.jobs[0];
            let what = format!(
                "job {} was granted before job {} ({ahead}), which is ahead of it: {:?}",
                grant.job,
                self.known(ahead).id,
                self.known(ahead).may
            );
            return Err(self.broken("O1", grant.key, what));
        }
        line.jobs.remove(place);
        line.room = line.room.saturating_sub(1);
        Ok(())
    }

    fn take(&mut self, cmd: &Lease, grant: &Grant, rows: &Rows) -> CheckResult {
        let key = grant.key;
        let length = self.lease_length(cmd, &grant.queue);
        self.check_grant(grant, length)?;
        self.check_delivery(key, rows)?;
        let now = self.now.elapsed;
        let ends = (now.after(length), now.after(length));
        let hold = LeaseModel {
            token: grant.token,
            worker: cmd
                .worker
                .clone()
                .unwrap_or_else(|| ganger_types::Worker::from_static("")),
            granted_for: length,
            full: length,
            ends,
            times_out: grant
                .timeout
                .map(|timeout| (now.after(timeout), now.after(timeout))),
            log_bytes: 0,
            is_warned: false,
            place: self.place(key),
        };
        self.tokens.insert(grant.token, key);
        self.note(key, "was granted, attempt", u64::from(grant.attempt));
        let job = self.known_mut(key);
        job.attempt = grant.attempt;
        job.hold = Some(hold);
        job.may = job
            .may
            .iter()
            .filter(|stand| stand.state == JobState::Ready)
            .map(|stand| PossibleState {
                state: JobState::Running,
                due: DueTime::Never,
                counted: stand.counted + 1,
                ..*stand
            })
            .collect();
        if grant.attempt > 1 {
            self.goals.reach("granted-again");
        }
        Ok(())
    }

    /// The time at which a job became ready, if it is determined.
    fn place(&self, key: JobKey) -> Option<Elapsed> {
        let stands = self.known(key).may.iter();
        let mut places = stands
            .filter(|stand| stand.state == JobState::Ready)
            .map(|stand| stand.ready_at);
        let first = places.next().flatten();
        places.all(|place| place == first).then_some(first)?
    }

    fn lease_length(&self, cmd: &Lease, queue: &Queue) -> Duration {
        let queue = self.settings(&cmd.namespace, queue).lease_for;
        let space = self.namespace(&cmd.namespace).lease_for;
        cmd.lease_for.or(queue).unwrap_or(space)
    }

    fn check_grant(&self, grant: &Grant, length: Duration) -> CheckResult {
        let key = grant.key;
        if let Some(other) = self.tokens.get(&grant.token) {
            let what = format!("token {:?} was issued before, for job {other}", grant.token);
            return Err(self.broken("L2", key, what));
        }
        let job = self.known(key);
        if grant.attempt != job.attempt + 1 {
            let what = format!("attempt {} follows attempt {}", grant.attempt, job.attempt);
            return Err(self.broken("L8", key, what));
        }
        let counted = job.may.iter().map(|stand| stand.counted).min().unwrap_or(0) + 1;
        if counted > job.retry.retries_max.saturating_add(1) {
            let what = format!(
                "{counted} counted attempts with {} retries",
                job.retry.retries_max
            );
            return Err(self.broken("R1", key, what));
        }
        if job.is_certain()
            && grant.retries_left != (job.retry.retries_max + 1).saturating_sub(counted)
        {
            let what = format!(
                "{} retries are said to be left after {counted}",
                grant.retries_left
            );
            return Err(self.broken("R1", key, what));
        }
        if job
            .spec
            .deadline
            .is_some_and(|deadline| deadline <= self.now.wall)
        {
            return Err(self.broken("R5", key, "granted after its deadline".into()));
        }
        let length = grant.timeout.map_or(length, |timeout| timeout.min(length));
        if grant.lease_for != length {
            let what = format!("granted for {:?} instead of {length:?}", grant.lease_for);
            return Err(self.broken("L4", key, what));
        }
        let inputs = u32::try_from(job.inputs.len()).expect("few inputs");
        if grant.job != job.id || grant.inputs != inputs || grant.priority != job.priority {
            return Err(self.broken("G2", key, format!("the grant is not as the job: {grant:?}")));
        }
        Ok(())
    }

    /// Checks that every input is delivered at its position as its dependency returned it (`rel G2`).
    fn check_delivery(&self, key: JobKey, rows: &Rows) -> CheckResult {
        let job = self.known(key);
        // A job that was granted and removed in one turn has no rows, and of one that was cancelled the results may be gone
        // that no live job needs any more. The worker gets neither of them.
        if rows.record(key).is_none() || rows.finished.contains_key(&key) {
            return Ok(());
        }
        let wanted: Vec<Bytes> = job.inputs.iter().map(|slot| self.input(slot)).collect();
        match rows.delivery(key) {
            Ok(given) if given == wanted => Ok(()),
            Ok(given) => {
                let what = format!("job {} is given {given:?} instead of {wanted:?}", job.id);
                Err(self.broken("G2", key, what))
            }
            Err(why) => Err(self.broken("G1", key, why)),
        }
    }

    fn input(&self, slot: &Slot) -> Bytes {
        match slot {
            Slot::Value(value) => value.clone(),
            Slot::Delivered(dependency) => {
                let result = self.jobs.get(dependency).and_then(|job| job.result.clone());
                result.unwrap_or_else(|| Bytes::from_static(b"null"))
            }
            Slot::Missing(..) | Slot::Ignored => Bytes::from_static(b"null"),
        }
    }
}
