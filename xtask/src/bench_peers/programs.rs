//! Programs per second: `ganger worker` with one program for each job, beside a loop that only starts the program.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ganger_bench::rate;

use super::ganger;
use super::report::Report;

/// Name of the row of both measurements.
pub(super) const ROW: &str = "programs, JSON in and out";
/// Number of programs that run at the same time, in both measurements.
const CONCURRENCY: usize = 4;
/// Number of programs that each measurement starts.
const PROGRAMS: usize = 8_000;
/// The program, which copies its input to its output: close to the minimum of a program with JSON in and out.
const PROGRAM: &str = "/bin/cat";

/// Measures both with the same program, input and count.
pub(super) async fn measure(
    server: &ganger::Server,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    println!("measuring programs");
    report.add(ROW, "bare spawn", "programs/s", bare()?);
    report.add(
        ROW,
        ganger::GRPC,
        "programs/s",
        server
            .programs(PROGRAM, PROGRAMS, CONCURRENCY, directory)
            .await?,
    );
    Ok(())
}

fn bare() -> Result<f64> {
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..CONCURRENCY)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    for _ in 0..PROGRAMS / CONCURRENCY {
                        run_program()?;
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

/// Starts the program, writes its input, reads its output, and waits for its end. The standard library uses
/// `posix_spawn`.
fn run_program() -> Result<()> {
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
