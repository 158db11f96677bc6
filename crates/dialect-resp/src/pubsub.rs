//! Commands of publish and subscribe.

use std::sync::Arc;

use bytes::Bytes;
use ganger_engine::Glob;
use ganger_types::keys::KeyError;

use crate::command::{Command, Run, Special, family};
use crate::counters::count;
use crate::limits::{CHANNEL_BYTES_MAX, SUBSCRIPTIONS_MAX};
use crate::refusal::refused;
use crate::rights::Right;
use crate::session::{Session, subscription_bytes};
use crate::value::Value;

pub(crate) const COMMANDS: &[Command] = &[family(
    "pubsub",
    -2,
    Right::Inspect,
    &[
        ("channels", -2, channels),
        ("numsub", -2, numbers),
        ("numpat", 2, patterns),
    ],
)];

/// Whether a subscribed RESP2 connection may send the command.
pub(crate) fn is_for_listeners(command: &Command) -> bool {
    match command.run {
        Run::Special(special) => matches!(
            special,
            Special::Subscribe(_) | Special::Unsubscribe(_) | Special::Quit | Special::Reset
        ),
        _ => command.name == "ping",
    }
}

fn channels(session: &mut Session, arguments: &[Bytes]) -> Value {
    let glob = match arguments.get(2).map(|pattern| Glob::new(pattern)) {
        None => None,
        Some(Some(glob)) => Some(glob),
        Some(None) => return pattern_too_long(),
    };
    Value::Bulks(session.shared.hub.channels(glob.as_ref()))
}

fn pattern_too_long() -> Value {
    refused(KeyError::PatternTooLong)
}

fn channel_too_long() -> Value {
    Value::error(format!(
        "ERR the name of a channel exceeds the largest length of {CHANNEL_BYTES_MAX} bytes"
    ))
}

fn numbers(session: &mut Session, arguments: &[Bytes]) -> Value {
    let number = |channel: &Bytes| {
        let count = session.shared.hub.count(channel);
        [
            Value::Bulk(channel.clone()),
            Value::Number(i64::try_from(count).unwrap_or(i64::MAX)),
        ]
    };
    Value::Array(arguments[2..].iter().flat_map(number).collect())
}

fn patterns(session: &mut Session, _: &[Bytes]) -> Value {
    Value::Number(i64::try_from(session.shared.hub.patterns_count()).unwrap_or(i64::MAX))
}

/// `PUBLISH`: replies with the number of receivers.
pub(crate) fn publish(session: &mut Session, arguments: &[Bytes]) -> Value {
    if arguments[1].len() > CHANNEL_BYTES_MAX {
        return channel_too_long();
    }
    count(&session.shared.counters.published);
    let heard = session
        .shared
        .hub
        .publish(session.namespace(), &arguments[1], &arguments[2]);
    Value::Number(i64::try_from(heard).unwrap_or(i64::MAX))
}

/// `SUBSCRIBE` and `PSUBSCRIBE`: replies with a confirmation for each name.
pub(crate) fn subscribe(session: &mut Session, is_pattern: bool, names: &[Bytes]) -> Vec<Value> {
    let mut confirmations = Vec::with_capacity(names.len());
    for name in names {
        if session.channels.len() + session.patterns.len() >= SUBSCRIPTIONS_MAX {
            confirmations.push(Value::error(format!(
                "ERR a connection may have {SUBSCRIPTIONS_MAX} subscriptions at most"
            )));
            continue;
        }
        if !subscriptions(session, is_pattern).contains(name)
            && let Err(refusal) = begin(session, is_pattern, name)
        {
            confirmations.push(refusal);
            continue;
        }
        let word = if is_pattern {
            "psubscribe"
        } else {
            "subscribe"
        };
        confirmations.push(confirmation(session, word, Value::Bulk(name.clone())));
    }
    confirmations
}

/// Subscribes to a name, unless there are too many subscriptions.
fn begin(session: &mut Session, is_pattern: bool, name: &Bytes) -> Result<(), Value> {
    let (id, mailbox) = (session.client.id, Arc::clone(&session.mailbox));
    let hub = Arc::clone(&session.shared.hub);
    if is_pattern {
        let glob = Glob::new(name).ok_or_else(pattern_too_long)?;
        session.keep(subscription_bytes(is_pattern, name))?;
        hub.subscribe_to_pattern(name, glob, id, &mailbox);
    } else {
        if name.len() > CHANNEL_BYTES_MAX {
            return Err(channel_too_long());
        }
        session.keep(subscription_bytes(is_pattern, name))?;
        hub.subscribe(name, id, &mailbox);
    }
    subscriptions(session, is_pattern).insert(name.clone());
    Ok(())
}

/// `UNSUBSCRIBE` and `PUNSUBSCRIBE`: replies with a confirmation for each name, or for all subscriptions if none is
/// named.
pub(crate) fn unsubscribe(session: &mut Session, is_pattern: bool, names: &[Bytes]) -> Vec<Value> {
    let word = if is_pattern {
        "punsubscribe"
    } else {
        "unsubscribe"
    };
    let all: Vec<_> = if names.is_empty() {
        subscriptions(session, is_pattern).iter().cloned().collect()
    } else {
        names.to_vec()
    };
    if all.is_empty() {
        return vec![confirmation(session, word, Value::Nil)];
    }
    let mut confirmations = Vec::with_capacity(all.len());
    for name in all {
        if subscriptions(session, is_pattern).remove(&name) {
            session
                .shared
                .hub
                .unsubscribe(is_pattern, &name, session.client.id);
            session.free(subscription_bytes(is_pattern, &name));
        }
        confirmations.push(confirmation(session, word, Value::Bulk(name)));
    }
    confirmations
}

fn subscriptions(
    session: &mut Session,
    is_pattern: bool,
) -> &mut std::collections::BTreeSet<Bytes> {
    if is_pattern {
        &mut session.patterns
    } else {
        &mut session.channels
    }
}

fn confirmation(session: &Session, word: &'static str, name: Value) -> Value {
    let (channels, patterns) = (session.channels.len(), session.patterns.len());
    {
        let mut facts = session.client.state();
        (facts.channels, facts.patterns) = (channels, patterns);
    }
    let count = i64::try_from(channels + patterns).unwrap_or(i64::MAX);
    Value::Push(vec![Value::word(word), name, Value::Number(count)])
}
