//! Transactions, and commands on several databases.

use std::sync::Arc;

use bytes::Bytes;
use ganger_access::Outcome;
use ganger_shard::Health;
use ganger_types::keys::{KeyAnswers, KeyCall, KeyCalls, KeyError, KeyReply};
use ganger_types::limits::KEY_NAME_MAX;
use ganger_types::{Command as EngineCommand, ExternalReply, Namespace, Reply};

use crate::batch::{Batch, BatchOutcome};
use crate::command::{Command, Run, Special, run_second};
use crate::info;
use crate::keys;
use crate::limits::{LOCAL_REPLIES_BYTES_MAX, TRANSACTION_WIDE_CALLS_MAX, WATCHED_KEYS_MAX};
use crate::number::integer_argument;
use crate::plan::{Answer, Call, is};
use crate::pubsub;
use crate::refusal::{key_too_long, refused as refused_call, unavailable};
use crate::rights::Right;
use crate::session::{Session, watched_bytes};
use crate::table;
use crate::value::Value;

/// Whether a command runs at once even between `MULTI` and `EXEC`.
pub(crate) fn is_at_once(command: &Command) -> bool {
    matches!(
        command.run,
        Run::Special(
            Special::Multi
                | Special::Exec
                | Special::Discard
                | Special::Watch
                | Special::Quit
                | Special::Reset
        )
    )
}

/// Whether a command is refused between `MULTI` and `EXEC`, because it waits for a login or has more than one reply.
pub(crate) fn is_refused(command: &Command) -> bool {
    matches!(
        command.run,
        Run::Special(
            Special::Auth | Special::Hello | Special::Subscribe(_) | Special::Unsubscribe(_)
        )
    )
}

/// Records that a command was refused before it was run or queued, which makes the transaction fail. A refused `EXEC`
/// ends the transaction, with the error of Redis.
pub(crate) fn refused(session: &mut Session, name: &[u8], refusal: Value) -> Value {
    if !is(name, "exec") {
        session.break_queue();
        return refusal;
    }
    discard(session);
    match refusal {
        Value::Error(text) => {
            let why = text.strip_prefix("ERR ").unwrap_or(&text);
            Value::error(format!("EXECABORT Transaction discarded because of: {why}"))
        }
        other => other,
    }
}

/// Answers the command `DISCARD`.
pub(crate) fn discard(session: &mut Session) -> Value {
    session.unwatch();
    session.client.state().queued = None;
    match session.queue.take() {
        Some(_) => Value::OK,
        None => Value::error("ERR DISCARD without MULTI"),
    }
}

/// Answers the command `SELECT`.
pub(crate) fn select(session: &mut Session, arguments: &[Bytes]) -> Value {
    match database(session, &arguments[1]) {
        Ok(database) => {
            session.select(database);
            Value::OK
        }
        Err(refusal) => refusal,
    }
}

fn database(session: &Session, text: &[u8]) -> Result<usize, Value> {
    let number = integer_argument(text)?;
    if i32::try_from(number).is_err() {
        return Err(Value::error(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let database = usize::try_from(number).ok();
    database
        .filter(|database| *database < session.shared.settings.databases.len())
        .ok_or_else(|| Value::error("ERR DB index is out of range"))
}

/// `WATCH`: records the present revisions of keys.
pub(crate) async fn watch(session: &mut Session, keys: &[Bytes]) -> Value {
    if session.queue.is_some() {
        return Value::error("ERR WATCH inside MULTI is not allowed");
    }
    if session.watched.len() + keys.len() > WATCHED_KEYS_MAX {
        return Value::error(format!(
            "ERR a connection may watch {WATCHED_KEYS_MAX} keys at most"
        ));
    }
    let database = session.database;
    let is_new = |key: &&Bytes| {
        !session
            .watched
            .iter()
            .any(|(at, name, _)| *at == database && name == *key)
    };
    if keys.iter().any(|key| key.len() > KEY_NAME_MAX) {
        return key_too_long();
    }
    let keys: Vec<_> = keys.iter().filter(is_new).cloned().collect();
    let bytes = keys.iter().map(watched_bytes).sum();
    if let Err(refusal) = session.keep(bytes) {
        return refusal;
    }
    let watched = watch_new(session, database, keys).await;
    if watched != Value::OK {
        session.free(bytes);
    }
    watched
}

async fn watch_new(session: &mut Session, database: usize, keys: Vec<Bytes>) -> Value {
    let calls = keys
        .iter()
        .map(|key| KeyCall::Revision { key: key.clone() });
    let command = KeyCalls {
        namespace: session.namespace().clone(),
        watched: Vec::new(),
        calls: calls.collect(),
    };
    let answers = match session
        .shared
        .handle
        .call(EngineCommand::from(command))
        .await
    {
        Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(answers)))) => answers,
        Ok(_) => unreachable!("calls on keys are answered as such"),
        Err(error) => return unavailable(&error),
    };
    let mut watched = Vec::with_capacity(keys.len());
    for (key, answer) in keys.into_iter().zip(answers) {
        match answer {
            Ok(KeyReply::Revision(revision)) => watched.push((database, key, revision)),
            Ok(_) => unreachable!("a revision was asked for"),
            Err(error) => return refused_call(error),
        }
    }
    session.watched.append(&mut watched);
    Value::OK
}

