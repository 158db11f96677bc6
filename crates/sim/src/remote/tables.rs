//! The tables of a shard on one server, and what transactions change in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganger_store::{MemoryStore, Store as _};
use ganger_store_postgres::rules::{Fence, FenceRow, Header, LogRecord, Place, SlotEnd, open};
use ganger_types::{Commit, ShardId};

/// Number of log tables.
pub(crate) const SLOTS: usize = 3;
/// Random number of the shard.
pub(crate) const IDENTITY: [u8; 16] = [7; 16];
/// Bytes of a record besides its body.
const RECORD_OVERHEAD: usize = 48;

/// A record of the log.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) epoch: u64,
    pub(crate) body: Vec<u8>,
    /// Time at which it was inserted, by the clock of the database.
    pub(crate) at: u64,
}

/// A change of the tables.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Fence {
        row: FenceRow,
        epoch: u64,
        owner: String,
    },
    State(String),
    Insert {
        slot: usize,
        sequence: u64,
        record: Record,
    },
    Truncate(usize),
    Rows {
        commits: Vec<Arc<Commit>>,
        header: Header,
    },
}

/// A commit that the log once had.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) epoch: u64,
    /// The commit; `None` if only its rows have it.
    pub(crate) commit: Option<Commit>,
}

/// The tables of a shard.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Epoch and owner in the rows `log` and `rows` of the fence.
    fence: [(u64, String); 2],
    /// State in the fence: `open`, or why nobody may own the shard.
    state: String,
    pub(crate) header: Header,
    pub(crate) slots: [BTreeMap<u64, Record>; SLOTS],
    pub(crate) rows: MemoryStore,
    /// Every commit that the log ever had, for the oracle.
    pub(crate) history: BTreeMap<u64, Kept>,
}

fn place(row: FenceRow) -> usize {
    match row {
        FenceRow::Log => 0,
        FenceRow::Rows => 1,
    }
}

impl Tables {
    /// Whether the log ever had this commit.
    pub(crate) fn had(&self, commit: &Commit) -> bool {
        self.history.get(&commit.sequence).is_some_and(|kept| {
            let is_same = kept.commit.as_ref().is_none_or(|kept| kept == commit);
            kept.epoch == commit.epoch.0 && is_same
        })
    }

    /// The tables of a new shard.
    pub(crate) fn new(shard: &ShardId) -> Self {
        let first = Record {
            epoch: 0,
            body: Vec::new(),
            at: 0,
        };
        let mut slots: [BTreeMap<u64, Record>; SLOTS] = Default::default();
        slots[0].insert(0, first);
        Self {
            fence: Default::default(),
            state: "open".to_owned(),
            header: Header::new(shard),
            slots,
            rows: MemoryStore::new(),
            history: BTreeMap::new(),
        }
    }

    /// A separate copy, as a standby begins with.
    pub(crate) fn copy(&self) -> Self {
        Self {
            fence: self.fence.clone(),
            state: self.state.clone(),
            header: self.header.clone(),
            slots: self.slots.clone(),
            rows: self.rows.copy(),
            history: self.history.clone(),
        }
    }

    /// Whether this owner may write in this epoch.
    pub(crate) fn is_owned(&self, row: FenceRow, epoch: u64, owner: &str) -> bool {
        let (last_epoch, last_owner) = &self.fence[place(row)];
        self.state == "open" && *last_epoch == epoch && last_owner == owner
    }

    pub(crate) fn epoch(&self, row: FenceRow) -> u64 {
        self.fence[place(row)].0
    }

    /// The row `log` of the fence.
    pub(crate) fn fence(&self) -> Fence {
        let (epoch, owner) = &self.fence[0];
        Fence {
            epoch: *epoch,
            owner: owner.clone(),
            state: self.state.clone(),
            identity: IDENTITY,
            format: 1,
        }
    }

    /// Sequence of the last record of the log.
    pub(crate) fn last(&self) -> u64 {
        let last = self.slots.iter().filter_map(|slot| slot.keys().last());
        last.max().copied().unwrap_or(0)
    }

    /// Where each log table ends.
    pub(crate) fn ends(&self, now: u64, stops_at_gap: bool) -> Vec<SlotEnd> {
        let up_to = if stops_at_gap {
            let first = self.header.sequence;
            let is_there =
                |sequence: &u64| self.slots.iter().any(|slot| slot.contains_key(sequence));
            let last = (first + 1..=self.last()).take_while(is_there).last();
            last.unwrap_or(first)
        } else {
            u64::MAX
        };
        let end = |slot: &BTreeMap<u64, Record>| {
            let last = slot.range(..=up_to).next_back();
            let bytes = slot
                .values()
                .map(|record| record.body.len() + RECORD_OVERHEAD);
            SlotEnd {
                last: last.map(|(sequence, _)| *sequence),
                bytes: u64::try_from(bytes.sum::<usize>()).unwrap_or(u64::MAX),
                age: last.map(|(_, record)| seconds(now.saturating_sub(record.at))),
            }
        };
        self.slots.iter().map(end).collect()
    }

    /// Some records after a sequence, in order.
    pub(crate) fn records(&self, after: u64) -> Vec<LogRecord> {
        let mut found = BTreeMap::new();
        for slot in &self.slots {
            found.extend(slot.range(after + 1..).map(|(at, record)| (*at, record)));
        }
        let records = found.into_iter().take(8);
        let records = records.map(|(sequence, record)| LogRecord {
            sequence,
            epoch: record.epoch,
            body: record.body.clone(),
        });
        records.collect()
    }

    /// Applies a change. An error fails the run: the database never does that if its statements are right.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Fence { row, epoch, owner } => {
                self.fence[place(*row)] = (*epoch, owner.clone());
            }
            Op::State(state) => self.state.clone_from(state),
            Op::Insert {
                slot,
                sequence,
                record,
            } => self.insert(*slot, *sequence, record)?,
            Op::Truncate(slot) => self.slots[*slot].clear(),
            Op::Rows { commits, header } => self.write(commits, header)?,
        }
        Ok(())
    }

    fn insert(&mut self, slot: usize, sequence: u64, record: &Record) -> Result<(), String> {
        let last = self.history.keys().last().copied().unwrap_or(0);
        if sequence != last + 1 {
            return Err(format!(
                "record {sequence} of epoch {} follows {last} in the log",
                record.epoch
            ));
        }
        let place = Place {
            identity: IDENTITY,
            epoch: record.epoch,
            sequence,
        };
        let commit = open(place, &record.body).map_err(|fault| format!("{fault:?}"))?;
        self.history.insert(
            sequence,
            Kept {
                epoch: record.epoch,
                commit,
            },
        );
        self.slots[slot].insert(sequence, record.clone());
        Ok(())
    }

    fn write(&mut self, commits: &[Arc<Commit>], header: &Header) -> Result<(), String> {
        for commit in commits {
            let (sequence, written) = (commit.sequence, self.rows.sequence());
            if sequence != written + 1 {
                return Err(format!(
                    "the rows of commit {sequence} are written after those of {written}"
                ));
            }
            let is_logged = self
                .history
                .get(&sequence)
                .is_some_and(|kept| kept.commit.as_ref().is_none_or(|kept| *kept == **commit));
            if !is_logged {
                return Err(format!(
                    "the rows of commit {sequence} are written, and the log has another one or none"
                ));
            }
            self.rows.raise_epoch(commit.epoch);
            let written = self.rows.commit(commit);
            written.map_err(|error| format!("rows of commit {sequence}: {error}"))?;
        }
        self.header = header.clone();
        Ok(())
    }
}

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}
