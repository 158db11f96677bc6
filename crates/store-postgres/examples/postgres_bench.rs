//! Measures how many lives of jobs per second (enqueue, lease, complete) the store commits to a private PostgreSQL,
//! how much processor time the server takes for a million of them, and how much it writes:
//! `cargo run --release --example postgres_bench`.
//!
//! One commit carries `batch` commands, a third of each kind. Leases and completions concern jobs of earlier commits.
//! Finished jobs are kept; beyond 20 000 the oldest are removed, as retention does. `append` measures what callers
//! wait for, without the rows; `all` includes them. `held` is `all` while another session holds a snapshot that is
//! older than the run, as a dump or a forgotten transaction does; it is compared with an `all` of the same length:
//! `cargo run --release --example postgres_bench -- held SECONDS`.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "figures for people"
)]

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ganger_postgres_instance::Instance;
use ganger_store::Store;
use ganger_store::suite::sample;
use ganger_store_postgres::{Admin, Database, Limits, PostgresStore, Settings};
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey, Meta, Outcome, ShardId};

const BATCHES: [u64; 3] = [64, 256, 1_024];
/// Time of a run by default, without the time to make the changes.
const RUN_FOR: Duration = Duration::from_secs(6);
/// Number of ready jobs, and number of leased jobs, at any time.
const BACKLOG: u64 = 5_000;
const KEPT: u64 = 20_000;
const PAYLOAD_BYTES: usize = 259;
/// Ticks of processor time a second, as Linux counts them for every program.
const TICKS: f64 = 100.0;

/// Returns bytes that cannot be compressed, other ones for each job.
fn payload(key: u64) -> Bytes {
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(PAYLOAD_BYTES).collect()
}

/// Returns the changes of turn number `turn`, which enqueues, leases and completes `lives` jobs.
fn turn(turn: u64, lives: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for key in turn * lives..(turn + 1) * lives {
        changes.push(Change::PutJob(Box::new(sample::job(key))));
        changes.push(Change::PutPayload {
            key: JobKey(key),
            payload: payload(key),
        });
        if let Some(key) = key.checked_sub(BACKLOG) {
            changes.push(Change::PutLease(Box::new(sample::lease(key, "worker-1"))));
        }
        if let Some(key) = key.checked_sub(2 * BACKLOG) {
            let record = sample::ended(sample::job(key), Outcome::Succeeded, key, key);
            changes.push(Change::FinishJob {
                record: Box::new(record),
                result: Some(Bytes::from_static(b"{\"done\":true}")),
            });
        }
        if let Some(key) = key.checked_sub(2 * BACKLOG + KEPT) {
            changes.push(Change::RemoveJob(JobKey(key)));
        }
    }
    changes
}

/// Processor time of the server with all its processes, in seconds.
fn server_cpu(postmaster: &str) -> f64 {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").expect("it is Linux").flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<_> = rest.split_whitespace().collect();
        let is_postmaster = entry.file_name().to_str() == Some(postmaster);
        if !is_postmaster && fields.get(1) != Some(&postmaster) {
            continue;
        }
        // User and system time, and those of children that have ended.
        let last = if is_postmaster { 15 } else { 13 };
        let times = fields.get(11..last).unwrap_or_default();
        ticks += times
            .iter()
            .filter_map(|field| field.parse::<u64>().ok())
            .sum::<u64>();
    }
    ticks as f64 / TICKS
}

struct Server {
    instance: Instance,
    admin: Admin,
    postmaster: String,
    shards: u32,
}

impl Server {
    fn start() -> Self {
        let instance = Instance::start_with(
            "shared_buffers = 256MB\nmax_wal_size = 8GB\nwal_compression = off\n",
        );
        let instance = instance.expect("PostgreSQL is installed");
        let host = instance.socket_directory().display().to_string();
        let url = format!(
            "postgres://postgres@{}:{}/postgres",
            host.replace('/', "%2F"),
            instance.port()
        );
        let settings = Settings::from_url(&url).expect("it is whole");
        let mut admin = Admin::connect(&settings).expect("it is there");
        admin.init(Some("secret")).expect("a superuser may");
        let directory = instance.sql("postgres", "SHOW data_directory");
        let file = format!("{}/postmaster.pid", directory.expect("it answers"));
        let file = fs::read_to_string(file).expect("the server runs");
        Self {
            instance,
            admin,
            postmaster: file.lines().next().unwrap_or_default().to_owned(),
            shards: 0,
        }
    }

