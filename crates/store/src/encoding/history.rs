//! Entries of a job's history. Their times are stored as differences from the job's creation.

use ganger_types::{HistoryEntry, What};

use super::field::{Near, choice, fields};

fields!(HistoryEntry { at as Near, what });

choice!(What, "has an unknown kind of history entry" {
    1 Enqueued { queue }
    2 Attempt { number, worker, leased_at as Near, end }
    3 Failed { group }
    4 Cancelled { reason }
    5 Retried {}
    6 TimedOutByHand {}
    7 Note { text, data }
});
