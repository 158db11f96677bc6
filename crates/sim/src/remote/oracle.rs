//! What must hold under every owner of the shard: what was let out is in the log and stays there, one owner at a time lets
//! anything out, and time goes on evenly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ganger_shard::Delivery;
use ganger_store::Opened;
use ganger_types::command::LeaseRef;
use ganger_types::{Bytes, Commit, JobId, LeaseToken, Now};

use super::server::{SECOND, Servers};
use crate::goals::Goals;
use crate::oracle::{CheckResult, Violation};
use crate::world::broken;

/// Time that a commit may wait before it is written.
const WAITED_MAX: u64 = 200 * SECOND;

/// An attempt that was handed out.
#[derive(Clone, Debug)]
struct Attempt {
    process: u64,
    token: LeaseToken,
    /// Time at which it was asked for: the lease begins then or later.
    at: u64,
    /// Length of the lease in microseconds.
    lease: u64,
    /// Time before which it may not expire, after a pause of its owner.
    lives_until: u64,
}

/// What clients have heard of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    attempts: BTreeMap<u32, Attempt>,
    /// Whether its submission was acknowledged.
    pub(crate) is_acknowledged: bool,
    /// The result under which it was completed.
    pub(crate) result: Option<Bytes>,
}

#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) goals: Goals,
    /// Commits that were let out.
    acknowledged: BTreeMap<u64, Arc<Commit>>,
    pub(crate) jobs: BTreeMap<JobId, Facts>,
    /// The process that took the shard over last, and its epoch then.
    pub(crate) owner: u64,
    owner_epoch: u64,
    /// When each process was stopped last.
    frozen: BTreeMap<u64, u64>,
    /// Processes that may have let out what a failover has lost.
    stale: BTreeSet<u64>,
    /// Whether a failover has ever lost commits.
    pub(crate) has_lost_commits: bool,
    /// Commits that were let out and that a failover has lost, with their epochs, as long as nobody has accepted that.
    lost: BTreeMap<u64, u64>,
}

impl Oracle {
    /// A process has taken the shard over.
    pub(crate) fn opened(&mut self, process: u64, opened: &Opened) -> CheckResult {
        if opened.epoch.0 >= self.owner_epoch {
            (self.owner, self.owner_epoch) = (process, opened.epoch.0);
        }
        // A process that stood still may say only now that it was an owner once.
        let before = self.acknowledged.iter();
        let before = before.filter(|(_, commit)| commit.epoch < opened.epoch);
        let last = before.map(|(sequence, _)| *sequence).next_back();
        let last = last.unwrap_or(0);
        if opened.sequence < last {
            let what = format!(
                "a claim of epoch {} finds {} commits, and {last} were acknowledged",
                opened.epoch.0, opened.sequence
            );
            return Err(broken("D2", what));
        }
        // A claim on the former primary, of which is heard only now, has seen them.
        let mut unseen = self.lost.range(opened.sequence + 1..);
        if let Some((sequence, epoch)) = unseen.find(|(_, epoch)| **epoch < opened.epoch.0) {
            let what = format!(
                "epoch {} goes on after commit {}, and commit {sequence} of epoch {epoch} was acknowledged and is lost",
                opened.epoch.0, opened.sequence
            );
            return Err(broken("X6", what));
        }
        Ok(())
    }

    /// A new owner goes on at this time.
    pub(crate) fn resumed(now: Now, time: u64) -> CheckResult {
        let drift = time / 100 * 6 + 5 * SECOND;
        // The last commit may have waited before it was written: its owner read the clock before that.
        let (earliest, latest) = (time.saturating_sub(drift + WAITED_MAX), time + drift);
        if !(earliest..=latest).contains(&now.elapsed.0) {
            let what = format!(
                "a new owner goes on {} s after the shard began, and {} s have passed",
                now.elapsed.0 / SECOND,
                time / SECOND
            );
            return Err(broken("C7", what));
        }
        Ok(())
    }

    /// A process has let a commit out.
    pub(crate) fn released(
        &mut self,
        process: u64,
        commit: &Arc<Commit>,
        is_rewound: bool,
        servers: &Servers,
    ) -> CheckResult {
        let (sequence, epoch) = (commit.sequence, commit.epoch.0);
        let shown = format!("commit {sequence} of epoch {epoch}, let out by process {process},");
        let newest = servers.newest();
        if !servers.all[newest].tables.had(commit) {
            // Without a synchronous standby a failover may lose it just before it is let out, and so may a backup that is
            // restored.
            let earlier = servers.all[..newest].iter().map(|server| &server.tables);
            let mut lost = earlier.chain(&servers.replaced);
            if !servers.is_synchronous && lost.any(|tables| tables.had(commit)) {
                return Ok(());
            }
            return Err(broken("D2", format!("{shown} is not in the log")));
        }
        if is_rewound {
            let what = format!("{shown} follows one that the database has lost");
            return Err(broken("X6", what));
        }
        if servers.is_synchronous && !servers.has_copy(newest, sequence) {
            return Err(broken("E6", format!("{shown} has no copy")));
        }
        if let Some(other) = self.acknowledged.insert(sequence, Arc::clone(commit))
            && other != *commit
        {
            let what = format!("{shown} takes the place of one of epoch {}", other.epoch.0);
            return Err(broken("E1", what));
        }
        Ok(())
    }

