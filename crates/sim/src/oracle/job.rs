//! The oracle's model of a job: its possible states, and the events that led there.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use ganger_types::command::NewJob;
use ganger_types::job::ReportKind;
use ganger_types::{
    Bytes, Due, Elapsed, FailurePolicy, Graph, JobId, JobKey, JobState, LeaseToken, Namespace, Now,
    Outcome, Priority, Queue, RetryPolicy, Tag, Worker,
};

/// The time at which a scheduled job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueTime {
    /// The job is not scheduled.
    Never,
    /// Due at exactly this time.
    At(Due),
    /// Due between these readings of the elapsed clock, because of jitter.
    Between(Elapsed, Elapsed),
}

/// A possible state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PossibleState {
    pub(crate) state: JobState,
    pub(crate) due: DueTime,
    /// Time at which it became ready; `None`: some time in the present turn.
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

/// A lease that may be live.
#[derive(Clone, Debug)]
pub(crate) struct LeaseModel {
    pub(crate) token: LeaseToken,
    pub(crate) worker: Worker,
    /// Granted length, which a renewal without a length uses.
    pub(crate) granted_for: Duration,
    /// Last granted or renewed length, which a restart gives again.
    pub(crate) full: Duration,
    /// First reading at which the lease may expire, and reading by which it must have expired.
    pub(crate) ends: (Elapsed, Elapsed),
    /// The same for the timeout of the attempt; `None` without one.
    pub(crate) times_out: Option<(Elapsed, Elapsed)>,
    pub(crate) log_bytes: u64,
    /// Whether the lease has expired and is in its grace period.
    pub(crate) is_warned: bool,
    /// Position before the grant, for a release that keeps it.
    pub(crate) place: Option<Elapsed>,
}

/// How a granted token ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenEnd {
    Reported,
    Expired,
    Cancelled,
    Removed,
    ByHand,
}

/// A note about an event of a job, for reports of violations.
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
    /// Start time, once no dependency is missing.
    pub(crate) start: Option<Due>,
    pub(crate) may: Vec<PossibleState>,
    pub(crate) attempt: u32,
    pub(crate) inputs: Vec<Slot>,
    pub(crate) after: Vec<Slot>,
    pub(crate) dependents: BTreeSet<JobKey>,
    pub(crate) hold: Option<LeaseModel>,
    pub(crate) last_report: Option<(LeaseToken, ReportKind)>,
    /// Earlier tokens and how they ended, newest last.
    pub(crate) past: Vec<(LeaseToken, TokenEnd)>,
    pub(crate) result: Option<Bytes>,
    /// Whether it goes before others of its priority, as its row shows.
    pub(crate) is_ahead: bool,
    /// Dependency whose end failed it; `None` if none did or it was retried since.
    pub(crate) failed_with: Option<JobKey>,
    /// Whether it was retried.
    pub(crate) is_retried: bool,
    /// Number of forward jumps of the wall clock before its end.
    pub(crate) jumps_at_end: u32,
    pub(crate) notes: Vec<Note>,
}

impl ModelJob {
    /// The state, if only one is possible.
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

    /// Whether it has certainly ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.may.iter().all(|stand| stand.state.is_terminal())
    }

    pub(crate) fn may_have_ended(&self) -> bool {
        self.may.iter().any(|stand| stand.state.is_terminal())
    }

    /// Whether it has certainly ended without success.
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

    /// The strictest policy of its edges to `dependency`.
    pub(crate) fn policy_towards(&self, dependency: JobKey) -> Option<FailurePolicy> {
        self.slots()
            .filter_map(|slot| match slot {
                Slot::Missing(key, policy) if *key == dependency => Some(*policy),
                _ => None,
            })
            .min()
    }

    /// Ends the lease and records how.
    pub(crate) fn end_hold(&mut self, gone: TokenEnd) {
        if let Some(hold) = self.hold.take() {
            self.past.push((hold.token, gone));
        }
    }

    /// Replaces all possible states.
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
