//! Random commands to ganger and to a real Redis 7: the replies are compared byte for byte, in both versions of the
//! protocol.
//!
//! Not compared are results that depend on the clock within a second, the order of `KEYS`, which Redis does not
//! define, and watched keys, because Redis counts some commands as changes that change nothing. No key has the name
//! of a work queue, because ganger repairs those by itself.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::kit::{Client, World, encode};
use ganger_e2e::skip::note_skip;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Number of commands in each version of the protocol.
const COMMANDS: usize = 50_000;
/// Number of commands that are sent together.
const TOGETHER: usize = 500;

/// A real Redis, killed when dropped.
struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    fn start(directory: &Path) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        drop(listener);
        let port = address.port().to_string();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
            ])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let redis = Self { child, address };
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "redis-server does not listen"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Source of random commands, from a seed.
struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u32()).expect("small") % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn key(&mut self) -> &'static str {
        self.one(&[
            "a", "b", "c", "d:line", "d:doing", "d:item:1", "e[1]", "f\\", "", "g\r\n",
        ])
    }

    fn value(&mut self) -> String {
        match self.below(6) {
            0 => String::new(),
            1 => "x\r\n\0y".to_owned(),
            2 => "9223372036854775806".to_owned(),
            3 => "v".repeat(self.below(300)),
            _ => self.below(4).to_string(),
        }
    }

    /// A valid or invalid number.
    fn number(&mut self) -> String {
        match self.below(12) {
            0 => self
                .one(&[
                    "x",
                    "",
                    "1.5",
                    "+1",
                    "01",
                    "9223372036854775808",
                    "-9223372036854775808",
                    "-0",
                ])
                .to_owned(),
            1 => "9223372036854775807".to_owned(),
            2..=5 => format!("-{}", self.below(6) + 1),
            _ => self.below(6).to_string(),
        }
    }

    /// An expiry that is longer than the test.
    fn long(&mut self) -> String {
        match self.below(10) {
            0 => self.number_without_time(),
            _ => (self.below(1_000) + 100_000).to_string(),
        }
    }

    /// A number that is refused or is an expiry in the past.
    fn number_without_time(&mut self) -> String {
        self.one(&["x", "0", "-1", "1.5", "", "9223372036854775807"])
            .to_owned()
    }

    fn case(&mut self, word: &str) -> String {
        match self.below(3) {
            0 => word.to_uppercase(),
            _ => word.to_owned(),
        }
    }

    fn many(&mut self, mut make: impl FnMut(&mut Self) -> String) -> Vec<String> {
        (0..=self.below(4)).map(|_| make(self)).collect()
    }

    fn command(&mut self) -> Vec<String> {
        let mut words = self.plain();
        words[0] = self.case(&words[0].clone());
        // Too few or too many words.
        match self.below(60) {
            0 => {
                words.pop();
            }
            1 => {
                let more = self.value();
                // After the lists of a blocking command it would be the timeout, and 0 is forever.
                let waits = words[0].to_ascii_lowercase().starts_with('b');
                words.push(if waits { "x".to_owned() } else { more });
            }
            _ => {}
        }
        if words.is_empty() {
            words.push("PING".to_owned());
        }
        words
    }

    fn plain(&mut self) -> Vec<String> {
        match self.below(4) {
            0 => self.string(),
            1 => self.general(),
            _ => self.list(),
        }
    }

    fn string(&mut self) -> Vec<String> {
        let key = self.key().to_owned();
        let name = self.one(&[
            "get",
            "set",
            "set",
            "setnx",
            "setex",
            "psetex",
            "getset",
            "getdel",
            "append",
            "strlen",
            "incr",
            "decr",
            "incrby",
            "decrby",
            "mset",
            "mget",
            "set-options",
        ]);
        let rest = match name {
            "set" | "setnx" | "getset" | "append" => vec![self.value()],
            "setex" => vec![self.long(), self.value()],
            "psetex" => vec![format!("{}000", self.long()), self.value()],
            "incrby" | "decrby" => vec![self.number()],
            "mset" => {
                let value = self.value();
                let mut rest = vec![value];
                for _ in 0..self.below(3) {
                    rest.push(self.key().to_owned());
                    rest.push(self.value());
                }
                rest
            }
            "mget" => self.many(|dice| dice.key().to_owned()),
            "set-options" => {
                let mut words = vec!["set".to_owned(), key, self.value()];
                for _ in 0..=self.below(3) {
                    let option =
                        self.one(&["nx", "xx", "get", "keepttl", "ex", "px", "EXAT", "what"]);
                    words.push(option.to_owned());
                    match option {
                        "ex" | "px" => words.push(format!("{}000", self.long())),
                        "EXAT" => words.push("99999999999".to_owned()),
                        _ => {}
                    }
                }
                return words;
            }
            _ => Vec::new(),
        };
        [vec![name.to_owned(), key], rest].concat()
    }

    fn list(&mut self) -> Vec<String> {
        let key = self.key().to_owned();
        let name = self.one(&[
            "lpush",
            "rpush",
            "lpush",
            "rpush",
            "lpushx",
            "rpushx",
            "lpop",
            "rpop",
            "llen",
            "lrange",
            "lrem",
            "lindex",
            "lset",
            "linsert",
            "ltrim",
            "lpos",
            "rpoplpush",
            "lmove",
            "lpop-count",
            "brpoplpush",
            "lpos-options",
            "blpop",
            "brpop",
            "blmove",
        ]);
        let end = |dice: &mut Self| dice.one(&["left", "RIGHT", "right", "middle"]).to_owned();
        let (name, rest) = match name {
            "lpush" | "rpush" | "lpushx" | "rpushx" => (name, self.many(Self::value)),
            "lrange" | "ltrim" => (name, vec![self.number(), self.number()]),
            "lindex" => (name, vec![self.number()]),
            "lrem" | "lset" => (name, vec![self.number(), self.value()]),
            "lpos" => (name, vec![self.value()]),
            "rpoplpush" => (name, vec![self.key().to_owned()]),
            "lmove" => (name, vec![self.key().to_owned(), end(self), end(self)]),
            "lpop-count" => ("lpop", vec![self.number()]),
            "linsert" => (
                name,
                vec![
                    self.one(&["before", "AFTER", "x"]).to_owned(),
                    self.value(),
                    self.value(),
                ],
            ),
            "lpos-options" => {
                let mut rest = vec![self.value()];
                for _ in 0..=self.below(2) {
                    rest.push(self.one(&["rank", "COUNT", "maxlen", "x"]).to_owned());
                    rest.push(self.number());
                }
                ("lpos", rest)
            }
            // One millisecond, because an empty list stays empty.
            "brpoplpush" => (name, vec![self.key().to_owned(), self.wait()]),
            "blpop" | "brpop" => (name, vec![self.wait()]),
            "blmove" => (
                name,
                vec![self.key().to_owned(), end(self), end(self), self.wait()],
            ),
            _ => (name, Vec::new()),
        };
        [vec![name.to_owned(), key], rest].concat()
    }

    /// A timeout that is very short or invalid.
    fn wait(&mut self) -> String {
        self.one(&["0.001", "0.001", "0.0001", "1e-3", "-1", "x", "", "nan"])
            .to_owned()
    }

    fn general(&mut self) -> Vec<String> {
        let key = self.key().to_owned();
        let name = self.one(&[
            "del", "unlink", "exists", "type", "ttl", "persist", "expire", "pexpire", "expireat",
            "dbsize", "ping", "echo", "multi", "exec", "exec", "discard", "watch", "unwatch",
            "select", "nothing", "flushdb", "client", "script", "evalsha", "object",
        ]);
        // Without qless every script is refused with an error that Redis does not have.
        let name = match name {
            "script" | "evalsha" if cfg!(not(feature = "qless")) => "ping",
            name => name,
        };
        let rest = match name {
            "del" | "unlink" | "exists" => {
                [vec![key], self.many(|dice| dice.key().to_owned())].concat()
            }
            "type" | "persist" => vec![key],
            "ttl" => {
                // Only absent expiries are compared, because others might be at the edge of a second.
                vec!["never".to_owned()]
            }
            "expire" => vec![key, self.long()],
            "pexpire" => vec![key, format!("{}000", self.long())],
            "expireat" => vec![key, self.one(&["99999999999", "1", "-5", "x"]).to_owned()],
            "echo" => vec![self.value()],
            "select" => vec![
                self.one(&["0", "0", "1", "16", "-1", "x", "99999999999"])
                    .to_owned(),
            ],
            "nothing" => self.many(Self::value),
            "flushdb" => match self.below(20) {
                0 => Vec::new(),
                _ => vec!["x".to_owned()],
            },
            "client" => match self.below(3) {
                0 => vec!["getname".to_owned()],
                1 => vec!["setname".to_owned(), self.one(&["a", "a b", ""]).to_owned()],
                _ => vec![self.one(&["MAINT_NOTIFICATIONS", "what"]).to_owned()],
            },
            "script" => vec!["exists".to_owned(), "x".to_owned()],
            "evalsha" => vec!["x".to_owned(), self.one(&["0", "-1", "3", "x"]).to_owned()],
            // A command that Redis has and ganger has not.
            "object" => return vec!["nosuch".to_owned(), key],
            _ => Vec::new(),
        };
        [vec![name.to_owned()], rest].concat()
    }
}