    /// Whether what a process says of jobs counts: a failover has not lost what it knew.
    pub(crate) fn counts(&self, process: u64) -> bool {
        !self.stale.contains(&process)
    }

    /// A report was refused because its lease is over.
    pub(crate) fn lease_lost(&self, process: u64, held: &LeaseRef, time: u64) -> CheckResult {
        let facts = self.jobs.get(&held.job);
        let last = facts.and_then(|facts| facts.attempts.last_key_value());
        if let Some((number, attempt)) = last
            && attempt.token == held.token
            && attempt.process == process
            && time < attempt.lives_until
            && facts.is_some_and(|facts| facts.result.is_none())
        {
            let what = format!(
                "the lease of attempt {number} of job {} expired while its owner stood still",
                held.job
            );
            return Err(broken("T6", what));
        }
        Ok(())
    }

    /// A failover has lost what follows this commit, with these processes alive.
    pub(crate) fn lost_after(&mut self, last: u64, alive: impl Iterator<Item = u64>) {
        self.has_lost_commits = true;
        self.stale.extend(alive);
        let gone = self.acknowledged.split_off(&(last + 1));
        let gone = gone.iter().map(|(sequence, it)| (*sequence, it.epoch.0));
        self.lost.extend(gone);
        self.jobs.clear();
    }

    /// An operator has accepted what failovers have lost.
    pub(crate) fn loss_accepted(&mut self) {
        self.lost.clear();
    }

    pub(crate) fn froze(&mut self, process: u64, time: u64) {
        self.frozen.insert(process, time);
    }

    /// A process has noticed that it stood still: its leases get their full length again, if it has an engine.
    pub(crate) fn paused(&mut self, process: u64, time: u64, has_leases: bool) {
        let Some(frozen) = self.frozen.remove(&process).filter(|_| has_leases) else {
            return;
        };
        for facts in self.jobs.values_mut() {
            let Some(mut last) = facts.attempts.last_entry() else {
                continue;
            };
            let attempt = last.get_mut();
            let lease = attempt.lease / 100 * 93;
            if attempt.process == process && attempt.at + lease > frozen {
                attempt.lives_until = time + lease;
            }
        }
    }

    pub(crate) fn submitted(&mut self, job: &JobId) {
        self.jobs.entry(job.clone()).or_default().is_acknowledged = true;
    }

    /// A worker has got a job.
    pub(crate) fn granted(
        &mut self,
        process: u64,
        delivery: &Delivery,
        asked_at: u64,
        time: u64,
    ) -> CheckResult {
        let grant = &delivery.grant;
        let facts = self.jobs.entry(grant.job.clone()).or_default();
        let wrong = |rule: &'static str, what: &str| -> CheckResult {
            let what = format!("attempt {} of job {} {what}", grant.attempt, grant.job);
            Err(broken(rule, what))
        };
        // An owner that stood still before it let this out has a later one, and its worker's report will be refused.
        if facts.result.is_some() && process == self.owner {
            return wrong("L3", "is handed out after its completion was acknowledged");
        }
        if let Some(earlier) = facts.attempts.get(&grant.attempt)
            && earlier.token != grant.token
        {
            return wrong("L1", "is handed out twice");
        }
        if let Some((number, earlier)) = facts.attempts.last_key_value()
            && *number < grant.attempt
            && earlier.process == process
            && time < earlier.lives_until
        {
            return wrong(
                "T6",
                "follows one whose lease expired while its owner stood still",
            );
        }
        let attempt = Attempt {
            process,
            token: grant.token,
            at: asked_at,
            lease: u64::try_from(grant.lease_for.as_micros()).unwrap_or(u64::MAX),
            lives_until: 0,
        };
        facts.attempts.insert(grant.attempt, attempt);
        Ok(())
    }

    /// A completion was acknowledged.
    pub(crate) fn completed(&mut self, job: &JobId, result: Bytes) -> CheckResult {
        let facts = self.jobs.entry(job.clone()).or_default();
        match &facts.result {
            Some(earlier) if *earlier != result => {
                let what =
                    format!("job {job} was completed twice, with {earlier:?} and {result:?}");
                Err(broken("L3", what))
            }
            _ => {
                facts.result = Some(result);
                Ok(())
            }
        }
    }

    /// Checks at the end that the log has everything that was let out.
    pub(crate) fn all_kept(&self, servers: &Servers) -> Result<(), Violation> {
        let tables = &servers.all[servers.newest()].tables;
        for (sequence, commit) in &self.acknowledged {
            if !tables.had(commit) {
                let what = format!("commit {sequence} was acknowledged and is not in the log");
                return Err(broken("D2", what));
            }
        }
        Ok(())
    }
}
