//! External systems in a shard: ends of their jobs, their reads of durable state, and their metrics.

mod pops;
mod reads;

use std::collections::BTreeSet;

use ganger_store::Reader;
use ganger_types::keys::KeyReads;
use ganger_types::{
    Bytes, Change, Command, Commit, ExternalCall, ExternalChange, ExternalRow, JobId, Namespace,
    QlessKey, QlessRow, StoredJob,
};

use super::Core;
use super::request::{CallReply, Output, Ticket};
pub use pops::UndeliveredElement;

/// The raw keys whose rows the changes of a turn write or remove.
#[derive(Default)]
pub(super) struct TouchedKeys {
    /// Numbers of the keys, also of lists whose elements changed.
    numbers: BTreeSet<u64>,
    is_any_removed: bool,
}

impl TouchedKeys {
    /// Adds the row of a change; changes of other systems do not count.
    pub(super) fn add(&mut self, change: &ExternalChange) {
        let number = match change {
            ExternalChange::PutKey(record) => record.number,
            ExternalChange::PutElement(element) => element.list,
            ExternalChange::RemoveElement(number, _) => *number,
            ExternalChange::RemoveKey(number) => {
                self.is_any_removed = true;
                *number
            }
            ExternalChange::PutQless(..) | ExternalChange::RemoveQless(..) => return,
        };
        self.numbers.insert(number);
    }
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Whether the command reads external systems only, and nothing that it reads has uncommitted changes.
    pub(super) fn sees_durable(&mut self, command: &Command) -> bool {
        let Command::External(ExternalCall::Keys(calls)) = command else {
            return false;
        };
        calls.calls.iter().all(|call| match call.reads() {
            Some(KeyReads::Keys(keys)) => keys
                .iter()
                .all(|key| self.is_durable(&calls.namespace, key)),
            Some(KeyReads::All) => !self.touches(|touched| !touched.numbers.is_empty()),
            None => false,
        })
    }

    fn is_durable(&mut self, namespace: &Namespace, key: &Bytes) -> bool {
        match self.live().engine.number_of_key(namespace, key) {
            Some(number) => !self.touches(|touched| touched.numbers.contains(&number)),
            // The key may have existed until just now.
            None => !self.touches(|touched| touched.is_any_removed),
        }
    }

    /// Whether an uncommitted turn has touched keys of which this is true.
    fn touches(&mut self, is_touched: impl Fn(&TouchedKeys) -> bool) -> bool {
        self.pending().any_touched_keys(is_touched)
    }

    /// Answers the requests that wait for the end of an external job. The rows show it, since mass removals send no
    /// events. Without a loaded engine no request is answered; the next engine is asked.
    pub(super) fn answer_external_end_waiters(&mut self, commit: &Commit) {
        let Some(live) = &self.live else { return };
        for change in &commit.changes {
            let Change::External(change) = change else {
                continue;
            };
            let Some((namespace, id, row)) = ended_job(change) else {
                continue;
            };
            let waiters = self.waiters.take_ended_external(namespace, &id);
            if waiters.is_empty() {
                continue;
            }
            let view = row.and_then(|row| live.engine.external_job_of_row(&row));
            let job = view.map(|job| Box::new(StoredJob::new(job.record, job.lease)));
            for waiter in waiters {
                let answer = Ok(CallReply::Job(job.clone()));
                self.outputs.push(Output::Answer(waiter.ticket, answer));
            }
        }
    }
}

/// The job that a change ends: its namespace, its id, and its row, which is absent if it was removed.
fn ended_job(change: &ExternalChange) -> Option<(&Namespace, JobId, Option<ExternalRow>)> {
    match change {
        ExternalChange::PutQless(namespace, row) => match &**row {
            QlessRow::Job(job) if job.state.is_end() => {
                Some((namespace, JobId::new(&job.jid).ok()?, change.row()))
            }
            _ => None,
        },
        ExternalChange::RemoveQless(namespace, QlessKey::Job { jid, .. }) => {
            Some((namespace, JobId::new(jid).ok()?, None))
        }
        _ => None,
    }
}

/// Whether the command only reads raw keys, unwatched.
pub(super) fn is_key_read(command: &Command) -> bool {
    let Command::External(ExternalCall::Keys(calls)) = command else {
        return false;
    };
    calls.watched.is_empty() && calls.calls.iter().all(|call| call.reads().is_some())
}
