//! The commands of the script. Each first checks everything, and may refuse; then it changes, and cannot fail.

use ganger_types::qless::{Generation, QlessAnswer};

use crate::call::{Arguments, Call};
use crate::state::Qless;

/// Carries a command out, all of it or nothing.
pub(crate) type Command = fn(&mut Qless, &mut Call<'_>, Arguments<'_>) -> QlessAnswer;

/// The command of that name, if the generation has it. Names are case-sensitive.
pub(crate) fn find(name: &[u8], generation: Generation) -> Option<Command> {
    let _ = generation;
    Some(match name {
        _ => return None,
    })
}
