//! The table of all commands.
//!
//! A family of commands is a list of rows; to add one, chain it in [`all`].

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::command::{Command, Special, family, special};
use crate::limits::SHOWN_BYTES_MAX;
use crate::plan::shown;
#[cfg(feature = "qless")]
use crate::qless;
use crate::rights::Right;
use crate::value::Value;
use crate::{client, hello, info, keys, pubsub, scripts};

const SPECIAL: &[Command] = &[
    special("multi", 1, Right::Known, Special::Multi),
    special("exec", 1, Right::Known, Special::Exec),
    special("discard", 1, Right::Known, Special::Discard),
    special("watch", -2, Right::Read, Special::Watch),
    special("auth", -2, Right::Open, Special::Auth),
    special("hello", -1, Right::Open, Special::Hello),
    special("quit", -1, Right::Open, Special::Quit),
    special("reset", 1, Right::Open, Special::Reset),
    special("select", 2, Right::Known, Special::Select),
    special("info", -1, Right::Known, Special::Info),
    special("flushall", -1, Right::Clear, Special::FlushAll),
    special("flushdb", -1, Right::Clear, Special::FlushDb),
    special("publish", 3, Right::Add, Special::Publish),
    special("subscribe", -2, Right::Read, Special::Subscribe(false)),
    special("psubscribe", -2, Right::Read, Special::Subscribe(true)),
    special("unsubscribe", -1, Right::Read, Special::Unsubscribe(false)),
    special("punsubscribe", -1, Right::Read, Special::Unsubscribe(true)),
];

/// The command `COMMAND`, which describes the table.
const ABOUT: &[Command] = &[
    // There are no descriptions, which are for interactive completion.
    family(
        "command",
        -1,
        Right::Known,
        &[
            ("docs", -2, |_, _| Value::Map(Vec::new())),
            ("info", -2, |_, _| Value::Array(Vec::new())),
            ("list", -2, |_, _| Value::Array(Vec::new())),
            ("count", 2, |_, _| {
                Value::Number(i64::try_from(count()).unwrap_or(i64::MAX))
            }),
        ],
    ),
];

/// All commands of the port, family by family.
fn all() -> impl Iterator<Item = Command> {
    let families = [
        SPECIAL,
        ABOUT,
        client::COMMANDS,
        hello::COMMANDS,
        info::COMMANDS,
        pubsub::COMMANDS,
        #[cfg(feature = "qless")]
        qless::COMMANDS,
        scripts::COMMANDS,
    ];
    families
        .into_iter()
        .flatten()
        .copied()
        .chain(keys::commands())
}

static TABLE: LazyLock<HashMap<&'static [u8], Command>> =
    LazyLock::new(|| all().map(|row| (row.name.as_bytes(), row)).collect());

/// The row of a command, in any letter case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; 32];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    TABLE.get(&*lower)
}

/// The number of commands.
fn count() -> usize {
    TABLE.len()
}

/// The error for an unknown command, with the text of Redis 7.
pub(crate) fn unknown(arguments: &[Bytes]) -> Value {
    let mut rest = String::new();
    for argument in &arguments[1..] {
        if rest.len() >= SHOWN_BYTES_MAX {
            break;
        }
        let left = SHOWN_BYTES_MAX - rest.len();
        rest.extend(["'", &shown(argument, left), "' "]);
    }
    let name = shown(&arguments[0], SHOWN_BYTES_MAX);
    Value::error(format!(
        "ERR unknown command '{name}', with args beginning with: {rest}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_stands_twice_and_all_are_found_in_any_case() {
        assert_eq!(all().count(), count());
        for row in all() {
            assert!(
                row.name.bytes().all(|byte| !byte.is_ascii_uppercase()),
                "{}",
                row.name
            );
            assert_eq!(
                find(row.name.to_uppercase().as_bytes()).map(|row| row.name),
                Some(row.name)
            );
        }
        assert!(find(&[b'x'; 100]).is_none() && find(b"").is_none());
    }

    #[test]
    fn the_refusal_of_an_unknown_command_is_that_of_redis() {
        let words = ["FOO", "a", "b"].map(Bytes::from);
        let Value::Error(text) = unknown(&words) else {
            panic!("it is an error");
        };
        assert_eq!(
            text,
            "ERR unknown command 'FOO', with args beginning with: 'a' 'b' "
        );
    }
}
