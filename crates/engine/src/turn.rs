//! The context of a handler: the turn that it runs in.

use ganger_types::Now;

use crate::Effects;
use crate::finished_index::FinishedIndex;

/// The turn that a handler runs in, passed as its last argument. A method that takes it as `&mut` may write effects;
/// a method that takes only the time or the finished jobs reads and decides.
pub(crate) struct Turn<'a> {
    /// Time as of which the handler acts, on both clocks; for a timer, the time at which it became due.
    pub now: Now,
    /// Finished jobs that the host read for the command; empty while timers fire.
    pub known: &'a FinishedIndex<'a>,
    /// Effects of the turn so far, to which handlers append.
    pub out: &'a mut Effects,
}

impl Turn<'_> {
    /// The same turn as of another time.
    pub(crate) fn at(&mut self, now: Now) -> Turn<'_> {
        Turn {
            now,
            known: self.known,
            out: self.out,
        }
    }
}
