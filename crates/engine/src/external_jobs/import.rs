//! Imports of records of another server, each once.
//!
//! An imported record leaves a mark, which is a raw key, in the same commit. A record that is sent again is therefore
//! recognised, even if its job has been removed since. Marks expire.

use std::time::Duration;

use ganger_types::command::Enqueue;
use ganger_types::import::{Import, ImportOutcome, ImportRecord, JobSource, QlessSource, WorkItem};
use ganger_types::keys::{Condition, End, Expiry, KeyCall, KeyKind};
use ganger_types::{Answer, Bytes, KeyCalls, Namespace, Now, Rejection, Reply, limits};

use crate::engine::Engine;
use crate::turn::Turn;

/// Prefix of the names of all marks.
const MARK: &[u8] = b"ganger:imported:";
/// Failure group of jobs that had failed before the import.
const FAILED_GROUP: &str = "imported";
/// Lifetime of a mark: the time within which an interrupted import must be repeated.
const MARK_LASTS: Duration = Duration::from_secs(7 * 86_400);

impl Engine {
    pub(crate) fn import(&mut self, cmd: Import, turn: &mut Turn<'_>) -> Answer {
        if cmd.records.len() > limits::IMPORT_RECORDS_MAX {
            return Err(Rejection::TooLarge {
                what: "the number of records of an import",
                actual: u64::try_from(cmd.records.len()).unwrap_or(u64::MAX),
                limit: u64::try_from(limits::IMPORT_RECORDS_MAX).unwrap_or(u64::MAX),
            });
        }

        let Import { namespace, records } = cmd;
        let each = records.into_iter();
        let imported = each.map(|record| self.import_one(&namespace, record, turn));
        Ok(Reply::Imported(imported.collect()))
    }

    fn import_one(
        &mut self,
        namespace: &Namespace,
        record: ImportRecord,
        turn: &mut Turn<'_>,
    ) -> ImportOutcome {
        let mark = mark(&record);
        if let Some(mark) = &mark {
            if mark.len() > limits::KEY_NAME_MAX {
                let (actual, limit) = (mark.len(), limits::KEY_NAME_MAX);
                return ImportOutcome::Refused(format!(
                    "its name is too long: with the mark of the import {actual} bytes, the limit is {limit}"
                ));
            }
            if self.external.keys.kind(turn.now, namespace, mark).is_some() {
                return ImportOutcome::AlreadyThere;
            }
        }
        let imported = match record {
            ImportRecord::Qless(source) => {
                self.external
                    .qless
                    .import(turn.now.elapsed, namespace, *source, turn.out)
            }
            ImportRecord::Item(item) => self.import_item(namespace, *item, turn),
            ImportRecord::Job(source) => self.import_job(namespace, *source, turn),
        };
        if let (ImportOutcome::Taken, Some(mark)) = (&imported, mark) {
            let calls = vec![set(mark, Bytes::new(), Expiry::After(MARK_LASTS))];
            self.write_keys(namespace, calls, turn);
        }
        imported
    }

    /// Imports an item with its position and its leases.
    fn import_item(
        &mut self,
        namespace: &Namespace,
        item: WorkItem,
        turn: &mut Turn<'_>,
    ) -> ImportOutcome {
        if let Some(wrong) = self.cannot_take(turn.now, namespace, &item) {
            return ImportOutcome::Refused(wrong);
        }
        if self
            .external
            .keys
            .kind(turn.now, namespace, &item.key)
            .is_some()
        {
            return ImportOutcome::AlreadyThere;
        }
        let mut calls = vec![set(item.key, item.data, Expiry::Never)];
        for (key, value, left) in item.leases {
            if !left.is_zero() {
                calls.push(set(key, value, Expiry::After(left)));
            }
        }
        if let Some(key) = item.list {
            calls.push(KeyCall::Push {
                key,
                end: End::Left,
                values: vec![item.id],
                condition: Condition::Always,
            });
        }
        self.write_keys(namespace, calls, turn);
        ImportOutcome::Taken
    }

