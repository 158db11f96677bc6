//! A full disk under everything at once: leases, reports, renewals, cancelling, deleting, reads and graphs go on while
//! somebody else takes every block of the disk, once and then again and again; then there is room.
//!
//! `GANGER_FULL_SECONDS` says how long the disk stays full, 30 if it is not set.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::ground::LoopDisk;
use ganger_e2e::history::{Answered, Held};
use ganger_e2e::server::{PATIENCE, Setup};
use ganger_e2e::skip::skipped;
use rustix::fs::FallocateFlags;
use serde_json::{Value, json};

const DISK_BYTES: u64 = 200 << 20;
const RESERVE: &str = "8MiB";
const SECONDS: u64 = 30;
/// Jobs that fail for good with their first counted failure: none of them may.
const FRAGILE: usize = 400;
const RUNNING: u32 = 40;
const LEASE_FOR: Duration = Duration::from_secs(20);
/// Lines of the log for a disk that was full for half a minute, with all that hangs on it.
const LINES_MAX: usize = 40;

/// What the clients have seen while the disk was full.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    accepted: Mutex<Vec<(&'static str, usize)>>,
    refused: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    acknowledged: Mutex<Vec<String>>,
}

impl Seen {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Notes an answer; true if it was accepted.
    fn note(&self, what: &'static str, answer: &Answered) -> bool {
        match answer {
            Answered::Done { .. } | Answered::Leased(_) => {
                let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                match accepted.iter_mut().find(|(of, _)| *of == what) {
                    Some((_, times)) => *times += 1,
                    None => accepted.push((what, 1)),
                }
                return true;
            }
            Answered::Refused(code) if code == "store_full" => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            // A turn whose commit failed.
            Answered::Unknown => {}
            // A lease that ended, a job that another client has cancelled or deleted.
            Answered::Refused(code)
                if matches!(
                    code.as_str(),
                    "lease_lost"
                        | "job_not_found"
                        | "job_finished"
                        | "job_not_finished"
                        | "job_running"
                ) => {}
            other => self.complain(format!("{what} was answered with {other:?}")),
        }
        false
    }

    fn complain(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() < 20 {
            wrong.push(what);
        }
    }

    fn times(&self, what: &str) -> usize {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted
            .iter()
            .find(|(of, _)| *of == what)
            .map_or(0, |(_, times)| *times)
    }
}

#[test]
fn rel_d9_a_full_disk_at_every_operation_ends_nothing_and_no_job_pays_for_it() -> Result<()> {
    let seconds = env::var("GANGER_FULL_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let Some((disk, setup)) = disk_and_setup(directory.path())? else {
        return Ok(());
    };
    let ballast = disk.path().join("ballast");
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let held = prepare(&mut api)?;
    let seen = Arc::new(Seen::default());

    let clients = start_clients(&setup, &seen, held);
    thread::sleep(Duration::from_millis(300));
    // Two thirds of the time the disk is filled once, so that the reserve is the server's alone.
    take_every_block(&ballast)?;
    thread::sleep(Duration::from_secs(seconds * 2 / 3));
    let from_reserve = go_through(&seen);
    // Then the program that fills it goes on, and takes what the server gives back as well.
    let until = Instant::now() + Duration::from_secs(seconds / 3);
    while Instant::now() < until {
        take_every_block(&ballast)?;
        thread::sleep(Duration::from_millis(20));
    }
    ensure!(server.ended()?.is_none(), "the server has ended");
    let lines = warnings(&setup);
    fs::remove_file(&ballast)?;
    accept_again(&mut api)?;
    seen.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client does not panic");
    }

    judge(&seen, &from_reserve, lines)?;
    drain(&mut api)?;
    find_all(&mut api, &seen)?;
    server.kill()?;
    setup.check()?;

    starts_on_a_full_disk(&setup, &ballast)?;
    setup.expect_no_panic()
}

