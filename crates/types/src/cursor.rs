//! Cursors of job listings.
//!
//! A listing has the engine's jobs first, by number, and then the jobs of external systems, in the order of
//! [`ExternalJob`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::external::ExternalJob;
use crate::id::JobKey;
use crate::job::Priority;
use crate::query::{JobQuery, ReadyPlace};
use crate::time::Timestamp;

/// The last job of a page. Its text form is opaque to clients, which send it back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageCursor {
    /// A job of the engine, by its number.
    Job(JobKey),
    /// A job of an external system.
    ExternalJob(ExternalJob),
}

impl JobQuery {
    /// Excludes jobs that were enqueued at this time or later, if one is given, besides those that the query excludes
    /// already.
    pub fn enqueued_before(&mut self, bound: Option<Timestamp>) {
        let own = self.created_before;
        self.created_before = own.into_iter().chain(bound).min();
    }

    /// Continues the query after this cursor.
    pub fn go_on(&mut self, place: PageCursor) {
        match place {
            PageCursor::Job(key) => self.after = Some(key),
            PageCursor::ExternalJob(external_job) => self.after_external_job = Some(external_job),
        }
    }
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(key) => write!(f, "{key}"),
            Self::ExternalJob(job) => write!(f, "{job}"),
        }
    }
}

impl Serialize for PageCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PageCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The error for a text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a page cursor: send the cursor of the previous page unchanged")]
pub struct CursorError;

impl FromStr for PageCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        match text.parse() {
            Ok(number) => Ok(Self::Job(JobKey(number))),
            Err(_) => text.parse().map(Self::ExternalJob),
        }
    }
}

/// The place of a ready job in its queue as text, opaque to clients.
pub fn ready_place_text((priority, at, key): ReadyPlace) -> String {
    format!("{}.{at}.{key}", priority.millionths())
}

/// Reads the place of a ready job from its text; `None` if it is not the text of one.
pub fn read_ready_place(text: &str) -> Option<ReadyPlace> {
    let mut parts = text.split('.');
    let priority = Priority::from_millionths(parts.next()?.parse().ok()?);
    let at = parts.next()?.parse().ok()?;
    let key = JobKey(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((priority, at, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_place_is_read_back_as_it_was_written() {
        let place = (Priority::from_millionths(-1_500_000), 7, JobKey(9));
        assert_eq!(read_ready_place(&ready_place_text(place)), Some(place));
        for text in ["", "1", "1.2", "1.2.3.4", "a.2.3"] {
            assert_eq!(read_ready_place(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_place_is_read_back_as_it_was_written() {
        for place in [
            PageCursor::Job(JobKey(0)),
            PageCursor::Job(JobKey(u64::MAX)),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in ["", "x", "-1", "q1", "qgg", "k", "k61", "k61-6", "1 "] {
            assert_eq!(text.parse::<PageCursor>(), Err(CursorError), "{text:?}");
        }
    }
}
