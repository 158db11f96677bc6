//! Checks removals by retention: only ended jobs that are due and that no job needs (`rel K1` to `K3`, `C4`).

use std::collections::BTreeSet;

use ganger_types::command::Retire;
use ganger_types::{JobKey, JobRecord};

use super::{CheckResult, Oracle};
use crate::rows::Rows;

impl Oracle {
    /// Checks the candidates that the turn removed and that may be removed now. The others were removed by a later
    /// command of the turn and are checked at its end.
    pub(super) fn retire(&mut self, cmd: &Retire, rows: &Rows) -> CheckResult {
        let keys: BTreeSet<JobKey> = cmd.jobs.iter().map(|one| one.record.key).collect();
        let leaving: Vec<JobRecord> = self
            .leaving
            .iter()
            .filter(|record| keys.contains(&record.key) && self.jobs.contains_key(&record.key))
            .filter(|record| self.may_be_gone(record.key, record, rows).is_ok())
            .cloned()
            .collect();
        self.removed_by_retention(&leaving, rows)
    }

    /// Checks removed rows: those that no command deleted were removed by retention.
    pub(super) fn removed_by_retention(
        &mut self,
        records: &[JobRecord],
        rows: &Rows,
    ) -> CheckResult {
        let is_gone = |record: &&JobRecord| {
            rows.record(record.key).is_none() && self.jobs.contains_key(&record.key)
        };
        let records: Vec<&JobRecord> = records.iter().filter(is_gone).collect();
        for record in &records {
            self.may_be_gone(record.key, record, rows)?;
        }
        for record in records {
            self.retired(record.key);
        }
        Ok(())
    }

    fn retired(&mut self, key: JobKey) {
        if self
            .known(key)
            .dependents
            .iter()
            .any(|dependent| self.live.contains(dependent))
        {
            self.goals.reach("retired-next-to-a-live-dependent");
        }
        self.goals.reach("retired");
        self.remove(key);
    }

    fn may_be_gone(&self, key: JobKey, record: &JobRecord, rows: &Rows) -> CheckResult {
        let job = self.known(key);
        let wall = self.retention_now.unwrap_or(self.now).wall;
        let Some(end) = record.finished.as_ref().filter(|_| job.has_ended()) else {
            return Err(self.broken(
                "K1",
                key,
                format!("job {} was removed before its end", job.id),
            ));
        };
        // A job that may have ended before and has ended by the end of the turn does not need it.
        let is_user =
            |user: &JobKey| !self.known(*user).may_have_ended() || rows.live.contains_key(user);
        if let Some(user) = self.users_of(key).find(is_user) {
            let what = format!(
                "job {} was retired while job {user} holds its result",
                job.id
            );
            return Err(self.broken("K2", key, what));
        }
        let settings = self.settings(&job.namespace, &job.queue);
        let space = self.namespace(&job.namespace);
        let keep = settings
            .retention
            .unwrap_or(space.retention)
            .of(end.outcome);
        let is_old = match (end.keep_until, keep.age) {
            (Some(until), _) => until.is_some_and(|until| until <= wall),
            (None, Some(age)) => end.at.after(age) <= wall,
            (None, None) => false,
        };
        // Counting looks at every job, so do it only if the age is not sufficient.
        if is_old && self.wall_is_trusted(job) {
            return Ok(());
        }
        let others = self
            .jobs
            .values()
            .filter(|other| {
                other.namespace == job.namespace
                    && other.queue == job.queue
                    && other.outcome() == job.outcome()
                    && other.key != key
            })
            .count();
        let others = u64::try_from(others).expect("a count fits");
        if keep.count.is_some_and(|count| others >= count) {
            return Ok(());
        }
        if !is_old {
            let what = format!(
                "job {} was retired before its time: ended at {}, keep {keep:?}, {others} others kept",
                job.id, end.at
            );
            return Err(self.broken("K1", key, what));
        }
        let what = format!(
            "job {} was retired right after the wall clock jumped",
            job.id
        );
        Err(self.broken("C4", key, what))
    }
}
