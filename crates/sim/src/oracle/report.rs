//! Checks reports: accepted only under the live lease, with the same answer for repeats, and refused with the right
//! reason otherwise.

use std::collections::BTreeSet;
use std::time::Duration;

use ganger_types::command::{AppendLog, Complete, Fail, LeaseRef, Release, Renew};
use ganger_types::job::ReportKind;
use ganger_types::rejection::LeaseEnd;
use ganger_types::{Answer, Bytes, Due, FailurePolicy, JobKey, JobState, Rejection, Reply, limits};

use super::job::{DueTime, PossibleState, Slot, TokenEnd};
use super::{CheckResult, Oracle};

/// The state of the lease of a report.
enum LeaseStatus {
    /// The lease is live.
    Live(JobKey),
    /// Either is possible; the answer decides.
    Open(JobKey),
    /// The lease is not live.
    Stale(Option<JobKey>),
}

impl Oracle {
    fn lease_status(&self, held: &LeaseRef) -> LeaseStatus {
        let Some(key) = self.find(&held.namespace, &held.job) else {
            return LeaseStatus::Stale(None);
        };
        let job = self.known(key);
        let is_it = job
            .hold
            .as_ref()
            .is_some_and(|hold| hold.token == held.token);
        match (is_it, job.state()) {
            (true, Some(JobState::Running)) => LeaseStatus::Live(key),
            (true, _) => LeaseStatus::Open(key),
            _ => LeaseStatus::Stale(Some(key)),
        }
    }

