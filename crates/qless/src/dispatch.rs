//! Finds the command that the words of a call name, and runs it.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessAnswer, QlessMessage, QlessReply};

use crate::call::{Arguments, Call, refuse};
use crate::commands;
use crate::number;
use crate::state::Qless;

/// Runs a call of the script. The words are the command, the caller's time, and the command's own arguments.
pub(crate) fn run_script(
    state: &mut Qless,
    server: Elapsed,
    generation: Generation,
    words: &[Bytes],
    messages: &mut Vec<QlessMessage>,
) -> QlessAnswer {
    let Some(name) = words.first() else {
        return Err(refuse(&[b"Must provide a command"]));
    };
    let Some(command) = commands::find(name, generation) else {
        return Err(refuse(&[b"Unknown command ", name]));
    };
    let Some(now) = words.get(1).and_then(|text| number::parse(text)) else {
        return Err(refuse(&[b"Arg \"now\" missing or not a number: nil"]));
    };
    let mut call = Call {
        // Adding 0 turns negative zero into zero.
        now: now + 0.0,
        server,
        generation,
        messages,
    };
    command(state, &mut call, Arguments(&words[2..]))
}

/// Returns a count as a reply.
pub(crate) fn count_reply(count: usize) -> QlessReply {
    QlessReply::Number(i64::try_from(count).unwrap_or(i64::MAX))
}
