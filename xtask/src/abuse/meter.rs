//! Measures the effect of an attack from outside: memory, latency of `/healthz`, calls of another identity.

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Memory in KiB at which the server is killed.
const MEMORY_MAX_KIB: u64 = 2 << 20;
/// Interval between checks of the server's memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Timeout of a call; a longer one has failed.
const CALL_MAX: Duration = Duration::from_secs(10);

/// A measurement, which runs on separate threads until it is finished.
pub(super) struct Meter {
    stop: Arc<AtomicBool>,
    idle_kib: u64,
    memory: JoinHandle<(u64, bool)>,
    health: JoinHandle<Vec<Duration>>,
    others: JoinHandle<(usize, usize, Duration)>,
}

/// The results of a measurement: a row of the table.
pub(super) struct Row {
    above_idle_kib: u64,
    was_ended: bool,
    /// Latencies of the health checks, sorted.
    health: Vec<Duration>,
    /// Number of successful calls, number of failed ones, and the longest time.
    others: (usize, usize, Duration),
}

impl Meter {
    pub(super) fn start(process: u32, address: SocketAddr, token: &str) -> Result<Self> {
        let idle_kib = resident_kib(process).context("the server's memory")?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = |stop: &Arc<AtomicBool>| {
            let stop = Arc::clone(stop);
            move || stop.load(Ordering::Relaxed)
        };
        let is_over = until(&stop);
        let memory = thread::spawn(move || watch_memory(process, is_over));
        let is_over = until(&stop);
        let health = thread::spawn(move || {
            let request = request("GET", "/healthz", "", "");
            let mut times = Vec::new();
            while !is_over() {
                let begun = Instant::now();
                let is_answered = call(address, &request, "200").is_ok();
                times.push(if is_answered {
                    begun.elapsed()
                } else {
                    CALL_MAX
                });
                thread::sleep(LOOK_EVERY);
            }
            times
        });
        let is_over = until(&stop);
        let submit = request("POST", "/api/v1/jobs", token, r#"{"kind":"other"}"#);
        let others = thread::spawn(move || {
            let (mut done, mut failed, mut longest) = (0, 0, Duration::ZERO);
            while !is_over() {
                let begun = Instant::now();
                match call(address, &submit, "201") {
                    Ok(()) => done += 1,
                    Err(_) => failed += 1,
                }
                longest = longest.max(begun.elapsed());
                thread::sleep(LOOK_EVERY);
            }
            (done, failed, longest)
        });
        Ok(Self {
            stop,
            idle_kib,
            memory,
            health,
            others,
        })
    }

    pub(super) fn finish(self) -> Row {
        self.stop.store(true, Ordering::Relaxed);
        let (peak_kib, was_ended) = self.memory.join().unwrap_or_default();
        let mut health = self.health.join().unwrap_or_default();
        health.sort_unstable();
        Row {
            above_idle_kib: peak_kib.saturating_sub(self.idle_kib),
            was_ended,
            health,
            others: self.others.join().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p99 = self.health.get(self.health.len() * 99 / 100);
        let millis = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        write!(
            f,
            "{:>11} MiB   {:>8} ms {:>5} ms   {} ok, {} failed, max {} ms",
            self.above_idle_kib >> 10,
            millis(p99),
            millis(self.health.last()),
            self.others.0,
            self.others.1,
            self.others.2.as_millis(),
        )?;
        if self.was_ended {
            f.write_str("   ENDED at the limit of memory")?;
        }
        Ok(())
    }
}

/// Returns the peak of memory in KiB, and whether the server was killed because of it.
fn watch_memory(process: u32, is_over: impl Fn() -> bool) -> (u64, bool) {
    let mut peak = 0;
    while !is_over() {
        let Some(now) = resident_kib(process) else {
            break;
        };
        peak = peak.max(now);
        if now > MEMORY_MAX_KIB {
            let _ = Command::new("kill")
                .args(["-KILL", &process.to_string()])
                .status();
            return (peak, true);
        }
        thread::sleep(LOOK_EVERY);
    }
    (peak, false)
}

fn resident_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns an HTTP/1.1 request with `Connection: close`.
pub(super) fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let authorization = if token.is_empty() {
        String::new()
    } else {
        format!("Authorization: Bearer {token}\r\n")
    };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

/// Sends a request; fails unless the answer has this status.
pub(super) fn call(address: SocketAddr, request: &[u8], status: &str) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, CALL_MAX)?;
    stream.set_read_timeout(Some(CALL_MAX))?;
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let got = answer.split(' ').nth(1).unwrap_or_default();
    anyhow::ensure!(
        got == status,
        "{}",
        answer.lines().last().unwrap_or_default()
    );
    Ok(())
}