/// How often each change that makes room went through, once each did so several times or it has been waited for too
/// long: a machine with other work takes its time.
fn go_through(seen: &Seen) -> [(&'static str, usize); 3] {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let times = ["complete", "cancel", "delete"].map(|what| (what, seen.times(what)));
        if times.iter().all(|(_, times)| *times > 10) || Instant::now() > deadline {
            return times;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// After a kill and after a stop, with not a single block left; and again with room.
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
    // A full disk is waited out as long as it takes, here with a start that finds no reserve either.
    server.kill()?;
    let reserve = setup.store.with_file_name("store.db-reserve");
    File::options().write(true).open(reserve)?.set_len(0)?;
    take_every_block(ballast)?;
    let mut server = setup.spawn()?;
    thread::sleep(Duration::from_secs(2));
    ensure!(server.ended()?.is_none(), "it gave up on a full disk");
    fs::remove_file(ballast)?;
    server.wait_until_ready(PATIENCE)?;
    accept_again(&mut Api::new(setup.client()))?;
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
            skipped(
                "full disk under everything",
                &format!("no loop file system here: {reason:#}"),
            );
            Ok(None)
        }
    }
}

/// Lines of the log, but for those of the audit log, which has one for each cancelled job.
fn warnings(setup: &Setup) -> usize {
    let text = setup.log_text();
    let lines = text.lines();
    lines.filter(|line| !line.contains("ganger::audit")).count()
}

/// Takes every free block, in ever smaller steps, down to the last one.
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

/// Enqueues jobs that a single failure would end, and others that are cancelled, and has some of them run.
fn prepare(api: &mut Api) -> Result<Vec<Held>> {
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
        Answered::Leased(held) => Ok(held),
        other => bail!("no jobs were handed out: {other:?}"),
    }
}

