//! Calls of the qless script from a generator that pipelines, so that the server is what is measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use super::{Figures, Server, clients};
use crate::bench_peers::wire::Wire;

/// Connections that work side by side.
const CONNECTIONS: usize = 4;
/// Jobs of a load.
const JOBS: usize = 40_000;
/// Calls sent together.
const PIPELINED: usize = 50;
/// What a job carries.
const DATA: &str = r#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

/// Runs all loads.
pub(super) fn measure(name: &'static str, server: &Server, figures: &mut Figures) -> Result<()> {
    let script = clients::script()?;
    let digest = Caller::connect(server.address)?.load(script)?;
    let run = |work: Work| side_by_side(server.address, &digest, work);
    figures.measure("qless put", name, server, JOBS, || run(put))?;
    figures.measure("qless pop + complete", name, server, JOBS, || run(pop_one))?;
    // A second load to be popped by fifties; putting it is measured above already.
    run(put)?;
    figures.measure(
        "qless pop of 50 + complete of each",
        name,
        server,
        JOBS,
        || run(pop_many),
    )
}

type Work = fn(&mut Caller, usize, &AtomicUsize) -> Result<()>;

/// The seconds until every connection has done its part.
fn side_by_side(address: SocketAddr, digest: &str, work: Work) -> Result<f64> {
    let left = AtomicUsize::new(JOBS);
    let begun = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let left = &left;
                scope.spawn(move || {
                    let mut caller = Caller::connect(address)?;
                    digest.clone_into(&mut caller.digest);
                    work(&mut caller, number, left)
                })
            })
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a load does not panic"))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn put(caller: &mut Caller, number: usize, _: &AtomicUsize) -> Result<()> {
    let run = now();
    let mut left = JOBS / CONNECTIONS;
    while left > 0 {
        let count = left.min(PIPELINED);
        for job in 0..count {
            let jid = format!("{run}-{number}-{left}-{job}");
            caller.call(&["put", &now(), "load", &jid, "k", DATA, "0"]);
        }
        caller.wire.flush()?;
        for _ in 0..count {
            caller.reply()?;
        }
        left -= count;
    }
    Ok(())
}

fn pop_one(caller: &mut Caller, number: usize, left: &AtomicUsize) -> Result<()> {
    pop(caller, number, left, 1)
}

fn pop_many(caller: &mut Caller, number: usize, left: &AtomicUsize) -> Result<()> {
    pop(caller, number, left, 50)
}

/// Pops until nothing is left; completes each job with the call that follows.
fn pop(caller: &mut Caller, number: usize, left: &AtomicUsize, at_once: usize) -> Result<()> {
    let worker = format!("worker{number}");
    let (calls, count) = (PIPELINED / at_once, at_once.to_string());
    while left.load(Ordering::Relaxed) > 0 {
        for _ in 0..calls {
            caller.call(&["pop", &now(), "load", &worker, &count]);
        }
        caller.wire.flush()?;
        let mut jids = Vec::new();
        for _ in 0..calls {
            let popped = caller.reply()?.context("a pop answers with JSON")?;
            jids.extend(jids_in(&popped));
        }
        for jid in &jids {
            caller.call(&["complete", &now(), jid, &worker, "load", DATA]);
        }
        caller.wire.flush()?;
        for _ in &jids {
            caller.reply()?;
        }
        left.fetch_sub(jids.len(), Ordering::Relaxed);
    }
    Ok(())
}

/// The values of every key `jid` in some JSON.
fn jids_in(json: &str) -> Vec<String> {
    json.split(r#""jid":""#)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:.6}", now.unwrap_or_default().as_secs_f64())
}

/// A connection that calls the script.
struct Caller {
    wire: Wire,
    digest: String,
}

impl Caller {
    fn connect(address: SocketAddr) -> Result<Self> {
        let wire = Wire::connect(address)?;
        let digest = String::new();
        Ok(Self { wire, digest })
    }

    /// Has the script loaded: its digest.
    fn load(&mut self, script: &str) -> Result<String> {
        self.send(&["SCRIPT", "LOAD", script]);
        self.wire.flush()?;
        self.reply()?.context("a digest")
    }

    fn call(&mut self, words: &[&str]) {
        let digest = self.digest.clone();
        let mut all = vec!["EVALSHA", &digest, "0"];
        all.extend(words);
        self.send(&all);
    }

    fn send(&mut self, words: &[&str]) {
        self.wire.add(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.wire
                .add(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }

    /// A string, or nothing; an error is one here too.
    fn reply(&mut self) -> Result<Option<String>> {
        let line = self.wire.line()?;
        match line.strip_prefix('$') {
            Some("-1") => Ok(None),
            Some(length) => {
                let length: usize = length.parse()?;
                let mut bytes = self.wire.bytes(length + 2)?;
                bytes.truncate(length);
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            None => bail!("the server said {line:?}"),
        }
    }
}
