//! Tasks that wait for an idle worker, and their division into batches.

use std::collections::VecDeque;

use bytes::Bytes;
use ganger_client::{Delivery, LeaseRef};

/// Maximum number of tasks in a batch, which share one transaction.
pub(crate) const BATCH_TASKS_MAX: usize = 64;
/// Maximum bytes of the inputs in a batch, unless a single input is larger.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// A task leased by this pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    /// Job and token of the task's lease.
    pub(crate) held: LeaseRef,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The task as a JSON document, the payload of its job.
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

/// Waiting tasks in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitingTasks {
    tasks: VecDeque<Task>,
}

impl WaitingTasks {
    /// Adds a task behind all others.
    pub(crate) fn push(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    /// Returns the number of waiting tasks.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Removes a task whose lease is lost; returns whether it was waiting.
    pub(crate) fn remove(&mut self, held: &LeaseRef) -> bool {
        let before = self.tasks.len();
        self.tasks.retain(|task| task.held != *held);
        self.tasks.len() < before
    }

    /// Removes and returns the next batch for one of `idle` workers: at most its share of the waiting tasks, so that no
    /// worker stays idle while another has a long batch. `None` if no task waits.
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

    fn waiting(sizes: &[usize]) -> WaitingTasks {
        let mut waiting = WaitingTasks::default();
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

    fn sizes(mut waiting: WaitingTasks, idle: usize) -> Vec<usize> {
        std::iter::from_fn(|| waiting.batch(idle).map(|batch| batch.len())).collect()
    }

    #[test]
    fn a_batch_has_at_most_64_tasks() {
        assert_eq!(sizes(waiting(&[10; 150]), 1), [64, 64, 22]);
        assert!(sizes(waiting(&[]), 1).is_empty());
    }

    #[test]
    fn a_batch_has_at_most_4_mib_and_at_least_one_task() {
        let mib = 1 << 20;
        assert_eq!(sizes(waiting(&[mib; 9]), 1), [4, 4, 1]);
        assert_eq!(sizes(waiting(&[9 * mib, 1, 9 * mib]), 1), [1, 1, 1]);
    }

    #[test]
    fn idle_workers_share_the_waiting_tasks() {
        let mut waiting = waiting(&[10; 10]);
        let shares = [4, 3, 2, 1].map(|idle| waiting.batch(idle).expect("some wait").len());
        assert_eq!(shares, [3, 3, 2, 2]);
    }

    #[test]
    fn a_lost_task_is_removed_at_any_position() {
        let mut waiting = waiting(&[10; 3]);
        assert!(waiting.remove(&held(1)));
        assert!(!waiting.remove(&held(1)));
        let left: Vec<_> = waiting
            .take_all()
            .into_iter()
            .map(|task| task.held)
            .collect();
        assert_eq!(left, [held(0), held(2)]);
    }
}