    /// The job of an accepted report; `None` if the report was rightly refused or is a recognised repeat.
    fn accepted(
        &mut self,
        held: &LeaseRef,
        kind: Option<ReportKind>,
        answer: &Answer,
        objections: &[&'static str],
    ) -> Result<Option<JobKey>, super::Violation> {
        if let Err(rejection) = answer
            && objections.contains(&rejection.code())
        {
            return Ok(None);
        }
        match (self.lease_status(held), answer) {
            (LeaseStatus::Live(key) | LeaseStatus::Open(key), Ok(reply)) if !is_repeat(reply) => {
                if !objections.is_empty() {
                    let what = format!("accepted, although it had to be refused: {objections:?}");
                    return Err(self.broken("P6", key, what));
                }
                if matches!(self.lease_status(held), LeaseStatus::Open(_)) {
                    self.goals.reach("report-while-the-lease-may-have-ended");
                }
                Ok(Some(key))
            }
            (LeaseStatus::Live(key), _) => {
                let what = format!(
                    "a report under the live lease {:?} was answered {answer:?}",
                    held.token
                );
                Err(self.broken("L5", key, what))
            }
            (LeaseStatus::Open(key), _) => {
                self.goals.reach("report-while-the-lease-may-have-ended");
                self.known_mut(key)
                    .may
                    .retain(|stand| stand.state != JobState::Running);
                self.known_mut(key).end_hold(TokenEnd::Expired);
                Ok(None)
            }
            (LeaseStatus::Stale(key), answer) => self.stale(key, held, kind, answer).map(|()| None),
        }
    }

    fn stale(
        &mut self,
        key: Option<JobKey>,
        held: &LeaseRef,
        kind: Option<ReportKind>,
        answer: &Answer,
    ) -> CheckResult {
        let Some(key) = key else {
            return match answer {
                Err(Rejection::JobNotFound { .. } | Rejection::LeaseLost { .. }) => {
                    self.goals.reach("report-for-a-removed-job");
                    Ok(())
                }
                _ => {
                    let what = format!(
                        "a report for the unknown job {} was answered {answer:?}",
                        held.job
                    );
                    Err(self.wrong("K5", what, Vec::new()))
                }
            };
        };
        let job = self.known(key);
        let last = job.last_report.filter(|(token, _)| *token == held.token);
        let right = match (last, answer) {
            (Some((_, said)), Ok(reply)) => is_repeat(reply) && kind == Some(said),
            (Some((_, said)), Err(Rejection::ReportConflict { .. })) => {
                kind.is_some_and(|kind| kind != said)
            }
            (Some(_), Err(Rejection::LeaseLost { end, .. })) => {
                kind.is_none() && self.is_right_end(key, held, *end)
            }
            (None, Err(Rejection::LeaseLost { end, .. })) => self.is_right_end(key, held, *end),
            _ => false,
        };
        if right {
            let goal = match answer {
                Ok(_) => "report-repeated",
                Err(Rejection::ReportConflict { .. }) => "report-conflict",
                Err(_) => "stale-report-refused",
            };
            self.goals.reach(goal);
            if job_was_granted_again(self, key, held) {
                self.goals.reach("stale-report-after-a-new-grant");
            }
            return Ok(());
        }
        let what = format!(
            "a report ({kind:?}) under {:?}, which is not the live lease, was answered {answer:?}; last report {:?}",
            held.token,
            self.known(key).last_report
        );
        Err(self.broken("L5", key, what))
    }

    /// Checks that a refusal has the right reason, if it is determined.
    fn is_right_end(&self, key: JobKey, held: &LeaseRef, told: LeaseEnd) -> bool {
        let job = self.known(key);
        let was_its = self.tokens.get(&held.token) == Some(&key);
        match (was_its, job.state()) {
            (true, Some(JobState::Running)) => told == LeaseEnd::Replaced,
            (true, Some(JobState::Cancelled)) => told == LeaseEnd::Cancelled,
            (true, Some(JobState::Succeeded | JobState::Failed)) => {
                matches!(
                    told,
                    LeaseEnd::Finished | LeaseEnd::Expired | LeaseEnd::Replaced
                )
            }
            // The job is ready again; the worker only needs to know that it has lost the lease.
            (true, Some(_)) => told != LeaseEnd::Finished,
            (false, _) | (_, None) => true,
        }
    }

    pub(super) fn renew(&mut self, cmd: &Renew, answer: &Answer) -> CheckResult {
        let mut objections = self.too_large(&cmd.held, cmd.payload.as_ref());
        let allowed = limits::LEASE_FOR_MIN..=limits::LEASE_FOR_MAX;
        if cmd
            .lease_for
            .is_some_and(|length| !allowed.contains(&length))
        {
            objections.push("out_of_range");
        }
        let Some(key) = self.accepted(&cmd.held, None, answer, &objections)? else {
            return Ok(());
        };
        let job = self.known(key);
        let hold = job.hold.clone().expect("it was judged live");
        // Without a length, the renewal asks for the longest so far.
        let length = cmd.lease_for.unwrap_or(hold.granted_for.max(hold.full));
        let grace = self
            .settings(&job.namespace, &job.queue)
            .grace_for
            .unwrap_or_default();
        let until = self.now.elapsed.after(length);
        // A renewal never shortens the lease (`rel L9`), nor extends it beyond the timeout.
        let first = hold.times_out.map_or(until, |(first, _)| first);
        let shortest = hold.ends.0.max(until).min(first).since(self.now.elapsed);
        let longest = hold.ends.1.max(until).since(self.now.elapsed);
        let told = match answer {
            Ok(Reply::Renewed { lease_for }) => *lease_for,
            _ => std::time::Duration::ZERO,
        };
        if told < shortest || told > longest {
            let what = format!(
                "a renewal for {length:?} was answered {answer:?}, not {shortest:?} to {longest:?}"
            );
            return Err(self.broken("L9", key, what));
        }
        self.note(key, "was renewed until elapsed", until.0);
        let job = self.known_mut(key);
        job.may.retain(|stand| stand.state == JobState::Running);
        if let Some(payload) = &cmd.payload {
            job.payload = payload.clone();
        }
        let hold = job.hold.as_mut().expect("it was judged live");
        hold.full = hold.full.max(length);
        hold.ends = (hold.ends.0.max(until), hold.ends.1.max(until.after(grace)));
        self.goals.reach("renewed");
        Ok(())
    }

    fn too_large(&self, held: &LeaseRef, bytes: Option<&Bytes>) -> Vec<&'static str> {
        let limit = self.namespace(&held.namespace).payload_bytes_max;
        let size = bytes.map_or(0, |bytes| {
            u64::try_from(bytes.len()).expect("a length fits")
        });
        if size > limit {
            vec!["too_large"]
        } else {
            Vec::new()
        }
    }

