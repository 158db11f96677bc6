//! Commands on keys: from arguments to calls. What the calls do is the engine's.

mod general;
mod lists;
mod strings;

use crate::command::Command;

pub(crate) use general::check_flush;

/// Returns all commands on raw keys.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    strings::COMMANDS
        .iter()
        .chain(lists::COMMANDS)
        .chain(general::COMMANDS)
        .copied()
}
