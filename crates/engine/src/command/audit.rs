//! Keeps the newest records of the audit log.

use ganger_types::audit::AuditQuery;
use ganger_types::command::KeepAudit;
use ganger_types::limits::{AUDIT_KEPT_MAX, AUDIT_TEXT_BYTES_MAX, PAGE_AUDIT_MAX};
use ganger_types::{AuditRecord, Change, Reply};

use crate::check::cut;
use crate::engine::Engine;
use crate::turn::Turn;

impl Engine {
    /// Stores records of the audit log, in order, and forgets the oldest ones beyond the number that is kept.
    pub(crate) fn keep_audit(&mut self, cmd: KeepAudit, turn: &mut Turn<'_>) -> Reply {
        for mut record in cmd.records {
            record.number = self.audit_log.next_number();
            cut_texts(&mut record);
            turn.out
                .changes
                .push(Change::PutAudit(Box::new(record.clone())));
            self.audit_log.records.push_back(record);
            if self.audit_log.records.len() > AUDIT_KEPT_MAX
                && let Some(oldest) = self.audit_log.records.pop_front()
            {
                turn.out.changes.push(Change::RemoveAudit(oldest.number));
            }
        }
        Reply::Done
    }

    /// A page of the audit log, newest records first, and the number of its last record if there may be more.
    pub(crate) fn audit_page(&self, query: &AuditQuery) -> (Vec<AuditRecord>, Option<u64>) {
        let limit = query.limit.clamp(1, PAGE_AUDIT_MAX);
        let newest_first = self.audit_log.records.iter().rev();
        let mut found = newest_first.filter(|record| query.matches(record));
        let page: Vec<AuditRecord> = found.by_ref().take(limit).cloned().collect();
        let next = page.last().map(|last| last.number);
        (page, next.filter(|_| found.next().is_some()))
    }
}

fn cut_texts(record: &mut AuditRecord) {
    let AuditRecord {
        number: _,
        at: _,
        who,
        what,
        on,
        namespace,
        from,
        outcome,
        detail,
        via,
    } = record;
    let optional = [on, namespace, from, detail, via].into_iter().flatten();
    for text in optional.chain([who, what, outcome]) {
        cut(text, AUDIT_TEXT_BYTES_MAX);
    }
}