/// `EXEC`: runs all calls in one commit, then the commands that need no call. Replies are in the order of the queue.
pub(crate) async fn execute(session: &mut Session) -> Value {
    let Some(queue) = session.queue.take() else {
        return Value::error("ERR EXEC without MULTI");
    };
    session.client.state().queued = None;
    let watched = session.unwatch();
    if queue.is_broken {
        return Value::error("EXECABORT Transaction discarded because of previous errors.");
    }
    let begun_in = session.database;
    let (mut batch, later) = plan(session, queue.commands);
    if !watched.is_empty()
        && let Err(refusal) = put_watched(session, &mut batch, begun_in, watched)
    {
        session.select(begun_in);
        return refusal;
    }
    let shared = Arc::clone(&session.shared);
    let permit = shared.permit(batch.is_wide()).await;
    let gathered = batch.gather(&shared.handle).await;
    drop(permit);
    match gathered {
        BatchOutcome::Changed => {
            session.select(begun_in);
            Value::NilList
        }
        BatchOutcome::Replies(mut replies, popped) => {
            for pop in popped {
                session.popped.note(pop);
            }
            let mut local_bytes = 0;
            for (place, command, arguments) in later {
                if local_bytes > LOCAL_REPLIES_BYTES_MAX {
                    replies[place] = refused_call(KeyError::ReplyTooLarge);
                    continue;
                }
                replies[place] = at_last(session, command, &arguments);
                local_bytes += replies[place].held();
                // Some commands look at all connections.
                tokio::task::yield_now().await;
            }
            Value::Array(replies)
        }
    }
}

