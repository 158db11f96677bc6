//! The Redis to import from: a connection that sends only reading commands.

use std::time::Duration;

use ganger_client::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::value::Value;
use crate::context::remark;
use crate::exit::{Exit, Failure};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for a Redis that loads its data.
const LOADING_TIMEOUT: Duration = Duration::from_mins(10);
/// Interval between checks while the Redis loads its data.
const LOADING_PAUSE: Duration = Duration::from_millis(250);
/// Maximum bytes of a value: more than any Redis stores.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// Maximum number of elements of a reply.
const ELEMENTS_MAX: usize = 16 << 20;
/// Maximum depth of lists within lists.
const DEPTH_MAX: usize = 8;

/// The only commands that are sent; none of them writes.
const COMMANDS: [&str; 19] = [
    "AUTH",
    "SELECT",
    "INFO",
    "SCAN",
    "TYPE",
    "GET",
    "STRLEN",
    "PTTL",
    "EXISTS",
    "HGETALL",
    "HMGET",
    "HSTRLEN",
    "LLEN",
    "LRANGE",
    "SMEMBERS",
    "SISMEMBER",
    "ZRANGE",
    "ZSCORE",
    "ZCARD",
];

/// A command: its name and its arguments.
pub(super) type Call = Vec<Bytes>;

/// Makes a command of these words.
pub(super) fn call(words: &[&[u8]]) -> Call {
    words
        .iter()
        .map(|word| Bytes::copy_from_slice(word))
        .collect()
}

/// A connection to the source.
pub(super) struct Source {
    name: String,
    stream: BufReader<TcpStream>,
}

