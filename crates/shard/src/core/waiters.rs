//! Waiting requests: leases wait for a job, others for the end of a job or for an element of a list.
//!
//! A waiting request costs entries in a few ordered sets; nothing polls. Within a queue the request that has waited
//! longest goes first.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::Lease;
use ganger_types::{Bytes, Elapsed, JobId, KeyWait, Namespace, Queue};

use super::request::WaiterId;

/// A waiting lease request.
pub(super) struct LeaseWaiter<T> {
    pub(super) lease: Box<Lease>,
    pub(super) deadline: Elapsed,
    pub(super) ticket: T,
}

/// A wait for the end of a job.
pub(super) struct EndWaiter<T> {
    pub(super) namespace: Namespace,
    pub(super) id: JobId,
    /// Whether it was an external job when the wait began. The end of an external job is found in other rows.
    pub(super) is_external: bool,
    pub(super) deadline: Elapsed,
    pub(super) ticket: T,
}

/// A wait for an element of a list.
pub(super) struct PopWaiter<T> {
    pub(super) wait: Box<KeyWait>,
    /// End of the wait; `None` if it has none.
    pub(super) deadline: Option<Elapsed>,
    pub(super) ticket: T,
}

/// A waiting request that was removed.
pub(super) enum Waiter<T> {
    Lease(LeaseWaiter<T>),
    End(EndWaiter<T>),
    Pop(PopWaiter<T>),
}

/// All requests that wait: leases, ends of jobs and list elements.
pub(super) struct Waiters<T> {
    leases: BTreeMap<WaiterId, LeaseWaiter<T>>,
    ends: BTreeMap<WaiterId, EndWaiter<T>>,
    pops: BTreeMap<WaiterId, PopWaiter<T>>,
    /// Exactly the waits for elements, by each list they name.
    by_list: BTreeMap<(Namespace, Bytes), BTreeSet<WaiterId>>,
    /// Exactly the waiting lease requests, by each queue they name.
    by_queue: BTreeMap<(Namespace, Queue), BTreeSet<WaiterId>>,
    /// Exactly the waits for ends of ordinary jobs, by job.
    by_job: BTreeMap<(Namespace, JobId), BTreeSet<WaiterId>>,
    /// Exactly the waits for ends of external jobs, by job.
    by_external_job: BTreeMap<(Namespace, JobId), BTreeSet<WaiterId>>,
    /// Exactly the requests with a deadline, by deadline.
    by_deadline: BTreeSet<(Elapsed, WaiterId)>,
    slots: u64,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self {
            leases: BTreeMap::new(),
            ends: BTreeMap::new(),
            pops: BTreeMap::new(),
            by_list: BTreeMap::new(),
            by_queue: BTreeMap::new(),
            by_job: BTreeMap::new(),
            by_external_job: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            slots: 0,
        }
    }
}

impl<T> Waiters<T> {
    /// Registers a lease request. One that was removed by [`Self::take_lease`] gets its old position.
    pub(super) fn wait_for_job(&mut self, id: WaiterId, waiter: LeaseWaiter<T>) {
        for from in &waiter.lease.queues {
            let name = (waiter.lease.namespace.clone(), from.queue.clone());
            self.by_queue.entry(name).or_default().insert(id);
        }
        self.by_deadline.insert((waiter.deadline, id));
        self.slots += u64::from(waiter.lease.jobs_max);
        self.leases.insert(id, waiter);
    }

    /// Registers a wait for the end of a job.
    pub(super) fn wait_for_end(&mut self, id: WaiterId, waiter: EndWaiter<T>) {
        let name = (waiter.namespace.clone(), waiter.id.clone());
        let jobs = self.by_job_mut(waiter.is_external);
        jobs.entry(name).or_default().insert(id);
        self.by_deadline.insert((waiter.deadline, id));
        self.ends.insert(id, waiter);
    }

    /// Registers a wait for an element.
    pub(super) fn wait_for_element(&mut self, id: WaiterId, waiter: PopWaiter<T>) {
        for list in &waiter.wait.lists {
            let name = (waiter.wait.namespace.clone(), list.clone());
            self.by_list.entry(name).or_default().insert(id);
        }
        if let Some(deadline) = waiter.deadline {
            self.by_deadline.insert((deadline, id));
        }
        self.pops.insert(id, waiter);
    }

    /// Removes the request that has waited longest for an element of this list.
    pub(super) fn take_first_at_list(&mut self, list: &(Namespace, Bytes)) -> Option<PopWaiter<T>> {
        let first = *self.by_list.get(list)?.first()?;
        self.take_pop(first)
    }