    fn store(&mut self, limits: Limits) -> (PostgresStore, Epoch) {
        let shard = ShardId::default();
        self.admin
            .add_shard(self.shards, &shard)
            .expect("it is new");
        let port = self.instance.port();
        let url = format!("postgres://ganger_node:secret@127.0.0.1:{port}/postgres");
        let mut settings = Settings::from_url(&url).expect("it is whole");
        settings.limits = limits;
        let database = Database::new(settings).expect("they are possible");
        let mut store = PostgresStore::new(&database, self.shards, &shard, "bench");
        self.shards += 1;
        let epoch = store.open().expect("it opens").epoch;
        (store, epoch)
    }

    fn wal_bytes(&self) -> f64 {
        let sql = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn";
        let bytes = self.instance.sql("postgres", sql).expect("it answers");
        bytes.parse().expect("it is a number")
    }

    fn measure(&mut self, what: &str, batch: u64, limits: Limits, run_for: Duration) {
        let (mut store, epoch) = self.store(limits);
        let lives_per_turn = batch / 3;
        let warm_up = (2 * BACKLOG + KEPT).div_ceil(lives_per_turn);
        let mut times = Vec::new();
        let (mut lives, mut before) = (0, (0.0, 0.0));
        let mut waited = Duration::ZERO;
        for number in 0.. {
            if number == warm_up {
                before = (server_cpu(&self.postmaster), self.wal_bytes());
            }
            let commit = Arc::new(Commit {
                epoch,
                sequence: number + 1,
                meta: Meta::default(),
                changes: turn(number, lives_per_turn),
            });
            let started = Instant::now();
            store.commit(&commit).expect("the commit is accepted");
            if number >= warm_up {
                times.push(started.elapsed());
                waited += started.elapsed();
                lives += lives_per_turn;
            }
            if waited > run_for {
                break;
            }
        }
        let cpu = server_cpu(&self.postmaster) - before.0;
        let wal = self.wal_bytes() - before.1;
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
        println!(
            "{batch:>8}  {what:<6}  {:>9.0}  {:>8.0}  {:>6.2}  {:>6.2}  {:>21.1}  {:>15.0}",
            times.len() as f64 / waited.as_secs_f64(),
            lives as f64 / waited.as_secs_f64(),
            at(50),
            at(99),
            cpu * 1e6 / lives as f64,
            wal / lives as f64,
        );
    }
}

/// Measures with and without a snapshot that another session holds.
fn compare_held(server: &mut Server, run_for: Duration) {
    let (batch, limits) = (256, Limits::default());
    server.measure("all", batch, limits, run_for);
    let hold = Command::new("psql")
        .args(["-X", "-q", "-U", "postgres", "-d", "postgres", "-h"])
        .arg(server.instance.socket_directory())
        .args(["-p", &server.instance.port().to_string(), "-c"])
        .arg("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(86400)")
        .stdout(Stdio::null())
        .spawn();
    let mut hold = hold.expect("psql is installed");
    let is_held = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(86400)%' AND wait_event = 'PgSleep'";
    while server
        .instance
        .sql("postgres", is_held)
        .expect("it answers")
        != "1"
    {}
    server.measure("held", batch, limits, run_for);
    hold.kill().expect("it runs");
    hold.wait().expect("it ends");
}

fn main() {
    let mut server = Server::start();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    println!(
        "commands  rows    appends/s   lives/s  p50 ms  p99 ms  CPU s / million lives  WAL bytes / life"
    );
    if let [word, seconds] = arguments.as_slice()
        && word == "held"
    {
        let seconds = seconds.parse().expect("a number of seconds");
        return compare_held(&mut server, Duration::from_secs(seconds));
    }
    let log_alone = Limits {
        behind_bytes: u64::MAX,
        behind_changes: usize::MAX,
        behind_for: Duration::from_secs(3_600),
        behind_bytes_max: u64::MAX,
        ..Limits::default()
    };
    for batch in BATCHES {
        server.measure("append", batch, log_alone, RUN_FOR);
        server.measure("all", batch, Limits::default(), RUN_FOR);
    }
}
