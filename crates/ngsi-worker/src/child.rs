//! A child process that inserts tasks. Requests and replies are lines of JSON.

use std::fs;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ganger_ngsi::postgres::protocol::{self, Outcome, Reply, Request};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::settings::Program;

/// Longest time from a process's start to its first answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time for a process to end after its input is closed.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of batches after which a process is replaced, which bounds the effect of leaks.
const BATCHES_MAX: u32 = 10_000;
/// Resident memory in bytes beyond which a process is replaced.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;

/// The reason why a process gave no valid reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildFailure {
    /// The process has ended.
    #[error("it ended with {0}")]
    Exited(ExitStatus),
    /// The process did not reply in time and was killed.
    #[error("it did not reply within {0:?} and was killed")]
    TimedOut(Duration),
    /// The process sent an invalid reply and was killed.
    #[error("it sent an invalid reply: {0}")]
    InvalidReply(String),
    /// The process was killed because the pool stops at once.
    #[error("it was killed")]
    Killed,
    /// Starting or using the process failed.
    #[error("it cannot be run: {0}")]
    System(#[from] io::Error),
}

/// A process that inserts. Dropping this value kills it.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    started_at: Instant,
    batches: u32,
}

impl Child {
    /// Starts a process, and waits until it replies.
    pub(crate) async fn start(program: &Program) -> Result<Self, ChildFailure> {
        let mut child = Self::spawn(program)?;
        let nothing = Request {
            inserts: Vec::new(),
        };
        child.ask(&nothing, START_TIMEOUT).await?;
        Ok(child)
    }

    fn spawn(program: &Program) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        for name in &program.hidden {
            command.env_remove(name);
        }
        let mut process = command
            .args(&program.arguments)
            .envs(program.variables.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A separate process group, so that a terminal's Ctrl-C does not interrupt a running insert.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("no pipes were made"))?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
            started_at: Instant::now(),
            batches: 0,
        })
    }

    /// Inserts a batch; returns the outcome of each task, in order. After an error the process has ended.
    pub(crate) async fn ask(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<Vec<Outcome>, ChildFailure> {
        let asked = timeout(patience, self.exchange(request)).await;
        let failure = match asked {
            Ok(Ok(outcomes)) => return Ok(outcomes),
            Ok(Err(failure)) => failure,
            Err(_) => ChildFailure::TimedOut(patience),
        };
        Err(self.reap(failure).await)
    }

    async fn exchange(&mut self, request: &Request) -> Result<Vec<Outcome>, ChildFailure> {
        self.batches += 1;
        self.input.write_all(&protocol::to_line(request)).await?;
        let mut line = Vec::new();
        self.output.read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let reply: Reply = protocol::from_line(&line)
            .map_err(|error| ChildFailure::InvalidReply(error.to_string()))?;
        if reply.outcomes.len() != request.inserts.len() {
            let reason = format!(
                "{} outcomes for {} tasks",
                reply.outcomes.len(),
                request.inserts.len()
            );
            return Err(ChildFailure::InvalidReply(reason));
        }
        Ok(reply.outcomes)
    }

    /// Ensures that the process has ended. If it exited by itself, its exit status replaces the error of the pipe.
    async fn reap(&mut self, failure: ChildFailure) -> ChildFailure {
        if matches!(failure, ChildFailure::System(_))
            && let Ok(Ok(status)) = timeout(END_TIMEOUT, self.process.wait()).await
        {
            return ChildFailure::Exited(status);
        }
        // The process may have ended just now.
        let _ = self.process.kill().await;
        failure
    }

    /// Waits for an unexpected end of the process.
    pub(crate) async fn wait_for_exit(&mut self) -> ChildFailure {
        match self.process.wait().await {
            Ok(status) => ChildFailure::Exited(status),
            Err(error) => ChildFailure::System(error),
        }
    }

    /// Returns how long the process has run.
    pub(crate) fn lived_for(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Returns why the process must be replaced; `None` if it need not be.
    pub(crate) fn replacement_reason(&self) -> Option<String> {
        if self.batches >= BATCHES_MAX {
            return Some(format!("it has inserted {} batches", self.batches));
        }
        let bytes = resident_bytes(self.process.id()?)?;
        (bytes > RESIDENT_BYTES_MAX).then(|| {
            format!(
                "it uses {} MiB of memory, the limit is {} MiB",
                bytes >> 20,
                RESIDENT_BYTES_MAX >> 20
            )
        })
    }

    /// Closes the input, waits for the process to end, and kills it if it does not.
    pub(crate) async fn end(self) {
        let Self {
            mut process, input, ..
        } = self;
        drop(input);
        if timeout(END_TIMEOUT, process.wait()).await.is_err() {
            // The process may have ended just now.
            let _ = process.kill().await;
        }
    }
}

/// Returns the resident memory of a process; `None` if the system does not report it.
fn resident_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_reported() {
        let bytes = resident_bytes(std::process::id()).expect("this is Linux");
        assert!(bytes > 100 << 10, "{bytes}");
        assert_eq!(resident_bytes(u32::MAX), None);
    }
}