/// A command that needs no call, with the index of its reply.
type LocalCommand = (usize, &'static Command, Vec<Bytes>);

fn plan(session: &mut Session, commands: Vec<Vec<Bytes>>) -> (Batch, Vec<LocalCommand>) {
    let (mut batch, mut later) = (Batch::default(), Vec::new());
    let mut wide = 0;
    for arguments in commands {
        let command = table::find(&arguments[0]).expect("only commands of the table are queued");
        // Rights may have changed since the command was queued, and differ between databases.
        if let Err(refusal) = command.check_right(session) {
            batch.ready(refusal);
            continue;
        }
        let planned = match command.run {
            Run::Call(plan) => plan(&arguments),
            Run::Wait(plan) => plan(&arguments).and_then(crate::plan::Wait::at_once),
            Run::Script(plan) => plan(session, &arguments),
            Run::Scripts(words) => Err(run_second(words, session, &arguments)),
            Run::Special(Special::Select) => Err(select(session, &arguments)),
            Run::Special(special @ (Special::Info | Special::FlushAll | Special::FlushDb)) => {
                spread(session, &mut batch, special, &arguments);
                continue;
            }
            Run::Local(_) | Run::Second(_) | Run::Special(_) => {
                let place = batch.ready(Value::Nil);
                later.push((place, command, arguments));
                continue;
            }
        };
        match planned {
            Ok(planned) => {
                wide += usize::from(planned.is_wide && planned.call.is_of_qless());
                if wide > TRANSACTION_WIDE_CALLS_MAX {
                    batch.ready(too_many_wide());
                } else {
                    batch.call(session.namespace(), planned, command.is_wide);
                }
            }
            Err(value) => {
                batch.ready(value);
            }
        }
    }
    (batch, later)
}

fn too_many_wide() -> Value {
    Value::error(format!(
        "ERR a transaction may have {TRANSACTION_WIDE_CALLS_MAX} calls of qless with large answers at most"
    ))
}

fn at_last(session: &mut Session, command: &Command, arguments: &[Bytes]) -> Value {
    match command.run {
        Run::Local(run) => run(session, arguments),
        Run::Second(words) => run_second(words, session, arguments),
        Run::Special(Special::Publish) => pubsub::publish(session, arguments),
        _ => unreachable!("{} has been planned or refused", command.name),
    }
}

/// Adds the watched keys to the batch, which is possible if all calls are on the keys of one namespace.
fn put_watched(
    session: &Session,
    batch: &mut Batch,
    begun_in: usize,
    watched: Vec<(usize, Bytes, u64)>,
) -> Result<(), Value> {
    let databases = &session.shared.settings.databases;
    let place: &Namespace = watched
        .first()
        .map_or(&databases[begun_in], |(database, ..)| &databases[*database]);
    let is_one = watched
        .iter()
        .all(|(database, ..)| databases[*database] == *place);
    let watched = watched
        .into_iter()
        .map(|(_, key, revision)| (key, revision));
    if is_one && batch.watch(place, watched.collect()) {
        return Ok(());
    }
    Err(Value::error(
        "ERR ganger compares watched keys only with a transaction on keys in their own database: WATCH and EXEC there",
    ))
}

/// Plans `INFO`, `FLUSHDB` and `FLUSHALL`, which need calls on one or all databases.
pub(crate) fn spread(
    session: &mut Session,
    batch: &mut Batch,
    special: Special,
    arguments: &[Bytes],
) {
    if special == Special::Info {
        return info(session, batch, arguments);
    }
    if let Err(refusal) = keys::check_flush(arguments) {
        batch.ready(refusal);
        return;
    }
    let (name, namespaces) = if special == Special::FlushAll {
        ("flushall", databases(session, Right::Clear).1)
    } else {
        ("flushdb", vec![session.namespace()])
    };
    session.tell(Right::Clear, name, Outcome::Done);
    let calls = [
        Call::Keys(KeyCall::Clear),
        #[cfg(feature = "qless")]
        Call::Qless(ganger_types::qless::QlessRequest::Clear),
    ];
    batch.several(namespaces, &calls, Box::new(all_done));
}

/// `OK`, or the first error.
fn all_done(answers: Vec<Answer>) -> Value {
    let failed = answers
        .into_iter()
        .find_map(|answer| answer.of_keys()?.err());
    failed.map_or(Value::OK, refused_call)
}

/// The numbers and the namespaces of the databases in which the session has a right.
fn databases(session: &Session, right: Right) -> (Vec<usize>, Vec<&Namespace>) {
    session.databases_with(right).into_iter().unzip()
}

fn info(session: &Session, batch: &mut Batch, arguments: &[Bytes]) {
    let head = info::head(session, &arguments[1..]);
    let is_loaded = matches!(session.shared.handle.health(), Health::Ready | Health::Full);
    if !head.has_keyspace || !is_loaded {
        batch.ready(head.with_counts([]));
        return;
    }
    let (numbers, namespaces) = databases(session, Right::Read);
    let join = move |answers: Vec<Answer>| {
        let counts = answers.into_iter().filter_map(Answer::of_keys);
        let counts = counts.filter_map(|answer| match answer {
            Ok(KeyReply::Number(count)) => Some(count),
            _ => None,
        });
        head.with_counts(numbers.into_iter().zip(counts))
    };
    batch.several(namespaces, &[Call::Keys(KeyCall::Count)], Box::new(join));
}
