//! A minimal HTTP/2 client for attacks: frames, uncompressed header fields, and a reader that only keeps the connection
//! alive.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Maximum bytes of a DATA frame.
const FRAME_BYTES: usize = 16 << 10;
/// Initial flow control window of a connection.
const FIRST_WINDOW: i64 = 65_535;
/// Longest wait of a sender for window.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Stack size of the reader's thread.
const STACK_BYTES: usize = 64 << 10;

/// A connection, closed when dropped.
pub(super) struct Connection {
    stream: Arc<Mutex<TcpStream>>,
    window: Arc<(Mutex<i64>, Condvar)>,
    next_stream: u32,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // This ends the reader as well. An error means that the server has closed the connection already.
        let _ = self
            .stream
            .lock()
            .map(|stream| stream.shutdown(std::net::Shutdown::Both));
    }
}

impl Connection {
    /// Connects; the server may send at most `window` bytes on each stream.
    pub(super) fn open(address: SocketAddr, window: u32) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        setting.extend(window.to_be_bytes());
        begin.extend(frame(SETTINGS, 0, 0, &setting));
        stream.write_all(&begin)?;
        let reading = stream.try_clone()?;
        let stream = Arc::new(Mutex::new(stream));
        let window = Arc::new((Mutex::new(FIRST_WINDOW), Condvar::new()));
        let (answers, opened) = (Arc::clone(&stream), Arc::clone(&window));
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || keep_alive(reading, &answers, &opened))?;
        Ok(Self {
            stream,
            window,
            next_stream: 1,
        })
    }

    /// Starts a request; returns the id of its stream.
    pub(super) fn begin(&mut self, fields: &[(&str, &str)], has_body: bool) -> Result<u32> {
        let number = self.next_stream;
        self.next_stream += 2;
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            push_text(&mut block, name);
            push_text(&mut block, value);
        }
        let flags = END_HEADERS | if has_body { 0 } else { END_STREAM };
        self.write(&frame(HEADERS, flags, number, &block))?;
        Ok(number)
    }

    /// Sends a part of a body, as far as the connection's window allows within the timeout.
    pub(super) fn send(&mut self, stream: u32, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(FRAME_BYTES) {
            let length = i64::try_from(piece.len())?;
            let (window, opened) = &*self.window;
            let window = window.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = opened.wait_timeout_while(window, TIMEOUT, |left| *left < length);
            let (mut window, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *window < length {
                return Ok(());
            }
            *window -= length;
            drop(window);
            self.write(&frame(DATA, 0, stream, piece))?;
        }
        Ok(())
    }

    /// Sends a complete, short body.
    pub(super) fn send_last(&mut self, stream: u32, bytes: &[u8]) -> Result<()> {
        self.send(stream, bytes)?;
        self.write(&frame(DATA, END_STREAM, stream, &[]))
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(stream.write_all(bytes)?)
    }
}

/// Answers pings and settings until the connection ends.
fn keep_alive(
    mut reading: TcpStream,
    answers: &Mutex<TcpStream>,
    (window, opened): &(Mutex<i64>, Condvar),
) {
    let mut header = [0; 9];
    while reading.read_exact(&mut header).is_ok() {
        let length =
            usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        if reading.read_exact(&mut payload).is_err() {
            return;
        }
        let is_of_connection = header[5..] == [0; 4];
        let answer = match header[3] {
            SETTINGS if header[4] & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
            PING if header[4] & ACK == 0 => frame(PING, ACK, 0, &payload),
            WINDOW_UPDATE if is_of_connection && length == 4 => {
                let more = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
                let mut left = window.lock().unwrap_or_else(PoisonError::into_inner);
                *left += i64::from(more);
                opened.notify_all();
                continue;
            }
            _ => continue,
        };
        let mut stream = answers.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Appends an uncompressed string in HPACK.
fn push_text(block: &mut Vec<u8>, text: &str) {
    let length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).unwrap_or_default());
    } else {
        // Seven bits of prefix, the rest in groups of seven.
        block.push(127);
        let mut rest = length - 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap_or_default());
    }
    block.extend(text.as_bytes());
}
