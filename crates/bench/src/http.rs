//! One keep-alive HTTP connection: a request, its answer, and nothing in between.
//!
//! As plain as a client can be, so that the server is what is measured: bodies that repeat are made once, answers are
//! read into one buffer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Error;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;

/// One connection over HTTP/1.1 that stays open from call to call.
pub struct Http {
    stream: TcpStream,
    /// The header lines that every request has.
    common: String,
    /// What was read; the first `parsed` bytes belong to answers already given.
    read: Vec<u8>,
    parsed: usize,
    body: Vec<u8>,
}

/// The head of an answer, as far as it matters here.
struct Head {
    status: u16,
    length: usize,
    is_chunked: bool,
}

impl Http {
    /// Opens a connection to an address as `--server` takes it. Every request has the header lines `more`, each with
    /// its end.
    pub async fn connect(url: &str, more: &str) -> Result<Self, Error> {
        let host = host(url)?;
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let common = format!("Host: {host}\r\n{more}");
        Ok(Self {
            stream,
            common,
            read: Vec::new(),
            parsed: 0,
            body: Vec::new(),
        })
    }

    /// The body of a good answer.
    pub async fn get(&mut self, path: &str) -> Result<&[u8], Error> {
        let request = self.request("GET", path, "", b"");
        self.call(&request).await
    }

    /// The body of a good answer to a request with a body.
    pub async fn post(
        &mut self,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<&[u8], Error> {
        let request = self.request("POST", path, content_type, body);
        self.call(&request).await
    }

    /// A request, encoded: one that repeats is encoded once.
    pub fn request(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
        let common = &self.common;
        let mut head = format!("{method} {path} HTTP/1.1\r\n{common}");
        if !body.is_empty() {
            let length = body.len();
            head = format!("{head}Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        request
    }

    /// Sends an encoded request; the body of a good answer.
    pub async fn call(&mut self, request: &[u8]) -> Result<&[u8], Error> {
        self.stream.write_all(request).await?;
        let status = self.answer().await?;
        if (200..300).contains(&status) {
            return Ok(&self.body);
        }
        let said = String::from_utf8_lossy(&self.body);
        let line = String::from_utf8_lossy(request);
        let line = line.split(" HTTP/").next().unwrap_or_default();
        let message = format!("{line} was answered with {status}: {}", said.trim());
        Err(Error::Refused(message))
    }

    /// Reads an answer; its body is in `body` then.
    async fn answer(&mut self) -> Result<u16, Error> {
        self.read.drain(..self.parsed);
        self.parsed = 0;
        self.body.clear();
        let end = self.find(b"\r\n\r\n").await?;
        let head = head(&self.read[..end])?;
        self.parsed = end + 4;
        if head.is_chunked {
            self.chunks().await?;
        } else {
            self.take(head.length).await?;
        }
        Ok(head.status)
    }

    async fn chunks(&mut self) -> Result<(), Error> {
        loop {
            let end = self.find(b"\r\n").await?;
            let size = str::from_utf8(&self.read[self.parsed..end])
                .ok()
                .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
                .ok_or_else(|| strange("a chunk without its size"))?;
            self.parsed = end + 2;
            self.take(size).await?;
            let end = self.find(b"\r\n").await?;
            self.parsed = end + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// Moves so many bytes to the body.
    async fn take(&mut self, count: usize) -> Result<(), Error> {
        while self.read.len() < self.parsed + count {
            self.more().await?;
        }
        let bytes = &self.read[self.parsed..self.parsed + count];
        self.body.extend_from_slice(bytes);
        self.parsed += count;
        Ok(())
    }

    /// Where the pattern begins, from what is parsed on.
    async fn find(&mut self, pattern: &[u8]) -> Result<usize, Error> {
        let mut from = self.parsed;
        loop {
            let found = self.read[from..]
                .windows(pattern.len())
                .position(|window| window == pattern);
            if let Some(place) = found {
                return Ok(from + place);
            }
            from = self
                .parsed
                .max(self.read.len().saturating_sub(pattern.len()));
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), Error> {
        self.read.reserve(READ_BYTES);
        if self.stream.read_buf(&mut self.read).await? == 0 {
            return Err(strange("the server closed the connection"));
        }
        Ok(())
    }
}

/// `host:port` of an address as `--server` takes it.
fn host(url: &str) -> Result<String, Error> {
    let plain = url.strip_prefix("http://").unwrap_or(url);
    if plain.contains("://") {
        return Err(Error::NotPlainHttp(url.to_owned()));
    }
    let plain = plain.trim_end_matches('/');
    if plain.starts_with(':') {
        return Ok(format!("127.0.0.1{plain}"));
    }
    Ok(plain.to_owned())
}

fn head(bytes: &[u8]) -> Result<Head, Error> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| strange("an answer without a status"))?;
    let mut head = Head {
        status,
        length: 0,
        is_chunked: false,
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match (name, value.trim()) {
            ("content-length", value) => {
                head.length = value
                    .parse()
                    .map_err(|_| strange("a length that is no number"))?;
            }
            ("transfer-encoding", "chunked") => head.is_chunked = true,
            _ => {}
        }
    }
    Ok(head)
}

fn strange(what: &str) -> Error {
    Error::BadReply(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_a_url_names() {
        let hosts =
            ["http://[::1]:1/", "localhost:2", ":3733"].map(|url| host(url).unwrap_or_default());
        assert_eq!(hosts, ["[::1]:1", "localhost:2", "127.0.0.1:3733"]);
        assert!(host("https://localhost:1").is_err());
    }

    #[test]
    fn a_head_tells_status_and_length() {
        let read =
            head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\nX: y").expect("it is one");
        assert_eq!(
            (read.status, read.length, read.is_chunked),
            (404, 12, false)
        );
        let read = head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").expect("it is one");
        assert_eq!((read.status, read.is_chunked), (200, true));
        assert!(head(b"nonsense").is_err());
    }

    #[tokio::test]
    async fn answers_are_read_whole_in_chunks_and_by_length() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("it has one").to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("the client comes");
            let mut request = [0; 1024];
            let answers = [
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
                "HTTP/1.1 409 Conflict\r\ncontent-length: 4\r\n\r\noh\r\n",
            ];
            for answer in answers {
                let _ = stream.read(&mut request).await.expect("a request");
                stream
                    .write_all(answer.as_bytes())
                    .await
                    .expect("it listens");
            }
        });
        let mut http = Http::connect(&address, "").await.expect("it listens");
        assert_eq!(http.get("/").await.expect("it is good"), b"abc0123456789");
        let refused = http
            .post("/x", "text/plain", b"y")
            .await
            .expect_err("it is refused");
        assert_eq!(refused.to_string(), "POST /x was answered with 409: oh");
        server.await.expect("it does not panic");
    }
}
