//! Measures how many jobs per second (enqueue, lease, complete) the store commits, and in the same run a bare
//! append-only log with fdatasync: `cargo run --release --example store_bench [DIR]`.
//!
//! One commit carries `batch` commands, a third of each kind. Leases and completions concern jobs of earlier commits.
//! Finished jobs are kept; beyond 20 000 the oldest are removed, as retention does.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "figures for people"
)]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ganger_store::encoding::encode_into;
use ganger_store::suite::sample;
use ganger_store::{Loaded, Store};
use ganger_store_embedded::EmbeddedStore;
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey, Meta, Outcome, ShardId};

const BATCHES: [u64; 3] = [64, 256, 1_024];
const RUN_FOR: Duration = Duration::from_secs(3);
/// Number of ready jobs, and number of leased jobs, at any time.
const BACKLOG: u64 = 5_000;
const KEPT: u64 = 20_000;
const LOADED_JOBS: u64 = 1_000_000;
const PAYLOAD: &[u8] = &[b'x'; 259];

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn enqueue(key: u64, changes: &mut Vec<Change>) {
    changes.push(Change::PutJob(Box::new(sample::job(key))));
    changes.push(Change::PutPayload {
        key: JobKey(key),
        payload: Bytes::from_static(PAYLOAD),
    });
}

fn complete(key: u64, changes: &mut Vec<Change>) {
    let record = sample::ended(sample::job(key), Outcome::Succeeded, key, key);
    let result = Some(Bytes::from_static(b"{\"done\":true}"));
    changes.push(Change::FinishJob {
        record: Box::new(record),
        result,
    });
}

/// Returns the changes of turn number `turn`, which enqueues, leases and completes `lives` jobs.
fn turn(turn: u64, lives: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for key in turn * lives..(turn + 1) * lives {
        enqueue(key, &mut changes);
        if let Some(key) = key.checked_sub(BACKLOG) {
            changes.push(Change::PutLease(Box::new(sample::lease(key, "worker-1"))));
        }
        if let Some(key) = key.checked_sub(2 * BACKLOG) {
            complete(key, &mut changes);
        }
        if let Some(key) = key.checked_sub(2 * BACKLOG + KEPT) {
            changes.push(Change::RemoveJob(JobKey(key)));
        }
    }
    changes
}

struct Figures {
    lives: u64,
    took: Duration,
    cpu: Duration,
}

impl Figures {
    fn per_second(&self) -> f64 {
        self.lives as f64 / self.took.as_secs_f64()
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.lives as f64
    }
}

/// Measures the time that `commit` takes, without the time to make the changes.
fn measure(batch: u64, mut commit: impl FnMut(Vec<Change>)) -> Figures {
    let lives = batch / 3;
    let warm_up = (2 * BACKLOG + KEPT).div_ceil(lives);
    let mut figures = Figures {
        lives: 0,
        took: Duration::ZERO,
        cpu: Duration::ZERO,
    };
    for number in 0.. {
        let changes = turn(number, lives);
        let (started, cpu_before) = (Instant::now(), cpu());
        commit(changes);
        if number >= warm_up {
            figures.cpu += cpu().saturating_sub(cpu_before);
            figures.took += started.elapsed();
            figures.lives += lives;
        }
        if figures.took > RUN_FOR {
            break;
        }
    }
    figures
}

fn run_store(path: &Path, batch: u64) -> Figures {
    let (mut store, epoch) = open(path);
    let mut sequence = 0;
    measure(batch, |changes| {
        sequence += 1;
        commit(&mut store, epoch, sequence, changes);
    })
}

fn open(path: &Path) -> (EmbeddedStore, Epoch) {
    let mut store =
        EmbeddedStore::create_or_open(path, &ShardId::default()).expect("a store can be made");
    let opened = store.open().expect("a new store opens");
    (store, opened.epoch)
}

fn commit(store: &mut EmbeddedStore, epoch: Epoch, sequence: u64, changes: Vec<Change>) {
    let commit = Commit {
        epoch,
        sequence,
        meta: Meta::default(),
        changes,
    };
    store
        .commit(&commit.into())
        .expect("the commit is accepted");
}

/// Appends the same records to a plain file.
fn run_log(path: &Path, batch: u64) -> Figures {
    let mut log = File::create(path).expect("a file can be made");
    let mut buffer = Vec::new();
    measure(batch, |changes| {
        buffer.clear();
        for change in &changes {
            match change {
                Change::PutJob(record) => encode_into(&**record, &mut buffer),
                Change::PutLease(record) => encode_into(&**record, &mut buffer),
                Change::PutPayload { payload, .. } => buffer.extend_from_slice(payload),
                Change::FinishJob { record, result } => {
                    encode_into(&**record, &mut buffer);
                    buffer.extend_from_slice(result.as_deref().unwrap_or_default());
                }
                _ => buffer.extend_from_slice(&[0; 9]),
            }
        }
        let sum = crc32c::crc32c(&buffer);
        buffer.extend_from_slice(&sum.to_le_bytes());
        log.write_all(&buffer).expect("the log can be written");
        log.sync_data().expect("the log can be flushed");
    })
}

fn run_load(path: &Path) {
    let (mut store, epoch) = open(path);
    let started = Instant::now();
    for (sequence, from) in (1..).zip((0..LOADED_JOBS).step_by(10_000)) {
        let mut changes = Vec::new();
        (from..from + 10_000).for_each(|key| enqueue(key, &mut changes));
        commit(&mut store, epoch, sequence, changes);
    }
    println!(
        "{LOADED_JOBS} jobs enqueued, 10 000 a commit: {:.2?}",
        started.elapsed()
    );
    drop(store);
    let started = Instant::now();
    let (mut store, _) = open(path);
    let opened = started.elapsed();
    let mut jobs = 0_u64;
    store
        .load(&mut |row| jobs += u64::from(matches!(row, Loaded::Job(_))))
        .expect("the store loads");
    println!(
        "{jobs} live jobs: opened in {opened:.2?}, loaded in {:.2?}",
        started.elapsed().saturating_sub(opened)
    );
}

fn main() {
    let root = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(root).expect("a directory can be made");
    println!("commands  log lives/s  store lives/s  ratio  CPU us a life: log  store");
    for batch in BATCHES {
        let log = run_log(&directory.path().join(format!("{batch}.log")), batch);
        let store = run_store(&directory.path().join(format!("{batch}.db")), batch);
        println!(
            "{batch:>8}  {:>11.0}  {:>13.0}  {:>5.2}  {:>18.2}  {:>5.2}",
            log.per_second(),
            store.per_second(),
            store.per_second() / log.per_second(),
            log.cpu_micros(),
            store.cpu_micros(),
        );
    }
    run_load(&directory.path().join("load.db"));
}