fn start_clients(setup: &Setup, seen: &Arc<Seen>, held: Vec<Held>) -> Vec<JoinHandle<()>> {
    let start = |work: fn(&mut Api, &Seen)| {
        let (mut api, seen) = (Api::new(setup.client()), Arc::clone(seen));
        thread::spawn(move || {
            while seen.goes_on() {
                work(&mut api, &seen);
            }
        })
    };
    let holder = {
        let (mut api, seen) = (Api::new(setup.client()), Arc::clone(seen));
        thread::spawn(move || hold(&mut api, &seen, held))
    };
    let canceller = {
        let (mut api, seen) = (Api::new(setup.client()), Arc::clone(seen));
        thread::spawn(move || cancel_and_delete(&mut api, &seen))
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

/// Renews what runs and completes a job now and then, so that something runs all the time.
fn hold(api: &mut Api, seen: &Seen, held: Vec<Held>) {
    let mut held = held.into_iter();
    let mut next = Vec::from_iter(held.next());
    while let Some(one) = next.pop() {
        while !seen.note("complete", &api.complete(&one, "done on a full disk")) && seen.goes_on() {
            thread::sleep(Duration::from_millis(50));
        }
        for other in held.clone() {
            seen.note("renew", &api.renew(&other));
        }
        thread::sleep(Duration::from_millis(300));
        next.extend(held.next());
    }
}

fn cancel_and_delete(api: &mut Api, seen: &Seen) {
    for number in 0..2 * FRAGILE {
        let job = format!("jobs/spare-{number}");
        insist(api, seen, "cancel", "POST", &format!("{job}/cancel"));
        if number % 2 == 0 {
            insist(api, seen, "delete", "DELETE", &job);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Asks for a change until there is an answer other than that the store is full or opened again just now, as a client
/// does: on a slow machine one request after the other may meet that.
fn insist(api: &mut Api, seen: &Seen, what: &'static str, method: &str, path: &str) {
    while seen.goes_on() {
        let answer = change(api, method, path);
        seen.note(what, &answer);
        match answer {
            Answered::Unknown => {}
            Answered::Refused(code) if code == "store_full" => {}
            _ => return,
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn change(api: &mut Api, method: &str, path: &str) -> Answered {
    match api.call(method, path, &Value::Null) {
        Ok(response) if (200..300).contains(&response.status) => {
            Answered::Done { is_repeat: false }
        }
        Ok(response) if response.code() == "unavailable" => Answered::Unknown,
        Ok(response) => Answered::Refused(response.code()),
        Err(_) => Answered::Unknown,
    }
}

fn submit_graphs(api: &mut Api, seen: &Seen) {
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
    if seen.note("submit", &api.submit(&jobs)) {
        let mut acknowledged = seen
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        acknowledged.extend((0..10).map(id));
    } else {
        thread::sleep(Duration::from_millis(10));
    }
}

fn lease_and_complete(api: &mut Api, seen: &Seen) {
    let leased = api.lease("graphs", "c", 3, LEASE_FOR, Duration::from_millis(100));
    seen.note("lease", &leased);
    if let Answered::Leased(held) = leased {
        for one in &held {
            while !seen.note("complete", &api.complete(one, "done")) && seen.goes_on() {
                thread::sleep(Duration::from_millis(50));
            }
        }
    } else {
        thread::sleep(Duration::from_millis(10));
    }
}

fn lease_and_release(api: &mut Api, seen: &Seen) {
    let leased = api.lease("work", "r", 5, LEASE_FOR, Duration::ZERO);
    seen.note("lease", &leased);
    if let Answered::Leased(held) = leased {
        for one in &held {
            let mut tries = 0;
            while !seen.note("release", &api.release(one)) && seen.goes_on() && tries < 100 {
                tries += 1;
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
    thread::sleep(Duration::from_millis(50));
}

/// Reads are answered all the time.
fn read(api: &mut Api, seen: &Seen) {
    for path in [
        "jobs/fragile-7",
        "jobs/fragile-7/payload",
        "jobs?limit=20",
        "queues",
    ] {
        match api.call("GET", path, &Value::Null) {
            Ok(response) if response.status == 200 => {
                seen.note("read", &Answered::Done { is_repeat: false });
            }
            Ok(response) if response.code() == "unavailable" => {}
            Ok(response) => seen.complain(format!("{path} was answered with {}", response.shown())),
            Err(error) => seen.complain(format!("{path} was not answered: {error:?}")),
        }
    }
    thread::sleep(Duration::from_millis(20));
}

fn accept_again(api: &mut Api) -> Result<()> {
    let begun = Instant::now();
    while !matches!(
        api.enqueue(&json!({ "queue": "late", "kind": "a" })),
        Answered::Done { .. }
    ) {
        ensure!(
            begun.elapsed() < PATIENCE,
            "there is room and the server takes no new work"
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn judge(seen: &Seen, from_reserve: &[(&str, usize)], lines: usize) -> Result<()> {
    let wrong = seen.wrong.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (what, times) in from_reserve {
        ensure!(*times > 10, "only {times} times {what} went through");
    }
    ensure!(seen.times("read") > 100, "reads were not answered");
    let refused = seen.refused.load(Ordering::Relaxed);
    ensure!(
        refused > 100,
        "only {refused} refusals: the disk was not full"
    );
    ensure!(lines <= LINES_MAX, "{lines} lines in the log");
    eprintln!(
        "{lines} lines, {refused} refusals, accepted {:?}",
        seen.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    );
    Ok(())
}

/// Everything that is left is done by one worker; nothing has failed.
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
            ensure!(begun.elapsed() < PATIENCE * 2, "{queue} does not get empty");
            if let Answered::Leased(held) =
                api.lease(queue, "d", 100, LEASE_FOR, Duration::from_millis(500))
            {
                for one in &held {
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

fn find_all(api: &mut Api, seen: &Seen) -> Result<()> {
    let acknowledged = seen
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
