//! A small HTTP/1.1 client on a plain socket, independent of the libraries that the product uses.
//!
//! The client keeps its connection. If there is no answer, it reports whether the server may have received the request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The reason why there is no answer.
#[derive(Debug)]
pub enum RequestError {
    /// The request was never sent, so nothing happened.
    NotSent(std::io::Error),
    /// The request was sent, at least in part, so it may have been executed.
    NoResponse(std::io::Error),
}

/// Answer to an HTTP request.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status of the answer.
    pub status: u16,
    /// Body of the answer.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the body as JSON; `Null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the code of a problem document; empty for other bodies.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns status and body as text, for messages.
    pub fn to_text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A client with at most one connection to a server, or to one of several that serve the same jobs.
#[derive(Debug)]
pub struct Client {
    /// The servers. The first one is asked; one that does not answer becomes the last.
    servers: VecDeque<SocketAddr>,
    timeout: Duration,
    connection: Option<BufReader<TcpStream>>,
    token: Option<String>,
}

impl Client {
    /// Creates a client that waits at most `timeout` for any answer.
    pub fn new(server: SocketAddr, timeout: Duration) -> Self {
        Self::of_any(&[server], timeout)
    }

    /// Creates a client that asks the first of these servers, and the next one after it got no answer.
    pub fn of_any(servers: &[SocketAddr], timeout: Duration) -> Self {
        Self {
            servers: servers.iter().copied().collect(),
            timeout,
            connection: None,
            token: None,
        }
    }

    /// Sends this bearer token with every request.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Sends a request with a JSON body, or without a body if it is `Null`.
    ///
    /// # Errors
    /// If no complete answer arrives.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Response, RequestError> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.request_bytes(method, path, "application/json", &body)
    }

    /// Sends a request with a body of any type.
    ///
    /// # Errors
    /// If no complete answer arrives.
    pub fn request_bytes(
        &mut self,
        method: &str,
        path: &str,
        content: &str,
        body: &[u8],
    ) -> Result<Response, RequestError> {
        let answer = self.exchange(method, path, content, body);
        if answer.is_err() {
            self.servers.rotate_left(1);
        }
        answer
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        content: &str,
        body: &[u8],
    ) -> Result<Response, RequestError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().map_err(RequestError::NotSent)?,
        };
        let kind = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Type: {content}\r\n")
        };
        let token = self.token.as_ref();
        let shown = token.map_or(String::new(), |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{shown}{kind}Content-Length: {}\r\n\r\n",
            self.servers[0],
            body.len()
        );
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        connection
            .get_mut()
            .write_all(&bytes)
            .map_err(RequestError::NoResponse)?;
        let (response, stays_open) =
            read_response(&mut connection).map_err(RequestError::NoResponse)?;
        if stays_open {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.servers[0], self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(BufReader::new(stream))
    }
}

/// Reads an answer, and whether the connection can be used again.
fn read_response(connection: &mut BufReader<TcpStream>) -> std::io::Result<(Response, bool)> {
    let status_line = read_line(connection)?;
    let status = status_line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| invalid(format!("no status in {status_line:?}")))?;
    let mut length = None;
    let mut is_chunked = false;
    let mut stays_open = true;
    loop {
        let line = read_line(connection)?.to_ascii_lowercase();
        match line
            .split_once(':')
            .map(|(name, value)| (name, value.trim()))
        {
            None => break,
            Some(("content-length", value)) => length = value.parse::<u64>().ok(),
            Some(("transfer-encoding", value)) => is_chunked = value.contains("chunked"),
            Some(("connection", value)) => stays_open = value != "close",
            Some(_) => {}
        }
    }
    let mut body = Vec::new();
    if is_chunked {
        read_chunks(connection, &mut body)?;
    } else if let Some(length) = length {
        connection.by_ref().take(length).read_to_end(&mut body)?;
        if body.len() < usize::try_from(length).map_err(|_| invalid("a body too long"))? {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    } else if status != 204 {
        stays_open = false;
        connection.read_to_end(&mut body)?;
    }
    Ok((Response { status, body }, stays_open))
}

fn read_chunks(connection: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let line = read_line(connection)?;
        let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(|_| invalid(format!("no chunk size in {line:?}")))?;
        let before = body.len();
        connection.by_ref().take(size).read_to_end(body)?;
        if u64::try_from(body.len() - before).map_err(|_| invalid("a chunk too long"))? < size {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read_line(connection)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn read_line(connection: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn invalid(text: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, text.into())
}
