//! Measures programs per second: the worker with all its overhead, and bare `posix_spawn` of the same program, in
//! turns within one run.
//!
//! `cargo run --release -p ganger-worker --example programs_per_second [PROGRAM [SECONDS [CONCURRENCY]]]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, not a product"
)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use ganger_client::{
    Delivery, Error, JobState, LeaseRef, LeaseToken, Report, ReportAnswer, ReportResult, WorkEvent,
};
use ganger_worker::{Deliveries, Reports, Settings, Shutdown, run_with};
use tokio::sync::{mpsc, watch};

/// A server that always has a job and accepts every report.
#[derive(Clone)]
struct Endless {
    deliveries: mpsc::UnboundedSender<WorkEvent>,
    next: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

struct Script(mpsc::UnboundedReceiver<WorkEvent>);

impl Deliveries for Script {
    async fn next(&mut self) -> Option<WorkEvent> {
        self.0.recv().await
    }
}

impl Reports for Endless {
    fn grant(&self, credits: u32) {
        if self.ends.load(Ordering::Relaxed) {
            return;
        }
        let jobs = (0..credits).map(|_| delivery(self.next.fetch_add(1, Ordering::Relaxed)));
        let _ = self.deliveries.send(WorkEvent::Jobs(jobs.collect()));
    }

    fn drop_credits(&self) {}

    async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        let answer = |(_, report): (LeaseRef, Report)| {
            match report {
                Report::Complete { .. } => drop(self.done.fetch_add(1, Ordering::Relaxed)),
                // What was in hand when the worker was stopped.
                Report::Release(_) if self.ends.load(Ordering::Relaxed) => {}
                other => panic!("unexpected: {other:?}"),
            }
            let state = JobState::Succeeded;
            Ok(ReportAnswer::Ended {
                state,
                retry_at: None,
                repeat: false,
            })
        };
        reports.into_iter().map(answer).collect()
    }

    fn expires_at(&self, _lease: &LeaseRef) -> Option<Instant> {
        None
    }

    fn abandon(&self, _lease: &LeaseRef) {}

    async fn deregister(&self, _patience: Duration) -> Result<(), Error> {
        Ok(())
    }
}

fn delivery(number: u64) -> Delivery {
    let lease_for = Duration::from_secs(60);
    let job = number.to_string();
    Delivery {
        lease: LeaseRef {
            token: LeaseToken(Bytes::from(job.clone())),
            job,
        },
        shard: "1".into(),
        number,
        queue: "default".into(),
        kind: "program".into(),
        attempt: 1,
        retries_left: 3,
        lease_for,
        expires_at: Instant::now() + lease_for,
        timeout: None,
        deadline: None,
        created_at: SystemTime::now(),
        priority: 0,
        payload: Bytes::from_static(b"{\"uid\": 1234}"),
        inputs: Vec::new(),
        graph: None,
        tags: Vec::new(),
        labels: Vec::new(),
    }
}

/// Processor time of this process and of all its ended children so far.
fn processor_time() -> Duration {
    let clock = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in parentheses: fields 14 to 17 are own and children's user and system time, in ticks of 10 ms.
    let fields = clock.rsplit(") ").next().unwrap();
    let ticks = fields.split(' ').skip(11).take(4);
    let ticks: u64 = ticks.map(|text| text.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// Result of a phase.
struct Measured {
    per_second: f64,
    /// Processor time of all processes, the program's own included.
    processor_time: Duration,
}

fn measured(count: u64, took: Duration, processor_time: Duration) -> Measured {
    let count = u32::try_from(count).unwrap();
    Measured {
        per_second: f64::from(count) / took.as_secs_f64(),
        processor_time: processor_time / count.max(1),
    }
}

/// Programs per second by bare spawning on as many threads.
fn bare(program: &std::path::Path, time: Duration, concurrency: usize) -> Measured {
    let done = AtomicU64::new(0);
    let (begun, used) = (Instant::now(), processor_time());
    let ends_at = begun + time;
    std::thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                while Instant::now() < ends_at {
                    let mut command = Command::new(program);
                    command
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null());
                    assert!(command.status().unwrap().success());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    measured(
        done.into_inner(),
        begun.elapsed(),
        processor_time().saturating_sub(used),
    )
}

async fn worker(settings: Settings, time: Duration) -> Measured {
    let (deliveries, script) = mpsc::unbounded_channel();
    let endless = Endless {
        deliveries,
        next: Arc::default(),
        done: Arc::default(),
        ends: Arc::default(),
    };
    let (shutdown, last_event) = watch::channel(Shutdown::No);
    let (done, ends) = (Arc::clone(&endless.done), Arc::clone(&endless.ends));
    let worker = tokio::spawn(run_with(settings, Script(script), endless, last_event));
    let (begun, used) = (Instant::now(), processor_time());
    tokio::time::sleep(time).await;
    ends.store(true, Ordering::Relaxed);
    shutdown.send_replace(Shutdown::Graceful);
    worker.await.unwrap().unwrap();
    // Start and stop are counted too: only now have the supervisors' times been added to ours.
    let count = done.load(Ordering::Relaxed);
    measured(
        count,
        begun.elapsed(),
        processor_time().saturating_sub(used),
    )
}

fn main() {
    ganger_worker::become_supervisor_if_asked();
    let mut arguments = std::env::args().skip(1);
    let program = std::fs::canonicalize(arguments.next().unwrap_or("/bin/true".into())).unwrap();
    let seconds = arguments.next().map_or(2, |text| text.parse().unwrap());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let concurrency = arguments.next().map_or(cores, |text| text.parse().unwrap());
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("program");
    std::fs::copy(&program, &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = Settings {
        directory: place.path().into(),
        scratch: place.path().into(),
        concurrency,
        ..Settings::default()
    };
    let time = Duration::from_secs(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("{} x {concurrency}, {seconds} s each", program.display());
    for _ in 0..3 {
        let bare = bare(&path, time, concurrency);
        let worker = runtime.block_on(worker(settings.clone(), time));
        println!(
            "posix_spawn {:.0}/s, worker {:.0}/s, ratio {:.2}; processor time each {:?} and {:?}, ratio {:.2}",
            bare.per_second,
            worker.per_second,
            worker.per_second / bare.per_second,
            bare.processor_time,
            worker.processor_time,
            bare.processor_time.as_secs_f64() / worker.processor_time.as_secs_f64(),
        );
    }
}
