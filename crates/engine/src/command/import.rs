//! Taking records of another server over, each once.
//!
//! What was taken over leaves a mark, a raw key, in the same commit. So a record that is sent again is recognised, also
//! when its job has ended and gone in the meantime. Marks expire.

use std::time::Duration;

use ganger_types::import::{Import, ImportRecord, Imported, QlessSource};
use ganger_types::keys::{Condition, Expiry, KeyCall};
use ganger_types::{Answer, Bytes, KeyCalls, Namespace, Now, Rejection, Reply, limits};

use crate::Effects;
use crate::engine::Engine;

/// With these bytes the names of all marks begin.
const MARK: &[u8] = b"ganger:imported:";
/// How long a mark lasts: in this time an import that was interrupted must be run again.
const MARK_LASTS: Duration = Duration::from_secs(7 * 86_400);

impl Engine {
    pub(crate) fn import(&mut self, now: Now, cmd: Import, out: &mut Effects) -> Answer {
        if cmd.records.len() > limits::IMPORT_RECORDS_MAX {
            return Err(Rejection::TooLarge {
                what: "the number of records of an import",
                actual: u64::try_from(cmd.records.len()).unwrap_or(u64::MAX),
                limit: u64::try_from(limits::IMPORT_RECORDS_MAX).unwrap_or(u64::MAX),
            });
        }

        let Import { namespace, records } = cmd;
        let each = records.into_iter();
        let imported = each.map(|record| self.import_one(now, &namespace, record, out));
        Ok(Reply::Imported(imported.collect()))
    }

    fn import_one(
        &mut self,
        now: Now,
        namespace: &Namespace,
        record: ImportRecord,
        out: &mut Effects,
    ) -> Imported {
        let mark = mark(&record);
        if let Some(mark) = &mark {
            if mark.len() > limits::KEY_NAME_MAX {
                let (actual, limit) = (mark.len(), limits::KEY_NAME_MAX);
                return Imported::Refused(format!(
                    "its name is too long: with the mark of the import {actual} bytes, the limit is {limit}"
                ));
            }
            if self.keys.kind(now, namespace, mark).is_some() {
                return Imported::AlreadyThere;
            }
        }
        let imported = match record {
            ImportRecord::Qless(source) => self.qless.import(now.elapsed, namespace, *source, out),
        };
        if let (Imported::Taken, Some(mark)) = (&imported, mark) {
            self.mark(now, namespace, mark, out);
        }
        imported
    }

    fn mark(&mut self, now: Now, namespace: &Namespace, mark: Bytes, out: &mut Effects) {
        let call = KeyCall::Set {
            key: mark,
            value: Bytes::new(),
            expiry: Expiry::After(MARK_LASTS),
            condition: Condition::Always,
            gets: false,
        };
        let calls = KeyCalls {
            namespace: namespace.clone(),
            watched: Vec::new(),
            calls: vec![call],
        };
        self.keys.apply(now, calls, out);
    }
}

/// The name of a record's mark; `None` for one that does the same however often it is applied.
fn mark(record: &ImportRecord) -> Option<Bytes> {
    let ImportRecord::Qless(source) = record;
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
