//! A full disk: new work is refused, running work may finish, and with space service returns by itself.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::ground::SmallDisk;
use ganger_e2e::history::Answered;
use ganger_e2e::server::{PATIENCE, Setup};
use ganger_e2e::skip::skipped;
use serde_json::{Value, json};

/// Size of the disk.
const DISK_BYTES: u64 = 256 << 20;
const LEASE_FOR: Duration = Duration::from_secs(300);

#[test]
fn a_full_disk_refuses_new_work_lets_running_work_finish_and_recovers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = match SmallDisk::new(folder.path(), DISK_BYTES) {
        Ok(disk) => disk,
        Err(reason) => {
            skipped(
                "full disk",
                &format!("no small file system here: {reason:#}"),
            );
            return Ok(());
        }
    };
    let mut setup = Setup::in_folder(folder.path())?;
    setup.store = disk.path().join("store.db");
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    for number in 0..20 {
        api.expect(
            "POST",
            "jobs",
            &json!({ "id": format!("early-{number}"), "queue": "work", "kind": "a" }),
        )?;
    }
    let Answered::Leased(held) = api.lease("work", "w", 10, LEASE_FOR, Duration::ZERO) else {
        bail!("nothing was handed out");
    };

    let ballast = disk.path().join("ballast");
    fill(&ballast)?;
    let acknowledged = enqueue_until_refused(&mut api)?;

    // Reports, renewals, reads and cancelling go on.
    for held in &held {
        ensure!(
            api.renew(held) == Answered::Done { is_repeat: false },
            "{} cannot be renewed",
            held.job
        );
        let answer = api.complete(held, "on a full disk");
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
    look(
        &mut api,
        &held
            .iter()
            .map(|held| held.job.as_str())
            .collect::<Vec<_>>(),
        &acknowledged,
    )?;

    // And all of it is still there after a kill.
    server.kill()?;
    setup.check()?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    look(
        &mut api,
        &held
            .iter()
            .map(|held| held.job.as_str())
            .collect::<Vec<_>>(),
        &acknowledged,
    )?;
    server.stop()?;
    setup.expect_no_panic()
}

/// Writes until nothing fits any more.
fn fill(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 20, 1 << 12, 1] {
        let block = vec![b'x'; size];
        while file.write_all(&block).is_ok() {}
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
            other => bail!("with space again an enqueue was answered with {other:?}"),
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "there is space and the server does not take new work"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn look(api: &mut Api, completed: &[&str], acknowledged: &[String]) -> Result<()> {
    for job in completed {
        let found = api.find(job)?.with_context(|| format!("{job} is gone"))?;
        ensure!(
            found.state == "succeeded" && found.result.as_deref() == Some("on a full disk"),
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
