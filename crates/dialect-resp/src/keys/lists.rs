//! Commands on lists, including those that wait.

use bytes::Bytes;
use ganger_types::keys::{Condition, End, KeyCall, KeyReply};

use crate::command::{Command, command, waiting, wide};
use crate::number::{integer, integer_argument, timeout};
use crate::plan::{Plan, PlannedCall, Wait, is};
use crate::refusal::{syntax_error, wrong_arity};
use crate::rights::Right;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    command("lpush", -3, Right::Add, |a| {
        push(a, End::Left, Condition::Always)
    }),
    command("rpush", -3, Right::Add, |a| {
        push(a, End::Right, Condition::Always)
    }),
    command("lpushx", -3, Right::Add, |a| {
        push(a, End::Left, Condition::IfPresent)
    }),
    command("rpushx", -3, Right::Add, |a| {
        push(a, End::Right, Condition::IfPresent)
    }),
    command("lpop", -2, Right::Take, |a| pop("lpop", a, End::Left)),
    command("rpop", -2, Right::Take, |a| pop("rpop", a, End::Right)),
    command("rpoplpush", 3, Right::Take, |a| {
        PlannedCall::plain(KeyCall::Move {
            from: a[1].clone(),
            to: a[2].clone(),
            from_end: End::Right,
            to_end: End::Left,
        })
    }),
    command("lmove", 5, Right::Take, |a| {
        let (from_end, to_end) = (end(&a[3])?, end(&a[4])?);
        let (from, to) = (a[1].clone(), a[2].clone());
        PlannedCall::plain(KeyCall::Move {
            from,
            to,
            from_end,
            to_end,
        })
    }),
    waiting("brpoplpush", 4, brpoplpush),
    waiting("blmove", 6, blmove),
    waiting("blpop", -3, |a| pop_waiting(a, End::Left)),
    waiting("brpop", -3, |a| pop_waiting(a, End::Right)),
    command("llen", 2, Right::Read, |a| {
        PlannedCall::plain(KeyCall::Length { key: a[1].clone() })
    }),
    wide("lrange", 4, Right::Read, |a| {
        let (start, stop) = (integer_argument(&a[2])?, integer_argument(&a[3])?);
        PlannedCall::plain(KeyCall::Range {
            key: a[1].clone(),
            start,
            stop,
        })
    }),
    command("lindex", 3, Right::Read, lindex),
    wide("lpos", -3, Right::Read, lpos),
    command("lrem", 4, Right::Take, |a| {
        let count = integer_argument(&a[2])?;
        PlannedCall::plain(KeyCall::Remove {
            key: a[1].clone(),
            count,
            value: a[3].clone(),
        })
    }),
    command("lset", 4, Right::Add, lset),
    command("linsert", 5, Right::Add, linsert),
    command("ltrim", 4, Right::Take, |a| {
        let (start, stop) = (integer_argument(&a[2])?, integer_argument(&a[3])?);
        PlannedCall::plain(KeyCall::Trim {
            key: a[1].clone(),
            start,
            stop,
        })
    }),
];

fn end(word: &[u8]) -> Result<End, Value> {
    if is(word, "left") {
        Ok(End::Left)
    } else if is(word, "right") {
        Ok(End::Right)
    } else {
        Err(syntax_error())
    }
}

fn push(arguments: &[Bytes], end: End, condition: Condition) -> Plan {
    PlannedCall::plain(KeyCall::Push {
        key: arguments[1].clone(),
        end,
        values: arguments[2..].to_vec(),
        condition,
    })
}

fn pop(name: &str, arguments: &[Bytes], end: End) -> Plan {
    let count = match &arguments[2..] {
        [] => None,
        [count] => {
            let count = integer(count).and_then(|count| u64::try_from(count).ok());
            let wrong = || Value::error("ERR value is out of range, must be positive");
            Some(count.ok_or_else(wrong)?)
        }
        _ => return Err(wrong_arity(name)),
    };
    PlannedCall::plain(KeyCall::Pop {
        key: arguments[1].clone(),
        end,
        count,
    })
}

