//! The one table of commands: names, arguments, rights, and how each is run.
//!
//! A family of commands is a list of rows; to add one, chain it in [`all`].

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::limits::SHOWN_BYTES_MAX;
use crate::plan::{Plan, Wait, is, shown};
#[cfg(feature = "qless")]
use crate::qless;
use crate::refusal::wrong_arity;
use crate::rights::Right;
use crate::session::Session;
use crate::value::Value;
use crate::{client, hello, info, keys, pubsub, scripts};

/// Row in the table of commands.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Name of the command in lower case.
    pub(crate) name: &'static str,
    /// Words, the name among them; if negative, at least so many.
    pub(crate) arity: isize,
    pub(crate) right: Right,
    pub(crate) run: Run,
    /// Whether its answer may be large.
    pub(crate) is_wide: bool,
}

/// How a command is run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// As a call on the keys of the connection's database.
    Call(fn(&[Bytes]) -> Plan),
    /// As a wait for an element.
    Wait(fn(&[Bytes]) -> Result<Wait, Value>),
    /// As a call of a script, if the connection knows it.
    Script(fn(&mut Session, &[Bytes]) -> Plan),
    /// Within the connection. What others see of it may come before earlier calls are durable.
    Local(Local),
    /// Likewise, by its second word; one without is answered with an empty array.
    Second(&'static [Word]),
    /// Likewise, where commands behind it depend on it: within a transaction it is run in its place.
    Scripts(&'static [Word]),
    /// In a way that the connection itself knows.
    Special(Special),
}

/// Runs a command within the connection.
pub(crate) type Local = fn(&mut Session, &[Bytes]) -> Value;

/// A second word: in lower case, words in all (at least so many, if negative), and how it is run.
pub(crate) type Word = (&'static str, isize, Local);

/// Commands that change how the connection goes on, or that others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Multi,
    Exec,
    Discard,
    Watch,
    Auth,
    Hello,
    Quit,
    Reset,
    Select,
    Info,
    FlushAll,
    FlushDb,
    Publish,
    /// To patterns, if true.
    Subscribe(bool),
    Unsubscribe(bool),
}

/// A row for a call on keys.
pub(crate) const fn command(
    name: &'static str,
    arity: isize,
    right: Right,
    plan: fn(&[Bytes]) -> Plan,
) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Call(plan),
        is_wide: false,
    }
}

/// Likewise, with an answer that may be large.
pub(crate) const fn wide(
    name: &'static str,
    arity: isize,
    right: Right,
    plan: fn(&[Bytes]) -> Plan,
) -> Command {
    Command {
        is_wide: true,
        ..command(name, arity, right, plan)
    }
}

/// A row for a command that waits.
pub(crate) const fn waiting(
    name: &'static str,
    arity: isize,
    plan: fn(&[Bytes]) -> Result<Wait, Value>,
) -> Command {
    Command {
        name,
        arity,
        right: Right::Take,
        run: Run::Wait(plan),
        is_wide: false,
    }
}

/// A row for a command that needs no keys.
pub(crate) const fn local(name: &'static str, arity: isize, right: Right, run: Local) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Local(run),
        is_wide: false,
    }
}

/// A row for a command that is known by its second word.
pub(crate) const fn family(
    name: &'static str,
    arity: isize,
    right: Right,
    words: &'static [Word],
) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Second(words),
        is_wide: false,
    }
}

const fn special(name: &'static str, arity: isize, right: Right, special: Special) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Special(special),
        is_wide: false,
    }
}

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

/// Every command there is.
fn all() -> impl Iterator<Item = Command> {
    let families = [
        SPECIAL,
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

/// How many commands there are.
pub(crate) fn count() -> usize {
    TABLE.len()
}

fn is_enough(arity: isize, words: usize) -> bool {
    if arity < 0 {
        words >= arity.unsigned_abs()
    } else {
        words == arity.unsigned_abs()
    }
}

impl Command {
    /// Whether there are as many words as it takes, and the second is known.
    pub(crate) fn check_words(&self, arguments: &[Bytes]) -> Result<(), Value> {
        if !is_enough(self.arity, arguments.len()) {
            return Err(wrong_arity(self.name));
        }
        if let Run::Second(words) | Run::Scripts(words) = self.run
            && arguments.len() > 1
        {
            let Some((word, arity, _)) = second(words, arguments) else {
                return Err(unknown_subcommand(arguments));
            };
            if !is_enough(*arity, arguments.len()) {
                return Err(wrong_arity(&format!("{}|{word}", self.name)));
            }
        }
        Ok(())
    }
}

fn second(words: &'static [Word], arguments: &[Bytes]) -> Option<&'static Word> {
    words.iter().find(|(word, ..)| is(&arguments[1], word))
}

/// Runs the second word of a command whose words have been checked.
pub(crate) fn run_second(
    words: &'static [Word],
    session: &mut Session,
    arguments: &[Bytes],
) -> Value {
    if arguments.len() == 1 {
        return Value::Array(Vec::new());
    }
    match second(words, arguments) {
        Some((.., run)) => run(session, arguments),
        None => unknown_subcommand(arguments),
    }
}

/// The refusal of what is not in the table, as Redis 7 says it.
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

/// The refusal of a second word that is not known.
fn unknown_subcommand(arguments: &[Bytes]) -> Value {
    let word = shown(&arguments[1], SHOWN_BYTES_MAX);
    let name = String::from_utf8_lossy(&arguments[0]).to_uppercase();
    Value::error(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
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
    fn refusals_of_the_unknown_are_those_of_redis() {
        let words = |words: &[&'static str]| {
            words
                .iter()
                .map(|word| Bytes::from(*word))
                .collect::<Vec<_>>()
        };
        let error = |value| match value {
            Value::Error(text) => text.into_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            error(unknown(&words(&["FOO", "a", "b"]))),
            "ERR unknown command 'FOO', with args beginning with: 'a' 'b' "
        );
        assert_eq!(
            error(unknown_subcommand(&words(&[
                "client",
                "MAINT_NOTIFICATIONS"
            ]))),
            "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."
        );
    }
}
