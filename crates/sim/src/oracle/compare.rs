//! Compares the model with the stored rows, and narrows the possible states.

use ganger_types::{Due, Elapsed, InputRow, InputState, JobKey, JobRecord, JobState};

use super::job::{DueTime, ModelJob, PossibleState, Slot, TokenEnd};
use super::{CheckResult, Oracle};
use crate::rows::Rows;

/// The stored state of a job.
struct StoredState {
    state: JobState,
    due: Option<Due>,
    ready_at: Elapsed,
    attempt: u32,
    counted: u32,
    releases: u32,
    lease_expirations: u32,
    is_ahead: bool,
}

fn shown(rows: &Rows, key: JobKey) -> Option<StoredState> {
    let record = rows.record(key)?;
    let lease = rows.leases.get(&key);
    Some(StoredState {
        state: if lease.is_some() {
            JobState::Running
        } else {
            record.state
        },
        due: record.due,
        ready_at: record.ready_at,
        attempt: lease.map_or(record.attempt, |lease| lease.attempt),
        counted: lease.map_or(record.attempts_counted, |lease| lease.attempts_counted),
        releases: record.releases,
        lease_expirations: record.lease_expirations,
        is_ahead: record.is_ahead,
    })
}

impl Oracle {
    /// Narrows every job with several possible states by its rows, then compares every changed job with them.
    pub(super) fn compare(&mut self, rows: &Rows) -> CheckResult {
        let mut waiting: Vec<JobKey> = self.touched.iter().copied().collect();
        // What these have become decides about others, which are looked at only then.
        let mut open = self.jobs_open();
        let mut round = 0;
        while let Some(key) = open.pop().or_else(|| waiting.pop()) {
            let was_open = self.jobs.get(&key).is_some_and(|job| !job.has_ended());
            match self.narrow(key, rows) {
                // What another open job has become may have ended this one.
                Err(_) if !open.is_empty() => waiting.insert(0, key),
                narrowed => narrowed?,
            }
            let has_ended = self.jobs.get(&key).is_some_and(ModelJob::has_ended);
            if was_open && has_ended && self.live.contains(&key) {
                self.apply_endings(&[key]);
                let touched: Vec<JobKey> = self.touched.iter().copied().collect();
                waiting.extend(touched);
                open = self.jobs_open();
            }
            round += 1;
            assert!(round < 1_000_000, "narrowing ends");
        }
        let touched = std::mem::take(&mut self.touched);
        touched
            .iter()
            .try_for_each(|key| self.compare_job(*key, rows))
    }

    fn jobs_open(&self) -> Vec<JobKey> {
        let open = self.live_jobs().filter(|(_, job)| !job.is_certain());
        open.map(|(key, _)| key).collect()
    }

    /// Compares every live job with the rows, and their number.
    pub(crate) fn compare_all(&mut self, rows: &Rows) -> CheckResult {
        let stranger = |(key, record): &(&JobKey, &JobRecord)| {
            self.covers(&record.namespace) && !self.live.contains(key)
        };
        if let Some((key, _)) = rows.live.iter().find(stranger) {
            return Err(self.broken("A2", *key, format!("job {key} is stored as live")));
        }
        let live: Vec<JobKey> = self.live.iter().copied().collect();
        live.into_iter()
            .try_for_each(|key| self.compare_job(key, rows))?;
        for (key, job) in &self.jobs {
            if job.has_ended() && !rows.finished.contains_key(key) {
                return Err(self.broken("D2", *key, format!("job {} ({key}) is gone", job.id)));
            }
        }
        Ok(())
    }

