//! The life of a connection: read what is there, run it in one commit, write the replies, wait for more.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::FutureExt as _;
use ganger_shard::Health;
use ganger_types::KeyWait;
use ganger_types::keys::KeyCall;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use crate::batch::{Batch, Gathered, unavailable};
use crate::counters::{Gauge, count};
use crate::limits::{
    BEHIND_WAIT_BYTES_MAX, IDLE_BYTES, LOOK_EVERY, READ_BYTES, READ_TOGETHER_BYTES, WRITE_BYTES,
};
use crate::plan::{Call, Plan, Wait, refused};
use crate::popped::{Pop, is_taken};
use crate::request::{Decoder, Request};
use crate::session::{Queue, Session};
use crate::table::{self, Command, Run, Special};
use crate::value::Value;
use crate::{pubsub, transaction};

/// Most room that is made at once for an argument whose length is known.
const ROOM_MAX: usize = 4 << 20;

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

/// A connection.
pub(crate) struct Connection<S> {
    stream: S,
    input: BytesMut,
    out: BytesMut,
    decoder: Decoder,
    batch: Batch,
    session: Session,
    begun: Instant,
    /// An element that was taken for the client and is not written yet: what was asked, the list, and it.
    undelivered: Option<(KeyWait, Bytes, Bytes)>,
}

