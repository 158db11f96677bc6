//! Records of the audit log as shown.

use std::time::SystemTime;

use ganger_types::audit;
use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{Moment, calendar, moment};

/// A record of the audit log: who did what, when, from where, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditRecord {
    /// Time of the action.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub at: SystemTime,
    /// The caller, such as `token "ci"`.
    pub who: String,
    /// Name of the operation, such as `cancelJob`.
    pub what: String,
    /// The object of the operation, such as a path; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The namespace of the operation; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Address of the caller; absent for what the server does by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How it ended: `done`, `refused` or `denied`.
    pub outcome: String,
    /// Code of a refusal, or further text; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The part of the server that it came through, such as `ui`; absent for the APIs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}

/// A page of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditLog {
    /// The records, newest first. The store keeps the newest 10,000; the full log is where the server writes it.
    pub records: Vec<AuditRecord>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<audit::AuditRecord> for AuditRecord {
    fn from(record: audit::AuditRecord) -> Self {
        Self {
            at: calendar(record.at),
            who: record.who,
            what: record.what,
            on: record.on,
            namespace: record.namespace,
            from: record.from,
            outcome: record.outcome,
            detail: record.detail,
            via: record.via,
        }
    }
}