    fn narrow(&mut self, key: JobKey, rows: &Rows) -> CheckResult {
        let Some(job) = self.jobs.get(&key) else {
            return self.not_known(key, rows);
        };
        let Some(shown) = shown(rows, key) else {
            let what = format!("job {} ({key}) is not stored any more", job.id);
            return Err(self.broken("D2", key, what));
        };
        let fits = |stand: &&PossibleState| self.fits(stand, &shown);
        let Some(stand) = job.may.iter().find(fits).copied() else {
            let until = job.hold.as_ref().map(|hold| hold.ends.0);
            if let Some(until) = until.filter(|until| self.now.elapsed < *until)
                && shown.lease_expirations > 0
            {
                let what = format!(
                    "the lease of job {} ({key}) ran out before {until}, to which it was granted or renewed",
                    job.id
                );
                return Err(self.broken("L9", key, what));
            }
            let what = format!(
                "job {} ({key}) is stored as {} due {:?} ready at {} attempts {} counted {} releases {} lease_expirations {}",
                job.id,
                shown.state,
                shown.due,
                shown.ready_at,
                shown.attempt,
                shown.counted,
                shown.releases,
                shown.lease_expirations
            );
            return Err(self.broken("A2", key, what));
        };
        let due = match stand.due {
            DueTime::Never => DueTime::Never,
            _ => shown.due.map_or(DueTime::Never, DueTime::At),
        };
        let ready = (stand.state == JobState::Ready).then_some(shown.ready_at);
        let ready_at = if stand.state == JobState::Running {
            stand.ready_at
        } else {
            ready
        };
        let job = self.jobs.get_mut(&key).expect("looked up above");
        job.may = vec![PossibleState {
            due,
            ready_at,
            ..stand
        }];
        if stand.state == JobState::Ready {
            job.is_ahead = shown.is_ahead;
        }
        if stand.state != JobState::Running && job.hold.is_some() {
            job.end_hold(TokenEnd::Expired);
        }
        Ok(())
    }

    fn not_known(&self, key: JobKey, rows: &Rows) -> CheckResult {
        match rows.state(key) {
            None => Ok(()),
            Some(state) if self.removed.contains(&key) => Err(self.broken(
                "K5",
                key,
                format!("job {key} was removed and is stored as {state}"),
            )),
            Some(state) => Err(self.broken(
                "A2",
                key,
                format!("job {key} came from nowhere and is {state}"),
            )),
        }
    }

    fn fits(&self, stand: &PossibleState, shown: &StoredState) -> bool {
        // If a timer cancelled a job, its lease may have expired just before. That moves one from the counted
        // attempts to the lease expirations, if the policy limits those.
        let is_moved = stand.state == JobState::Cancelled
            && stand.counted + stand.lease_expirations == shown.counted + shown.lease_expirations;
        let counts_fit = (stand.counted == shown.counted || is_moved)
            && stand.releases == shown.releases
            && (stand.lease_expirations == shown.lease_expirations || stand.state.is_terminal());
        let due_fits = match (stand.due, shown.due) {
            (DueTime::Never, _) => true,
            (DueTime::At(due), Some(shown)) => due == shown,
            (DueTime::Between(low, high), Some(Due::Elapsed(at))) => (low..=high).contains(&at),
            _ => false,
        };
        let place_fits = match (stand.state, stand.ready_at) {
            (JobState::Ready, Some(at)) => at == shown.ready_at,
            (JobState::Ready, None) => shown.ready_at <= self.now.elapsed,
            _ => true,
        };
        stand.state == shown.state && counts_fit && due_fits && place_fits
    }

    fn compare_job(&self, key: JobKey, rows: &Rows) -> CheckResult {
        let Some(job) = self.jobs.get(&key) else {
            return self.not_known(key, rows);
        };
        let Some(shown) = shown(rows, key) else {
            let what = format!("job {} ({key}) is not stored any more", job.id);
            return Err(self.broken("D2", key, what));
        };
        let stand = job.may[0];
        if stand.state != shown.state {
            let what = format!("job {} ({key}) is stored as {}", job.id, shown.state);
            return Err(self.broken("A2", key, what));
        }
        if job.attempt != shown.attempt {
            let what = format!(
                "job {} ({key}) is stored with attempt {} after {} grants",
                job.id, shown.attempt, job.attempt
            );
            return Err(self.broken("R2", key, what));
        }
        self.compare_content(job, rows)?;
        if stand.state.is_terminal() {
            self.compare_end(job, rows)
        } else {
            self.compare_inputs(job, rows)
        }
    }

