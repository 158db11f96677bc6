//! Records of the audit log, as a store keeps the newest of them.

use crate::time::Timestamp;

/// A record of the audit log: who did what, when, from where, and how it ended. It never contains a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRecord {
    /// Number of the record, from 1, in the order in which the shard stored them; 0 before that.
    pub number: u64,
    /// Time of the action.
    pub at: Timestamp,
    /// The caller, such as `token "ci"`.
    pub who: String,
    /// Name of the operation, such as `cancelJob`.
    pub what: String,
    /// The object of the operation, such as a path; `None` if there is none.
    pub on: Option<String>,
    /// The namespace of the operation; `None` if there is none.
    pub namespace: Option<String>,
    /// Address of the caller; `None` for what the server does by itself.
    pub from: Option<String>,
    /// How it ended: `done`, `refused` or `denied`.
    pub outcome: String,
    /// Code of a refusal, or further text; `None` if there is none.
    pub detail: Option<String>,
    /// The part of the server that it came through, such as `ui`; `None` for the APIs.
    pub via: Option<String>,
}

/// A page of the audit log, newest records first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only records older than the one with this number; `None`: from the newest on.
    pub before: Option<u64>,
    /// Only records whose caller contains this text, if given.
    pub who: Option<String>,
    /// Only records of this operation, if given.
    pub what: Option<String>,
    /// Only records with this outcome, if given.
    pub outcome: Option<String>,
    /// Maximum number of records, 1 to [`crate::limits::PAGE_AUDIT_MAX`].
    pub limit: usize,
}

impl AuditQuery {
    /// Whether a record meets the conditions.
    pub fn matches(&self, record: &AuditRecord) -> bool {
        self.before.is_none_or(|before| record.number < before)
            && self
                .who
                .as_ref()
                .is_none_or(|who| record.who.contains(who.as_str()))
            && self.what.as_ref().is_none_or(|what| record.what == *what)
            && self
                .outcome
                .as_ref()
                .is_none_or(|outcome| record.outcome == *outcome)
    }
}
