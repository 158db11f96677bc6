//! A connection: reads the available commands, runs them in one commit, writes the replies, and waits for more.

mod calls;
mod commands;
mod waiting;
mod writing;

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ganger_types::KeyWait;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::batch::Batch;
use crate::counters::count;
use crate::limits::{IDLE_BYTES, PACE_BYTES, PACE_EVERY};
use crate::memory::no_room;
use crate::request::{Decoder, Request};
use crate::session::{Queue, Session};
use crate::value::Value;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client or the network closed the connection.
    Closed,
    /// A command or an error of the protocol ended the connection, after the last reply.
    Done,
    /// The server is stopping, or another connection ended this one.
    Cut,
    /// The client did not read its replies in time.
    Slow,
    /// The client's identity is no longer valid, or the client did not authenticate in time.
    Unknown,
}

impl CloseReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed by the client",
            Self::Done => "as asked for",
            Self::Cut => "cut",
            Self::Slow => "the client did not read",
            Self::Unknown => "its rights have ended",
        }
    }
}

/// An I/O error counts as a closed connection.
impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Slow,
            _ => Self::Closed,
        }
    }
}

/// The connection of one client, with its session and transactions.
pub(crate) struct Connection<S> {
    stream: S,
    input: BytesMut,
    out: BytesMut,
    decoder: Decoder,
    batch: Batch,
    session: Session,
    begun: Instant,
    /// Minimum rate of input, while an incomplete command or transaction counts in the budget.
    pace: Option<Pace>,
    /// Size of the replies that are being written, in bytes.
    writing: usize,
    /// Element that was taken for the client and is not written yet: the wait, the list, and the element.
    undelivered: Option<(KeyWait, Bytes, Bytes)>,
}

/// The minimum rate of input that counts in the budget and is not complete.
struct Pace {
    until: Instant,
    /// Bytes held at the start of the interval.
    held: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub(crate) fn new(stream: S, session: Session) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            out: BytesMut::new(),
            decoder: Decoder::default(),
            batch: Batch::default(),
            session,
            begun: Instant::now(),
            pace: None,
            writing: 0,
            undelivered: None,
        }
    }

    /// Serves the connection until it ends.
    pub(crate) async fn run(mut self) -> CloseReason {
        let end = loop {
            if let Err(end) = self.turn().await {
                break end;
            }
        };
        if let Some((asked, list, element)) = self.undelivered.take() {
            self.session.shared.handle.put_back(asked, list, element);
        }
        let popped = std::mem::take(&mut self.session.popped);
        popped.give_back(&self.session.shared.handle).await;
        if end == CloseReason::Slow || self.session.mailbox.is_full() {
            count(&self.session.shared.counters.cut);
            return CloseReason::Slow;
        }
        // Remove the connection from the registry before the client sees the end.
        let Self {
            mut stream,
            session,
            ..
        } = self;
        drop(session);
        // A client that has disconnected gets no answer.
        let _ = timeout(Duration::from_secs(1), stream.shutdown()).await;
        end
    }

    /// Runs the commands that authenticate the client. Returns the connection once the client is known; `None` if it
    /// has ended before.
    pub(crate) async fn authenticate(mut self) -> Option<(S, BytesMut, Session)> {
        self.session.is_for_relay = true;
        while !self.session.is_known() {
            if self.turn().await.is_err() {
                // A client that has disconnected gets no answer.
                let _ = timeout(Duration::from_secs(1), self.stream.shutdown()).await;
                return None;
            }
        }
        Some((self.stream, self.input, self.session))
    }

    /// Waits for input and runs the complete commands.
    async fn turn(&mut self) -> Result<(), CloseReason> {
        self.wait(std::future::pending::<()>(), true).await?;
        self.read_more()?;
        if !self.session.is_unchanged() {
            return self.end_unknown().await;
        }
        loop {
            match self.decoder.next(&mut self.input, self.session.is_known()) {
                Ok(Some(Request::Command(arguments))) => self.take(arguments).await?,
                Ok(Some(Request::TooLarge(refusal))) => {
                    self.session.break_queue();
                    self.batch.ready(Value::error(refusal));
                }
                Ok(None) if self.has_room() => break,
                Ok(None) => {}
                Err(error) => {
                    count(&self.session.shared.counters.malformed);
                    self.batch.ready(Value::error(error.text()));
                    self.session.is_ending = true;
                }
            }
            if self.session.is_ending || self.session.is_to_be_relayed() {
                break;
            }
            if self.batch.is_full() {
                self.settle().await?;
            }
        }
        self.settle().await?;
        self.write().await?;
        if self.session.is_ending {
            return Err(CloseReason::Done);
        }
        self.keep_pace();
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    /// Ends a connection whose identity is no longer valid, with an error.
    async fn end_unknown(&mut self) -> Result<(), CloseReason> {
        let text = "NOAUTH the rights of this connection have changed: authenticate again";
        self.put(Value::error(text)).await?;
        self.write().await?;
        Err(CloseReason::Unknown)
    }

    /// Approximate size of the commands that are not answered yet, in bytes.
    fn held(&self) -> usize {
        let queue = self.session.queue.as_ref().map_or(0, Queue::held);
        self.input.len() + self.decoder.held() + self.batch.held() + queue
    }

    /// Whether the budget has room for the received commands. If not, the incomplete command is refused and the rest
    /// of it skipped.
    fn has_room(&mut self) -> bool {
        let held = self.held();
        let Err(full) = self.session.memory.set(held) else {
            return true;
        };
        !self.decoder.refuse(no_room(full))
    }

    /// Checks the minimum rate of incomplete input that counts in the budget.
    fn keep_pace(&mut self) {
        let held = self.held();
        self.session.memory.set_anyway(held);
        if self.session.memory.counted() == 0 {
            self.pace = None;
        } else if self
            .pace
            .as_ref()
            .is_none_or(|pace| held >= pace.held + PACE_BYTES || held < pace.held)
        {
            let until = Instant::now() + PACE_EVERY;
            self.pace = Some(Pace { until, held });
        }
    }
}
