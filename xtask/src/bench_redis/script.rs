//! Pipelined calls of the qless script, so that the server is what is measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use ganger_bench::Wire;

use super::{Figures, Server, clients};

/// Number of connections that work at the same time.
const CONNECTIONS: usize = 4;
/// Number of jobs of a load.
const JOBS: usize = 100_000;
/// Number of calls that are sent together.
const PIPELINED: usize = 50;
/// Data of a job.
const DATA: &str = r#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

/// Runs all loads against the server.
pub(super) fn measure(name: &'static str, server: &Server, figures: &mut Figures) -> Result<()> {
    let script = clients::script()?;
    let digest = Caller::connect(server.address)?.load(script)?;
    let run = |work: Work| run_concurrently(server.address, &digest, work);
    figures.measure("qless put", name, server, JOBS, || run(put))?;
    figures.measure("qless pop + complete", name, server, JOBS, || run(pop_one))?;
    // More jobs for the next measurement; their `put` was measured above already.
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

/// Returns the seconds until every connection has done its part.
fn run_concurrently(address: SocketAddr, digest: &str, work: Work) -> Result<f64> {
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

/// Puts a part of the jobs. Each batch of calls is sent before the replies to the previous one are read, so that the
/// server always has work.
fn put(caller: &mut Caller, number: usize, _: &AtomicUsize) -> Result<()> {
    let run = now();
    let mut unread = 0;
    let mut left = JOBS / CONNECTIONS;
    while left > 0 {
        let count = left.min(PIPELINED);
        for job in 0..count {
            let jid = format!("{run}-{number}-{left}-{job}");
            caller.call(&["put", &now(), "load", &jid, "k", DATA, "0"]);
        }
        caller.wire.flush()?;
        caller.skip_replies(unread)?;
        unread = count;
        left -= count;
    }
    caller.skip_replies(unread)
}

fn pop_one(caller: &mut Caller, number: usize, left: &AtomicUsize) -> Result<()> {
    pop(caller, number, left, 1)
}

fn pop_many(caller: &mut Caller, number: usize, left: &AtomicUsize) -> Result<()> {
    pop(caller, number, left, 50)
}

/// Pops until no job is left; completes the popped jobs together with the next pop.
fn pop(caller: &mut Caller, number: usize, left: &AtomicUsize, at_once: usize) -> Result<()> {
    let worker = format!("worker{number}");
    let (calls, count) = (PIPELINED / at_once, at_once.to_string());
    let mut jids: Vec<String> = Vec::new();
    while left.load(Ordering::Relaxed) > 0 {
        for jid in &jids {
            caller.call(&["complete", &now(), jid, &worker, "load", DATA]);
        }
        for _ in 0..calls {
            caller.call(&["pop", &now(), "load", &worker, &count]);
        }
        caller.wire.flush()?;
        caller.skip_replies(jids.len())?;
        left.fetch_sub(jids.len(), Ordering::Relaxed);
        jids.clear();
        for _ in 0..calls {
            jids_in(
                caller.reply()?.context("a pop answers with JSON")?,
                &mut jids,
            );
        }
    }
    Ok(())
}

/// Appends the values of every key `jid` in JSON.
fn jids_in(json: &[u8], jids: &mut Vec<String>) {
    let json = String::from_utf8_lossy(json);
    let values = json.split(r#""jid":""#).skip(1);
    jids.extend(values.filter_map(|rest| rest.split('"').next().map(str::to_owned)));
}

fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:.6}", now.unwrap_or_default().as_secs_f64())
}

/// A connection that calls the script with little work of its own.
struct Caller {
    wire: Wire,
    digest: String,
}

impl Caller {
    fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            wire: Wire::connect(address)?,
            digest: String::new(),
        })
    }

    /// Loads the script; returns its digest.
    fn load(&mut self, script: &str) -> Result<String> {
        self.begin(3);
        self.words(&["SCRIPT", "LOAD", script]);
        self.wire.flush()?;
        let digest = self.reply()?.context("a digest")?;
        Ok(String::from_utf8_lossy(digest).into_owned())
    }

    fn call(&mut self, words: &[&str]) {
        self.begin(3 + words.len());
        self.words(&["EVALSHA"]);
        add_word(&mut self.wire, &self.digest);
        self.words(&["0"]);
        self.words(words);
    }

    fn begin(&mut self, count: usize) {
        add_length(&mut self.wire, b"*", count);
    }

    fn words(&mut self, words: &[&str]) {
        for word in words {
            add_word(&mut self.wire, word);
        }
    }

    /// Reads a string reply, `None` for a null; an error reply is a failure.
    fn reply(&mut self) -> Result<Option<&[u8]>> {
        let line = self.wire.line()?;
        let length: usize = match line.split_first() {
            Some((b'$', b"-1")) => return Ok(None),
            Some((b'$', length)) => str::from_utf8(length)?.parse()?,
            _ => bail!("the server answered {:?}", String::from_utf8_lossy(line)),
        };
        Ok(Some(&self.wire.bytes(length + 2)?[..length]))
    }

    /// Reads `count` replies and ignores them.
    fn skip_replies(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.reply().map(drop))
    }
}

fn add_word(wire: &mut Wire, word: &str) {
    add_length(wire, b"$", word.len());
    wire.add(word.as_bytes());
    wire.add(b"\r\n");
}

fn add_length(wire: &mut Wire, kind: &[u8], length: usize) {
    wire.add(kind);
    wire.add(length.to_string().as_bytes());
    wire.add(b"\r\n");
}
