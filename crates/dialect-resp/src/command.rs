//! Commands: name, number of arguments, required right, and handler.
//!
//! This module has the constructors of the rows in `table.rs`. A row runs on a session and does not know the other
//! rows.

use bytes::Bytes;

use crate::limits::SHOWN_BYTES_MAX;
use crate::plan::{Plan, Wait, is, shown};
use crate::refusal::wrong_arity;
use crate::rights::Right;
use crate::session::Session;
use crate::value::Value;

/// A row in the table of commands.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Name of the command in lower case.
    pub(crate) name: &'static str,
    /// Number of words, including the name; negative: at least that many.
    pub(crate) arity: isize,
    pub(crate) right: Right,
    pub(crate) run: Run,
    /// Whether the answer may be large.
    pub(crate) is_wide: bool,
}

/// How a command is run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// A call on the keys of the connection's database.
    Call(fn(&[Bytes]) -> Plan),
    /// A wait for an element of a list.
    Wait(fn(&[Bytes]) -> Result<Wait, Value>),
    /// A call of a script, if the script is known.
    Script(fn(&mut Session, &[Bytes]) -> Plan),
    /// Within the connection. Other connections may see its effect before earlier calls are durable.
    Local(Local),
    /// Within the connection, by subcommand; without one, the reply is an empty array.
    Second(&'static [Word]),
    /// Within the connection, by subcommand, if later commands depend on it: in a transaction it runs at its own
    /// position.
    Scripts(&'static [Word]),
    /// By the connection itself.
    Special(Special),
}

/// Runs a command within the connection.
pub(crate) type Local = fn(&mut Session, &[Bytes]) -> Value;

/// A subcommand: name in lower case, number of words (negative: at least that many), and handler.
pub(crate) type Word = (&'static str, isize, Local);

/// Commands that the connection itself runs.
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
    /// Subscribes to channels, or to patterns if true.
    Subscribe(bool),
    Unsubscribe(bool),
}

/// The row of a command that is a call on keys.
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

/// The row of a call on keys whose answer may be large.
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

/// The row of a command that waits for an element.
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

/// The row of a command that runs within the connection.
pub(crate) const fn local(name: &'static str, arity: isize, right: Right, run: Local) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Local(run),
        is_wide: false,
    }
}

/// The row of a command with subcommands.
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

/// The row of a command that the connection itself runs.
pub(crate) const fn special(
    name: &'static str,
    arity: isize,
    right: Right,
    special: Special,
) -> Command {
    Command {
        name,
        arity,
        right,
        run: Run::Special(special),
        is_wide: false,
    }
}

fn is_enough(arity: isize, words: usize) -> bool {
    if arity < 0 {
        words >= arity.unsigned_abs()
    } else {
        words == arity.unsigned_abs()
    }
}

impl Command {
    /// Checks the number of words, and that the subcommand exists.
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

    /// Checks that the session has the required right. The audit log records a refusal.
    pub(crate) fn check_right(&self, session: &Session) -> Result<(), Value> {
        session.check_right(self.name, self.right)?;
        if self.right == Right::Clear && !session.shared.settings.may_flush {
            let name = self.name.to_uppercase();
            let text = format!(
                "ERR {name} is switched off: start the server with --resp-allow-flush to allow it"
            );
            return Err(Value::error(text));
        }
        Ok(())
    }
}

fn second(words: &'static [Word], arguments: &[Bytes]) -> Option<&'static Word> {
    words.iter().find(|(word, ..)| is(&arguments[1], word))
}

/// Runs the subcommand of a command whose words were checked.
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

/// The error for an unknown subcommand.
fn unknown_subcommand(arguments: &[Bytes]) -> Value {
    let word = shown(&arguments[1], SHOWN_BYTES_MAX);
    let name = String::from_utf8_lossy(&arguments[0]).to_uppercase();
    Value::error(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_an_unknown_second_word_is_that_of_redis() {
        let words = ["client", "MAINT_NOTIFICATIONS"].map(Bytes::from);
        let Value::Error(text) = unknown_subcommand(&words) else {
            panic!("it is an error");
        };
        assert_eq!(
            text,
            "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."
        );
    }
}
