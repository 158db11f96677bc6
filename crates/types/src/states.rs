//! Sets of job states, for filters.

use serde::{Deserialize, Serialize};

use crate::job::JobState;

/// A set of job states. The default contains all states, which is what a filter without states means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobStates(u8);

impl JobStates {
    /// The empty set, which no job matches.
    pub const NONE: Self = Self(0);
    /// The set of all states.
    pub const ALL: Self = Self(0b1111_1110);
    /// The states of jobs that have not ended.
    pub const LIVE: Self = Self(0b0001_1110);
    /// The states of jobs that have ended.
    pub const ENDED: Self = Self(0b1110_0000);

    /// Whether the set contains a state.
    pub fn contains(self, state: JobState) -> bool {
        self.0 & bit(state) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether the set contains all states, so that it excludes nothing.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Whether the set is a subset of `others`.
    pub fn is_within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }

    /// The intersection with `others`.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// The state of a set that contains exactly one.
    pub fn sole(self) -> Option<JobState> {
        let mut states = self.iter();
        states.next().filter(|_| states.next().is_none())
    }

    /// The states of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = JobState> {
        JobState::ALL
            .into_iter()
            .filter(move |state| self.contains(*state))
    }

    /// Parses a comma-separated list such as `ready,running`. `None` if a word is not a state.
    pub fn parse(text: &str) -> Option<Self> {
        text.split(',').map(JobState::parse).collect()
    }
}

fn bit(state: JobState) -> u8 {
    1 << state.number()
}

impl Default for JobStates {
    fn default() -> Self {
        Self::ALL
    }
}

impl From<JobState> for JobStates {
    fn from(state: JobState) -> Self {
        Self(bit(state))
    }
}

impl FromIterator<JobState> for JobStates {
    fn from_iter<I: IntoIterator<Item = JobState>>(states: I) -> Self {
        Self(states.into_iter().fold(0, |bits, state| bits | bit(state)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_sets_contain_the_states_of_their_names() {
        assert_eq!(
            JobState::ALL.into_iter().collect::<JobStates>(),
            JobStates::ALL
        );
        for state in JobState::ALL {
            assert!(!JobStates::NONE.contains(state));
            assert_eq!(JobStates::ENDED.contains(state), state.is_terminal());
            assert_eq!(JobStates::LIVE.contains(state), !state.is_terminal());
            assert_eq!(JobStates::from(state).sole(), Some(state));
        }
        assert_eq!(
            (JobStates::NONE.sole(), JobStates::ALL.sole()),
            (None, None)
        );
    }

    #[test]
    fn words_are_read_in_any_order_and_any_number_of_times() {
        let both = [JobState::Ready, JobState::Running].into_iter().collect();
        assert_eq!(JobStates::parse("running,ready,running"), Some(both));
        assert_eq!(JobStates::parse("failed"), Some(JobState::Failed.into()));
        for text in ["", "ready,", "Ready", "ready, running", "ready;running"] {
            assert_eq!(JobStates::parse(text), None, "{text:?}");
        }
    }
}