    pub(super) fn complete(&mut self, cmd: &Complete, answer: &Answer) -> CheckResult {
        let mut objections = self.too_large(&cmd.held, cmd.result.as_ref());
        if let Some(next) = &cmd.next {
            let is_known = |id| self.find(&cmd.held.namespace, id).is_some();
            if !next.after.iter().all(is_known) {
                objections.push("job_not_found");
            }
            let own = self.find(&cmd.held.namespace, &cmd.held.job);
            let circle = |id| {
                let dependency = self.find(&cmd.held.namespace, id);
                own.zip(dependency)
                    .is_some_and(|(own, dependency)| self.waits_on(dependency, own))
            };
            if next.after.iter().any(circle) {
                objections.extend(["wrong_state", "cycle"]);
            }
        }
        let kind = ReportKind::Complete;
        let accepted = self.accepted(&cmd.held, Some(kind), answer, &objections)?;
        let Some(key) = accepted else { return Ok(()) };
        self.note(
            key,
            "was completed, attempt",
            u64::from(self.known(key).attempt),
        );
        self.reported(key, cmd.held.token, kind);
        let Some(next) = &cmd.next else {
            self.known_mut(key).result.clone_from(&cmd.result);
            let stands = self.stands_after(key, |stand| vec![stand.moved(JobState::Succeeded)]);
            self.set_states_with_consequences(key, stands);
            return self.check_reported(key, answer);
        };
        self.goals.reach("completed-into-the-next-queue");
        let dependencies: Vec<JobKey> = next
            .after
            .iter()
            .filter_map(|id| self.find(&cmd.held.namespace, id))
            .collect();
        for dependency in dependencies {
            let slot = self.slot_for(dependency, FailurePolicy::Wait);
            self.jobs
                .get_mut(&dependency)
                .expect("found")
                .dependents
                .insert(key);
            if matches!(slot, Slot::Missing(..)) {
                self.goals.reach("completed-behind-others");
                self.known_mut(key).after.push(slot);
            }
        }
        let due = Due::Elapsed(self.now.elapsed.after(next.delay));
        let job = self.known_mut(key);
        job.queue = next.queue.clone();
        if let Some(payload) = &next.payload {
            job.payload = payload.clone();
        }
        job.start = (!next.delay.is_zero()).then_some(due);
        let stand = PossibleState::new(JobState::Blocked);
        let stand = match (job.missing().is_empty(), next.delay.is_zero()) {
            (false, _) => stand,
            (true, false) => stand.scheduled(DueTime::At(due)),
            (true, true) => stand.moved(JobState::Ready),
        };
        self.set_states_with_consequences(key, vec![stand]);
        self.check_reported(key, answer)
    }

    /// Whether `job` waits for `dependency`, at any distance, or is the same job.
    pub(super) fn waits_on(&self, job: JobKey, dependency: JobKey) -> bool {
        let mut seen = BTreeSet::new();
        let mut left = vec![job];
        while let Some(key) = left.pop() {
            if key == dependency {
                return true;
            }
            if seen.insert(key)
                && let Some(known) = self.jobs.get(&key).filter(|known| !known.has_ended())
            {
                left.extend(known.missing());
            }
        }
        false
    }

    pub(super) fn fail(&mut self, cmd: &Fail, answer: &Answer) -> CheckResult {
        let kind = ReportKind::Fail;
        let accepted = self.accepted(&cmd.held, Some(kind), answer, &[])?;
        let Some(key) = accepted else { return Ok(()) };
        self.note(
            key,
            "was failed, attempt",
            u64::from(self.known(key).attempt),
        );
        self.reported(key, cmd.held.token, kind);
        self.known_mut(key).is_ahead = false;
        let now = self.now.elapsed;
        let stands = self.stands_after(key, |stand| {
            if cmd.lost {
                let (died, is_poison) = self.worker_lost(key, stand);
                return self.after_failure(key, now, died, !is_poison, Some(Duration::ZERO));
            }
            let stand = self.worker_seen(key, stand);
            self.after_failure(key, now, stand, !cmd.permanent, cmd.retry_after)
        });
        self.set_states_with_consequences(key, stands);
        if self.known(key).may_be(JobState::Failed) {
            self.goals.reach("failed-for-good");
        }
        if cmd.lost {
            self.goals.reach("reported-lost");
            if self.known(key).retry.lease_expirations_max.is_some()
                && self.known(key).may_be(JobState::Failed)
            {
                self.goals.reach("lost-once-too-often");
            }
        }
        self.check_reported(key, answer)
    }

    pub(super) fn release(&mut self, cmd: &Release, answer: &Answer) -> CheckResult {
        let kind = ReportKind::Release;
        let accepted = self.accepted(&cmd.held, Some(kind), answer, &[])?;
        let Some(key) = accepted else { return Ok(()) };
        self.note(
            key,
            "was released, attempt",
            u64::from(self.known(key).attempt),
        );
        let place = self.known(key).hold.as_ref().and_then(|hold| hold.place);
        self.reported(key, cmd.held.token, kind);
        let keeps = cmd.keep_place && cmd.delay.is_zero();
        self.known_mut(key).is_ahead &= keeps;
        let stands = self.stands_after(key, |stand| self.after_release(key, cmd, stand, place));
        self.set_states_with_consequences(key, stands);
        self.check_reported(key, answer)
    }

