//! The life of a connection: read what is there, run it in one commit, write the replies, wait for more.

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
pub(crate) enum End {
    /// The client has closed it, or the network has.
    Closed,
    /// It was asked for, or followed from what was sent, and the last reply is written.
    Done,
    /// The server stops, or somebody ended it.
    Cut,
    /// The client did not read.
    Slow,
    /// It is not who it was any more, or has not shown who it is in time.
    Unknown,
}

impl End {
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

/// A failure of the network is an end like any other.
impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Slow,
            _ => Self::Closed,
        }
    }
}

/// State of one client connection.
pub(crate) struct Connection<S> {
    stream: S,
    input: BytesMut,
    out: BytesMut,
    decoder: Decoder,
    batch: Batch,
    session: Session,
    begun: Instant,
    /// What it must send in time, while a command or transaction that is not complete counts in the budget.
    pace: Option<Pace>,
    /// Bytes of the replies that are being written.
    writing: usize,
    /// An element that was taken for the client and is not written yet: what was asked, the list, and it.
    undelivered: Option<(KeyWait, Bytes, Bytes)>,
}

/// The least pace of what counts in the budget and is not complete.
struct Pace {
    until: Instant,
    /// Bytes that it held when that began.
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

    /// Serves it until it ends.
    pub(crate) async fn run(mut self) -> End {
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
        if end == End::Slow || self.session.mailbox.is_full() {
            count(&self.session.shared.counters.cut);
            return End::Slow;
        }
        // It is gone for others before its client sees the end.
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

    /// Waits for bytes, and runs the commands that are whole.
    async fn turn(&mut self) -> Result<(), End> {
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
            if self.session.is_ending {
                break;
            }
            if self.batch.is_full() {
                self.settle().await?;
            }
        }
        self.settle().await?;
        self.write().await?;
        if self.session.is_ending {
            return Err(End::Done);
        }
        self.keep_pace();
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    /// Tells a connection that its rights have ended.
    async fn end_unknown(&mut self) -> Result<(), End> {
        let text = "NOAUTH the rights of this connection have changed: authenticate again";
        self.put(Value::error(text)).await?;
        self.write().await?;
        Err(End::Unknown)
    }

    /// About how much memory commands take that have come and are not answered.
    fn held(&self) -> usize {
        let queue = self.session.queue.as_ref().map_or(0, Queue::held);
        self.input.len() + self.decoder.held() + self.batch.held() + queue
    }

    /// Whether there is room for what has come. Where there is none, the command that is coming is refused, so that
    /// more of it is read past.
    fn has_room(&mut self) -> bool {
        let held = self.held();
        let Err(full) = self.session.memory.set(held) else {
            return true;
        };
        !self.decoder.refuse(no_room(full))
    }

    /// What is not complete and counts in the budget must come at some pace.
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