/// What woke a connection that waited.
enum Woken<T> {
    /// Bytes have come.
    Input,
    /// What it waited for.
    Ready(T),
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
        // Whoever has gone hears nothing of it.
        let _ = timeout(Duration::from_secs(1), stream.shutdown()).await;
        end
    }

    /// Waits for bytes, and runs the commands that are whole.
    async fn turn(&mut self) -> Result<(), End> {
        self.wait(std::future::pending::<()>(), true).await?;
        self.read_more()?;
        if !self.session.is_still() {
            self.put(&Value::error(
                "NOAUTH the rights of this connection have changed: authenticate again",
            ));
            self.write().await?;
            return Err(End::Unknown);
        }
        loop {
            match self.decoder.next(&mut self.input, self.session.is_known()) {
                Ok(Some(Request::Command(arguments))) => self.take(arguments).await?,
                Ok(Some(Request::TooLarge(reason))) => {
                    self.session.break_queue();
                    self.batch.ready(Value::error(format!("ERR {reason}")));
                }
                Ok(None) => break,
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
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    /// Reads what is there already, up to a bound, so that it is run together.
    fn read_more(&mut self) -> Result<(), End> {
        while self.input.len() < READ_TOGETHER_BYTES {
            self.make_room();
            match self.stream.read_buf(&mut self.input).now_or_never() {
                None => break,
                Some(Ok(0)) => {
                    // What was sent before the end is run yet; the next read finds the end again.
                    break;
                }
                Some(read) => read?,
            };
        }
        Ok(())
    }

    fn make_room(&mut self) {
        let room = self.decoder.missing(&self.input).min(ROOM_MAX);
        self.input
            .reserve(room.max(READ_BYTES).max(self.input.len().min(ROOM_MAX)));
    }

    /// Waits for bytes or for something else, while messages go out and the end is noticed. Without `is_heeded` bytes
    /// are gathered only.
    async fn wait<T>(
        &mut self,
        other: impl Future<Output = T>,
        is_heeded: bool,
    ) -> Result<Woken<T>, End> {
        tokio::pin!(other);
        loop {
            let behind = self.input.len();
            if behind > BEHIND_WAIT_BYTES_MAX + READ_TOGETHER_BYTES {
                return Err(End::Cut);
            }
            self.make_room();
            let look_at = self.next_look();
            let session = &self.session;
            tokio::select! {
                biased;
                () = session.client.cut.cancelled() => return Err(End::Cut),
                read = self.stream.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(End::Closed);
                    }
                    if is_heeded {
                        return Ok(Woken::Input);
                    }
                }
                value = &mut other => return Ok(Woken::Ready(value)),
                () = session.mailbox.arrived() => self.write().await?,
                () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {
                    if !self.session.is_known() || !self.session.is_still() {
                        return Err(End::Unknown);
                    }
                }
            }
        }
    }

    /// When to look whether it is still who it is; never, where nobody is asked.
    fn next_look(&self) -> Option<Instant> {
        if self.session.login.is_open() {
            None
        } else if self.session.is_known() {
            Some(Instant::now() + LOOK_EVERY)
        } else {
            Some(self.begun + self.session.shared.settings.login_timeout)
        }
    }

    /// Judges a command, and runs it or puts it where it waits for its turn.
    async fn take(&mut self, arguments: Vec<Bytes>) -> Result<(), End> {
        count(&self.session.shared.counters.commands);
        let command = match self.judge(&arguments) {
            Ok(command) => command,
            Err(refusal) => {
                let refusal = transaction::refused(&mut self.session, &arguments[0], refusal);
                self.batch.ready(refusal);
                return Ok(());
            }
        };
        self.session.client.note(command.name);
        if let Some(queue) = &mut self.session.queue
            && !transaction::is_at_once(command)
        {
            let reply = if queue.put(command, arguments) {
                Value::Simple("QUEUED")
            } else {
                Value::error("ERR the transaction exceeds its largest length")
            };
            let queued = queue.commands.len();
            self.session.client.facts().queued = Some(queued);
            self.batch.ready(reply);
            return Ok(());
        }
        match command.run {
            Run::Call(plan) => {
                self.put_in(plan(&arguments), command.is_wide);
                Ok(())
            }
            Run::Script(plan) => {
                let planned = plan(&mut self.session, &arguments);
                self.put_in(planned, command.is_wide);
                Ok(())
            }
            Run::Local(run) => {
                let value = run(&mut self.session, &arguments);
                self.batch.ready(value);
                Ok(())
            }
            Run::Second(words) | Run::Scripts(words) => {
                let value = table::run_second(words, &mut self.session, &arguments);
                self.batch.ready(value);
                Ok(())
            }
            Run::Wait(plan) => match plan(&arguments) {
                Ok(wait) => self.block(wait).await,
                Err(value) => {
                    self.batch.ready(value);
                    Ok(())
                }
            },
            Run::Special(special) => self.special(special, &arguments).await,
        }
    }

    /// Puts a call, or the reply to what needs none, to what is run together.
    fn put_in(&mut self, plan: Plan, is_wide: bool) {
        match plan {
            Ok(planned) => {
                if let Call::Keys(KeyCall::Get { key }) = &planned.call {
                    let session = &mut self.session;
                    let database = &session.shared.settings.databases[session.database];
                    session.popped.asked_for(database, key);
                }
                self.batch.call(self.session.namespace(), planned, is_wide);
            }
            Err(value) => {
                self.batch.ready(value);
            }
        }
    }

    /// The command's row, if it may be sent now.
    fn judge(&self, arguments: &[Bytes]) -> Result<&'static Command, Value> {
        let session = &self.session;
        let Some(command) = table::find(&arguments[0]) else {
            count(&session.shared.counters.unknown);
            return Err(table::unknown(arguments));
        };
        command.check_words(arguments)?;
        session.check(command)?;
        if session.is_listening_only() && !pubsub::is_for_listeners(command) {
            return Err(Value::error(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        if session.queue.is_some() && transaction::is_refused(command) {
            return Err(Value::error("ERR Command not allowed inside a transaction"));
        }
        let needs_keys = match command.run {
            Run::Call(_) | Run::Wait(_) | Run::Script(_) => true,
            Run::Special(special) => matches!(
                special,
                Special::Watch | Special::Exec | Special::FlushAll | Special::FlushDb
            ),
            Run::Local(_) | Run::Second(_) | Run::Scripts(_) => false,
        };
        if needs_keys && is_loading(&session.shared.handle.health()) {
            return Err(Value::error("LOADING ganger is loading its store"));
        }
        Ok(command)
    }

    async fn special(&mut self, special: Special, arguments: &[Bytes]) -> Result<(), End> {
        let value = match special {
            Special::Multi if self.session.queue.is_some() => {
                Value::error("ERR MULTI calls can not be nested")
            }
            Special::Multi => {
                self.session.queue = Some(Queue::default());
                self.session.client.facts().queued = Some(0);
                Value::OK
            }
            Special::Discard => transaction::discard(&mut self.session),
            Special::Exec => {
                self.settle().await?;
                transaction::execute(&mut self.session).await
            }
            Special::Watch => {
                self.settle().await?;
                transaction::watch(&mut self.session, &arguments[1..]).await
            }
            Special::Select => transaction::select(&mut self.session, arguments),
            Special::Auth | Special::Hello => {
                self.settle().await?;
                if special == Special::Auth {
                    crate::hello::auth(&mut self.session, arguments).await
                } else {
                    crate::hello::hello(&mut self.session, arguments).await
                }
            }
            Special::Quit => {
                self.session.is_ending = true;
                Value::OK
            }
            Special::Reset => {
                // What comes before is answered in the protocol of then.
                self.settle().await?;
                self.session.reset();
                Value::Simple("RESET")
            }
            Special::Info | Special::FlushAll | Special::FlushDb => {
                transaction::spread(&mut self.session, &mut self.batch, special, arguments);
                return Ok(());
            }
            Special::Publish => {
                // Nobody hears of what is not durable yet.
                self.settle().await?;
                pubsub::publish(&mut self.session, arguments)
            }
            Special::Subscribe(is_pattern) => {
                // The confirmation stands before every message of what it confirms.
                self.settle().await?;
                self.put_messages();
                let confirmations =
                    pubsub::subscribe(&mut self.session, is_pattern, &arguments[1..]);
                for value in &confirmations {
                    self.put(value);
                }
                return Ok(());
            }
            Special::Unsubscribe(is_pattern) => {
                // And behind every message of what it ends.
                self.settle().await?;
                let confirmations =
                    pubsub::unsubscribe(&mut self.session, is_pattern, &arguments[1..]);
                self.put_messages();
                for value in &confirmations {
                    self.put(value);
                }
                return Ok(());
            }
        };
        self.batch.ready(value);
        Ok(())
    }

    /// Waits for an element. Commands that come meanwhile wait behind it; when the client goes away, so does its place.
    async fn block(&mut self, wait: Wait) -> Result<(), End> {
        self.settle().await?;
        self.write().await?;
        let shared = std::sync::Arc::clone(&self.session.shared);
        let asked = KeyWait {
            namespace: self.session.namespace().clone(),
            lists: wait.lists.clone(),
            end: wait.end,
            to: wait.to.clone(),
        };
        let pop = shared.handle.pop(asked.clone(), wait.patience);
        let blocked = Gauge::of(&shared.counters.blocked);
        self.session.client.facts().is_blocked = true;
        // When the client goes away it is dropped: its place is given up, and an element on its way goes back.
        let woken = self.wait(pop, false).await;
        self.session.client.facts().is_blocked = false;
        drop(blocked);
        let value = match woken? {
            Woken::Ready(Ok(Ok(popped))) => {
                if let Some((list, element)) = &popped {
                    if let Some((to, _)) = &asked.to
                        && is_taken(list, to)
                    {
                        self.session.popped.note(Pop {
                            namespace: asked.namespace.clone(),
                            list: list.clone(),
                            element: element.clone(),
                        });
                    }
                    self.undelivered = Some((asked, list.clone(), element.clone()));
                }
                wait.reply(popped)
            }
            Woken::Ready(Ok(Err(error))) => refused(error),
            Woken::Ready(Err(error)) => unavailable(&error),
            Woken::Input => unreachable!("bytes are gathered only"),
        };
        self.batch.ready(value);
        Ok(())
    }

    /// Runs what was put together, and puts the replies where they are written from.
    async fn settle(&mut self) -> Result<(), End> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let Gathered::Replies(replies, popped) = batch.gather(&self.session.shared.handle).await
        else {
            unreachable!("nothing is watched outside of a transaction");
        };
        for pop in popped {
            self.session.popped.note(pop);
        }
        // What others have sent meanwhile, and what this connection sent itself, comes before the replies.
        self.put_messages();
        for reply in replies {
            self.put(&reply);
            if self.out.len() >= WRITE_BYTES {
                self.write().await?;
            }
        }
        Ok(())
    }

    fn put(&mut self, value: &Value) {
        value.write(self.session.protocol, &mut self.out);
    }

    fn put_messages(&mut self) {
        for message in self.session.mailbox.take() {
            self.put(&message.push());
        }
    }

    /// Writes all replies and messages, unless the client reads nothing for too long.
    async fn write(&mut self) -> Result<(), End> {
        if self.batch.is_empty() {
            self.put_messages();
        }
        let patience = self.session.shared.settings.write_timeout;
        while !self.out.is_empty() {
            let full = async {
                // A stop lets replies go out; a connection that is cut for its reader's slowness ends here.
                self.session.client.cut.cancelled().await;
                if !self.session.mailbox.is_full() {
                    std::future::pending::<()>().await;
                }
            };
            let written = tokio::select! {
                () = full => return Err(End::Slow),
                written = timeout(patience, self.stream.write(&self.out)) => written,
            };
            let written = written.map_err(|_| End::Slow)??;
            if written == 0 {
                return Err(End::Closed);
            }
            self.out.advance(written);
        }
        self.stream.flush().await?;
        // What is still in the batch is not written.
        if self.batch.is_empty() {
            self.undelivered = None;
        }
        if self.out.capacity() > WRITE_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }
}

fn is_loading(health: &Health) -> bool {
    matches!(health, Health::Starting { .. })
}
