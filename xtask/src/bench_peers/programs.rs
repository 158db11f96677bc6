//! Programs a second: `ganger worker` with a program a job, beside a bare loop that starts the same program.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ganger_bench::rate;

use super::figures::Figures;
use super::ganger;
use super::goals::BARE_SPAWN;
use super::row::{Metric, PROGRAMS as LOAD};
use super::system::System;

/// Programs running at once, in both cases.
const CONCURRENCY: usize = 4;
/// Programs started in all, in each case.
const PROGRAMS: usize = 8_000;
/// Copies its input to its output: about the least that a program with JSON in and out can do.
const PROGRAM: &str = "/bin/cat";

/// Measures both, the same program with the same input, each as often.
pub(super) async fn measure(
    server: &ganger::Server,
    directory: &Path,
    figures: &mut Figures,
) -> Result<()> {
    figures.add(LOAD, BARE_SPAWN, Metric::Rate, bare()?);
    let programs = server.programs(PROGRAM, PROGRAMS, CONCURRENCY, directory);
    figures.add(LOAD, System::Streams.name(), Metric::Rate, programs.await?);
    Ok(())
}

fn bare() -> Result<f64> {
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..CONCURRENCY)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    for _ in 0..PROGRAMS / CONCURRENCY {
                        one()?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a starting thread does not panic")?;
        }
        Ok(())
    })?;
    Ok(rate(u64::try_from(PROGRAMS)?, begun.elapsed()))
}

/// Starts the program, gives it its input, reads its output to the end, waits for it. The standard library uses
/// `posix_spawn` for this.
fn one() -> Result<()> {
    let mut child = Command::new(PROGRAM)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    child
        .stdin
        .take()
        .context("no pipe")?
        .write_all(b"[{\"uid\": 1234}]")?;
    let mut result = Vec::new();
    child
        .stdout
        .take()
        .context("no pipe")?
        .read_to_end(&mut result)?;
    child.wait()?;
    Ok(())
}
