//! Schedules as documents, in the form in which they are put.

use std::collections::BTreeMap;

use ganger_types::{CatchUp, Overlap, ScheduleRecord, ScheduleSpec};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::names::{JobName, KindName, Named, QueueName, ScheduleName, TagName};
use crate::octets::{self, Base64, Exact};
use crate::outward::queue::RetryView;
use crate::outward::{labels, priority, tags};
use crate::time::{Moment, Span};

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    /// Its name.
    id: ScheduleName,
    /// So long between two runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    /// The first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<Moment>,
    /// A cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// Its time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    /// none, last, all.
    catch_up: &'static str,
    /// With `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_max: Option<u32>,
    /// allow, skip, replace.
    overlap: &'static str,
    /// Fires nothing while set.
    paused: bool,
    /// Where its jobs line up.
    queue: QueueName,
    /// Which program runs them.
    kind: KindName,
    /// Their payload, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Exact>,
    /// Their payload otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<Base64>,
    /// Their urgency.
    #[schema(value_type = f64)]
    priority: Number,
    /// How they are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryView>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Their tags.
    tags: Vec<TagName>,
    /// Their labels.
    labels: BTreeMap<String, String>,
    /// When it was made.
    created_at: Moment,
    /// The next run; absent when there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<Moment>,
    /// Jobs made so far.
    runs: u64,
    /// The job made last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_job: Option<JobName>,
}

/// All schedules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedules)]
pub(crate) struct SchedulesView {
    /// By name.
    pub(crate) schedules: Vec<ScheduleView>,
}

/// A schedule.
pub(crate) fn view(record: ScheduleRecord) -> ScheduleView {
    let (payload, payload_base64) = octets::show(&record.payload);
    let (every, first_at, cron, time_zone) = match record.spec {
        ScheduleSpec::Interval { every, first_at } => {
            (Some(Span(every)), Some(Moment(first_at)), None, None)
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => (None, None, Some(expression), Some(time_zone)),
    };
    let (catch_up, catch_up_max) = match record.catch_up {
        CatchUp::None => ("none", None),
        CatchUp::Last => ("last", None),
        CatchUp::All { max } => ("all", Some(max)),
    };
    ScheduleView {
        id: Named(record.id),
        every,
        first_at,
        cron,
        time_zone,
        catch_up,
        catch_up_max,
        overlap: match record.overlap {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Replace => "replace",
        },
        paused: record.paused,
        queue: Named(record.queue),
        kind: Named(record.kind),
        payload,
        payload_base64,
        priority: priority(record.priority),
        retry: record.retry.as_ref().map(RetryView::from),
        timeout: record.timeout.map(Span),
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        created_at: Moment(record.created_at),
        next_at: record.next_at.map(Moment),
        runs: record.runs,
        last_job: record.last_job.map(Named),
    }
}
