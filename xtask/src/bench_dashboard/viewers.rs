//! The steady load of `ganger bench` without and with ten open pages, in turns.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Server, program};
use crate::process::output;

/// Pages that are open.
const PAGES: [&str; 10] = [
    "/ui/",
    "/ui/queues",
    "/ui/queue%3Fname%3Dq-0",
    "/ui/jobs",
    "/ui/graphs",
    "/ui/failures",
    "/ui/workers",
    "/ui/stats",
    "/ui/events",
    "/ui/shards",
];
/// Runs of each kind, in turns, so that a slow moment of the machine meets both.
const TURNS: usize = 3;

pub(crate) fn measure(server: &Server, process: u32) -> Result<()> {
    println!("\nThe steady load, in turns without and with ten open pages:\n");
    for turn in 0..TURNS {
        println!("without, turn {turn}:\n{}", load(server, process)?);
        let viewers = Viewers::open(server)?;
        let result = load(server, process)?;
        println!(
            "with ten pages, {} KiB of parts, turn {turn}:\n{result}",
            viewers.bytes.load(Ordering::Relaxed) / 1_024
        );
    }
    Ok(())
}

fn load(server: &Server, process: u32) -> Result<String> {
    let mut command = Command::new(program());
    command.args(["--server", &server.address.to_string(), "bench", "--attach"]);
    command.args(["--server-pid", &process.to_string()]);
    command.args(["--loads", "mix", "--apis", "streams", "--time", "10s"]);
    output(&mut command)
}

/// Open streams, read in the background until this is dropped.
struct Viewers {
    is_over: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Viewers {
    fn open(server: &Server) -> Result<Self> {
        let mut viewers = Self {
            is_over: Arc::default(),
            bytes: Arc::default(),
            readers: Vec::new(),
        };
        for page in PAGES {
            let mut stream = TcpStream::connect(server.address).context("cannot open a page")?;
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            let request = format!(
                "GET /ui/live?view={page} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
                server.address
            );
            stream.write_all(request.as_bytes())?;
            let (is_over, bytes) = (Arc::clone(&viewers.is_over), Arc::clone(&viewers.bytes));
            viewers.readers.push(thread::spawn(move || {
                let mut buffer = [0; 16_384];
                while !is_over.load(Ordering::Relaxed) {
                    // Quiet pages time out.
                    if let Ok(read) = stream.read(&mut buffer) {
                        if read == 0 {
                            return;
                        }
                        bytes.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
                    }
                }
            }));
        }
        Ok(viewers)
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for reader in self.readers.drain(..) {
            drop(reader.join());
        }
    }
}
