//! Attacks a server over its ports and measures the effect: memory above idle, the latency of `/healthz`, and whether
//! calls of another identity still succeed.
//!
//! Everything runs on loopback, with limits on connections and time; the server is killed if it uses too much memory.
//! An attack is a function that opens connections and leaves them open: add one to [`http::ATTACKS`], or to the list
//! of another port in [`attacks`].

mod http;
mod meter;
mod quantumleap;
mod redis;
mod wire;

use std::any::Any;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::process::{OPTIMISED, output, root, start_optimised};
use meter::Meter;

/// Identities of the server under attack, and their grants.
const IDENTITIES: [(&str, &str); 4] = [
    ("attacker", "producer@default"),
    ("attacker-worker", "worker@default"),
    ("other", "admin@*"),
    ("victim", "admin@*"),
];
/// Time for which an attack holds its connections open.
const HOLD_TIME: Duration = Duration::from_secs(5);
/// Divisor of the numbers of connections when all attacks run at once.
const DIVISOR_OF_ALL: usize = 15;
/// Bytes of the payload that attackers read.
const PAYLOAD_BYTES: usize = 1_000_000;

/// The connections that an attack leaves open.
pub(crate) type OpenConnections = Vec<Box<dyn Any + Send>>;

/// An attack with its name.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Target) -> OpenConnections,
}

/// The server under attack, and its tokens.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Address of the Redis port.
    pub(crate) redis: SocketAddr,
    /// Address of the QuantumLeap port.
    pub(crate) quantumleap: SocketAddr,
    /// Divisor of the number of connections of each attack: all attacks together make about 1,000.
    pub(crate) divisor: usize,
    tokens: Vec<(&'static str, String)>,
}

impl Target {
    /// Returns the token of an identity.
    pub(crate) fn token(&self, name: &str) -> &str {
        let found = self.tokens.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, token)| token)
    }
}

/// Opens connections; a failure of one, such as a refusal, does not stop the others.
fn each(
    target: &Target,
    count: usize,
    mut connect: impl FnMut(&mut OpenConnections) -> Result<()>,
) -> OpenConnections {
    let mut open = Vec::new();
    for _ in 0..count.div_ceil(target.divisor) {
        let _ = connect(&mut open);
    }
    open
}

/// Returns all attacks, in the order of the table.
fn attacks() -> impl Iterator<Item = &'static Attack> {
    let all = [http::ATTACKS, redis::ATTACKS, quantumleap::ATTACKS];
    all.into_iter().flatten()
}

/// Runs the named attacks, or each attack and then all of them at once.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED, wanted @ ..] => measure(wanted),
        wanted if env::var_os("GANGER_BIN").is_some() => measure(wanted),
        wanted => start_optimised("abuse", wanted),
    }
}

fn measure(wanted: &[&str]) -> Result<()> {
    let known = |name: &str| name == "all-at-once" || attacks().any(|attack| attack.name == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<&str> = attacks().map(|attack| attack.name).collect();
        bail!(
            "no attack {unknown:?}: there are {}, all-at-once",
            names.join(", ")
        );
    }
    println!("attack                       peak above idle   healthz p99     max   others' calls");
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    for attack in attacks().filter(|attack| is_wanted(attack.name)) {
        run_attacks(attack.name, &[attack])?;
    }
    if is_wanted("all-at-once") {
        let all: Vec<&Attack> = attacks().collect();
        run_attacks("all-at-once", &all)?;
    }
    Ok(())
}

/// Runs attacks at the same time against a new server, and prints a row of the table.
fn run_attacks(name: &str, attacks: &[&Attack]) -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = scratch.directory("server")?;
    let divisor = if attacks.len() > 1 { DIVISOR_OF_ALL } else { 1 };
    let (target, process) = start(&directory, divisor)?;
    http::submit_large_job(&target, PAYLOAD_BYTES)?;
    redis::put_keys(&target)?;
    thread::sleep(Duration::from_millis(500));
    let meter = Meter::start(process.id(), target.address, target.token("other"))?;
    let open: Result<Vec<OpenConnections>> = thread::scope(|scope| {
        let each = attacks.iter().map(|attack| {
            let target = &target;
            scope.spawn(move || (attack.run)(target))
        });
        let each: Vec<_> = each.collect();
        each.into_iter()
            .map(|running| running.join().map_err(|_| anyhow!("an attack panicked")))
            .collect()
    });
    thread::sleep(HOLD_TIME);
    let row = meter.finish();
    let audit = fs::metadata(directory.join("audit.log")).map_or(0, |file| file.len());
    println!("{name:28} {row}   (audit log {} KiB)", audit >> 10);
    drop(process);
    drop(open?);
    Ok(())
}

fn start(directory: &Path, divisor: usize) -> Result<(Target, Process)> {
    // The variable names another binary, to compare builds.
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    let program = named.unwrap_or_else(|| root().join("target/release/ganger"));
    let access = directory.join("access");
    let mut tokens = Vec::new();
    for (name, grants) in IDENTITIES {
        let secret = directory.join(name);
        output(
            Command::new(&program)
                .args(["token", "create", "--name", name, "--grant", grants])
                .arg("--access-file")
                .arg(&access)
                .arg("--secret-file")
                .arg(&secret),
        )?;
        let token = fs::read_to_string(&secret).context("the token that was made")?;
        tokens.push((name, token.trim().to_owned()));
    }
    let address = free_address()?;
    let (redis, quantumleap) = (free_address()?, free_address()?);
    let mut command = Command::new(program);
    command
        .args(["server", "--addr", &address.to_string()])
        .args(["--resp", &redis.to_string()])
        .args(["--quantumleap", &quantumleap.to_string()])
        .env("WQ_OFFLOAD_WORK", "true")
        .arg("--access-file")
        .arg(&access)
        .arg("--audit-log")
        .arg(directory.join("audit.log"))
        .arg("--db")
        .arg(directory.join("store.db"));
    let process = Process::start(&mut command, directory, address)?;
    let target = Target {
        address,
        redis,
        quantumleap,
        divisor,
        tokens,
    };
    Ok((target, process))
}