    /// Returns every list with a waiting request.
    pub(super) fn lists(&self) -> Vec<(Namespace, Bytes)> {
        self.by_list.keys().cloned().collect()
    }

    fn take_pop(&mut self, id: WaiterId) -> Option<PopWaiter<T>> {
        let waiter = self.pops.remove(&id)?;
        if let Some(deadline) = waiter.deadline {
            self.by_deadline.remove(&(deadline, id));
        }
        for list in &waiter.wait.lists {
            let name = (waiter.wait.namespace.clone(), list.clone());
            remove(&mut self.by_list, &name, id);
        }
        Some(waiter)
    }

    /// Returns the lease request that has waited longest at this queue, after `after`.
    pub(super) fn longest_waiting_at(
        &self,
        namespace: &Namespace,
        queue: &Queue,
        after: Option<WaiterId>,
    ) -> Option<WaiterId> {
        let waiting = self.by_queue.get(&(namespace.clone(), queue.clone()))?;
        match after {
            None => waiting.first().copied(),
            Some(after) => waiting.range(WaiterId(after.0 + 1)..).next().copied(),
        }
    }

    /// Returns the number of lease requests that wait at this queue.
    pub(super) fn waiting_at(&self, namespace: &Namespace, queue: &Queue) -> u64 {
        let waiting = self.by_queue.get(&(namespace.clone(), queue.clone()));
        waiting.map_or(0, |waiting| {
            u64::try_from(waiting.len()).unwrap_or(u64::MAX)
        })
    }

    /// Returns every queue with a waiting request.
    pub(super) fn queues(&self) -> Vec<(Namespace, Queue)> {
        self.by_queue.keys().cloned().collect()
    }

    /// Removes a lease request.
    pub(super) fn take_lease(&mut self, id: WaiterId) -> Option<LeaseWaiter<T>> {
        let waiter = self.leases.remove(&id)?;
        self.by_deadline.remove(&(waiter.deadline, id));
        self.slots -= u64::from(waiter.lease.jobs_max);
        for from in &waiter.lease.queues {
            let name = (waiter.lease.namespace.clone(), from.queue.clone());
            remove(&mut self.by_queue, &name, id);
        }
        Some(waiter)
    }

    fn take_end(&mut self, id: WaiterId) -> Option<EndWaiter<T>> {
        let waiter = self.ends.remove(&id)?;
        self.by_deadline.remove(&(waiter.deadline, id));
        let name = (waiter.namespace.clone(), waiter.id.clone());
        remove(self.by_job_mut(waiter.is_external), &name, id);
        Some(waiter)
    }

    fn by_job_mut(
        &mut self,
        is_external: bool,
    ) -> &mut BTreeMap<(Namespace, JobId), BTreeSet<WaiterId>> {
        if is_external {
            &mut self.by_external_job
        } else {
            &mut self.by_job
        }
    }

    /// Removes a request of any kind.
    pub(super) fn take(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        self.take_lease(id)
            .map(Waiter::Lease)
            .or_else(|| self.take_end(id).map(Waiter::End))
            .or_else(|| self.take_pop(id).map(Waiter::Pop))
    }

    /// Removes the requests that wait for the end of this ordinary job.
    pub(super) fn take_ended(&mut self, namespace: &Namespace, id: &JobId) -> Vec<EndWaiter<T>> {
        let waiting = self.by_job.get(&(namespace.clone(), id.clone()));
        self.take_ends(waiting.cloned().unwrap_or_default())
    }

