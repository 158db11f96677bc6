//! The audit log: who did what, when, from where, and how it ended (`rel S15`).
//!
//! Each party writes at most a fixed number of lines a minute; one more line says how many were omitted.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ganger_types::AuditRecord;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::quota::{CHANGES_PER_MINUTE, OmittedLines, Quota, REFUSALS_PER_MINUTE};

/// The outcome of an audited operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation was carried out.
    Done,
    /// The operation was allowed, and then refused for another reason.
    Refused,
    /// The caller was not allowed to do it.
    Denied,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Denied => "denied",
        }
    }
}

/// One line of the audit log. Never holds a secret: callers name things, not contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The caller, as [`crate::Identity`] formats itself.
    pub who: String,
    /// Name of the operation, or `login`, `configuration`, `token`.
    pub what: String,
    /// The object of the operation: a path, a job, a file; `None` if there is none.
    pub on: Option<String>,
    /// The namespace of the operation; `None` if there is none.
    pub namespace: Option<String>,
    /// Address of the caller; `None` for what the server does by itself.
    pub from: Option<SocketAddr>,
    /// The outcome of the operation.
    pub outcome: Outcome,
    /// Code of a refusal, or further text; `None` if there is none.
    pub detail: Option<String>,
    /// The part of the server that it came through, such as `ui`; `None` for the APIs.
    pub via: Option<&'static str>,
}

impl Record {
    /// Creates a record without the optional parts.
    pub fn new(who: impl Into<String>, what: impl Into<String>, outcome: Outcome) -> Self {
        Self {
            who: who.into(),
            what: what.into(),
            on: None,
            namespace: None,
            from: None,
            outcome,
            detail: None,
            via: None,
        }
    }

    /// The record as a store keeps it; the store gives it its number.
    fn stored(&self, at: Timestamp) -> AuditRecord {
        let micros = u64::try_from(at.as_microsecond()).unwrap_or(0);
        AuditRecord {
            number: 0,
            at: ganger_types::Timestamp(micros),
            who: self.who.clone(),
            what: self.what.clone(),
            on: self.on.clone(),
            namespace: self.namespace.clone(),
            from: self.from.map(|from| from.to_string()),
            outcome: self.outcome.as_str().to_owned(),
            detail: self.detail.clone(),
            via: self.via.map(str::to_owned),
        }
    }

    fn line(&self, at: Timestamp) -> String {
        let mut line = Map::new();
        let mut put = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                line.insert(key.to_owned(), Value::String(value));
            }
        };
        put("at", Some(format!("{at:.3}")));
        put("who", Some(self.who.clone()));
        put("what", Some(self.what.clone()));
        put("on", self.on.clone());
        put("namespace", self.namespace.clone());
        put("from", self.from.map(|from| from.to_string()));
        put("outcome", Some(self.outcome.as_str().to_owned()));
        put("detail", self.detail.clone());
        put("via", self.via.map(str::to_owned));
        Value::Object(line).to_string()
    }
}

/// Records that wait until [`Audit::take_kept`] takes them. The oldest are dropped beyond it.
const KEPT_WAITING_MAX: usize = 10_000;

/// The destination of audit records. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    file: Option<Arc<Target>>,
    quota: Arc<Mutex<Quota>>,
    /// Records for the store; `None` if no store keeps them.
    kept: Option<Arc<Mutex<VecDeque<AuditRecord>>>>,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    file: Mutex<File>,
}

impl Audit {
    /// Writes records to the ordinary log, under the target `ganger::audit`.
    pub fn to_log() -> Self {
        Self::default()
    }

    /// Writes records to a separate file, one JSON object a line. A missing file is created for its owner only.
    ///
    /// # Errors
    /// If it cannot be opened for appending.
    pub fn to_file(path: &Path) -> io::Result<Self> {
        let file = Mutex::new(open(path)?);
        let path = path.to_owned();
        Ok(Self {
            file: Some(Arc::new(Target { path, file })),
            ..Self::default()
        })
    }

