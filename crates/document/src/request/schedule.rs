//! A schedule as submitted.

use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use ganger_types::{CatchUp, Namespace, ScheduleId, ScheduleRecord, ScheduleSpec, Timestamp};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::DocumentError;
use crate::labels::{Labels, Rank};
use crate::names::{KindName, QueueName, TagName};
use crate::one_of::{CatchUpWord, OverlapWord};
use crate::raw_json::{self, Base64, RawJson};
use crate::retry::RetryDocument;
use crate::time::{Moment, Span};

/// A rule that enqueues jobs repeatedly: `every`, or `cron`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"every\": \"1h\", \"kind\": \"clean\"}"
)]
#[schema(as = NewSchedule)]
pub struct ScheduleIn {
    /// Time between two runs; at least one second.
    every: Option<Span>,
    /// Time of the first run, with `every`; now if absent.
    first_at: Option<Moment>,
    /// Cron expression of five or six fields, such as `0 3 * * *`. It has at most 255 bytes and must fire within 40
    /// years.
    cron: Option<String>,
    /// Time zone of `cron`: an IANA name such as `Europe/Rome`; `UTC` if absent.
    time_zone: Option<String>,
    /// Rule for missed runs: `none`, `last` (the default) or `all`.
    #[serde(default)]
    catch_up: CatchUpWord,
    /// With `catch_up` of `all`: maximum number of missed runs for which jobs are enqueued, up to 10,000; 10,000 if
    /// absent or 0.
    catch_up_max: Option<u32>,
    /// Rule for a run that is due while the job of an earlier one is live: `allow` (the default), `skip` or
    /// `replace`.
    #[serde(default)]
    overlap: OverlapWord,
    /// Whether the schedule is paused: nothing fires.
    #[serde(default)]
    paused: bool,
    /// Queue that its jobs enter; `default` if absent.
    queue: Option<QueueName>,
    /// Kind of its jobs: the program that runs them.
    kind: KindName,
    /// Payload of the schedule's jobs, as JSON.
    #[serde(default, deserialize_with = "raw_json::given")]
    payload: Option<RawJson>,
    /// Payload of the schedule's jobs, as base64.
    payload_base64: Option<Base64>,
    /// Priority of the schedule's jobs: smaller runs first.
    priority: Option<Rank>,
    /// Retry policy of its jobs; that of the queue if absent.
    retry: Option<RetryDocument>,
    /// Maximum time of one attempt; no limit if absent.
    timeout: Option<Span>,
    /// Tags of the schedule's jobs; none if absent.
    #[serde(default)]
    tags: Vec<TagName>,
    /// Labels of the schedule's jobs; none if absent.
    #[serde(default)]
    labels: Labels,
}

impl ScheduleIn {
    /// Whether the document has the time of the first run.
    pub fn has_first_at(&self) -> bool {
        self.first_at.is_some()
    }

    /// Converts the document to a record; the engine sets its own fields. `now` is the time of the first run if none
    /// is given.
    ///
    /// # Errors
    /// If fields exclude each other; the error names the field.
    pub fn convert(
        self,
        namespace: Namespace,
        id: ScheduleId,
        now: Timestamp,
    ) -> Result<ScheduleRecord, DocumentError> {
        let catch_up = self.catch_up()?;
        Ok(ScheduleRecord {
            namespace,
            id,
            catch_up,
            overlap: self.overlap.0,
            spec: spec(self.every, self.first_at, self.cron, self.time_zone, now)?,
            paused: self.paused,
            queue: self.queue.map(|queue| queue.0).unwrap_or_default(),
            kind: self.kind.0,
            payload: raw_json::take(self.payload, self.payload_base64, "payload", "")?
                .unwrap_or_default(),
            priority: self.priority.map(|rank| rank.0).unwrap_or_default(),
            retry: self.retry.map(Into::into),
            timeout: self.timeout.map(|span| span.0),
            tags: self.tags.into_iter().map(|tag| tag.0).collect(),
            labels: self.labels.0,
            created_at: Timestamp::default(),
            next_at: None,
            runs: 0,
            last_job: None,
        })
    }

    fn catch_up(&self) -> Result<CatchUp, DocumentError> {
        match (self.catch_up.0, self.catch_up_max) {
            (CatchUp::All { .. }, max) => Ok(CatchUp::All {
                max: max.filter(|max| *max > 0).unwrap_or(SCHEDULE_BACKLOG_MAX),
            }),
            (_, Some(_)) => Err(only_with("catch_up_max", "catch_up of \"all\"")),
            (catch_up, None) => Ok(catch_up),
        }
    }
}

fn spec(
    every: Option<Span>,
    first_at: Option<Moment>,
    cron: Option<String>,
    time_zone: Option<String>,
    now: Timestamp,
) -> Result<ScheduleSpec, DocumentError> {
    match (every, cron) {
        (Some(_), None) if time_zone.is_some() => Err(only_with("time_zone", "cron")),
        (None, Some(_)) if first_at.is_some() => Err(only_with("first_at", "every")),
        (Some(every), None) => Ok(ScheduleSpec::Interval {
            every: every.0,
            first_at: first_at.map_or(now, |time| time.0),
        }),
        (None, Some(expression)) => Ok(ScheduleSpec::Cron {
            expression,
            time_zone: time_zone.unwrap_or_else(|| "UTC".to_owned()),
        }),
        _ => Err(DocumentError::new(
            "invalid_value",
            "give exactly one of \"every\" and \"cron\"",
        )
        .at("")),
    }
}

fn only_with(field: &str, other: &str) -> DocumentError {
    DocumentError::new("invalid_value", format!("/{field}: goes only with {other}"))
        .at(format!("/{field}"))
}