impl Source {
    /// Connects, logs in, and selects the database.
    pub(super) async fn connect(address: &Address) -> Result<Self, Failure> {
        let name = address.to_string();
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let connected = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
        };
        let stream = connected.map_err(|error| {
            let message = format!("cannot connect to the source {name}: {error}");
            Failure::new(Exit::Unreachable, "source_unreachable", message)
                .then("is Redis running there, and is this its address?")
        })?;
        stream.set_nodelay(true)?;
        let mut source = Self {
            name,
            stream: BufReader::with_capacity(64 << 10, stream),
        };
        source.log_in(address).await?;
        Ok(source)
    }

    async fn log_in(&mut self, address: &Address) -> Result<(), Failure> {
        if let Some(password) = &address.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(address.user.as_ref().map(String::as_bytes));
            words.push(password.as_bytes());
            self.request(call(&words)).await?;
        }
        self.wait_until_loaded().await?;
        let database = address.database.to_string();
        self.request(call(&[b"SELECT", database.as_bytes()]))
            .await?;
        Ok(())
    }

    /// Waits until the Redis has loaded its data, and prints a remark if it has not yet.
    async fn wait_until_loaded(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut is_first = true;
        loop {
            let values = self.send_all(&[call(&[b"EXISTS", b"rq:queues"])]).await?;
            let loading = values.iter().find_map(|value| match value {
                Value::Error(text) if text.starts_with("LOADING") => Some(text),
                _ => None,
            });
            let Some(text) = loading else {
                return Ok(());
            };
            if begun.elapsed() > LOADING_TIMEOUT {
                return Err(self.refused(text));
            }
            if is_first {
                let minutes = LOADING_TIMEOUT.as_secs() / 60;
                remark(format!(
                    "the source {} still loads its data: waiting, {minutes} minutes at most",
                    self.name
                ));
            }
            is_first = false;
            sleep(LOADING_PAUSE).await;
        }
    }

    /// Returns status lines that change with every write to the source.
    pub(super) async fn changes(&mut self) -> Result<Vec<String>, Failure> {
        let text = self.request(call(&[b"INFO", b"persistence"])).await?;
        let text = String::from_utf8_lossy(&text.bytes().unwrap_or_default()).into_owned();
        let counters = ["rdb_changes_since_last_save:", "rdb_last_save_time:"];
        let lines = text.lines();
        let lines = lines.filter(|line| counters.iter().any(|name| line.starts_with(name)));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Returns the cursor of the next page, and a page of keys; the cursor is "0" after the last page.
    pub(super) async fn scan(
        &mut self,
        cursor: &Bytes,
        count: usize,
    ) -> Result<(Bytes, Vec<Bytes>), Failure> {
        let count = count.to_string();
        let page = self
            .request(call(&[b"SCAN", cursor, b"COUNT", count.as_bytes()]))
            .await?;
        let Value::List(mut parts) = page else {
            return Err(self.unexpected_reply("SCAN"));
        };
        match (parts.pop(), parts.pop().and_then(Value::bytes)) {
            (Some(keys), Some(next)) => Ok((next, keys.list())),
            _ => Err(self.unexpected_reply("SCAN")),
        }
    }

    /// Returns the Redis type of each key.
    pub(super) async fn kinds(&mut self, keys: &[Bytes]) -> Result<Vec<Bytes>, Failure> {
        let calls = keys.iter().map(|key| call(&[b"TYPE", key])).collect();
        let kinds = self.request_all(calls).await?.into_iter();
        Ok(kinds.map(|kind| kind.bytes().unwrap_or_default()).collect())
    }

    /// Sends a command and returns its reply; an error reply is a failure.
    pub(super) async fn request(&mut self, call: Call) -> Result<Value, Failure> {
        let value = self.request_all(vec![call]).await?.pop();
        match value {
            Some(Value::Error(text)) => Err(self.refused(&text)),
            Some(value) => Ok(value),
            None => Err(self.unexpected_reply("a command")),
        }
    }

    /// Sends many commands at once. Errors about single keys are returned as replies; errors of the connection are
    /// failures.
    pub(super) async fn request_all(&mut self, calls: Vec<Call>) -> Result<Vec<Value>, Failure> {
        let values = self.send_all(&calls).await?;
        let fatal = ["NOAUTH", "WRONGPASS", "LOADING", "NOPERM", "MASTERDOWN"];
        let errors = values.iter().filter_map(|value| match value {
            Value::Error(text) => Some(text),
            _ => None,
        });
        for text in errors {
            if fatal.iter().any(|word| text.starts_with(word)) {
                return Err(self.refused(text));
            }
        }
        Ok(values)
    }

    /// Sends commands and returns their replies, errors included.
    async fn send_all(&mut self, calls: &[Call]) -> Result<Vec<Value>, Failure> {
        let mut bytes = Vec::new();
        for call in calls {
            encode(&mut bytes, call);
        }
        let exchanged = timeout(ANSWER_TIMEOUT, self.write_and_read(&bytes, calls.len())).await;
        match exchanged {
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => Err(self.unreachable(&error.to_string())),
            Err(_) => {
                Err(self.unreachable(&format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
            }
        }
    }

    async fn write_and_read(&mut self, bytes: &[u8], count: usize) -> std::io::Result<Vec<Value>> {
        self.stream.get_mut().write_all(bytes).await?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(read_value(&mut self.stream, 0).await?);
        }
        Ok(values)
    }

    fn refused(&self, text: &str) -> Failure {
        let step = match text.split(' ').next().unwrap_or_default() {
            "NOAUTH" => "the source wants a password: redis://:PASSWORD@HOST:PORT/DATABASE",
            "WRONGPASS" => "user or password are wrong",
            "LOADING" => "the source still loads its data: try again when it has",
            "NOPERM" => {
                "the user may not read everything there: an import needs the right to read all keys"
            }
            _ if text.contains("DB index is out of range") => {
                "the source has no database of that number: most have 0 to 15"
            }
            _ => "see the log of the source",
        };
        let message = format!("the source {} refuses: {text}", self.name);
        Failure::new(Exit::Refused, "source_refused", message).then(step)
    }

    fn unreachable(&self, reason: &str) -> Failure {
        let message = format!("the source {} is gone: {reason}", self.name);
        Failure::new(Exit::Unreachable, "source_gone", message)
            .then("run the import again when it is back: imported records are not imported twice")
    }

    fn unexpected_reply(&self, what: &str) -> Failure {
        let message = format!(
            "the source {} does not answer {what} like a Redis",
            self.name
        );
        Failure::failed(message)
    }
}

fn encode(out: &mut Vec<u8>, call: &Call) {
    let name = call.first().map(|name| String::from_utf8_lossy(name));
    let is_known = name.is_some_and(|name| COMMANDS.contains(&&*name));
    assert!(is_known, "only commands that read are sent to the source");
    out.extend(format!("*{}\r\n", call.len()).bytes());
    for word in call {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(&word[..]);
        out.extend(b"\r\n");
    }
}

/// Reads a reply of RESP2.
async fn read_value(stream: &mut BufReader<TcpStream>, depth: usize) -> std::io::Result<Value> {
    let mut line = Vec::new();
    // A line of a reply is short: numbers, statuses, errors.
    (&mut *stream)
        .take(64 << 10)
        .read_until(b'\n', &mut line)
        .await?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(if line.is_empty() {
            std::io::ErrorKind::UnexpectedEof.into()
        } else {
            wrong("an unterminated line")
        });
    };
    let (kind, rest) = line.split_first().ok_or_else(|| wrong("an empty line"))?;
    match kind {
        b'+' => Ok(Value::Bytes(Bytes::copy_from_slice(rest))),
        b'-' => Ok(Value::Error(String::from_utf8_lossy(rest).into_owned())),
        b':' => Ok(Value::Number(number(rest)?)),
        b'$' => {
            let Ok(size) = usize::try_from(number(rest)?) else {
                return Ok(Value::Nil);
            };
            if size > VALUE_BYTES_MAX {
                return Err(wrong("a value of more than 512 MiB"));
            }
            let mut bytes = Vec::new();
            let wanted = u64::try_from(size + 2).unwrap_or(u64::MAX);
            (&mut *stream).take(wanted).read_to_end(&mut bytes).await?;
            if bytes.len() != size + 2 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            bytes.truncate(size);
            Ok(Value::Bytes(bytes.into()))
        }
        b'*' => {
            let Ok(count) = usize::try_from(number(rest)?) else {
                return Ok(Value::Nil);
            };
            if count > ELEMENTS_MAX || depth > DEPTH_MAX {
                return Err(wrong("a list that is too long or too deep"));
            }
            let mut values = Vec::new();
            for _ in 0..count {
                values.push(Box::pin(read_value(stream, depth + 1)).await?);
            }
            Ok(Value::List(values))
        }
        _ => Err(wrong("a reply of no known kind: is this a Redis?")),
    }
}

fn number(text: &[u8]) -> std::io::Result<i64> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| wrong("an invalid number"))
}

fn wrong(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("it sends {what}"))
}
