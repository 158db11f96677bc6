//! Errors that several commands share, with the texts of Redis.

use ganger_shard::{CallError, Health};
use ganger_types::keys::KeyError;
use ganger_types::limits::KEY_NAME_MAX;

use crate::value::Value;

/// The error reply for a refused call, with the text of Redis.
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

/// The error for a key that is too long.
pub(crate) fn key_too_long() -> Value {
    Value::error(format!(
        "ERR the name of a key exceeds the largest length of {KEY_NAME_MAX} bytes"
    ))
}

/// The error for arguments that cannot be parsed.
pub(crate) fn syntax_error() -> Value {
    Value::error("ERR syntax error")
}

/// The error for a wrong number of arguments.
pub(crate) fn wrong_arity(command: &str) -> Value {
    Value::error(format!(
        "ERR wrong number of arguments for '{command}' command"
    ))
}

/// The error for a call that failed, with a code that shows clients whether to retry.
pub(crate) fn unavailable(error: &CallError) -> Value {
    let code = match error {
        // Client libraries retry after this code.
        CallError::Unavailable { .. } => "LOADING",
        CallError::Overloaded { .. } => "BUSY",
        // The error of Redis when it cannot write to its disk.
        CallError::Full { .. } => "MISCONF",
        CallError::Rejected(_) | CallError::Damaged { .. } | CallError::PositionTooOld { .. } => {
            "ERR"
        }
    };
    Value::error(format!("{code} {error}"))
}

/// The error for a command that needs a loaded store.
pub(crate) fn loading() -> Value {
    Value::error("LOADING ganger is loading its store")
}

pub(crate) fn is_loading(health: &Health) -> bool {
    matches!(health, Health::Starting { .. })
}