    fn compare_content(&self, job: &ModelJob, rows: &Rows) -> CheckResult {
        let record = rows.record(job.key).expect("looked up by the caller");
        let payload = rows.payloads.get(&job.key).cloned().unwrap_or_default();
        let wrong = if record.id != job.id || record.namespace != job.namespace {
            "id"
        } else if record.queue != job.queue {
            "queue"
        } else if record.priority != job.priority {
            "priority"
        } else if payload != job.payload {
            "payload"
        } else if record.kind != job.spec.kind {
            "kind"
        } else if record.graph != job.graph {
            "graph"
        } else if record.name != job.spec.name {
            "name"
        } else if record
            .tags
            .iter()
            .cloned()
            .collect::<std::collections::BTreeSet<_>>()
            != job.tags
        {
            "tags"
        } else {
            return Ok(());
        };
        let what = format!(
            "job {} ({}) is stored with another {wrong}",
            job.id, job.key
        );
        Err(self.broken("D2", job.key, what))
    }

    fn compare_end(&self, job: &ModelJob, rows: &Rows) -> CheckResult {
        let row = rows
            .finished
            .get(&job.key)
            .expect("a terminal job is stored as finished");
        if row.result != job.result {
            let what = format!(
                "job {} ({}) is stored with the result {:?} instead of {:?}",
                job.id, job.key, row.result, job.result
            );
            return Err(self.broken("D10", job.key, what));
        }
        Ok(())
    }

    fn compare_inputs(&self, job: &ModelJob, rows: &Rows) -> CheckResult {
        for (place, slot) in job.inputs.iter().enumerate() {
            let number = u32::try_from(place).expect("few inputs");
            let stored = rows.inputs.get(&(job.key, number));
            let agrees = match (slot, stored) {
                (Slot::Value(value), Some(InputState::Value(stored))) => value == stored,
                (
                    Slot::Missing(up, policy),
                    Some(InputState::Missing {
                        dependency,
                        policy: p,
                        ..
                    }),
                ) => up == dependency && policy == p,
                (Slot::Delivered(up), Some(InputState::Delivered { dependency, .. })) => {
                    up == dependency
                }
                (Slot::Ignored, Some(InputState::Ignored { .. })) => true,
                _ => false,
            };
            if !agrees {
                let what = format!(
                    "input {place} of job {} ({}) is stored as {stored:?} instead of {slot:?}",
                    job.id, job.key
                );
                return Err(self.broken("G2", job.key, what));
            }
        }
        self.compare_edges(job, rows)
    }

    /// Checks that the same dependencies without data are missing in the model and in the rows.
    fn compare_edges(&self, job: &ModelJob, rows: &Rows) -> CheckResult {
        let stored = rows
            .inputs
            .range((job.key, InputRow::EDGE_FIRST)..=(job.key, u32::MAX));
        let mut stored: Vec<JobKey> = stored
            .filter_map(|(_, state)| match state {
                InputState::Missing { dependency, .. } => Some(*dependency),
                _ => None,
            })
            .collect();
        let mut believed: Vec<JobKey> = job
            .after
            .iter()
            .filter_map(|slot| match slot {
                Slot::Missing(dependency, _) => Some(*dependency),
                _ => None,
            })
            .collect();
        stored.sort_unstable();
        believed.sort_unstable();
        stored.dedup();
        believed.dedup();
        if stored == believed {
            return Ok(());
        }
        let what = format!(
            "job {} ({}) waits for {stored:?} instead of {believed:?}",
            job.id, job.key
        );
        Err(self.broken("G1", job.key, what))
    }
}
