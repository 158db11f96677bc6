//! Cuts the power of the store's disk at random times: unflushed data is lost, acknowledged work is not.

use std::env;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ganger_e2e::binary::ganger;
use ganger_e2e::checker::Counts;
use ganger_e2e::disks::LoopDisk;
use ganger_e2e::load::{Load, Plan};
use ganger_e2e::random::Random;
use ganger_e2e::server::Setup;
use ganger_e2e::skip::note_skip;
use ganger_e2e::trace;

/// Default number of power cuts; `GANGER_POWER_CYCLES` overrides it.
const CYCLES: u64 = 40;
/// Size of the disk in bytes.
const DISK_BYTES: u64 = 1 << 30;

#[test]
fn nothing_acknowledged_is_lost_in_power_cuts() -> Result<()> {
    let cycles = env::var("GANGER_POWER_CYCLES").map_or(Ok(CYCLES), |text| text.parse())?;
    let seed = env::var("GANGER_SEED").map_or(Ok(2), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let Some((mut disk, setup)) = disk_and_setup(directory.path(), "power loss")? else {
        return Ok(());
    };
    let counts = cut_power_under_load(&mut disk, &setup, cycles, seed)?;
    let cycles = usize::try_from(cycles)?;
    ensure!(
        counts.completed >= 10 * cycles,
        "too few completions: {counts:?}"
    );
    ensure!(
        counts.unknown >= cycles / 2,
        "too few requests were cut: {counts:?}"
    );
    eprintln!("{counts:?}");
    Ok(())
}

/// Proves that the test above can fail: with faked flushes it must find lost work.
#[test]
fn a_server_that_does_not_flush_is_found() -> Result<()> {
    let directory = tempfile::tempdir()?;
    if Command::new("strace").arg("-V").output().is_err() {
        note_skip("power loss without flushing", "strace is not installed");
        return Ok(());
    }
    let Some((mut disk, mut setup)) =
        disk_and_setup(directory.path(), "power loss without flushing")?
    else {
        return Ok(());
    };
    // Flushes are real while the store is created, and faked while work is acknowledged.
    setup.start()?.stop()?;
    setup.wrapper = trace::fake_flushes();
    match cut_power_under_load(&mut disk, &setup, 5, 3) {
        Err(found) => {
            eprintln!(
                "found, as it should be: {}",
                found.to_string().lines().next().unwrap_or_default()
            );
            Ok(())
        }
        Ok(counts) => {
            bail!("five power cuts without a single flush, and nothing was found: {counts:?}")
        }
    }
}

/// Creates a disk whose power can be cut, and the setup of a server on it. Records that the test is skipped if that is
/// impossible here.
fn disk_and_setup(directory: &Path, test: &str) -> Result<Option<(LoopDisk, Setup)>> {
    match LoopDisk::new(directory, DISK_BYTES) {
        Ok(disk) => {
            let mut setup = Setup::in_directory(directory)?;
            setup.store = disk.path().join("store.db");
            Ok(Some((disk, setup)))
        }
        Err(reason) => {
            note_skip(test, &format!("no loop file system here: {reason:#}"));
            Ok(None)
        }
    }
}

/// Starts a backup of the running store onto another disk.
fn start_backup(setup: &Setup, cycle: u64) -> Result<Child> {
    let copy = setup.log.with_file_name(format!("copy-{cycle}.db"));
    let child = Command::new(ganger())
        .args(["backup", "--db"])
        .arg(&setup.store)
        .arg(copy)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// Cuts the power repeatedly under load, then lets the load finish and checks its history.
fn cut_power_under_load(
    disk: &mut LoopDisk,
    setup: &Setup,
    cycles: u64,
    seed: u64,
) -> Result<Counts> {
    let mut random = Random::new(seed);
    let load = Load::start(
        setup,
        Plan {
            seed,
            first_producer: 0,
            producers: 2,
            workers: 4,
            graph_shards: 1,
            backlog_max: 200,
            every: Duration::ZERO,
        },
    );
    for cycle in 0..cycles {
        let mut server = setup.start()?;
        thread::sleep(Duration::from_millis(30 + random.below(370)));
        let backup = random.chance(20).then(|| start_backup(setup, cycle));
        if random.chance(50) {
            // An idle second for the server's upkeep, a little more work, and then the cut.
            let idle_time = Duration::from_millis(200 + random.below(1_300));
            load.pause(idle_time);
            thread::sleep(idle_time + Duration::from_millis(random.below(40)));
        }
        load.recorder().power_off();
        disk.cut_power()?;
        let still_writes = File::create(disk.path().join("probe")).is_ok();
        ensure!(
            !still_writes,
            "the file system still takes writes: the power was not cut"
        );
        server.kill()?;
        if let Some(backup) = backup {
            // The backup may or may not have finished before the cut.
            let mut backup = backup?;
            let _ = backup.kill();
            backup.wait()?;
        }
        disk.unmount()?;
        disk.mount()?;
        load.recorder().power_on();
        if cycle % 10 == 9 {
            setup.check()?;
        }
    }
    let mut server = setup.start()?;
    let (_, counts) = load.finish(Duration::from_secs(60))?;
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()?;
    disk.unmount()?;
    Ok(counts)
}
