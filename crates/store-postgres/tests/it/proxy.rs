//! A proxy between a store and its database that cuts connections before, in, and after statements.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The statement does not reach the server.
    Before,
    /// The server gets the statement and cannot answer.
    During,
    /// The server has answered, and the answer gets lost.
    After,
}

/// Decides about each statement, by its number.
type Plan = Box<dyn Fn(u64) -> Option<Cut> + Send + Sync>;

/// The proxy. Its threads end with the process.
pub(crate) struct Proxy {
    port: u16,
    cuts: Arc<AtomicU64>,
}

struct Shared {
    server: u16,
    plan: Plan,
    statements: AtomicU64,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy before the server at a port of the loopback interface.
    pub(crate) fn start(
        server: u16,
        plan: impl Fn(u64) -> Option<Cut> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let cuts = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared {
            server,
            plan: Box::new(plan),
            statements: AtomicU64::new(0),
            cuts: Arc::clone(&cuts),
        });
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || drop(serve(&shared, client)));
            }
        });
        Self { port, cuts }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Number of connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// Answers of the server to pass on before the connection is cut.
#[derive(Default)]
struct Answers {
    /// Number of requests that were sent, each answered by one "ready".
    sent: u64,
    /// The answer that gets lost.
    lost: Option<u64>,
}

fn serve(shared: &Shared, mut client: TcpStream) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let answers = Arc::new(Mutex::new(Answers::default()));
    let (from, to, theirs) = (
        server.try_clone()?,
        client.try_clone()?,
        Arc::clone(&answers),
    );
    thread::spawn(move || {
        drop(pass_answers(&from, &to, &theirs));
        close(&from, &to);
    });
    let done = pass_requests(shared, &mut client, &mut server, &answers);
    if done.is_err() || answers.lock().expect("nobody panics").lost.is_none() {
        close(&server, &client);
    }
    Ok(())
}

fn close(one: &TcpStream, other: &TcpStream) {
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

/// Reads a message with its type and length.
fn message(mut from: &TcpStream, has_kind: bool) -> io::Result<Vec<u8>> {
    let head = if has_kind { 5 } else { 4 };
    let mut bytes = vec![0; head];
    from.read_exact(&mut bytes)?;
    let length: [u8; 4] = bytes[head - 4..].try_into().expect("four bytes");
    let length = usize::try_from(u32::from_be_bytes(length)).expect("it fits");
    let start = bytes.len();
    bytes.resize(start + length.saturating_sub(4), 0);
    from.read_exact(&mut bytes[start..])?;
    Ok(bytes)
}

fn pass_requests(
    shared: &Shared,
    client: &mut TcpStream,
    server: &mut TcpStream,
    answers: &Mutex<Answers>,
) -> io::Result<()> {
    server.write_all(&message(client, false)?)?;
    let mut cut = None;
    loop {
        let bytes = message(client, true)?;
        let kind = bytes[0];
        if matches!(kind, b'E' | b'Q') && cut.is_none() {
            let number = shared.statements.fetch_add(1, Ordering::Relaxed);
            cut = (shared.plan)(number);
            if cut.is_some() {
                shared.cuts.fetch_add(1, Ordering::Relaxed);
            }
        }
        if cut == Some(Cut::Before) {
            return Err(io::Error::other("cut"));
        }
        if matches!(kind, b'S' | b'Q') {
            let mut answers = answers.lock().expect("nobody panics");
            answers.sent += 1;
            if cut == Some(Cut::After) {
                answers.lost = Some(answers.sent);
            }
        }
        server.write_all(&bytes)?;
        if matches!(kind, b'S' | b'Q') {
            match cut {
                Some(Cut::During) => return Err(io::Error::other("cut")),
                // The other thread closes both once the answer has come.
                Some(Cut::After) => return Ok(()),
                _ => {}
            }
        }
    }
}

fn pass_answers(
    server: &TcpStream,
    mut client: &TcpStream,
    answers: &Mutex<Answers>,
) -> io::Result<()> {
    let mut ready = 0;
    let mut has_begun = false;
    loop {
        let bytes = message(server, true)?;
        if bytes[0] == b'Z' {
            // The first one ends the start of the session.
            ready += u64::from(has_begun);
            has_begun = true;
            if answers.lock().expect("nobody panics").lost == Some(ready) {
                return Ok(());
            }
        }
        client.write_all(&bytes)?;
    }
}
