//! Scripts: ganger runs no Lua. What it knows of a script, a family of commands will tell.

use bytes::Bytes;

use crate::number::integer_argument;
use crate::plan::{is, syntax_error};
use crate::rights::Right;
use crate::session::Session;
use crate::table::{Command, family, local};
use crate::value::Value;

pub(crate) const COMMANDS: &[Command] = &[
    local("eval", -3, Right::Take, |_, a| run(a, unknown_script)),
    local("eval_ro", -3, Right::Read, |_, a| run(a, unknown_script)),
    local("evalsha", -3, Right::Take, |_, a| by_digest(a)),
    local("evalsha_ro", -3, Right::Read, |_, a| by_digest(a)),
    family(
        "script",
        -2,
        Right::Known,
        &[
            ("load", 3, |_, _| unknown_script()),
            ("exists", -3, exists),
            ("flush", -2, flush),
        ],
    ),
];

fn unknown_script() -> Value {
    Value::error("ERR ganger does not run Lua and does not know this script")
}

/// The text is compared as a whole by some clients.
fn not_loaded() -> Value {
    Value::error("NOSCRIPT No matching script. Please use EVAL.")
}

/// What cannot be a digest is not looked at further.
fn by_digest(arguments: &[Bytes]) -> Value {
    const DIGITS: usize = 40;
    if arguments[1].len() == DIGITS {
        run(arguments, not_loaded)
    } else {
        not_loaded()
    }
}

/// Looks at the number of keys, as Redis does before anything else.
fn run(arguments: &[Bytes], otherwise: fn() -> Value) -> Value {
    let keys = match integer_argument(&arguments[2]) {
        Ok(keys) => keys,
        Err(refusal) => return refusal,
    };
    let Ok(keys) = usize::try_from(keys) else {
        return Value::error("ERR Number of keys can't be negative");
    };
    if keys > arguments.len() - 3 {
        return Value::error("ERR Number of keys can't be greater than number of args");
    }
    otherwise()
}

fn exists(_: &mut Session, arguments: &[Bytes]) -> Value {
    Value::Array(arguments[2..].iter().map(|_| Value::Number(0)).collect())
}

fn flush(_: &mut Session, arguments: &[Bytes]) -> Value {
    match &arguments[2..] {
        [] => Value::OK,
        [how] if is(how, "async") || is(how, "sync") => Value::OK,
        _ => syntax_error(),
    }
}
