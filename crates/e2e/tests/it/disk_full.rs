//! A full disk: the server refuses new work, lets running work finish, and recovers by itself once space is free.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::disks::SmallDisk;
use ganger_e2e::history::{Lease, Outcome};
use ganger_e2e::server::{Setup, TIMEOUT};
use ganger_e2e::skip::note_skip;
use serde_json::{Value, json};

/// Size of the disk in bytes.
const DISK_BYTES: u64 = 640 << 20;
/// Free bytes on a nearly full disk: less than the server's reserve, but enough for running work.
const NEARLY_FULL_BYTES: u64 = 64 << 20;
/// Result of the leased jobs.
const RESULT: &str = "on a full disk";
const LEASE_FOR: Duration = Duration::from_secs(300);

#[test]
fn a_nearly_full_disk_refuses_new_work_lets_running_work_finish_and_recovers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let Some((disk, setup)) = small_disk(directory.path())? else {
        return Ok(());
    };
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let leases = prepare(&mut api)?;

    let ballast = disk.path().join("ballast");
    fill(&ballast, &disk, NEARLY_FULL_BYTES)?;
    let acknowledged = enqueue_until_refused(&mut api)?;

    // Reports, renewals, reads and cancels still work.
    for lease in &leases {
        ensure!(
            api.renew(lease) == Outcome::Done { is_repeat: false },
            "{} cannot be renewed",
            lease.job
        );
        let answer = api.complete(lease, RESULT);
        ensure!(
            answer == Outcome::Done { is_repeat: false },
            "{} cannot be completed: {answer:?}",
            lease.job
        );
    }
    api.expect("POST", "jobs/early-19/cancel", &Value::Null)?;
    ensure!(server.exit_status()?.is_none(), "the server has ended");

    fs::remove_file(&ballast)?;
    enqueue_until_accepted(&mut api)?;
    check_jobs(&mut api, &leases, &acknowledged)?;

    // Everything is still there after a kill.
    server.kill()?;
    setup.check()?;
    let mut server = setup.start()?;
    check_jobs(&mut Api::new(setup.client()), &leases, &acknowledged)?;
    server.stop()?;
    setup.expect_no_panic()
}

#[test]
fn a_disk_without_a_single_free_byte_loses_nothing_and_recovers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let Some((disk, setup)) = small_disk(directory.path())? else {
        return Ok(());
    };
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let leases = prepare(&mut api)?;

    let ballast = disk.path().join("ballast");
    fill(&ballast, &disk, 0)?;
    let acknowledged = enqueue_until_refused(&mut api)?;
    ensure!(server.exit_status()?.is_none(), "the server has ended");

    fs::remove_file(&ballast)?;
    enqueue_until_accepted(&mut api)?;
    for lease in &leases {
        let answer = api.complete(lease, RESULT);
        ensure!(
            matches!(answer, Outcome::Done { .. }),
            "{} cannot be completed: {answer:?}",
            lease.job
        );
    }
    check_jobs(&mut api, &leases, &acknowledged)?;
    server.kill()?;
    setup.check()?;
    let mut server = setup.start()?;
    check_jobs(&mut Api::new(setup.client()), &leases, &acknowledged)?;
    server.stop()?;
    setup.expect_no_panic()
}

/// Mounts a small disk and returns the setup of a server on it. Records that the test is skipped if that is impossible
/// here.
fn small_disk(directory: &Path) -> Result<Option<(SmallDisk, Setup)>> {
    match SmallDisk::new(directory, DISK_BYTES) {
        Ok(disk) => {
            let mut setup = Setup::in_directory(directory)?;
            setup.store = disk.path().join("store.db");
            Ok(Some((disk, setup)))
        }
        Err(reason) => {
            note_skip(
                "full disk",
                &format!("no small file system here: {reason:#}"),
            );
            Ok(None)
        }
    }
}

/// Enqueues twenty jobs and leases ten of them.
fn prepare(api: &mut Api) -> Result<Vec<Lease>> {
    for number in 0..20 {
        api.expect(
            "POST",
            "jobs",
            &json!({ "id": format!("early-{number}"), "queue": "work", "kind": "a" }),
        )?;
    }
    match api.lease("work", "w", 10, LEASE_FOR, Duration::ZERO) {
        Outcome::Leased(leases) if leases.len() == 10 => Ok(leases),
        other => bail!("ten jobs should have been leased: {other:?}"),
    }
}

/// Writes a file until only `leave` bytes are free.
fn fill(path: &Path, disk: &SmallDisk, leave: u64) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 20, 1 << 12, 1] {
        let block = vec![b'x'; size];
        while disk.free_bytes()? > leave && file.write_all(&block).is_ok() {}
    }
    Ok(())
}

/// Enqueues until the server refuses because the disk is full; returns the acknowledged jobs.
fn enqueue_until_refused(api: &mut Api) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let id = format!("late-{number}");
        let job = json!({ "id": id, "queue": "late", "kind": "a", "payload": "x".repeat(10_000) });
        match api.enqueue(&job) {
            Outcome::Done { .. } => acknowledged.push(id),
            Outcome::Refused(code) => {
                ensure!(code == "store_full", "refused with {code}");
                return Ok(acknowledged);
            }
            // The commit failed because the disk is full, and the shard reopens the store.
            Outcome::Unknown => thread::sleep(Duration::from_millis(20)),
            other => bail!("on a full disk an enqueue was answered with {other:?}"),
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "the disk is full but the server still accepts work"
        );
    }
    Ok(acknowledged)
}

fn enqueue_until_accepted(api: &mut Api) -> Result<()> {
    let begun = Instant::now();
    loop {
        match api.enqueue(&json!({ "id": "again", "queue": "late", "kind": "a" })) {
            Outcome::Done { .. } => return Ok(()),
            Outcome::Refused(code) if code == "store_full" => {}
            Outcome::Unknown => {}
            other => bail!("with free space an enqueue was answered with {other:?}"),
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "the disk has free space but the server accepts no new work"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn check_jobs(api: &mut Api, completed: &[Lease], acknowledged: &[String]) -> Result<()> {
    for Lease { job, .. } in completed {
        let found = api.find(job)?.with_context(|| format!("{job} is gone"))?;
        ensure!(
            found.state == "succeeded" && found.result.as_deref() == Some(RESULT),
            "{found:?}"
        );
    }
    for job in acknowledged {
        ensure!(
            api.find(job)?.is_some(),
            "{job} was acknowledged and is gone"
        );
    }
    Ok(())
}
