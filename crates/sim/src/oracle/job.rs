//! What the oracle believes of a job: the set of places where it may stand, and what led there.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use ganger_types::command::NewJob;
use ganger_types::job::ReportKind;
use ganger_types::{
    Bytes, Due, Elapsed, FailurePolicy, Graph, JobId, JobKey, JobState, LeaseToken, Namespace, Now,
    Outcome, Priority, Queue, RetryPolicy, Tag, Worker,
};

/// When a scheduled job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueTime {
    /// It is not scheduled.
    Never,
    /// Due at exactly this time.
    At(Due),
    /// Within these elapsed readings (jitter).
    Between(Elapsed, Elapsed),
}

/// One place where a job may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PossibleState {
    pub(crate) state: JobState,
    pub(crate) due: DueTime,
    /// Its key in the line; `None`: some moment of the present turn.
    pub(crate) ready_at: Option<Elapsed>,
    pub(crate) counted: u32,
    pub(crate) releases: u32,
    pub(crate) lease_expirations: u32,
}

impl PossibleState {
    pub(crate) fn new(state: JobState) -> Self {
        Self {
            state,
            due: DueTime::Never,
            ready_at: None,
            counted: 0,
            releases: 0,
            lease_expirations: 0,
        }
    }

    pub(crate) fn moved(self, state: JobState) -> Self {
        Self {
            state,
            due: DueTime::Never,
            ready_at: None,
            ..self
        }
    }

    pub(crate) fn scheduled(self, due: DueTime) -> Self {
        Self {
            state: JobState::Scheduled,
            due,
            ready_at: None,
            ..self
        }
    }
}

/// A positional input or a pure dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Value(Bytes),
    Missing(JobKey, FailurePolicy),
    Delivered(JobKey),
    Ignored,
}

/// A lease that lives as far as the oracle knows.
#[derive(Clone, Debug)]
pub(crate) struct LeaseModel {
    pub(crate) token: LeaseToken,
    pub(crate) worker: Worker,
    /// As granted; a renewal that names no length extends by it.
    pub(crate) granted_for: Duration,
    /// As last granted or renewed: what a restart must give again.
    pub(crate) full: Duration,
    /// It may end by itself from the first reading on, and must have ended at the second.
    pub(crate) ends: (Elapsed, Elapsed),
    /// Likewise for the limit of the run time.
    pub(crate) times_out: Option<(Elapsed, Elapsed)>,
    pub(crate) log_bytes: u64,
    /// Its holder was warned that it ran out, and has the queue's grace.
    pub(crate) is_warned: bool,
    /// Its place before the grant, for a release that keeps it.
    pub(crate) place: Option<Elapsed>,
}

/// How a token that was granted is known to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Reported,
    Expired,
    Cancelled,
    Removed,
    ByHand,
}

/// A line of a job's story, printed when something conflicts with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) at: Now,
    pub(crate) op: u64,
    pub(crate) what: &'static str,
    pub(crate) number: u64,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            op,
            what,
            number,
        } = self;
        write!(
            f,
            "elapsed {} wall {} op {op}: {what} {number}",
            at.elapsed, at.wall
        )
    }
}

/// The oracle's knowledge of a job.
#[derive(Clone, Debug)]
pub(crate) struct ModelJob {
    pub(crate) key: JobKey,
    pub(crate) id: JobId,
    pub(crate) namespace: Namespace,
    pub(crate) queue: Queue,
    pub(crate) spec: NewJob,
    pub(crate) payload: Bytes,
    pub(crate) priority: Priority,
    pub(crate) retry: RetryPolicy,
    pub(crate) graph: Option<Graph>,
    pub(crate) tags: BTreeSet<Tag>,
    /// When it is due once nothing is missing any more.
    pub(crate) start: Option<Due>,
    pub(crate) may: Vec<PossibleState>,
    pub(crate) attempt: u32,
    pub(crate) inputs: Vec<Slot>,
    pub(crate) after: Vec<Slot>,
    pub(crate) dependents: BTreeSet<JobKey>,
    pub(crate) hold: Option<LeaseModel>,
    pub(crate) last_report: Option<(LeaseToken, ReportKind)>,
    /// Ends of earlier tokens, newest last.
    pub(crate) past: Vec<(LeaseToken, Gone)>,
    pub(crate) result: Option<Bytes>,
    /// It goes before those of its priority that are not ahead, as its row told.
    pub(crate) is_ahead: bool,
    /// The dependency whose end failed it, if one did and it was not retried since.
    pub(crate) fell_with: Option<JobKey>,
    /// It was retried: what was true of its first life need not be of this one.
    pub(crate) is_retried: bool,
    /// How often the wall clock had jumped ahead when it ended.
    pub(crate) jumps_at_end: u32,
    pub(crate) notes: Vec<Note>,
}

impl ModelJob {
    /// The state, if there is only one it can be in.
    pub(crate) fn state(&self) -> Option<JobState> {
        let first = self.may.first()?.state;
        self.may
            .iter()
            .all(|stand| stand.state == first)
            .then_some(first)
    }

    pub(crate) fn may_be(&self, state: JobState) -> bool {
        self.may.iter().any(|stand| stand.state == state)
    }

    pub(crate) fn is_certain(&self) -> bool {
        self.may.len() == 1
    }

    /// Whether it has ended for certain.
    pub(crate) fn has_ended(&self) -> bool {
        self.may.iter().all(|stand| stand.state.is_terminal())
    }

    pub(crate) fn may_have_ended(&self) -> bool {
        self.may.iter().any(|stand| stand.state.is_terminal())
    }

    /// Whether it has ended for certain, and not with success.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_ended() && !self.may_be(JobState::Succeeded)
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.state()? {
            JobState::Succeeded => Some(Outcome::Succeeded),
            JobState::Failed => Some(Outcome::Failed),
            JobState::Cancelled => Some(Outcome::Cancelled),
            _ => None,
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.inputs.iter().chain(&self.after)
    }

    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.inputs.iter_mut().chain(&mut self.after)
    }

    pub(crate) fn missing(&self) -> BTreeSet<JobKey> {
        self.slots()
            .filter_map(|slot| match slot {
                Slot::Missing(dependency, _) => Some(*dependency),
                _ => None,
            })
            .collect()
    }

    /// How it treats the failure of `dependency`: the strictest of its edges to it.
    pub(crate) fn policy_towards(&self, dependency: JobKey) -> Option<FailurePolicy> {
        self.slots()
            .filter_map(|slot| match slot {
                Slot::Missing(key, policy) if *key == dependency => Some(*policy),
                _ => None,
            })
            .min()
    }

    /// Forgets the lease, remembering how it ended.
    pub(crate) fn end_hold(&mut self, gone: Gone) {
        if let Some(hold) = self.hold.take() {
            self.past.push((hold.token, gone));
        }
    }

    /// Replaces every place it may stand in.
    pub(crate) fn becomes(&mut self, stands: Vec<PossibleState>) {
        debug_assert!(!stands.is_empty());
        self.may = stands;
        self.may.dedup();
    }

    pub(crate) fn moves_to(&mut self, state: JobState) {
        let mut stands: Vec<PossibleState> =
            self.may.iter().map(|stand| stand.moved(state)).collect();
        stands.dedup();
        self.may = stands;
    }
}