    /// The reason why the keys of an item cannot be written; `None` if they can.
    fn cannot_take(&self, now: Now, namespace: &Namespace, item: &WorkItem) -> Option<String> {
        let leases = item.leases.iter();
        let strings = leases.map(|(key, value, _)| (key, value.len()));
        let strings = strings.chain([(&item.key, item.data.len())]);
        let lists = item.list.iter().map(|key| (key, item.id.len()));
        for (key, bytes) in strings.chain(lists) {
            let (actual, limit) = (key.len(), limits::KEY_NAME_MAX);
            if actual > limit {
                return Some(format!("a key of {actual} bytes: the limit is {limit}"));
            }
            let limit = limits::KEY_VALUE_MAX;
            if bytes > limit {
                return Some(format!("a value of {bytes} bytes: the limit is {limit}"));
            }
        }
        let list = item.list.as_ref()?;
        let is_string = self.external.keys.kind(now, namespace, list) == Some(KeyKind::String);
        is_string.then(|| {
            let list = list.escape_ascii();
            format!("the key \"{list}\" holds a string here, not a list: rename or delete it")
        })
    }

    /// Imports a job of the engine, as failed if the source has a failure.
    fn import_job(
        &mut self,
        namespace: &Namespace,
        source: JobSource,
        turn: &mut Turn<'_>,
    ) -> ImportOutcome {
        let command = Enqueue {
            namespace: namespace.clone(),
            jobs: vec![source.job],
            ..Enqueue::default()
        };
        let made = match self.enqueue(command, turn) {
            Ok(Reply::Enqueued { jobs, .. }) => jobs.into_iter().next(),
            Ok(_) => None,
            Err(rejection) => return ImportOutcome::Refused(rejection.to_string()),
        };
        let Some(made) = made.filter(|it| !it.existed) else {
            return ImportOutcome::AlreadyThere;
        };
        if let Some(message) = source.failed {
            self.fail_unstarted(made.key, FAILED_GROUP, message, turn);
        }
        ImportOutcome::Taken
    }

    fn write_keys(&mut self, namespace: &Namespace, calls: Vec<KeyCall>, turn: &mut Turn<'_>) {
        let calls = KeyCalls {
            namespace: namespace.clone(),
            watched: Vec::new(),
            calls,
        };
        self.external.keys.apply(turn.now, calls, turn.out);
    }
}

fn set(key: Bytes, value: Bytes, expiry: Expiry) -> KeyCall {
    KeyCall::Set {
        key,
        value,
        expiry,
        condition: Condition::Always,
        gets: false,
    }
}

/// The name of a record's mark; `None` for a record that may be applied repeatedly.
fn mark(record: &ImportRecord) -> Option<Bytes> {
    let source = match record {
        ImportRecord::Qless(source) => source,
        ImportRecord::Item(item) => return Some([MARK, b"item:", &item.key].concat().into()),
        ImportRecord::Job(source) => {
            let id = source.job.id.as_ref()?;
            return Some([MARK, b"job:", id.as_bytes()].concat().into());
        }
    };
    let parts: [&[u8]; 2] = match &**source {
        QlessSource::Job(job) => [b"j:", &job.jid],
        QlessSource::Recurring { jid, .. } => [b"r:", jid],
        QlessSource::Queue { name, .. } => [b"q:", name],
        QlessSource::Setting { option, .. } => [b"config:", option],
        QlessSource::TagCount { tag, .. } => [b"tags:", tag],
        QlessSource::Tracked { jid, .. } => [b"tracked:", jid],
        QlessSource::Throttle { id, .. } => [b"th:", id],
        QlessSource::Statistics(it) => {
            let day = it.day.seconds().to_string();
            return Some(
                [MARK, b"ql:s:", day.as_bytes(), b":", &it.queue]
                    .concat()
                    .into(),
            );
        }
        QlessSource::Worker { .. } | QlessSource::Release { .. } => return None,
    };
    Some([MARK, b"ql:", parts[0], parts[1]].concat().into())
}
