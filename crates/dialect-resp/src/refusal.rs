//! Refusals that several commands share, in the words of Redis.

use ganger_shard::{CallError, Health};
use ganger_types::keys::KeyError;
use ganger_types::limits::KEY_NAME_MAX;

use crate::value::Value;

/// A refusal in the words of Redis.
pub(crate) fn refused(error: KeyError) -> Value {
    Value::error(match error {
        KeyError::WrongKind => "WRONGTYPE Operation against a key holding the wrong kind of value",
        KeyError::NotANumber => "ERR value is not an integer or out of range",
        KeyError::Overflow => "ERR increment or decrement would overflow",
        KeyError::NoSuchKey => "ERR no such key",
        KeyError::OutOfRange => "ERR index out of range",
        KeyError::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        KeyError::PatternTooLong => "ERR a pattern exceeds the largest length of 1024 bytes",
        KeyError::ReplyTooLarge => {
            "ERR reply too large: a command is answered with 512 MiB or 1048576 elements at most, a transaction with as many elements in all; ask for less at a time"
        }
        KeyError::TooMuchWork => {
            "ERR the commands of this transaction look at too many elements: send some of them outside of it"
        }
    })
}

/// The refusal of a name that no key can have.
pub(crate) fn key_too_long() -> Value {
    Value::error(format!(
        "ERR the name of a key exceeds the largest length of {KEY_NAME_MAX} bytes"
    ))
}

/// The refusal of what nothing is known about.
pub(crate) fn syntax_error() -> Value {
    Value::error("ERR syntax error")
}

/// The refusal of a wrong number of arguments.
pub(crate) fn wrong_arity(command: &str) -> Value {
    Value::error(format!(
        "ERR wrong number of arguments for '{command}' command"
    ))
}

/// Why nothing came of a call, with a code that tells clients whether to come back.
pub(crate) fn unavailable(error: &CallError) -> Value {
    let code = match error {
        // Libraries take this for a server that will serve them soon, and come back.
        CallError::Unavailable { .. } => "LOADING",
        CallError::Overloaded { .. } => "BUSY",
        // What Redis says when it cannot write to its disk.
        CallError::Full { .. } => "MISCONF",
        CallError::Rejected(_) | CallError::Damaged { .. } | CallError::PositionTooOld { .. } => {
            "ERR"
        }
    };
    Value::error(format!("{code} {error}"))
}

/// The refusal of what takes a store that is loaded.
pub(crate) fn loading() -> Value {
    Value::error("LOADING ganger is loading its store")
}

pub(crate) fn is_loading(health: &Health) -> bool {
    matches!(health, Health::Starting { .. })
}
