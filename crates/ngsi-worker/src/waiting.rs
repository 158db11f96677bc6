//! Tasks that wait for a free worker, and how many of them go together.

use std::collections::VecDeque;

use bytes::Bytes;
use ganger_client::{Delivery, LeaseRef};

/// Tasks in a batch at most: so many share one transaction.
pub(crate) const BATCH_TASKS_MAX: usize = 64;
/// Bytes of their inputs, unless a single one has more.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// A task under a lease of ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    /// Attempt and token of the task's lease.
    pub(crate) held: LeaseRef,
    /// Which attempt this is, from 1.
    pub(crate) attempt: u32,
    /// Bytes of the task to insert.
    pub(crate) input: Bytes,
}

impl From<Delivery> for Task {
    fn from(delivery: Delivery) -> Self {
        Self {
            held: delivery.lease,
            attempt: delivery.attempt,
            input: delivery.payload,
        }
    }
}

/// Tasks in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    tasks: VecDeque<Task>,
}

impl Waiting {
    /// A task has come.
    pub(crate) fn push(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Forgets a task whose lease is lost; whether it was there.
    pub(crate) fn forget(&mut self, held: &LeaseRef) -> bool {
        let before = self.tasks.len();
        self.tasks.retain(|task| task.held != *held);
        self.tasks.len() < before
    }

    /// The next batch for one of `idle` workers, never empty: its share of what waits, so that none of them stands
    /// by while another one has a long batch. `None` if nothing waits.
    pub(crate) fn batch(&mut self, idle: usize) -> Option<Vec<Task>> {
        let share = self.tasks.len().div_ceil(idle.max(1));
        let mut bytes = 0;
        let small = self.tasks.iter().take_while(|task| {
            bytes += task.input.len();
            bytes <= BATCH_BYTES_MAX
        });
        let count = small.take(BATCH_TASKS_MAX).count().min(share).max(1);
        if self.tasks.is_empty() {
            return None;
        }
        Some(self.tasks.drain(..count).collect())
    }

    /// Removes and returns all tasks.
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        self.tasks.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use ganger_client::LeaseToken;

    use super::*;

    fn waiting(sizes: &[usize]) -> Waiting {
        let mut waiting = Waiting::default();
        for (number, size) in sizes.iter().enumerate() {
            waiting.push(Task {
                held: held(number),
                attempt: 1,
                input: vec![b' '; *size].into(),
            });
        }
        waiting
    }

    fn held(number: usize) -> LeaseRef {
        LeaseRef {
            job: number.to_string(),
            token: LeaseToken(Bytes::from(number.to_string())),
        }
    }

    fn sizes(mut waiting: Waiting, idle: usize) -> Vec<usize> {
        std::iter::from_fn(|| waiting.batch(idle).map(|batch| batch.len())).collect()
    }

    #[test]
    fn a_batch_has_64_tasks_at_most() {
        assert_eq!(sizes(waiting(&[10; 150]), 1), [64, 64, 22]);
        assert!(sizes(waiting(&[]), 1).is_empty());
    }

    #[test]
    fn a_batch_has_4_mib_at_most_and_one_task_at_least() {
        let mib = 1 << 20;
        assert_eq!(sizes(waiting(&[mib; 9]), 1), [4, 4, 1]);
        assert_eq!(sizes(waiting(&[9 * mib, 1, 9 * mib]), 1), [1, 1, 1]);
    }

    #[test]
    fn idle_workers_share_what_waits() {
        let mut waiting = waiting(&[10; 10]);
        let shares = [4, 3, 2, 1].map(|idle| waiting.batch(idle).expect("some wait").len());
        assert_eq!(shares, [3, 3, 2, 2]);
    }

    #[test]
    fn a_lost_task_is_forgotten_wherever_it_stands() {
        let mut waiting = waiting(&[10; 3]);
        assert!(waiting.forget(&held(1)));
        assert!(!waiting.forget(&held(1)));
        let left: Vec<_> = waiting
            .take_all()
            .into_iter()
            .map(|task| task.held)
            .collect();
        assert_eq!(left, [held(0), held(2)]);
    }
}
