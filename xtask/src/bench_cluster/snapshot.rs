//! What a snapshot that another session holds for long costs, and whether the space of removed jobs comes back.
//!
//! Lives run all the time, and finished jobs are kept for some seconds, so there is always the same amount of data. No
//! dead row can be removed while the snapshot is held.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::database::Database;
use super::{Lives, System, program};
use crate::bench_peers::scratch::Scratch;
use crate::process::output;

/// How long finished jobs are kept.
const KEEP: &str = "10s";
/// Seconds of one measurement.
const MINUTE: f64 = 60.0;
/// Measurements before the snapshot; in the first one the finished jobs become as many as they stay.
const BEFORE: u32 = 2;
/// Measurements after it, at most.
const AFTER_MAX: u32 = 5;
const MIB: u64 = 1024 * 1024;

/// Runs lives while another session holds a snapshot for so many minutes, and before and after; prints each minute.
pub(super) fn measure(minutes: u32) -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = scratch.directory("bare-log")?;
    let database = Database::start(&scratch, false)?;
    let system = System::start("snapshot", &scratch, Some(database))?;
    let server = system.address.to_string();
    output(Command::new(program()).args([
        "namespace",
        "set",
        "default",
        "--keep-succeeded",
        KEEP,
        "--server",
        &server,
    ]))?;
    println!(
        "| snapshot | lives/s | CPU of the server, us a life | CPU of the database, us a life | size, MiB |"
    );
    println!("|---|---:|---:|---:|---:|");
    let database = system.database.as_ref().context("it has a database")?;
    let before = run(&system, database, &directory, "before", BEFORE)?;
    let session = database.hold_snapshot()?;
    let during = run(&system, database, &directory, "held", minutes)?;
    database.drop_snapshot(session)?;
    let after = run(
        &system,
        database,
        &directory,
        "after",
        minutes.min(AFTER_MAX),
    )?;
    let cpu = |of: &(Lives, u64)| of.0.database_cpu.unwrap_or(f64::NAN);
    println!(
        "\nCPU of the database in the last minute with the snapshot / before: {:.2}; after it: {:.2}",
        cpu(&during) / cpu(&before),
        cpu(&after) / cpu(&before)
    );
    println!(
        "size before {} MiB, with the snapshot {} MiB, after it {} MiB",
        before.1 / MIB,
        during.1 / MIB,
        after.1 / MIB
    );
    Ok(())
}

/// Measures so many minutes; returns the last one, and the size of the database at its end.
fn run(
    system: &System,
    database: &Database,
    directory: &Path,
    name: &str,
    minutes: u32,
) -> Result<(Lives, u64)> {
    let mut last = None;
    for _ in 0..minutes {
        let lives = system.lives(MINUTE, directory)?;
        let size = database.size()?;
        println!(
            "| {name} | {:.0} | {:.1} | {:.1} | {} |",
            lives.rate,
            lives.server_cpu,
            lives.database_cpu.unwrap_or(f64::NAN),
            size / MIB
        );
        last = Some((lives, size));
    }
    last.context("there is at least one minute")
}
