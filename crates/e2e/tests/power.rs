//! Cuts the power of the store's disk at random moments: what was not flushed is gone, what was acknowledged is not.

use std::env;
use std::fs::File;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use ganger_e2e::ground::LoopDisk;
use ganger_e2e::load::{Load, Plan};
use ganger_e2e::random::Random;
use ganger_e2e::server::Setup;
use ganger_e2e::skip::skipped;

/// How often the power is cut, unless `GANGER_POWER_CYCLES` says otherwise.
const CYCLES: u64 = 40;
/// Size of the disk.
const DISK_BYTES: u64 = 1 << 30;

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() -> Result<()> {
    let cycles = env::var("GANGER_POWER_CYCLES").map_or(Ok(CYCLES), |text| text.parse())?;
    let seed = env::var("GANGER_SEED").map_or(Ok(2), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let mut disk = match LoopDisk::new(folder.path(), DISK_BYTES) {
        Ok(disk) => disk,
        Err(reason) => {
            skipped(
                "power loss",
                &format!("no loop file system here: {reason:#}"),
            );
            return Ok(());
        }
    };
    let mut setup = Setup::in_folder(folder.path())?;
    setup.store = disk.path().join("store.db");
    let mut random = Random::new(seed);
    let load = Load::start(
        &setup,
        Plan {
            seed,
            producers: 2,
            workers: 4,
            backlog_max: 200,
        },
    );

    for cycle in 0..cycles {
        let mut server = setup.start()?;
        thread::sleep(Duration::from_millis(30 + random.below(370)));
        disk.cut_power()?;
        let still_writes = File::create(disk.path().join("probe")).is_ok();
        ensure!(
            !still_writes,
            "the file system still takes writes: the power was not cut"
        );
        server.kill()?;
        disk.unmount()?;
        disk.mount()?;
        if cycle % 10 == 9 {
            setup.check()?;
        }
    }

    let mut server = setup.start()?;
    let (_, tally) = load.finish(Duration::from_secs(60))?;
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()?;
    disk.unmount()?;

    let cycles = usize::try_from(cycles)?;
    ensure!(
        tally.completed >= 10 * cycles,
        "too few completions: {tally:?}"
    );
    ensure!(
        tally.unknown >= cycles / 2,
        "too few requests were cut: {tally:?}"
    );
    eprintln!("{tally:?}");
    Ok(())
}
