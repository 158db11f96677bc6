//! Kills the real server with SIGKILL at random times while clients work, and checks what they observed.

use std::env;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use ganger_e2e::load::{Load, Plan};
use ganger_e2e::random::Random;
use ganger_e2e::server::Setup;

/// Default number of kills; `GANGER_KILL_CYCLES` overrides it.
const CYCLES: u64 = 60;

#[test]
fn nothing_acknowledged_is_lost_however_often_the_server_is_killed() -> Result<()> {
    let cycles = env::var("GANGER_KILL_CYCLES").map_or(Ok(CYCLES), |text| text.parse())?;
    let seed = env::var("GANGER_SEED").map_or(Ok(1), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut random = Random::new(seed);
    let load = Load::start(
        &setup,
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
        server.kill()?;
        if cycle % 10 == 9 {
            setup.check()?;
        }
    }

    let mut server = setup.start()?;
    let (_, counts) = load.finish(Duration::from_secs(60))?;
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()?;

    // The run must have tested enough.
    let cycles = usize::try_from(cycles)?;
    ensure!(
        counts.completed >= 10 * cycles,
        "too few completions: {counts:?}"
    );
    ensure!(
        counts.unknown >= cycles / 2,
        "too few requests were cut: {counts:?}"
    );
    ensure!(
        counts.leases_over_a_gap >= cycles / 4,
        "too few leases went over a restart: {counts:?}"
    );
    ensure!(
        counts.leases_lost * 20 <= counts.grants,
        "too many leases were lost: {counts:?}"
    );
    eprintln!("{counts:?}");
    Ok(())
}
