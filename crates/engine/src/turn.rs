//! What a handler is given of the turn that it runs in.

use ganger_types::Now;

use crate::Effects;
use crate::finished_index::FinishedIndex;

/// The turn that a handler runs in, its last argument. A method that takes it as `&mut` may write effects; one that
/// takes only a moment or the finished jobs reads and decides.
pub(crate) struct Turn<'a> {
    /// The moment as of which the handler acts, on both clocks: of a timer the moment at which it fell due.
    pub now: Now,
    /// The finished jobs that the host looked up for the command; empty while timers fire.
    pub known: &'a FinishedIndex<'a>,
    /// The changes, events and messages of the turn so far; handlers append to them.
    pub out: &'a mut Effects,
}

impl Turn<'_> {
    /// The same turn as of another moment.
    pub(crate) fn at(&mut self, now: Now) -> Turn<'_> {
        Turn {
            now,
            known: self.known,
            out: self.out,
        }
    }
}
