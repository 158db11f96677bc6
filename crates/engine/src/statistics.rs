//! Counting per queue and day.

use ganger_types::{Change, Now};

use crate::engine::Engine;
use crate::state::{Occurrence, QueueIndex};
use crate::turn::Turn;

impl Engine {
    /// Counts an occurrence in a queue.
    pub(crate) fn count(&mut self, now: Now, queue: QueueIndex, counted: Occurrence) {
        let (state, spaces) = (&self.queues[queue], &self.spaces);
        let names = || (spaces[state.space].name.clone(), state.name.clone());
        self.statistics.count(now.wall, queue, counted, names);
    }

    /// Writes the records that changed, and drops old days.
    pub(crate) fn end_statistics_turn(&mut self, turn: &mut Turn<'_>) {
        for record in self.statistics.end_turn(turn.now.wall) {
            let change = Change::PutStatistics(Box::new(record));
            turn.out.changes.push(change);
        }
    }
}
