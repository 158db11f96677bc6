//! The life of a connection: read what is there, run it in one commit, write the replies, wait for more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::FutureExt as _;
use ganger_shard::Health;
use ganger_types::KeyWait;
use ganger_types::keys::{KeyCall, KeyError, KeyReply};
use ganger_types::limits::KEY_REPLY_ELEMENTS_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use crate::batch::{Batch, Gathered, unavailable};
use crate::counters::{Gauge, count};
use crate::encode::Encoder;
use crate::limits::{
    BEHIND_WAIT_BYTES_MAX, CONFIRMATIONS, IDLE_BYTES, IDLE_LOOK_EVERY, LOOK_EVERY, PACE_BYTES,
    PACE_EVERY, PART_BYTES, READ_BYTES, READ_TOGETHER_BYTES, STALLED_AFTER, WRITE_BYTES,
};
use crate::memory::no_room;
use crate::plan::{Answer, Call, Plan, Planned, Wait, refused};
use crate::request::{Decoder, Request};
use crate::session::{Queue, Session};
use crate::table::{self, Command, Run, Special};
use crate::unconfirmed_pops::{Pop, is_taken};
use crate::value::Value;
use crate::{pubsub, transaction};

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

/// What woke a connection that waited.
enum Woken<T> {
    /// Bytes came from the client.
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
        let room = self.input.len().clamp(READ_BYTES, READ_TOGETHER_BYTES);
        self.input.reserve(room);
    }

    /// Waits for bytes or for something else, while messages go out and the end is noticed. Without `is_heeded` bytes
    /// are gathered only.
    async fn wait<T>(
        &mut self,
        other: impl Future<Output = T>,
        is_heeded: bool,
    ) -> Result<Woken<T>, End> {
        tokio::pin!(other);
        let is_prompt = !is_heeded || self.session.is_subscribed();
        let look_every = if is_prompt {
            LOOK_EVERY
        } else {
            IDLE_LOOK_EVERY
        };
        let mut look_at = self.first_look(look_every);
        let too_slow_at = self.pace.as_ref().map(|pace| pace.until);
        loop {
            if self.input.len() > BEHIND_WAIT_BYTES_MAX + READ_TOGETHER_BYTES
                || !is_heeded && self.session.memory.set(self.held()).is_err()
            {
                return Err(End::Cut);
            }
            self.make_room();
            let session = &self.session;
            let is_asked = is_prompt && !session.login.is_open();
            tokio::select! {
                biased;
                () = session.client.cut.cancelled() => return Err(End::Cut),
                () = session.login.changed(session.changes_seen()), if is_asked => {
                    if !self.session.is_unchanged() {
                        return Err(End::Unknown);
                    }
                }
                read = self.stream.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(End::Closed);
                    }
                    if is_heeded {
                        return Ok(Woken::Input);
                    }
                }
                value = &mut other => return Ok(Woken::Ready(value)),
                () = session.mailbox.arrived() => {
                    if !self.session.is_unchanged() {
                        return Err(End::Unknown);
                    }
                    self.write().await?;
                }
                () = at(look_at), if look_at.is_some() => {
                    if !self.session.is_known() || !self.session.is_still_now() {
                        return Err(End::Unknown);
                    }
                    look_at = Some(Instant::now() + look_every);
                }
                () = at(too_slow_at), if too_slow_at.is_some() => return Err(End::Slow),
            }
        }
    }

    /// When to look first whether it is still who it is; never, where nobody is asked.
    fn first_look(&self, look_every: Duration) -> Option<Instant> {
        if self.session.login.is_open() {
            None
        } else if self.session.is_known() {
            Some(Instant::now() + look_every)
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
            let is_put = queue.put(command, arguments);
            let queued = queue.commands.len();
            self.session.client.facts().queued = Some(queued);
            let reply = if is_put {
                self.with_room_for_queue(Value::Simple("QUEUED"))
            } else {
                Value::error("ERR the transaction exceeds its largest length")
            };
            self.batch.ready(reply);
            return Ok(());
        }
        match command.run {
            Run::Call(plan) => match plan(&arguments) {
                Ok(Planned {
                    call: Call::Keys(KeyCall::Names { pattern, .. }),
                    ..
                }) => self.names(pattern).await,
                plan => {
                    self.put_in(plan, command.is_wide);
                    Ok(())
                }
            },
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
                // Some look at all connections.
                tokio::task::yield_now().await;
                Ok(())
            }
            Run::Wait(plan) => match plan(&arguments).and_then(checked) {
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
            return Err(loading());
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
                // It may be compared with many patterns.
                tokio::task::yield_now().await;
                pubsub::publish(&mut self.session, arguments)
            }
            Special::Subscribe(is_pattern) => {
                // The confirmation stands before every message of what it confirms.
                self.settle().await?;
                self.put_messages().await?;
                for names in arguments[1..].chunks(CONFIRMATIONS) {
                    for value in pubsub::subscribe(&mut self.session, is_pattern, names) {
                        self.put(value).await?;
                    }
                }
                return Ok(());
            }
            Special::Unsubscribe(is_pattern) => {
                // And behind every message of what it ends.
                self.settle().await?;
                let confirmations =
                    pubsub::unsubscribe(&mut self.session, is_pattern, &arguments[1..]);
                self.put_messages().await?;
                for value in confirmations {
                    self.put(value).await?;
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
        let shared = Arc::clone(&self.session.shared);
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
                let is_unchanged = popped.is_none() || self.session.is_still_now();
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
                if !is_unchanged {
                    // The element goes back.
                    return Err(End::Unknown);
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
        let (is_wide, only_looks) = (batch.is_wide(), batch.only_looks());
        let shared = Arc::clone(&self.session.shared);
        let permit = shared.permit(is_wide).await;
        let Gathered::Replies(mut replies, popped) = batch.gather(&shared.handle).await else {
            unreachable!("nothing is watched outside of a transaction");
        };
        for pop in popped {
            self.session.popped.note(pop);
        }
        let parts: usize = replies.iter().map(Value::parts).sum();
        let held = self.held() + parts * PART_BYTES;
        if is_wide && let Err(full) = self.session.memory.set(held) {
            if only_looks && let Some(last) = replies.last_mut() {
                *last = Value::error(no_room(full));
            } else {
                self.session.memory.set_anyway(held);
            }
        }
        drop(permit);
        self.write_replies(replies).await
    }

    /// Puts replies where they are written from.
    async fn write_replies(&mut self, replies: Vec<Value>) -> Result<(), End> {
        self.writing = replies.iter().map(Value::held).sum();
        // What others have sent meanwhile, and what this connection sent itself, comes before the replies.
        self.put_messages().await?;
        for reply in replies {
            self.put(reply).await?;
        }
        Ok(())
    }

    /// `KEYS`: a page at a time, so that others have their turns between. A key that is there throughout is named once.
    async fn names(&mut self, pattern: Bytes) -> Result<(), End> {
        self.settle().await?;
        let shared = Arc::clone(&self.session.shared);
        let permit = shared.permit(true).await;
        let (mut names, mut after) = (Vec::new(), None);
        let value = loop {
            let mut page = Batch::default();
            let call = KeyCall::Names {
                pattern: pattern.clone(),
                after: after.take(),
                is_whole: false,
            };
            page.call(self.session.namespace(), Planned::page(call), true);
            let found = match page.answers(&shared.handle).await.pop() {
                Some(Ok(Answer::Keys(Ok(KeyReply::Names(found, next))))) => {
                    after = next;
                    found
                }
                Some(Ok(Answer::Keys(Err(error)))) => break refused(error),
                Some(Err(error)) => break error,
                other => unreachable!("names are asked for, not {:?}", other.is_some()),
            };
            names.extend(found);
            if names.len() > KEY_REPLY_ELEMENTS_MAX {
                break refused(KeyError::ReplyTooLarge);
            }
            let held = self.held() + names.len() * PART_BYTES;
            if let Err(full) = self.session.memory.set(held) {
                break Value::error(no_room(full));
            }
            if after.is_none() {
                break Value::Bulks(names);
            }
        };
        drop(permit);
        self.write_replies(vec![value]).await
    }

    /// Puts a value behind what is to be written, in pieces if it is large.
    async fn put(&mut self, value: Value) -> Result<(), End> {
        let protocol = self.session.protocol;
        if value.is_short() {
            value.write(protocol, &mut self.out);
        } else {
            let mut encoder = Encoder::new(value);
            while !encoder.fill(protocol, &mut self.out, WRITE_BYTES) {
                self.write_out().await?;
            }
        }
        if self.out.len() >= WRITE_BYTES {
            self.write_out().await?;
        }
        Ok(())
    }

    async fn put_messages(&mut self) -> Result<(), End> {
        for message in self.session.mailbox.take() {
            self.put(message.push()).await?;
        }
        Ok(())
    }

    /// Writes all replies and messages, unless the client reads too slowly.
    async fn write(&mut self) -> Result<(), End> {
        if self.batch.is_empty() {
            self.put_messages().await?;
        }
        self.write_out().await?;
        self.writing = 0;
        // What is still in the batch is not written.
        if self.batch.is_empty() {
            self.undelivered = None;
        }
        if self.out.capacity() > IDLE_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Writes what is there. What a client does not read soon counts in the budget, and it has a limited time for it.
    async fn write_out(&mut self) -> Result<(), End> {
        let patience = self.session.shared.settings.write_timeout;
        let begun = Instant::now();
        let mut counted = 0;
        while !self.out.is_empty() {
            let full = async {
                // A stop lets replies go out; a connection that is cut for its reader's slowness ends here.
                self.session.client.cut.cancelled().await;
                if !self.session.mailbox.is_full() {
                    std::future::pending::<()>().await;
                }
            };
            let until = begun
                + if counted > 0 {
                    patience
                } else {
                    patience.min(STALLED_AFTER)
                };
            tokio::select! {
                biased;
                written = self.stream.write(&self.out) => match written? {
                    0 => return Err(End::Closed),
                    written => self.out.advance(written),
                },
                () = full => return Err(End::Slow),
                () = sleep_until(until) => {
                    if counted > 0 || patience <= STALLED_AFTER {
                        return Err(End::Slow);
                    }
                    let before = self.session.memory.counted();
                    counted = self.writing.max(self.out.len());
                    let all = before.saturating_add(counted);
                    self.session.memory.set(all).map_err(|_| End::Slow)?;
                }
            }
        }
        self.stream.flush().await?;
        if counted > 0 {
            self.session.memory.set_anyway(self.held());
        }
        Ok(())
    }

    /// The reply to a command that was queued, or the refusal of the transaction if there is no room for it.
    fn with_room_for_queue(&mut self, reply: Value) -> Value {
        let held = self.held();
        let Err(full) = self.session.memory.set(held) else {
            return reply;
        };
        if let Some(queue) = &mut self.session.queue {
            queue.give_up();
        }
        Value::error(no_room(full))
    }
}

/// Waits until then, or forever.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn checked(wait: Wait) -> Result<Wait, Value> {
    wait.check().map(|()| wait)
}

/// The refusal of what takes a store that is loaded.
pub(crate) fn loading() -> Value {
    Value::error("LOADING ganger is loading its store")
}

pub(crate) fn is_loading(health: &Health) -> bool {
    matches!(health, Health::Starting { .. })
}
