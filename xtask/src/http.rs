//! Requests over HTTP/1.1, each on a connection of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// A server, reached by one connection for each request.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

/// An answer without its head.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

impl Server {
    /// Waits until the server has loaded its shards, at most half a minute.
    pub(crate) fn until_ready(&self) -> Result<()> {
        for _ in 0..3_000 {
            if self.get("/readyz", "identity")?.status == 200 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the server at {} does not become ready", self.address)
    }

    /// Requests a page in an encoding.
    pub(crate) fn get(&self, path: &str, encoding: &str) -> Result<Answer> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\naccept: text/html\r\naccept-encoding: {encoding}\r\n",
            self.address
        );
        self.send(&head, &[])
    }

    /// Sends a body to an address of the API, and returns the answer if it is good.
    pub(crate) fn post(&self, path: &str, media_type: &str, body: &[u8]) -> Result<Vec<u8>> {
        let head = format!(
            "POST /api/v1{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        let answer = self.send(&head, body)?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(
            (200..300).contains(&answer.status),
            "{path}: {} {}",
            answer.status,
            text.chars().take(500).collect::<String>()
        );
        Ok(answer.body)
    }

    fn send(&self, head: &str, body: &[u8]) -> Result<Answer> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(300)))?;
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes())?;
        let mut reading = stream.try_clone()?;
        // Long bodies are answered while they are sent.
        let (written, mut answer) = thread::scope(|scope| {
            let writer = scope.spawn(move || stream.write_all(body));
            let mut answer = Vec::new();
            let read = reading.read_to_end(&mut answer).map(|_| answer);
            (writer.join(), read)
        });
        let answer = std::mem::take(
            answer
                .as_mut()
                .map_err(|error| anyhow::anyhow!("{error}"))?,
        );
        if let Ok(written) = written {
            written?;
        }
        let took = began.elapsed();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.context("the answer has no head")?;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let body = &answer[end + 4..];
        let body = if head.contains("transfer-encoding: chunked") {
            unchunked(body)?
        } else {
            body.to_vec()
        };
        Ok(Answer {
            status: status.context("the answer has no status")?,
            body,
            took,
        })
    }
}

/// Puts the chunks of a body together.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::with_capacity(rest.len());
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n");
        let end = end.context("a chunk has no length")?;
        let length = std::str::from_utf8(&rest[..end])?;
        let length = usize::from_str_radix(length.trim(), 16)?;
        if length == 0 {
            return Ok(body);
        }
        let from = end + 2;
        body.extend_from_slice(rest.get(from..from + length).context("a chunk is cut")?);
        rest = rest.get(from + length + 2..).context("a chunk is cut")?;
    }
}
