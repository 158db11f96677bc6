//! A full disk under load: leases, reports, renewals, cancels, deletes, reads and graphs continue while another program
//! takes every block of the disk, first once and then repeatedly; then space becomes free.
//!
//! `GANGER_FULL_SECONDS` sets how long the disk stays full, 30 by default.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::disks::LoopDisk;
use ganger_e2e::history::{Lease, Outcome};
use ganger_e2e::server::{Setup, TIMEOUT, tail};
use ganger_e2e::skip::note_skip;
use rustix::fs::FallocateFlags;
use serde_json::{Value, json};

const DISK_BYTES: u64 = 200 << 20;
const RESERVE: &str = "8MiB";
const SECONDS: u64 = 30;
/// Number of jobs without retries, of which none may fail.
const FRAGILE: usize = 400;
const RUNNING: u32 = 40;
const LEASE_FOR: Duration = Duration::from_secs(20);
/// Maximum number of log lines in the time of the full disk.
const LINES_MAX: usize = 40;

/// What the clients observed while the disk was full.
#[derive(Default)]
struct Observations {
    has_ended: AtomicBool,
    accepted: Mutex<Vec<(&'static str, usize)>>,
    refused: AtomicUsize,
    errors: Mutex<Vec<String>>,
    acknowledged: Mutex<Vec<String>>,
}

impl Observations {
    fn is_running(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }

    /// Records an answer; returns true if it was accepted.
    fn note(&self, what: &'static str, answer: &Outcome) -> bool {
        match answer {
            Outcome::Done { .. } | Outcome::Leased(_) => {
                let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                match accepted.iter_mut().find(|(of, _)| *of == what) {
                    Some((_, times)) => *times += 1,
                    None => accepted.push((what, 1)),
                }
                return true;
            }
            Outcome::Refused(code) if code == "store_full" => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            // The commit of the turn failed.
            Outcome::Unknown => {}
            // The lease has ended, or another client has cancelled or deleted the job.
            Outcome::Refused(code)
                if matches!(
                    code.as_str(),
                    "lease_lost"
                        | "job_not_found"
                        | "job_finished"
                        | "job_not_finished"
                        | "job_running"
                ) => {}
            other => self.note_error(format!("{what} was answered with {other:?}")),
        }
        false
    }

    fn note_error(&self, what: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < 20 {
            errors.push(what);
        }
    }

    fn accepted_count(&self, what: &str) -> usize {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted
            .iter()
            .find(|(of, _)| *of == what)
            .map_or(0, |(_, times)| *times)
    }
}

#[test]
fn rel_d9_a_full_disk_at_every_operation_ends_nothing_and_fails_no_job() -> Result<()> {
    let seconds = env::var("GANGER_FULL_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let Some((disk, setup)) = disk_and_setup(directory.path())? else {
        return Ok(());
    };
    let ballast = disk.path().join("ballast");
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let leases = prepare(&mut api)?;
    let observed = Arc::new(Observations::default());

    let clients = start_clients(&setup, &observed, leases);
    thread::sleep(Duration::from_millis(300));
    // For two thirds of the time the disk is filled only once, so that the server can use its reserve.
    take_every_block(&ballast)?;
    thread::sleep(Duration::from_secs(seconds * 2 / 3));
    let from_reserve = wait_for_accepted_changes(&observed);
    // Then the disk is filled continuously, including the space that the server frees.
    let until = Instant::now() + Duration::from_secs(seconds / 3);
    while Instant::now() < until {
        take_every_block(&ballast)?;
        thread::sleep(Duration::from_millis(20));
    }
    if let Some(status) = server.exit_status()? {
        bail!(
            "the server ended with {status}:\n{}",
            tail(&setup.log_text())
        );
    }
    let lines = count_log_lines(&setup);
    fs::remove_file(&ballast)?;
    wait_until_accepting(&mut api)?;
    observed.has_ended.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client does not panic");
    }