    /// Collects records for a store besides; [`Audit::take_kept`] takes them.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self {
            kept: Some(Arc::default()),
            ..self
        }
    }

    /// Takes the records that were written since the last call, oldest first; empty if none are collected.
    pub fn take_kept(&self) -> Vec<AuditRecord> {
        let Some(kept) = &self.kept else {
            return Vec::new();
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *kept).into()
    }

    fn keep(&self, at: Timestamp, record: &Record) {
        let Some(kept) = &self.kept else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_WAITING_MAX {
            kept.pop_front();
        }
        kept.push_back(record.stored(at));
    }

    /// Opens the file again after a log rotation has moved the old one away.
    ///
    /// # Errors
    /// If it cannot be opened; the old file stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        let Some(target) = &self.file else {
            return Ok(());
        };
        let fresh = open(&target.path)?;
        *target.file.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Writes a record, unless its party has caused too many lines in this minute: then it is only counted. A record
    /// that cannot be written to its file goes to the ordinary log with the reason.
    pub fn write(&self, record: &Record) {
        let now = Timestamp::now();
        let (left_out, is_written) = {
            let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
            (quota.settle(now), quota.count(record))
        };
        self.write_left_out(now, &left_out);
        if is_written {
            self.write_line(&record.line(now));
            self.keep(now, record);
        }
    }

    /// Writes how many lines were omitted in the minute that has ended. Call it from time to time.
    pub fn settle(&self) {
        let now = Timestamp::now();
        let left_out = {
            let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
            quota.settle(now)
        };
        self.write_left_out(now, &left_out);
    }

    /// Writes how many lines were omitted in the current minute. Call it at the end.
    pub fn finish(&self) {
        let left_out = {
            let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
            quota.settle_all()
        };
        self.write_left_out(Timestamp::now(), &left_out);
    }

    fn write_left_out(&self, at: Timestamp, left_out: &[OmittedLines]) {
        for OmittedLines {
            who,
            address,
            count,
        } in left_out
        {
            let detail = format!(
                "{count} more lines within a minute; of one party {REFUSALS_PER_MINUTE} refusals and {CHANGES_PER_MINUTE} changes a minute are written"
            );
            let mut line = Map::new();
            line.insert("at".to_owned(), format!("{at:.3}").into());
            line.insert("who".to_owned(), who.clone().into());
            line.insert("what".to_owned(), "leftOut".into());
            if let Some(address) = address {
                line.insert("from".to_owned(), address.to_string().into());
            }
            line.insert("count".to_owned(), (*count).into());
            line.insert("detail".to_owned(), detail.into());
            self.write_line(&Value::Object(line).to_string());
        }
    }

    fn write_line(&self, line: &str) {
        let Some(target) = &self.file else {
            tracing::info!(target: "ganger::audit", "{line}");
            return;
        };
        let written = {
            let mut file = target.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(format!("{line}\n").as_bytes())
        };
        if let Err(error) = written {
            tracing::error!(target: "ganger::audit", path = %target.path.display(), %error, "the audit log cannot be written: {line}");
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_few_lines_and_a_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        let audit = Audit::to_file(&path).expect("writable");
        for _ in 0..10_000 {
            audit.write(&Record::new("a", "getJob", Outcome::Denied));
        }
        audit.finish();
        let text = std::fs::read_to_string(&path).expect("written");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        // A new minute may have begun meanwhile.
        assert!(lines.len() <= 3 * 61, "{}", lines.len());
        let counted = lines.iter().filter_map(|line| line["count"].as_u64());
        let written = lines.iter().filter(|line| line["what"] == "getJob").count();
        let all = counted.sum::<u64>() + u64::try_from(written).expect("few");
        assert_eq!(all, 10_000);
    }

    #[test]
    fn a_record_is_one_line_of_json_whatever_it_holds() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        let audit = Audit::to_file(&path).expect("writable");
        audit.write(&Record {
            on: Some("a\nb\u{1b}[31m\"".to_owned()),
            from: Some(SocketAddr::from(([127, 0, 0, 1], 9))),
            ..Record::new("token \"x\"", "deleteJob", Outcome::Done)
        });
        std::fs::rename(&path, directory.path().join("old")).expect("moved");
        audit.reopen().expect("writable");
        audit.write(&Record::new("b", "login", Outcome::Denied));
        let old = std::fs::read_to_string(directory.path().join("old")).expect("written");
        assert_eq!(old.lines().count(), 1, "{old}");
        let value: Value = serde_json::from_str(&old).expect("JSON");
        assert_eq!(value["on"], "a\nb\u{1b}[31m\"");
        assert_eq!(value["outcome"], "done");
        assert_eq!(value["from"], "127.0.0.1:9");
        assert!(
            value["at"].as_str().is_some_and(|at| at.ends_with('Z')),
            "{value}"
        );
        let fresh = std::fs::read_to_string(&path).expect("written");
        assert!(
            fresh.contains("\"login\"") && !fresh.contains('\u{1b}'),
            "{fresh}"
        );
    }
}