fn brpoplpush(arguments: &[Bytes]) -> Result<Wait, Value> {
    Ok(Wait {
        timeout_after: timeout(&arguments[3])?,
        lists: vec![arguments[1].clone()],
        end: End::Right,
        to: Some((arguments[2].clone(), End::Left)),
    })
}

fn blmove(arguments: &[Bytes]) -> Result<Wait, Value> {
    let (from_end, to_end) = (end(&arguments[3])?, end(&arguments[4])?);
    Ok(Wait {
        timeout_after: timeout(&arguments[5])?,
        lists: vec![arguments[1].clone()],
        end: from_end,
        to: Some((arguments[2].clone(), to_end)),
    })
}

fn pop_waiting(arguments: &[Bytes], end: End) -> Result<Wait, Value> {
    let last = arguments.len() - 1;
    Ok(Wait {
        timeout_after: timeout(&arguments[last])?,
        lists: arguments[1..last].to_vec(),
        end,
        to: None,
    })
}

/// Refuses an index that is not a number only if the list exists, because Redis looks up the list first. Every list
/// has a first element, so reading that shows whether it exists.
fn if_there_is_a_list(key: &Bytes, otherwise: Value) -> Plan {
    let call = KeyCall::ElementAt {
        key: key.clone(),
        index: 0,
    };
    PlannedCall::with(call, |reply| match reply {
        KeyReply::Nil => otherwise,
        _ => Value::error("ERR value is not an integer or out of range"),
    })
}

fn lindex(arguments: &[Bytes]) -> Plan {
    let key = arguments[1].clone();
    match integer(&arguments[2]) {
        Some(index) => PlannedCall::plain(KeyCall::ElementAt { key, index }),
        None => if_there_is_a_list(&key, Value::Nil),
    }
}

fn lset(arguments: &[Bytes]) -> Plan {
    let (key, value) = (arguments[1].clone(), arguments[3].clone());
    match integer(&arguments[2]) {
        Some(index) => PlannedCall::plain(KeyCall::SetElement { key, index, value }),
        None => if_there_is_a_list(&key, Value::error("ERR no such key")),
    }
}

fn linsert(arguments: &[Bytes]) -> Plan {
    let is_before = is(&arguments[2], "before");
    if !is_before && !is(&arguments[2], "after") {
        return Err(syntax_error());
    }
    PlannedCall::plain(KeyCall::Insert {
        key: arguments[1].clone(),
        is_before,
        pivot: arguments[3].clone(),
        value: arguments[4].clone(),
    })
}

fn lpos(arguments: &[Bytes]) -> Plan {
    let (mut rank, mut count, mut compared_max) = (1, None, 0);
    let (pairs, rest) = arguments[3..].as_chunks::<2>();
    for [name, number] in pairs {
        let not_negative = |error: &'static str| {
            let number = integer(number).and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| Value::error(error))
        };
        if is(name, "rank") {
            rank = lpos_rank(number)?;
        } else if is(name, "count") {
            count = Some(not_negative("ERR COUNT can't be negative")?);
        } else if is(name, "maxlen") {
            compared_max = not_negative("ERR MAXLEN can't be negative")?;
        } else {
            return Err(syntax_error());
        }
    }
    if !rest.is_empty() {
        return Err(syntax_error());
    }
    PlannedCall::plain(KeyCall::Find {
        key: arguments[1].clone(),
        value: arguments[2].clone(),
        rank,
        count,
        compared_max,
    })
}

fn lpos_rank(text: &[u8]) -> Result<i64, Value> {
    match integer_argument(text)? {
        0 => Err(Value::error(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
        )),
        // Its absolute value does not fit into 64 bits; the next number finds as little.
        rank => Ok(rank.max(-i64::MAX)),
    }
}
