//! Repeated failed writes: recovery waits in between, a little longer each time, and every request is answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::kit::{
    Fault, GatedReader, GatedStore, StoreControl, as_stored, enqueue, lease, new_job,
};
use ganger_shard::core::{CallReply, Core, Output, Request, StoreExecutor, StoreTask, WaiterId};
use ganger_shard::{Hooks, Settings, ShardMetrics, StopCause};
use ganger_store::{MemoryStore, Store};
use ganger_types::command::{NewJob, Start};
use ganger_types::{Elapsed, Now, Timestamp};

/// One core and its store; every commit can be made to fail.
struct World {
    core: Core<GatedReader, u64>,
    executor: StoreExecutor<GatedStore>,
    control: StoreControl,
    metrics: Arc<ShardMetrics>,
    store_tasks: VecDeque<StoreTask>,
    answers: Vec<(u64, bool)>,
    now: Now,
    /// Times at which the engine was loaded.
    recoveries: Vec<Elapsed>,
    /// Time that a load takes.
    load_takes: Duration,
}

impl World {
    fn new() -> Self {
        let control = StoreControl::default();
        let mut gate = GatedStore::new(MemoryStore::new(), &control);
        let opened = gate.open().expect("memory opens");
        let metrics: Arc<ShardMetrics> = Arc::default();
        let now = Now {
            elapsed: Elapsed(0),
            wall: Timestamp(1_700_000_000_000_000),
        };
        let seeds = Box::new(|| [7; 32]);
        let settings = Settings {
            group_wait: Duration::ZERO,
            ..Settings::default()
        };
        let mut world = Self {
            core: as_stored(Core::new(
                settings,
                Arc::clone(&metrics),
                opened,
                now,
                seeds,
            )),
            executor: StoreExecutor::new(gate, Arc::clone(&metrics), Hooks::default()),
            control,
            metrics,
            store_tasks: VecDeque::new(),
            answers: Vec::new(),
            now,
            recoveries: Vec::new(),
            load_takes: Duration::ZERO,
        };
        world.settle(Fault::None);
        world.recoveries.clear();
        world
    }

    /// Lets core and store work at this moment until neither has work left.
    fn settle(&mut self, fault: Fault) {
        for _ in 0..1_000 {
            self.core.run(self.now);
            self.store_tasks.extend(self.core.take_store_tasks());
            for output in self.core.take_outputs() {
                if let Output::Answer(ticket, answer) = output {
                    let is_well = match answer {
                        Ok(CallReply::Deliveries(jobs)) => !jobs.is_empty(),
                        other => other.is_ok(),
                    };
                    self.answers.push((ticket, is_well));
                }
            }
            let Some(task) = self.store_tasks.pop_front() else {
                return;
            };
            match &task {
                StoreTask::Commit(_) => self.control.script(&[fault]),
                StoreTask::Load { .. } | StoreTask::Reopen { .. } => {
                    self.recoveries.push(self.now.elapsed);
                    self.pass(self.load_takes);
                }
                _ => {}
            }
            let report = self.executor.execute(task).report();
            self.control.clear_script();
            if let Some(report) = report {
                self.core.report(report, self.now);
            }
        }
        panic!("core and store never come to rest at one moment");
    }

    fn pass(&mut self, time: Duration) {
        self.now.elapsed = self.now.elapsed.after(time);
        self.now.wall = self.now.wall.after(time);
    }

    /// Advances time by what the core would sleep, repeatedly, for `time`.
    fn live_through(&mut self, time: Duration, fault: Fault) {
        let end = self.now.elapsed.after(time);
        loop {
            let sleep = self.core.sleep_for(self.now).expect("it wakes by itself");
            if self.now.elapsed.after(sleep) > end {
                return;
            }
            self.pass(sleep);
            self.settle(fault);
        }
    }

    fn enqueue(&mut self, ticket: u64) {
        self.core.push(Request::Call {
            command: enqueue(vec![new_job("a", "p")]),
            at: None,
            ticket,
        });
    }

    fn lease(&mut self, ticket: u64, wait_for: Duration) {
        self.core.push(Request::Lease {
            lease: Box::new(lease(&["a"], 1)),
            wait_for,
            waiter: WaiterId(ticket),
            ticket,
        });
    }

    fn pauses(&self) -> Vec<u128> {
        let pairs = self.recoveries.windows(2);
        pairs
            .map(|pair| pair[1].since(pair[0]).as_millis())
            .collect()
    }
}

#[test]
fn a_load_that_takes_longer_than_a_lease_expires_none() {
    const LOAD: Duration = Duration::from_secs(3_600);
    for fault in [Fault::NotApplied, Fault::UnknownAndLost] {
        let mut world = World::new();
        world.enqueue(1);
        world.lease(2, Duration::ZERO);
        world.settle(Fault::None);
        assert_eq!(world.answers, [(1, true), (2, true)]);
        world.load_takes = LOAD;
        world.enqueue(3);
        world.settle(fault);
        world.settle(Fault::None);
        let expired = || world.metrics.counters.lease_expired_total.get();
        assert_eq!((world.recoveries.len(), expired()), (1, 0), "{fault:?}");
        // Its full length begins again, and no more than that.
        world.live_through(LOAD, Fault::None);
        let expired = world.metrics.counters.lease_expired_total.get();
        assert_eq!(expired, 1, "{fault:?}");
    }
}

