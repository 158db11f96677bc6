//! How far a graph is: the longest chain of jobs that have not ended, and what holds the most up.

use ganger_types::JobState;

use crate::index::MemberIndex;
use crate::shape::Shape;

/// Jobs of the critical path that are named.
const CHAIN_MAX: usize = 100;
/// Jobs that hold a graph up, as many as are named.
const HOLDERS_MAX: usize = 10;
/// Candidates for which the jobs behind are counted exactly.
const CANDIDATES_MAX: usize = 32;
/// Edges that are followed to count the jobs behind all candidates.
const EDGES_FOLLOWED_MAX: usize = 4_000_000;

/// The longest chain of jobs that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of jobs in the chain.
    pub length: u32,
    /// The first of them, in the order in which they run.
    pub jobs: Vec<MemberIndex>,
}

/// A job that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The job that others wait for.
    pub job: MemberIndex,
    /// Number of jobs behind it that have not ended.
    pub behind: u64,
    /// Whether `behind` is exact; otherwise there are more.
    pub is_exact: bool,
}

impl Shape {
    /// Finds the critical path: of several chains of the same length one.
    pub fn critical_path(&self, states: &[JobState]) -> Chain {
        let order = &self.order;
        let mut length = vec![0_u32; order.len()];
        let mut next: Vec<Option<MemberIndex>> = vec![None; order.len()];
        for member in order.iter().rev() {
            let at = member.at();
            if states[at].is_terminal() {
                continue;
            }
            let behind = self.forward.of(*member).iter();
            let longest = behind.max_by_key(|it| (length[it.at()], std::cmp::Reverse(it.0)));
            let longest = longest.filter(|it| length[it.at()] > 0);
            length[at] = 1 + longest.map_or(0, |it| length[it.at()]);
            next[at] = longest.copied();
        }
        let first = order
            .iter()
            .max_by_key(|it| (length[it.at()], std::cmp::Reverse(it.0)));
        let first = first.filter(|it| length[it.at()] > 0).copied();
        let jobs = std::iter::successors(first, |it| next[it.at()]);
        Chain {
            length: first.map_or(0, |it| length[it.at()]),
            jobs: jobs.take(CHAIN_MAX).collect(),
        }
    }

    /// Finds the jobs with the most unfinished jobs behind them: first those that failed or were cancelled, then those
    /// that wait for no other job of the graph.
    pub fn holding_up(&self, states: &[JobState]) -> Vec<Holder> {
        let estimate = self.estimate_behind(states);
        let is_open = |it: &MemberIndex| !states[it.at()].is_terminal();
        let holds = |member: &MemberIndex| {
            let state = states[member.at()];
            let waits = self.backward.of(*member).iter().any(is_open);
            state != JobState::Succeeded && (state.is_terminal() || !waits)
        };
        let mut candidates: Vec<MemberIndex> = self
            .indexes()
            .filter(|member| estimate[member.at()] > 0 && holds(member))
            .collect();
        let rank = |member: &MemberIndex| {
            let has_failed = states[member.at()].is_terminal();
            (
                !has_failed,
                std::cmp::Reverse(estimate[member.at()]),
                *member,
            )
        };
        candidates.sort_by_key(rank);
        candidates.truncate(CANDIDATES_MAX);
        let mut followed = 0;
        let counted = candidates.into_iter().map(|job| {
            let (behind, is_exact) = self.count_behind(job, states, &mut followed);
            Holder {
                job,
                behind,
                is_exact,
            }
        });
        let mut holders: Vec<Holder> = counted.collect();
        holders.sort_by_key(|holder| {
            let has_failed = states[holder.job.at()].is_terminal();
            (!has_failed, std::cmp::Reverse(holder.behind), holder.job)
        });
        holders.truncate(HOLDERS_MAX);
        holders
    }

    /// For each member at least the number of unfinished jobs behind it: those behind several of its dependents count
    /// several times. Good enough to choose candidates, and linear.
    fn estimate_behind(&self, states: &[JobState]) -> Vec<u64> {
        let mut estimate = vec![0_u64; states.len()];
        for member in self.order.iter().rev() {
            let behind = self.forward.of(*member).iter();
            let open = behind.filter(|it| !states[it.at()].is_terminal());
            let sum = open.fold(0_u64, |sum, it| {
                sum.saturating_add(estimate[it.at()]).saturating_add(1)
            });
            estimate[member.at()] = sum;
        }
        estimate
    }

    /// Counts the unfinished jobs behind a member, and whether those are all.
    fn count_behind(
        &self,
        member: MemberIndex,
        states: &[JobState],
        followed: &mut usize,
    ) -> (u64, bool) {
        let mut seen = vec![false; states.len()];
        let mut waiting = vec![member];
        let mut behind = 0;
        while let Some(next) = waiting.pop() {
            for dependent in self.forward.of(next) {
                *followed += 1;
                let at = dependent.at();
                if !states[at].is_terminal() && !std::mem::replace(&mut seen[at], true) {
                    behind += 1;
                    waiting.push(*dependent);
                }
            }
            if *followed > EDGES_FOLLOWED_MAX {
                return (behind, waiting.is_empty());
            }
        }
        (behind, true)
    }
}