fn compare(seed: u64, version: &str, mine: &World, theirs: &Redis) {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let mut clients = [Client::new(mine.address), Client::new(theirs.address)];
    for client in &mut clients {
        client.send(&encode(&["HELLO", version]));
        client.reply();
        client.send(&encode(&["FLUSHALL"]));
        assert_eq!(client.reply(), b"+OK\r\n");
    }
    let (mut before, mut wrong) = (Vec::new(), Vec::new());
    for _ in 0..COMMANDS / TOGETHER {
        let commands: Vec<_> = (0..TOGETHER).map(|_| dice.command()).collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        for client in &mut clients {
            client.send(&bytes);
        }
        for words in commands {
            let [mine, theirs] = clients.each_mut().map(Client::reply);
            before.push(format!("{words:?} -> {}", theirs.escape_ascii()));
            if mine != theirs {
                let last = before.len().saturating_sub(15);
                wrong.push(format!(
                    "{}\n  but ganger: {}",
                    before[last..].join("\n"),
                    mine.escape_ascii()
                ));
            }
        }
        assert!(
            wrong.is_empty(),
            "seed {seed}, RESP{version}: {} replies differ:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(10)].join("\n\n")
        );
    }
}

#[test]
fn replies_are_those_of_redis() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(redis) = Redis::start(directory.path()) else {
        note_skip(
            "replies_are_those_of_redis",
            "redis-server is not installed",
        );
        return;
    };
    let world = World::new();
    for (seed, version) in [(1, "2"), (2, "3")] {
        compare(seed, version, &world, &redis);
    }
}