/// Makes a core with a job that becomes ready now, so that the engine writes as soon as it is in service.
fn with_a_job_that_is_due() -> World {
    let mut world = World::new();
    let later = NewJob {
        start: Start::After(Duration::from_secs(3_600)),
        ..new_job("a", "p")
    };
    world.core.push(Request::Call {
        command: enqueue(vec![later]),
        at: None,
        ticket: 1,
    });
    world.settle(Fault::None);
    assert_eq!(world.answers, [(1, true)]);
    world.pass(Duration::from_secs(3_600));
    world
}

#[test]
fn timers_that_cannot_be_written_do_not_make_the_shard_read_its_rows_back_without_a_pause() {
    for fault in [Fault::NotApplied, Fault::Full, Fault::UnknownAndLost] {
        let mut world = with_a_job_that_is_due();
        world.settle(fault);
        assert_eq!(world.recoveries.len(), 1, "{fault:?}: the first is at once");
        world.live_through(Duration::from_secs(10), fault);
        let pauses = world.pauses();
        assert_eq!(
            pauses[..9],
            [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000],
            "{fault:?}"
        );
        assert!(world.recoveries.len() < 20, "{fault:?}: {pauses:?}");
        let counters = &world.metrics.counters;
        let waited = counters.recovery_pauses_total.get();
        assert_eq!(
            waited + 1,
            counters.commit_failures_total.get(),
            "{fault:?}"
        );
    }
}

#[test]
fn who_comes_while_recovery_waits_is_served_after_it_and_the_next_failure_is_recovered_from_at_once()
 {
    let mut world = with_a_job_that_is_due();
    world.settle(Fault::NotApplied);
    let counters = Arc::clone(&world.metrics);
    assert_eq!(counters.counters.recovery_pauses_total.get(), 1);
    assert!(world.core.engine().is_none(), "recovery waits");
    world.answers.clear();
    world.enqueue(2);
    world.lease(3, Duration::from_secs(1));
    world.settle(Fault::None);
    assert!(world.answers.is_empty(), "not before the rows are back");
    let sleep = world.core.sleep_for(world.now).expect("it wakes by itself");
    assert_eq!(sleep, Duration::from_millis(10));
    world.live_through(Duration::from_millis(20), Fault::None);
    world.answers.sort_unstable();
    assert_eq!(world.answers, [(2, true), (3, true)]);
    // A write has succeeded since, so the next failed one is the first in a row.
    let before = world.recoveries.len();
    world.enqueue(4);
    world.settle(Fault::NotApplied);
    assert_eq!(world.recoveries.len(), before + 1);
    assert!(world.core.engine().is_some(), "it is back in service");
}

#[test]
fn a_shard_that_is_asked_to_stop_does_not_wait_for_its_recovery() {
    for fault in [Fault::NotApplied, Fault::UnknownAndLost] {
        let mut world = with_a_job_that_is_due();
        world.settle(fault);
        assert!(world.core.engine().is_none(), "recovery waits");
        world.enqueue(2);
        world.answers.clear();
        world.core.stop();
        world.settle(Fault::None);
        assert_eq!(world.core.stopped(), Some(&StopCause::Requested));
        assert_eq!(world.answers, [(2, false)]);
        assert_eq!(world.core.sleep_for(world.now), None);
    }
}

/// `rel T6`: in a time in which the process stood still, no worker could renew its lease.
#[test]
fn leases_that_ran_out_while_the_shard_stood_still_get_their_full_length_again() {
    for is_paused in [true, false] {
        let mut world = World::new();
        world.enqueue(1);
        world.lease(2, Duration::ZERO);
        world.settle(Fault::None);
        assert_eq!(world.answers, [(1, true), (2, true)]);
        world.pass(Duration::from_secs(3_600));
        if is_paused {
            world.core.grant_grace(world.now);
        }
        // The job is there again only if its lease has ended.
        world.lease(3, Duration::ZERO);
        world.settle(Fault::None);
        assert_eq!(world.answers.last(), Some(&(3, !is_paused)));
    }
}

/// `rel T6`: nobody knows whether a renewal will be durable while a store on another machine confirms nothing.
#[test]
fn leases_do_not_run_out_while_a_commit_waits() {
    let mut world = World::new();
    world.enqueue(1);
    world.lease(2, Duration::ZERO);
    world.settle(Fault::None);
    world.enqueue(3);
    world.core.run(world.now);
    world.pass(Duration::from_secs(3_600));
    world.core.run(world.now);
    assert_eq!(world.core.turns_in_flight(), 1, "nothing is confirmed");
    let sleep = world.core.sleep_for(world.now);
    assert!(
        sleep.is_none_or(|time| !time.is_zero()),
        "it would spin: {sleep:?}"
    );
    world.settle(Fault::None);
    world.lease(4, Duration::ZERO);
    world.lease(5, Duration::ZERO);
    world.settle(Fault::None);
    // The second job, and not the first one too.
    let kept = crate::IS_REMOTE;
    assert_eq!(world.answers[2..], [(3, true), (4, true), (5, !kept)]);
    // They run out a full length later.
    world.pass(Duration::from_secs(3_600));
    world.lease(6, Duration::ZERO);
    world.settle(Fault::None);
    assert_eq!(world.answers.last(), Some(&(6, true)));
}
