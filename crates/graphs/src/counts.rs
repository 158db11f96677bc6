//! Numbers of jobs by state.

use ganger_types::JobState;

/// Number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; 7]);

impl Counts {
    /// Adds a job in this state.
    pub fn add(&mut self, state: JobState) {
        self.0[place(state)] += 1;
    }

    /// Adds the jobs of others.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Number of jobs in a state.
    pub fn of(&self, state: JobState) -> u64 {
        self.0[place(state)]
    }

    /// Number of all jobs.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Number of jobs that have not ended.
    pub fn unfinished(&self) -> u64 {
        let live = JobState::ALL.into_iter().filter(|it| !it.is_terminal());
        live.map(|state| self.of(state)).sum()
    }

    /// The state of a graph with these jobs: running until the last one has ended; then failed, cancelled or
    /// succeeded, the first of these that a job has.
    pub fn state(&self) -> JobState {
        if self.unfinished() > 0 {
            return JobState::Running;
        }
        let ends = [JobState::Failed, JobState::Cancelled];
        let found = ends.into_iter().find(|state| self.of(*state) > 0);
        found.unwrap_or(JobState::Succeeded)
    }
}

impl FromIterator<JobState> for Counts {
    fn from_iter<I: IntoIterator<Item = JobState>>(states: I) -> Self {
        let mut counts = Self::default();
        for state in states {
            counts.add(state);
        }
        counts
    }
}

fn place(state: JobState) -> usize {
    usize::from(state.number()) - 1
}
