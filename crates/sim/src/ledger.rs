//! The ledger: acknowledgements that clients received, which must stay true forever.
//!
//! The oracle knows what became durable; the ledger knows what clients received. Together they show that nothing was
//! acknowledged that a crash could take back (`rel D1`, `D2`, `D4`).

use std::collections::BTreeMap;

use ganger_types::{Answer, Bytes, Command, JobKey, JobState, LeaseToken, Outcome, Reply};

use crate::oracle::Oracle;
use crate::rows::Rows;
use crate::world::{StepOutcome, broken};

/// A job whose enqueueing was acknowledged.
struct AcknowledgedJob {
    heard_at: u64,
    /// Acknowledged completion; `None` if there is none.
    completed: Option<AcknowledgedCompletion>,
}

/// A completion that was acknowledged.
struct AcknowledgedCompletion {
    heard_at: u64,
    token: LeaseToken,
    /// Result of the completion; `None` if only a repeat of the report was acknowledged, so that the first report is
    /// not known.
    result: Option<Option<Bytes>>,
}

/// Acknowledgements that clients received, to be checked against the oracle.
#[derive(Default)]
pub(crate) struct Ledger {
    promises: BTreeMap<JobKey, AcknowledgedJob>,
    by_id: BTreeMap<(ganger_types::Namespace, ganger_types::JobId), JobKey>,
    grants: BTreeMap<LeaseToken, (JobKey, u32)>,
    attempts: BTreeMap<JobKey, (u32, LeaseToken)>,
}

impl Ledger {
    /// Records an answer that a client received.
    pub(crate) fn heard(&mut self, time: u64, command: &Command, answer: &Answer) -> StepOutcome {
        match (command, answer) {
            (Command::Enqueue(cmd), Ok(Reply::Enqueued { jobs, .. })) => {
                for job in jobs {
                    let promise = AcknowledgedJob {
                        heard_at: time,
                        completed: None,
                    };
                    self.promises.entry(job.key).or_insert(promise);
                    self.by_id
                        .insert((cmd.namespace.clone(), job.id.clone()), job.key);
                }
                Ok(())
            }
            (Command::Lease(_), Ok(Reply::Leased(grants))) => grants
                .iter()
                .try_for_each(|grant| self.granted(grant.key, grant.attempt, grant.token)),
            (
                Command::Complete(cmd),
                Ok(Reply::Reported {
                    state: JobState::Succeeded,
                    repeat,
                    ..
                }),
            ) => {
                let id = (cmd.held.namespace.clone(), cmd.held.job.clone());
                let Some(key) = self.by_id.get(&id).copied() else {
                    return Ok(());
                };
                if cmd.next.is_none() {
                    let completed = AcknowledgedCompletion {
                        heard_at: time,
                        token: cmd.held.token,
                        // The result that counts is that of the first report (`rel L7`).
                        result: (!repeat).then(|| cmd.result.clone()),
                    };
                    self.completed(key, completed);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that a token belongs to one attempt of one job, and that an attempt has one token (`rel L2`).
    fn granted(&mut self, key: JobKey, attempt: u32, token: LeaseToken) -> StepOutcome {
        if let Some(earlier) = self.grants.insert(token, (key, attempt))
            && earlier != (key, attempt)
        {
            let what = format!(
                "token {token:?} stands for {earlier:?} and for {:?}",
                (key, attempt)
            );
            return Err(broken("L2", what));
        }
        match self.attempts.get(&key) {
            Some((number, other)) if *number == attempt && *other != token => {
                let what = format!(
                    "attempt {attempt} of job {key} was granted under {other:?} and {token:?}"
                );
                Err(broken("L8", what))
            }
            Some((number, _)) if *number > attempt => Ok(()),
            _ => {
                self.attempts.insert(key, (attempt, token));
                Ok(())
            }
        }
    }

    /// Checks that a job succeeds at most once (`rel L3`); a retried job starts again.
    fn completed(&mut self, key: JobKey, completed: AcknowledgedCompletion) {
        let Some(promise) = self.promises.get_mut(&key) else {
            return;
        };
        let is_known = promise.completed.as_ref().is_some_and(|earlier| {
            earlier.token == completed.token
                && (earlier.result.is_some() || completed.result.is_none())
        });
        if !is_known {
            promise.completed = Some(completed);
        }
    }

    /// Checks the acknowledgements against the stored rows.
    pub(crate) fn compare(&self, rows: &Rows, oracles: &[&Oracle]) -> StepOutcome {
        for (key, promise) in &self.promises {
            if oracles.iter().any(|oracle| oracle.was_removed(*key)) {
                continue;
            }
            if rows.record(*key).is_none() {
                let what = format!(
                    "job {key}, acknowledged at {} us, is lost",
                    promise.heard_at
                );
                return Err(broken("D2", what));
            }
            let Some(completed) = &promise.completed else {
                continue;
            };
            if oracles.iter().any(|oracle| oracle.was_retried(*key)) {
                continue;
            }
            let row = rows.finished.get(key);
            let outcome = row
                .and_then(|row| row.record.finished.as_ref())
                .map(|end| end.outcome);
            let stored = row.and_then(|row| row.result.clone());
            let is_same = completed
                .result
                .as_ref()
                .is_none_or(|result| stored == *result);
            if outcome != Some(Outcome::Succeeded) || !is_same {
                let AcknowledgedCompletion {
                    heard_at,
                    token,
                    result,
                } = completed;
                let what = format!(
                    "job {key}, whose completion under {token:?} was acknowledged at {heard_at} us with {result:?}, is stored as {outcome:?} with {stored:?}"
                );
                return Err(broken("D10", what));
            }
        }
        Ok(())
    }
}
