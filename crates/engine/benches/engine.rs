//! The cost of a job in the engine: memory while it waits, and time from enqueueing to completion.
//!
//! `cargo bench -p ganger-engine` prints bytes per waiting job (with a counting allocator) and lives per
//! second of the engine alone, on an empty queue and with a million jobs waiting.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the engine does not"
)]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures for people"
)]
#![allow(
    unsafe_code,
    reason = "a counting allocator must implement an unsafe trait"
)]
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark that fails should stop"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ganger_engine::{Effects, Engine, Loader, PrefetchedRows, Start};
use ganger_types::command::{Complete, Enqueue, Lease, LeaseRef, NewJob, TakeFrom};
use ganger_types::{
    Bytes, Command, Elapsed, Epoch, Kind, Meta, Namespace, Now, Queue, Reply, Timestamp, Worker,
};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged; only the sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn now(micros: u64) -> Now {
    Now {
        elapsed: Elapsed(micros),
        wall: Timestamp(1_700_000_000_000_000 + micros),
    }
}

fn engine() -> Engine {
    let start = Start {
        shard: ganger_types::ShardId::default(),
        epoch: Epoch(1),
        seed: [1; 32],
        meta: Meta::default(),
        now: now(0),
    };
    Loader::new(start).finish()
}

fn enqueue(engine: &mut Engine, at: u64, out: &mut Effects) {
    let payload = Bytes::from_static(&[b'x'; 200]);
    let job = NewJob {
        kind: Kind::from_static("echo"),
        payload,
        ..NewJob::default()
    };
    let command = Command::Enqueue(Box::new(Enqueue {
        jobs: vec![job],
        ..Enqueue::default()
    }));
    engine
        .apply(now(at), command, &PrefetchedRows::default(), out)
        .unwrap();
}

fn lease_and_complete(engine: &mut Engine, at: u64, out: &mut Effects) {
    let command = Command::Lease(Box::new(Lease {
        queues: vec![TakeFrom {
            queue: Queue::default(),
            weight: 1,
        }],
        worker: Some(Worker::from_static("w")),
        jobs_max: 1,
        ..Lease::default()
    }));
    let Reply::Leased(grants) = engine
        .apply(now(at), command, &PrefetchedRows::default(), out)
        .unwrap()
    else {
        unreachable!("a lease is answered with grants");
    };
    let held = LeaseRef {
        namespace: Namespace::default(),
        job: grants[0].job.clone(),
        token: grants[0].token,
    };
    let command = Command::Complete(Box::new(Complete {
        held,
        result: None,
        next: None,
    }));
    engine
        .apply(now(at), command, &PrefetchedRows::default(), out)
        .unwrap();
}

fn lives_per_second(engine: &mut Engine, lives: u64) -> f64 {
    let began = Instant::now();
    let mut out = Effects::default();
    for life in 0..lives {
        let at = 10_000_000 + life;
        enqueue(engine, at, &mut out);
        lease_and_complete(engine, at, &mut out);
        if life % 256 == 0 {
            engine.end_turn(now(at), &mut out);
            out = Effects::default();
        }
    }
    lives as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    const JOBS: u64 = 1_000_000;
    let empty = lives_per_second(&mut engine(), 200_000);
    println!("lives per second, empty queue:          {empty:>12.0}");

    let before = LIVE.load(Ordering::Relaxed);
    let mut deep = engine();
    let mut out = Effects::default();
    let began = Instant::now();
    for at in 0..JOBS {
        enqueue(&mut deep, at, &mut out);
        if at % 256 == 0 {
            deep.end_turn(now(at), &mut out);
            out = Effects::default();
        }
    }
    let rate = JOBS as f64 / began.elapsed().as_secs_f64();
    drop(out);
    let bytes = (LIVE.load(Ordering::Relaxed) - before) as f64 / JOBS as f64;
    println!("enqueues per second:                    {rate:>12.0}");
    println!("bytes per waiting job, 1,000,000 jobs:  {bytes:>12.1}");
    let deep = lives_per_second(&mut deep, 200_000);
    println!(
        "lives per second, 1,000,000 waiting:    {deep:>12.0}   ratio {:.2}",
        deep / empty
    );
}