    check_observations(&observed, &from_reserve, lines)?;
    drain(&mut api)?;
    find_all(&mut api, &observed)?;
    server.kill()?;
    setup.check()?;

    starts_on_a_full_disk(&setup, &ballast)?;
    setup.expect_no_panic()
}

/// Waits until each change that frees space was accepted several times, or for at most a minute. Returns how often each
/// was accepted.
fn wait_for_accepted_changes(observed: &Observations) -> [(&'static str, usize); 3] {
    let deadline = Instant::now() + 2 * TIMEOUT;
    loop {
        let times =
            ["complete", "cancel", "delete"].map(|what| (what, observed.accepted_count(what)));
        if times.iter().all(|(_, times)| *times > 10) || Instant::now() > deadline {
            return times;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Starts the server on a completely full disk, after a kill and after a stop, and then frees space.
fn starts_on_a_full_disk(setup: &Setup, ballast: &Path) -> Result<()> {
    take_every_block(ballast)?;
    let mut server = setup.start().context("after a kill, on a full disk")?;
    let mut api = Api::new(setup.client());
    api.expect("GET", "jobs?limit=10", &Value::Null)?;
    server.stop()?;
    take_every_block(ballast)?;
    let mut server = setup.start().context("after a stop, on a full disk")?;
    let mut api = Api::new(setup.client());
    api.expect("GET", "jobs?limit=10", &Value::Null)?;
    // The server waits as long as the disk is full, even if it finds no reserve when it starts.
    server.kill()?;
    let reserve = setup.store.with_file_name("store.db-reserve");
    File::options().write(true).open(reserve)?.set_len(0)?;
    take_every_block(ballast)?;
    let mut server = setup.spawn()?;
    thread::sleep(Duration::from_secs(2));
    if let Some(status) = server.exit_status()? {
        bail!(
            "the server gave up on a full disk with {status}:\n{}",
            tail(&setup.log_text())
        );
    }
    fs::remove_file(ballast)?;
    server.wait_until_ready(TIMEOUT)?;
    wait_until_accepting(&mut Api::new(setup.client()))?;
    server.stop()
}

fn disk_and_setup(directory: &Path) -> Result<Option<(LoopDisk, Setup)>> {
    match LoopDisk::new(directory, DISK_BYTES) {
        Ok(disk) => {
            let mut setup = Setup::in_directory(directory)?;
            setup.store = disk.path().join("store.db");
            setup.arguments = vec!["--reserve-bytes".into(), RESERVE.into()];
            Ok(Some((disk, setup)))
        }
        Err(reason) => {
            note_skip(
                "full disk under load",
                &format!("no loop file system here: {reason:#}"),
            );
            Ok(None)
        }
    }
}

/// Counts the lines of the log without those of the audit log, which has one for each cancelled job.
fn count_log_lines(setup: &Setup) -> usize {
    let text = setup.log_text();
    let lines = text.lines();
    lines.filter(|line| !line.contains("ganger::audit")).count()
}

/// Takes every free block, in ever smaller steps.
fn take_every_block(ballast: &Path) -> Result<()> {
    let file = File::options().create(true).append(true).open(ballast)?;
    let mut length = file.metadata()?.len();
    for step in [8 << 20, 1 << 20, 64 << 10, 4 << 10] {
        while rustix::fs::fallocate(&file, FallocateFlags::empty(), length, step).is_ok() {
            length += step;
        }
    }
    Ok(())
}

/// Enqueues jobs without retries and jobs to cancel, and leases some of the former.
fn prepare(api: &mut Api) -> Result<Vec<Lease>> {
    for number in 0..FRAGILE {
        let job = json!({
            "id": format!("fragile-{number}"), "queue": "work", "kind": "a", "payload": "x".repeat(2_000), "retry": { "max": 0 },
        });
        api.expect("POST", "jobs", &job)?;
    }
    for number in 0..2 * FRAGILE {
        let job = json!({ "id": format!("spare-{number}"), "queue": "spare", "kind": "a" });
        api.expect("POST", "jobs", &job)?;
    }
    match api.lease("work", "w", RUNNING, LEASE_FOR, Duration::ZERO) {
        Outcome::Leased(leases) => Ok(leases),
        other => bail!("no jobs were leased: {other:?}"),
    }
}

fn start_clients(
    setup: &Setup,
    observed: &Arc<Observations>,
    leases: Vec<Lease>,
) -> Vec<JoinHandle<()>> {
    let start = |work: fn(&mut Api, &Observations)| {
        let (mut api, observed) = (Api::new(setup.client()), Arc::clone(observed));
        thread::spawn(move || {
            while observed.is_running() {
                work(&mut api, &observed);
            }
        })
    };
    let holder = {
        let (mut api, observed) = (Api::new(setup.client()), Arc::clone(observed));
        thread::spawn(move || renew_and_complete(&mut api, &observed, leases))
    };
    let canceller = {
        let (mut api, observed) = (Api::new(setup.client()), Arc::clone(observed));
        thread::spawn(move || cancel_and_delete(&mut api, &observed))
    };
    vec![
        holder,
        canceller,
        start(submit_graphs),
        start(lease_and_complete),
        start(lease_and_release),
        start(read),
    ]
}

/// Renews leases and completes a job from time to time, so that some jobs run all the time.
fn renew_and_complete(api: &mut Api, observed: &Observations, leases: Vec<Lease>) {
    let mut leases = leases.into_iter();
    let mut next = Vec::from_iter(leases.next());
    while let Some(one) = next.pop() {
        while !observed.note("complete", &api.complete(&one, "done on a full disk"))
            && observed.is_running()
        {
            thread::sleep(Duration::from_millis(50));
        }
        for other in leases.clone() {
            observed.note("renew", &api.renew(&other));
        }
        thread::sleep(Duration::from_millis(300));
        next.extend(leases.next());
    }
}

fn cancel_and_delete(api: &mut Api, observed: &Observations) {
    for number in 0..2 * FRAGILE {
        let job = format!("jobs/spare-{number}");
        repeat_until_answered(api, observed, "cancel", "POST", &format!("{job}/cancel"));
        if number % 2 == 0 {
            repeat_until_answered(api, observed, "delete", "DELETE", &job);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Repeats a change, as a client does, while the answer is that the store is full or just being reopened.
fn repeat_until_answered(
    api: &mut Api,
    observed: &Observations,
    what: &'static str,
    method: &str,
    path: &str,
) {
    while observed.is_running() {
        let answer = change(api, method, path);
        observed.note(what, &answer);
        match answer {
            Outcome::Unknown => {}
            Outcome::Refused(code) if code == "store_full" => {}
            _ => return,
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn change(api: &mut Api, method: &str, path: &str) -> Outcome {
    match api.call(method, path, &Value::Null) {
        Ok(response) if (200..300).contains(&response.status) => Outcome::Done { is_repeat: false },
        Ok(response) if response.code() == "unavailable" => Outcome::Unknown,
        Ok(response) => Outcome::Refused(response.code()),
        Err(_) => Outcome::Unknown,
    }
}

fn submit_graphs(api: &mut Api, observed: &Observations) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let id = |part: usize| format!("graph-{number}-{part}");
    let jobs: Vec<Value> = (0..10)
        .map(|part| {
            json!({
                "id": id(part), "queue": "graphs", "kind": "a", "payload": "x".repeat(12_000), "retry": { "max": 0 },
            })
        })
        .collect();
    if observed.note("submit", &api.submit(&jobs)) {
        let mut acknowledged = observed
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        acknowledged.extend((0..10).map(id));
    } else {
        thread::sleep(Duration::from_millis(10));
    }
}

fn lease_and_complete(api: &mut Api, observed: &Observations) {
    let leased = api.lease("graphs", "c", 3, LEASE_FOR, Duration::from_millis(100));
    observed.note("lease", &leased);
    if let Outcome::Leased(leases) = leased {
        for one in &leases {
            while !observed.note("complete", &api.complete(one, "done")) && observed.is_running() {
                thread::sleep(Duration::from_millis(50));
            }
        }
    } else {
        thread::sleep(Duration::from_millis(10));
    }
}

fn lease_and_release(api: &mut Api, observed: &Observations) {
    let leased = api.lease("work", "r", 5, LEASE_FOR, Duration::ZERO);
    observed.note("lease", &leased);
    if let Outcome::Leased(leases) = leased {
        for one in &leases {
            let mut tries = 0;
            while !observed.note("release", &api.release(one))
                && observed.is_running()
                && tries < 100
            {
                tries += 1;
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
    thread::sleep(Duration::from_millis(50));
}

/// Reads jobs and queues, which must always work.
fn read(api: &mut Api, observed: &Observations) {
    for path in [
        "jobs/fragile-7",
        "jobs/fragile-7/payload",
        "jobs?limit=20",
        "queues",
    ] {
        match api.call("GET", path, &Value::Null) {
            Ok(response) if response.status == 200 => {
                observed.note("read", &Outcome::Done { is_repeat: false });
            }
            Ok(response) if response.code() == "unavailable" => {}
            Ok(response) => {
                observed.note_error(format!("{path} was answered with {}", response.to_text()));
            }
            Err(error) => observed.note_error(format!("{path} was not answered: {error:?}")),
        }
    }
    thread::sleep(Duration::from_millis(20));
}

fn wait_until_accepting(api: &mut Api) -> Result<()> {
    let begun = Instant::now();
    while !matches!(
        api.enqueue(&json!({ "queue": "late", "kind": "a" })),
        Outcome::Done { .. }
    ) {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "the disk has free space but the server accepts no new work"
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn check_observations(
    observed: &Observations,
    from_reserve: &[(&str, usize)],
    lines: usize,
) -> Result<()> {
    let errors = observed
        .errors
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    for (what, times) in from_reserve {
        ensure!(*times > 10, "{what} was accepted only {times} times");
    }
    ensure!(
        observed.accepted_count("read") > 100,
        "reads were not answered"
    );
    let refused = observed.refused.load(Ordering::Relaxed);
    ensure!(
        refused > 100,
        "only {refused} refusals: the disk was not full"
    );
    ensure!(lines <= LINES_MAX, "{lines} lines in the log");
    eprintln!(
        "{lines} lines, {refused} refusals, accepted {:?}",
        observed
            .accepted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    );
    Ok(())
}

/// Completes all remaining jobs, of which none may have failed.
fn drain(api: &mut Api) -> Result<()> {
    let begun = Instant::now();
    for queue in ["work", "graphs"] {
        loop {
            let all = format!("jobs?queue={queue}&state=ready,running,scheduled,blocked&limit=1");
            if api.expect("GET", &all, &Value::Null)?["jobs"]
                .as_array()
                .is_some_and(Vec::is_empty)
            {
                break;
            }
            ensure!(
                begun.elapsed() < TIMEOUT * 2,
                "queue {queue} does not become empty"
            );
            if let Outcome::Leased(leases) =
                api.lease(queue, "d", 100, LEASE_FOR, Duration::from_millis(500))
            {
                for one in &leases {
                    api.complete(one, "done");
                }
            }
        }
        let failed = format!("jobs?queue={queue}&state=failed&limit=10");
        let failed = api.expect("GET", &failed, &Value::Null)?;
        ensure!(
            failed["jobs"].as_array().is_some_and(Vec::is_empty),
            "jobs have failed: {failed}"
        );
    }
    Ok(())
}

fn find_all(api: &mut Api, observed: &Observations) -> Result<()> {
    let acknowledged = observed
        .acknowledged
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let prepared = (0..FRAGILE).map(|number| format!("fragile-{number}"));
    for job in acknowledged.iter().cloned().chain(prepared) {
        let found = api.find(&job)?.with_context(|| format!("{job} is gone"))?;
        ensure!(found.state == "succeeded", "{found:?}");
    }
    Ok(())
}
