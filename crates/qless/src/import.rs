//! Imports the records that the qless script keeps in a Redis server, one by one.
//!
//! A record is checked completely before anything changes. An existing record stays as it is. The records of one Redis
//! server may come in any order: a job is linked with its dependencies and dependents as soon as both jobs exist.

mod history;
mod job;
mod message_pack;
mod statistics;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::import::{ImportOutcome, QlessSource};
use ganger_types::qless::{QlessRecurring, QlessState, QlessThrottle, QlessTime};

use crate::json;
use crate::number;
use crate::procedures::links;
use crate::state::Qless;

/// Reason why a record cannot be imported, as a clause about the record.
type ImportError = String;

impl Qless {
    /// Imports a record, unless one with its name exists. `at` is the server's time, from which lifetimes of throttles
    /// are counted.
    pub fn import(&mut self, at: Elapsed, source: QlessSource) -> ImportOutcome {
        let outcome = match source {
            QlessSource::Job(source) => job::import(self, &source),
            QlessSource::Recurring {
                jid,
                fields,
                next_at,
            } => self.import_recurring(jid, &Fields(&fields), next_at),
            QlessSource::Statistics(source) => statistics::import(self, &source),
            other => Ok(self.import_other(at, other)),
        };
        match outcome {
            Ok(true) => ImportOutcome::Taken,
            Ok(false) => ImportOutcome::AlreadyThere,
            Err(wrong) => ImportOutcome::Refused(wrong),
        }
    }

    fn import_other(&mut self, server: Elapsed, source: QlessSource) -> bool {
        match source {
            QlessSource::Queue {
                name,
                seen_at,
                is_paused,
            } => self.import_queue(&name, seen_at, is_paused),
            QlessSource::Worker { name, seen_at } => {
                let known = self.workers().iter().find(|(_, it)| *it == name);
                let is_newer = known.is_none_or(|(at, _)| *at < seen_at);
                if is_newer {
                    self.set_worker_seen(&name, Some(seen_at));
                }
                is_newer
            }
            QlessSource::Setting { option, value } => {
                let is_free = self.setting(&option).is_none();
                if is_free {
                    self.set_option(&option, Some(value));
                }
                is_free
            }
            QlessSource::TagCount { tag, count } => {
                self.count_tag(&tag, count);
                true
            }
            QlessSource::Tracked { jid, at } => {
                let is_free = !self.is_tracked(&jid);
                if is_free {
                    self.set_tracked(&jid, Some(at));
                }
                is_free
            }
            QlessSource::Throttle {
                id,
                maximum,
                ends_after_ms,
            } => {
                let is_free = self.throttle(&id, server).is_none();
                if is_free {
                    let after = ends_after_ms.map(std::time::Duration::from_millis);
                    self.set_throttle(QlessThrottle {
                        id,
                        maximum,
                        ends_at: after.map(|after| server.after(after)),
                    });
                }
                is_free
            }
            QlessSource::Release { jid } => self.release_waiting_job(&jid),
            QlessSource::Job(_) | QlessSource::Recurring { .. } | QlessSource::Statistics(_) => {
                false
            }
        }
    }

    /// Imports a queue. A known queue stays paused or not as it is, because someone may have changed that since.
    fn import_queue(&mut self, name: &Bytes, seen_at: Option<QlessTime>, is_paused: bool) -> bool {
        let is_known = self.known_queues().iter().any(|(_, it)| it == name) || self.is_paused(name);
        if is_known {
            return false;
        }
        if let Some(at) = seen_at {
            self.register_queue(name, at);
        }
        if is_paused {
            self.set_paused(name, true);
        }
        true
    }

    /// Makes a job ready or scheduled if it is in `depends` and no dependency is left. Returns whether it did.
    fn release_waiting_job(&mut self, jid: &Bytes) -> bool {
        let waits = |job: &&ganger_types::qless::QlessJob| {
            job.state == QlessState::Depends && job.dependencies.is_empty()
        };
        let Some(job) = self.job(jid).filter(waits) else {
            return false;
        };
        let since = job.place.as_ref().map_or(QlessTime::default(), |it| it.at);
        links::resume_dependents(self, std::slice::from_ref(jid), since);
        true
    }

    fn import_recurring(
        &mut self,
        jid: Bytes,
        fields: &Fields<'_>,
        next_at: QlessTime,
    ) -> Result<bool, ImportError> {
        if self.recurring(&jid).is_some() {
            return Ok(false);
        }
        let interval = fields.number("interval", None)?;
        if interval <= 0.0 {
            return Err(format!("its interval is {interval}, not above 0"));
        }
        let count = number::truncate(fields.number("count", Some(0.0))?);
        let recurring = QlessRecurring {
            klass: fields.text("klass")?,
            data: fields.json("data")?,
            queue: fields.text("queue")?,
            priority: fields.number("priority", Some(0.0))?,
            retries: fields.number("retries", Some(0.0))?,
            interval,
            backlog: fields.number("backlog", Some(0.0))?,
            count: u64::try_from(count).unwrap_or(0),
            tags: fields.list("tags")?,
            next_at,
            throttles: links::jids(&fields.list("throttles")?),
            jid,
        };
        self.put_recurring(recurring);
        Ok(true)
    }
}

/// The fields of a Redis hash, with their values.
struct Fields<'a>(&'a [(Bytes, Bytes)]);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&Bytes> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// Returns a required field; its text may be anything.
    fn text(&self, name: &str) -> Result<Bytes, ImportError> {
        let value = self.get(name).cloned();
        value.ok_or_else(|| format!("its field {name:?} is missing"))
    }

    /// Returns a field as a number. A missing or empty field has the default; without a default it is an error.
    fn number(&self, name: &str, default: Option<f64>) -> Result<f64, ImportError> {
        match (self.get(name).filter(|value| !value.is_empty()), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("its field {name:?} is missing")),
            (Some(value), _) => number::parse(value)
                .ok_or_else(|| format!("its field {name:?} is no number: {}", excerpt(value))),
        }
    }

    /// Returns a required field unchanged after checking that it is JSON.
    fn json(&self, name: &str) -> Result<Bytes, ImportError> {
        let text = self.text(name)?;
        let read = json::kind(&text);
        read.map_err(|wrong| format!("its field {name:?} is not JSON: {wrong}"))?;
        Ok(text)
    }

    /// Returns a field with a JSON list of texts and numbers; empty if the field is missing.
    fn list(&self, name: &str) -> Result<Vec<ganger_types::qless::QlessTag>, ImportError> {
        let Some(text) = self.get(name) else {
            return Ok(Vec::new());
        };
        json::list(text).map_err(|wrong| format!("its field {name:?} is no list: {wrong}"))
    }
}

/// Maximum number of bytes of a text that an error shows.
const EXCERPT_BYTES_MAX: usize = 60;

/// Returns the beginning of a text in quotes, for an error.
fn excerpt(text: &[u8]) -> String {
    let cut = &text[..text.len().min(EXCERPT_BYTES_MAX)];
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}