    fn after_release(
        &self,
        key: JobKey,
        cmd: &Release,
        stand: PossibleState,
        place: Option<ganger_types::Elapsed>,
    ) -> Vec<PossibleState> {
        let now = self.now.elapsed;
        let stand = self.worker_seen(key, stand);
        if cmd.counted || stand.releases >= limits::RELEASES_MAX {
            let stands = self.after_failure(key, now, stand, true, Some(cmd.delay));
            return stands
                .into_iter()
                .map(|stand| kept_place(cmd, stand, place))
                .collect();
        }
        let stand = PossibleState {
            counted: stand.counted - 1,
            releases: stand.releases + 1,
            ..stand
        };
        if cmd.delay.is_zero() {
            return vec![kept_place(cmd, stand.moved(JobState::Ready), place)];
        }
        vec![stand.scheduled(DueTime::At(Due::Elapsed(now.after(cmd.delay))))]
    }

    pub(super) fn append_log(&mut self, cmd: &AppendLog, answer: &Answer) -> CheckResult {
        let Some(key) = self
            .accepted(&cmd.held, None, answer, &[])
            .or_else(|violation| self.log_gap(cmd, answer).then_some(None).ok_or(violation))?
        else {
            return Ok(());
        };
        let job = self.known_mut(key);
        job.may.retain(|stand| stand.state == JobState::Running);
        let hold = job.hold.as_mut().expect("it was judged live");
        let sent = u64::try_from(cmd.bytes.len()).expect("a length fits");
        let wanted = hold.log_bytes.max(cmd.offset + sent);
        hold.log_bytes = wanted;
        match answer {
            // After a restart the shard counts from the first chunk that it receives.
            Ok(Reply::LogAppended { bytes, .. })
                if (cmd.offset + sent..=wanted).contains(bytes) =>
            {
                Ok(())
            }
            _ => {
                let what = format!("the log has {wanted} bytes, the answer is {answer:?}");
                Err(self.broken("D10", key, what))
            }
        }
    }

    /// Whether a chunk leaves a gap, so that it may be refused.
    fn log_gap(&self, cmd: &AppendLog, answer: &Answer) -> bool {
        let key = self.find(&cmd.held.namespace, &cmd.held.job);
        let hold = key.and_then(|key| self.known(key).hold.as_ref());
        answer.is_err() && hold.is_some_and(|hold| hold.log_bytes != cmd.offset)
    }

    fn reported(&mut self, key: JobKey, token: ganger_types::LeaseToken, kind: ReportKind) {
        if self.due_now.contains(&key) {
            self.goals.reach("report-in-the-step-of-a-timer");
        }
        let job = self.known_mut(key);
        job.last_report = Some((token, kind));
    }

    /// Applies `each` to the possible states in which the job runs; the report excludes the others.
    pub(super) fn stands_after(
        &self,
        key: JobKey,
        each: impl Fn(PossibleState) -> Vec<PossibleState>,
    ) -> Vec<PossibleState> {
        let running = self
            .known(key)
            .may
            .iter()
            .filter(|stand| stand.state == JobState::Running);
        running.flat_map(|stand| each(*stand)).collect()
    }

    /// Checks that the reported state is possible.
    fn check_reported(&mut self, key: JobKey, answer: &Answer) -> CheckResult {
        let Ok(Reply::Reported {
            state,
            repeat: false,
            ..
        }) = answer
        else {
            let what = format!("an accepted report was answered {answer:?}");
            return Err(self.broken("L7", key, what));
        };
        if !self.known(key).may_be(*state) {
            let what = format!("the report was answered with state {state}");
            return Err(self.broken("R1", key, what));
        }
        let job = self.known_mut(key);
        let was_open = !job.has_ended();
        job.may.retain(|stand| stand.state == *state);
        if was_open && state.is_terminal() {
            self.apply_endings(&[key]);
        }
        Ok(())
    }
}

fn is_repeat(reply: &Reply) -> bool {
    matches!(reply, Reply::Reported { repeat: true, .. })
}

fn kept_place(
    cmd: &Release,
    stand: PossibleState,
    place: Option<ganger_types::Elapsed>,
) -> PossibleState {
    if cmd.keep_place && cmd.delay == Duration::ZERO && stand.state == JobState::Ready {
        return PossibleState {
            ready_at: place,
            ..stand
        };
    }
    stand
}

fn job_was_granted_again(oracle: &Oracle, key: JobKey, held: &LeaseRef) -> bool {
    let job = oracle.known(key);
    job.hold
        .as_ref()
        .is_some_and(|hold| hold.token != held.token)
}