    /// Removes the requests that wait for the end of this external job.
    pub(super) fn take_ended_external(
        &mut self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Vec<EndWaiter<T>> {
        let name = (namespace.clone(), id.clone());
        let waiting = self.by_external_job.get(&name);
        self.take_ends(waiting.cloned().unwrap_or_default())
    }

    fn take_ends(&mut self, ids: BTreeSet<WaiterId>) -> Vec<EndWaiter<T>> {
        ids.into_iter().filter_map(|id| self.take_end(id)).collect()
    }

    /// Returns the external jobs for whose end a request waits.
    pub(super) fn external_jobs(&self) -> Vec<(Namespace, JobId)> {
        self.by_external_job.keys().cloned().collect()
    }

    /// Removes the next request whose deadline has passed.
    pub(super) fn take_expired(&mut self, now: Elapsed) -> Option<Waiter<T>> {
        let (deadline, id) = *self.by_deadline.first()?;
        if deadline > now {
            return None;
        }
        self.take(id)
    }

    /// Removes all requests, the longest waiting first.
    pub(super) fn take_all(&mut self) -> Vec<Waiter<T>> {
        let timed = self.by_deadline.iter().map(|(_, id)| *id);
        let ids: BTreeSet<_> = timed.chain(self.pops.keys().copied()).collect();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Returns the earliest deadline; `None` if there is none.
    pub(super) fn next_deadline(&self) -> Option<Elapsed> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Whether a request waits for the end of an ordinary job.
    pub(super) fn has_ends(&self) -> bool {
        !self.by_job.is_empty()
    }

    /// Whether a request waits for the end of an external job.
    pub(super) fn has_external_ends(&self) -> bool {
        !self.by_external_job.is_empty()
    }

    /// Whether a lease request waits.
    pub(super) fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Returns the number of waiting lease requests, the slots they ask for, the waits for ends, and the waits for
    /// elements.
    pub(super) fn sizes(&self) -> (usize, u64, usize, usize) {
        (
            self.leases.len(),
            self.slots,
            self.ends.len(),
            self.pops.len(),
        )
    }
}

fn remove<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<WaiterId>>, key: &K, id: WaiterId) {
    let Some(set) = sets.get_mut(key) else { return };
    set.remove(&id);
    if set.is_empty() {
        sets.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::command::TakeFrom;

    fn waiter(queues: &[&'static str], deadline: u64) -> LeaseWaiter<u64> {
        let queues = queues
            .iter()
            .map(|name| TakeFrom {
                queue: Queue::from_static(name),
                weight: 1,
            })
            .collect();
        let lease = Lease {
            queues,
            jobs_max: 1,
            ..Lease::default()
        };
        LeaseWaiter {
            lease: Box::new(lease),
            deadline: Elapsed(deadline),
            ticket: 0,
        }
    }

    #[test]
    fn the_one_that_waited_longest_goes_first_and_keeps_its_place() {
        let (space, a, b) = (
            Namespace::default(),
            Queue::from_static("a"),
            Queue::from_static("b"),
        );
        let mut waiters = Waiters::default();
        waiters.wait_for_job(WaiterId(1), waiter(&["a", "b"], 50));
        waiters.wait_for_job(WaiterId(2), waiter(&["b"], 40));
        assert_eq!(
            waiters.longest_waiting_at(&space, &b, None),
            Some(WaiterId(1))
        );
        let first = waiters.take_lease(WaiterId(1)).expect("it waits");
        assert_eq!(waiters.longest_waiting_at(&space, &a, None), None);
        assert_eq!(
            waiters.longest_waiting_at(&space, &b, None),
            Some(WaiterId(2))
        );
        waiters.wait_for_job(WaiterId(1), first);
        assert_eq!(
            waiters.longest_waiting_at(&space, &b, None),
            Some(WaiterId(1))
        );
        assert_eq!(
            waiters.longest_waiting_at(&space, &b, Some(WaiterId(1))),
            Some(WaiterId(2))
        );
    }

    #[test]
    fn an_end_is_told_to_those_who_wait_for_a_job_of_its_kind() {
        let (space, job) = (Namespace::default(), JobId::new("a").expect("short"));
        let mut waiters = Waiters::default();
        for (id, is_external) in [(1, false), (2, true)] {
            let waiter = EndWaiter {
                namespace: space.clone(),
                id: job.clone(),
                is_external,
                deadline: Elapsed(50),
                ticket: id,
            };
            waiters.wait_for_end(WaiterId(id), waiter);
        }
        assert_eq!(waiters.external_jobs(), [(space.clone(), job.clone())]);
        let told = waiters.take_ended_external(&space, &job);
        assert_eq!(told.iter().map(|it| it.ticket).collect::<Vec<_>>(), [2]);
        assert!(waiters.has_ends() && !waiters.has_external_ends());
        let told = waiters.take_ended(&space, &job);
        assert_eq!(told.iter().map(|it| it.ticket).collect::<Vec<_>>(), [1]);
        assert_eq!(waiters.sizes(), (0, 0_u64, 0, 0));
        assert_eq!(waiters.next_deadline(), None);
    }

    #[test]
    fn patience_ends_in_order_and_leaves_nothing_behind() {
        let mut waiters = Waiters::default();
        waiters.wait_for_job(WaiterId(1), waiter(&["a"], 50));
        waiters.wait_for_job(WaiterId(2), waiter(&["a"], 40));
        assert_eq!(waiters.next_deadline(), Some(Elapsed(40)));
        assert!(waiters.take_expired(Elapsed(39)).is_none());
        assert!(waiters.take_expired(Elapsed(40)).is_some());
        assert_eq!(waiters.take_all().len(), 1);
        assert_eq!(waiters.sizes(), (0, 0, 0, 0));
        assert!(waiters.queues().is_empty());
        assert_eq!(waiters.next_deadline(), None);
    }
}
