//! Commands on keys of any type, and on all keys.

use std::time::Duration;

use bytes::Bytes;
use ganger_types::keys::{Expiry, KeyCall, KeyKind, KeyReply, TimeLeft};
use ganger_types::time::Timestamp;

use crate::command::{Command, command, wide};
use crate::limits::{EXPIRY_MILLIS_MAX, LINE_BYTES_MAX};
use crate::number::integer_argument;
use crate::plan::{Plan, PlannedCall, is, shown};
use crate::refusal::syntax_error;
use crate::rights::Right;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    command("del", -2, Right::Take, delete),
    command("unlink", -2, Right::Take, delete),
    command("exists", -2, Right::Read, |a| {
        PlannedCall::plain(KeyCall::Exists {
            keys: a[1..].to_vec(),
        })
    }),
    command("type", 2, Right::Read, |a| {
        PlannedCall::plain(KeyCall::Kind { key: a[1].clone() })
    }),
    wide("keys", 2, Right::Read, |a| {
        PlannedCall::plain(KeyCall::Names {
            pattern: a[1].clone(),
            after: None,
            is_whole: true,
        })
    }),
    wide("scan", -2, Right::Read, scan),
    command("dbsize", 1, Right::Read, |_| {
        PlannedCall::plain(KeyCall::Count)
    }),
    command("expire", -3, Right::Add, |a| {
        expire("expire", a, 1_000, false)
    }),
    command("pexpire", -3, Right::Add, |a| {
        expire("pexpire", a, 1, false)
    }),
    command("expireat", -3, Right::Add, |a| {
        expire("expireat", a, 1_000, true)
    }),
    command("pexpireat", -3, Right::Add, |a| {
        expire("pexpireat", a, 1, true)
    }),
    command("persist", 2, Right::Add, |a| {
        PlannedCall::plain(KeyCall::Expire {
            key: a[1].clone(),
            expiry: Expiry::Never,
        })
    }),
    command("ttl", 2, Right::Read, |a| {
        // Redis rounds to the nearest second.
        PlannedCall::of(KeyCall::TimeLeft { key: a[1].clone() }, |reply| {
            left(&reply, |left| (left + 500) / 1_000)
        })
    }),
    command("pttl", 2, Right::Read, |a| {
        PlannedCall::of(KeyCall::TimeLeft { key: a[1].clone() }, |reply| {
            left(&reply, |left| left)
        })
    }),
];

fn delete(arguments: &[Bytes]) -> Plan {
    PlannedCall::plain(KeyCall::Delete {
        keys: arguments[1..].to_vec(),
    })
}

/// Checks the arguments of `FLUSHDB` and `FLUSHALL`.
pub(crate) fn check_flush(arguments: &[Bytes]) -> Result<(), Value> {
    match &arguments[1..] {
        [] => Ok(()),
        [how] if is(how, "async") || is(how, "sync") => Ok(()),
        _ => Err(syntax_error()),
    }
}

fn left(reply: &KeyReply, unit: fn(i64) -> i64) -> Value {
    Value::Number(match reply {
        KeyReply::TimeLeft(TimeLeft::For(left)) => {
            unit(i64::try_from(left.as_millis()).unwrap_or(i64::MAX - 500))
        }
        KeyReply::TimeLeft(TimeLeft::Unlimited) => -1,
        _ => -2,
    })
}

fn expire(name: &str, arguments: &[Bytes], unit: i64, is_date: bool) -> Plan {
    if let Some(option) = arguments.get(3) {
        let option = shown(option, LINE_BYTES_MAX);
        return Err(Value::error(format!("ERR Unsupported option {option}")));
    }
    let number = integer_argument(&arguments[2])?;
    let millis = number
        .checked_mul(unit)
        .filter(|millis| *millis <= EXPIRY_MILLIS_MAX);
    let Some(millis) = millis else {
        return Err(Value::error(format!(
            "ERR invalid expire time in '{name}' command"
        )));
    };
    // Any time in the past has the same effect.
    let millis = u64::try_from(millis).unwrap_or(0);
    let expiry = if is_date || millis == 0 {
        Expiry::At(Timestamp(millis * 1_000))
    } else {
        Expiry::After(Duration::from_millis(millis))
    };
    PlannedCall::plain(KeyCall::Expire {
        key: arguments[1].clone(),
        expiry,
    })
}

fn scan(arguments: &[Bytes]) -> Plan {
    let cursor = std::str::from_utf8(&arguments[1])
        .ok()
        .and_then(|text| text.parse().ok());
    let cursor = cursor.ok_or_else(|| Value::error("ERR invalid cursor"))?;
    let (mut count, mut pattern, mut kind) = (10, None, None);
    let mut is_unknown_kind = false;
    let (pairs, rest) = arguments[2..].as_chunks::<2>();
    for [name, value] in pairs {
        if is(name, "count") {
            let number = integer_argument(value)?;
            count = u64::try_from(number)
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(syntax_error)?;
        } else if is(name, "match") {
            pattern = Some(value.clone());
        } else if is(name, "type") {
            kind = match () {
                () if is(value, "string") => Some(KeyKind::String),
                () if is(value, "list") => Some(KeyKind::List),
                () => None,
            };
            is_unknown_kind = kind.is_none();
        } else {
            return Err(syntax_error());
        }
    }
    if !rest.is_empty() {
        return Err(syntax_error());
    }
    if is_unknown_kind {
        // There are no keys of any other type.
        return Err(Value::Array(vec![
            Value::word("0"),
            Value::Bulks(Vec::new()),
        ]));
    }
    PlannedCall::plain(KeyCall::Scan {
        cursor,
        count,
        pattern,
        kind,
    })
}
