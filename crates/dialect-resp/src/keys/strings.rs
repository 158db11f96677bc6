//! Commands on strings.

use std::time::Duration;

use bytes::Bytes;
use ganger_types::keys::{Condition, Expiry, KeyCall};
use ganger_types::time::Timestamp;

use crate::command::{Command, command};
use crate::limits::{EXPIRY_MILLIS_MAX, WIDE_KEYS};
use crate::number::integer_argument;
use crate::plan::{Plan, PlannedCall, is, one_or_zero, plain};
use crate::refusal::{syntax_error, wrong_arity};
use crate::rights::Right;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    command("get", 2, Right::Read, get),
    command("mget", -2, Right::Read, |arguments| {
        let planned = PlannedCall::plain(KeyCall::GetMany {
            keys: arguments[1..].to_vec(),
        })?;
        Ok(PlannedCall {
            is_wide: arguments.len() > WIDE_KEYS,
            ..planned
        })
    }),
    command("strlen", 2, Right::Read, |arguments| {
        PlannedCall::plain(KeyCall::StringLength {
            key: arguments[1].clone(),
        })
    }),
    command("set", -3, Right::Add, set),
    command("setnx", 3, Right::Add, setnx),
    command("setex", 4, Right::Add, |arguments| {
        set_for("setex", 1_000, arguments)
    }),
    command("psetex", 4, Right::Add, |arguments| {
        set_for("psetex", 1, arguments)
    }),
    command("getset", 3, Right::Add, getset),
    command("mset", -3, Right::Add, mset),
    command("append", 3, Right::Add, |arguments| {
        let (key, value) = (arguments[1].clone(), arguments[2].clone());
        PlannedCall::plain(KeyCall::Append { key, value })
    }),
    command("incr", 2, Right::Add, |arguments| add(&arguments[1], 1)),
    command("decr", 2, Right::Add, |arguments| add(&arguments[1], -1)),
    command("incrby", 3, Right::Add, |arguments| {
        add(&arguments[1], integer_argument(&arguments[2])?)
    }),
    command("decrby", 3, Right::Add, |arguments| {
        let by = integer_argument(&arguments[2])?.checked_neg();
        let by = by.ok_or_else(|| Value::error("ERR decrement would overflow"))?;
        add(&arguments[1], by)
    }),
    command("getdel", 2, Right::Take, |arguments| {
        PlannedCall::plain(KeyCall::GetAndDelete {
            key: arguments[1].clone(),
        })
    }),
];

fn get(arguments: &[Bytes]) -> Plan {
    PlannedCall::plain(KeyCall::Get {
        key: arguments[1].clone(),
    })
}

fn add(key: &Bytes, by: i64) -> Plan {
    PlannedCall::plain(KeyCall::Add {
        key: key.clone(),
        by,
    })
}

fn write(key: &Bytes, value: &Bytes, expiry: Expiry) -> KeyCall {
    KeyCall::Set {
        key: key.clone(),
        value: value.clone(),
        expiry,
        condition: Condition::Always,
        gets: false,
    }
}

fn setnx(arguments: &[Bytes]) -> Plan {
    let call = KeyCall::Set {
        key: arguments[1].clone(),
        value: arguments[2].clone(),
        expiry: Expiry::Never,
        condition: Condition::IfAbsent,
        gets: false,
    };
    PlannedCall::of(call, one_or_zero)
}

fn getset(arguments: &[Bytes]) -> Plan {
    let call = KeyCall::Set {
        key: arguments[1].clone(),
        value: arguments[2].clone(),
        expiry: Expiry::Never,
        condition: Condition::Always,
        gets: true,
    };
    PlannedCall::plain(call)
}

fn mset(arguments: &[Bytes]) -> Plan {
    let (pairs, rest) = arguments[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong_arity("mset"));
    }
    let pairs = pairs
        .iter()
        .map(|[key, value]| (key.clone(), value.clone()));
    PlannedCall::of(
        KeyCall::SetMany {
            pairs: pairs.collect(),
        },
        plain,
    )
}

/// `SETEX` and `PSETEX`: the unit in milliseconds.
fn set_for(name: &str, unit: i64, arguments: &[Bytes]) -> Plan {
    let expiry = expiry(name, unit, false, &arguments[2])?;
    PlannedCall::plain(write(&arguments[1], &arguments[3], expiry))
}

/// Parses the expiry of a new value, which must be positive.
fn expiry(name: &str, unit: i64, is_date: bool, text: &[u8]) -> Result<Expiry, Value> {
    let number = integer_argument(text)?;
    let millis = number
        .checked_mul(unit)
        .filter(|millis| (1..=EXPIRY_MILLIS_MAX).contains(millis));
    let Some(millis) = millis.and_then(|millis| u64::try_from(millis).ok()) else {
        return Err(Value::error(format!(
            "ERR invalid expire time in '{name}' command"
        )));
    };
    Ok(if is_date {
        Expiry::At(Timestamp(millis * 1_000))
    } else {
        Expiry::After(Duration::from_millis(millis))
    })
}

/// The options of `SET`.
#[derive(Default)]
struct Options<'a> {
    condition: Condition,
    gets: bool,
    keeps: bool,
    /// Unit in milliseconds, whether it is a date, and the number.
    expiry: Option<(i64, bool, &'a Bytes)>,
}

fn set(arguments: &[Bytes]) -> Plan {
    let options = options(&arguments[3..]).ok_or_else(syntax_error)?;
    let expiry = match options.expiry {
        Some((unit, is_date, text)) => expiry("set", unit, is_date, text)?,
        None if options.keeps => Expiry::Kept,
        None => Expiry::Never,
    };
    PlannedCall::plain(KeyCall::Set {
        key: arguments[1].clone(),
        value: arguments[2].clone(),
        expiry,
        condition: options.condition,
        gets: options.gets,
    })
}

fn options(arguments: &[Bytes]) -> Option<Options<'_>> {
    const UNITS: [(&str, i64, bool); 4] = [
        ("ex", 1_000, false),
        ("px", 1, false),
        ("exat", 1_000, true),
        ("pxat", 1, true),
    ];
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if is(word, "nx") && options.condition != Condition::IfPresent {
            options.condition = Condition::IfAbsent;
        } else if is(word, "xx") && options.condition != Condition::IfAbsent {
            options.condition = Condition::IfPresent;
        } else if is(word, "get") {
            options.gets = true;
        } else if is(word, "keepttl") && options.expiry.is_none() {
            options.keeps = true;
        } else {
            let (_, unit, is_date) = UNITS.into_iter().find(|(name, ..)| is(word, name))?;
            // The same option may be repeated, and the last one counts; another is an error.
            let is_other = options
                .expiry
                .is_some_and(|(other, date, _)| (other, date) != (unit, is_date));
            if options.keeps || is_other {
                return None;
            }
            options.expiry = Some((unit, is_date, rest.next()?));
        }
    }
    Some(options)
}
