//! A full disk: new work is refused, running work may finish, and with space service returns by itself.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::ground::SmallDisk;
use ganger_e2e::history::{Answered, Held};
use ganger_e2e::server::{PATIENCE, Setup};
use ganger_e2e::skip::skipped;
use serde_json::{Value, json};

/// Size of the disk.
const DISK_BYTES: u64 = 640 << 20;
/// Free bytes that are left on a nearly full disk: less than the server keeps in reserve, enough to go on with what runs.
const NEARLY_FULL_BYTES: u64 = 64 << 20;
/// What the held jobs are completed with.
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
    let held = prepare(&mut api)?;

    let ballast = disk.path().join("ballast");
    fill(&ballast, &disk, NEARLY_FULL_BYTES)?;
    let acknowledged = enqueue_until_refused(&mut api)?;

    // Reports, renewals, reads and cancelling go on.
    for held in &held {
        ensure!(
            api.renew(held) == Answered::Done { is_repeat: false },
            "{} cannot be renewed",
            held.job
        );
        let answer = api.complete(held, RESULT);
        ensure!(
            answer == Answered::Done { is_repeat: false },
            "{} cannot be completed: {answer:?}",
            held.job
        );
    }
    api.expect("POST", "jobs/early-19/cancel", &Value::Null)?;
    ensure!(server.ended()?.is_none(), "the server has ended");

    fs::remove_file(&ballast)?;
    enqueue_until_accepted(&mut api)?;
    look(&mut api, &held, &acknowledged)?;

    // And all of it is still there after a kill.
    server.kill()?;
    setup.check()?;
    let mut server = setup.start()?;
    look(&mut Api::new(setup.client()), &held, &acknowledged)?;
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
    let held = prepare(&mut api)?;

    let ballast = disk.path().join("ballast");
    fill(&ballast, &disk, 0)?;
    let acknowledged = enqueue_until_refused(&mut api)?;
    ensure!(server.ended()?.is_none(), "the server has ended");

    fs::remove_file(&ballast)?;
    enqueue_until_accepted(&mut api)?;
    for held in &held {
        let answer = api.complete(held, RESULT);
        ensure!(
            matches!(answer, Answered::Done { .. }),
            "{} cannot be completed: {answer:?}",
            held.job
        );
    }
    look(&mut api, &held, &acknowledged)?;
    server.kill()?;
    setup.check()?;
    let mut server = setup.start()?;
    look(&mut Api::new(setup.client()), &held, &acknowledged)?;
    server.stop()?;
    setup.expect_no_panic()
}

/// A small disk and a server on it; nothing, and a word about it, where that cannot be.
fn small_disk(directory: &Path) -> Result<Option<(SmallDisk, Setup)>> {
    match SmallDisk::new(directory, DISK_BYTES) {
        Ok(disk) => {
            let mut setup = Setup::in_directory(directory)?;
            setup.store = disk.path().join("store.db");
            Ok(Some((disk, setup)))
        }
        Err(reason) => {
            skipped(
                "full disk",
                &format!("no small file system here: {reason:#}"),
            );
            Ok(None)
        }
    }
}

/// Enqueues twenty jobs and takes ten of them.
fn prepare(api: &mut Api) -> Result<Vec<Held>> {
    for number in 0..20 {
        api.expect(
            "POST",
            "jobs",
            &json!({ "id": format!("early-{number}"), "queue": "work", "kind": "a" }),
        )?;
    }
    match api.lease("work", "w", 10, LEASE_FOR, Duration::ZERO) {
        Answered::Leased(held) if held.len() == 10 => Ok(held),
        other => bail!("not ten jobs were handed out: {other:?}"),
    }
}

/// Writes until only so many bytes are free.
fn fill(path: &Path, disk: &SmallDisk, leave: u64) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 20, 1 << 12, 1] {
        let block = vec![b'x'; size];
        while disk.free_bytes()? > leave && file.write_all(&block).is_ok() {}
    }
    Ok(())
}

/// Enqueues until the server says that it is full; returns what it had acknowledged until then.
fn enqueue_until_refused(api: &mut Api) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let id = format!("late-{number}");
        let job = json!({ "id": id, "queue": "late", "kind": "a", "payload": "x".repeat(10_000) });
        match api.enqueue(&job) {
            Answered::Done { .. } => acknowledged.push(id),
            Answered::Refused(code) => {
                ensure!(code == "store_full", "refused with {code}");
                return Ok(acknowledged);
            }
            // The commit that found the disk full has failed, and the shard looks at what is there: try again.
            Answered::Unknown => thread::sleep(Duration::from_millis(20)),
            other => bail!("on a full disk an enqueue was answered with {other:?}"),
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "the disk is full and the server has not noticed"
        );
    }
    Ok(acknowledged)
}

fn enqueue_until_accepted(api: &mut Api) -> Result<()> {
    let begun = Instant::now();
    loop {
        match api.enqueue(&json!({ "id": "again", "queue": "late", "kind": "a" })) {
            Answered::Done { .. } => return Ok(()),
            Answered::Refused(code) if code == "store_full" => {}
            Answered::Unknown => {}
            other => bail!("with space again an enqueue was answered with {other:?}"),
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "there is space and the server does not take new work"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn look(api: &mut Api, completed: &[Held], acknowledged: &[String]) -> Result<()> {
    for Held { job, .. } in completed {
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
