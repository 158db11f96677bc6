//! Commands on keys: parse arguments and plan calls, which the engine runs.

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
