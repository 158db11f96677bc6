//! Random calls of the qless script, answered by ganger and by a Redis that runs the script itself, are answered alike.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients::Qless;
use ganger_e2e::ports::free_address;
use ganger_e2e::redis::{World, or_skip};
use ganger_e2e::server::PATIENCE;

/// Calls of each seed.
const CALLS: &str = "3000";
/// What the calls follow from.
const SEEDS: [&str; 2] = ["1", "2"];

/// A Redis without files; ended when dropped.
struct Redis(Child);

impl Redis {
    fn start(port: u16) -> Result<Self> {
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server is not there")?;
        let redis = Self(child);
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(begun.elapsed() < PATIENCE, "Redis does not listen");
            std::thread::yield_now();
        }
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It keeps nothing that could be lost.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn random_calls_are_answered_as_the_script_answers_them_in_redis() -> Result<()> {
    const NAME: &str = "random_calls_are_answered_as_the_script_answers_them_in_redis";
    let address = free_address()?;
    let Some(_redis) = or_skip(NAME, Redis::start(address.port())) else {
        return Ok(());
    };
    for seed in SEEDS {
        let Some(python) = or_skip(NAME, Qless::Reqless.python()) else {
            return Ok(());
        };
        let world = World::new(&["--resp-allow-flush"])?;
        let port = address.port().to_string();
        world.lives(python, "qless_compare.py", &[&port, seed, CALLS])?;
    }
    Ok(())
}
