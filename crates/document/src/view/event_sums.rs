//! Sums of events: how many jobs of each queue made which change, once in a while.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use ganger_types::{self as types, Happening, JobState, Position, Queue};
use serde::Serialize;

use super::event::kind;
use crate::names::text;
use crate::one_of::word_if_any;

/// How often sums may be sent.
pub const SUMS_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// Sums of one interval. Further ones are added up as `other`.
const SUMS_MAX: usize = 1_000;

/// What is added up: the kind of the event, the queue, and the states before and after it.
type Key = (
    &'static str,
    Option<Queue>,
    Option<JobState>,
    Option<JobState>,
);

/// Adds up the events of one interval after another.
#[derive(Default)]
pub struct EventSums {
    counts: BTreeMap<Key, u64>,
    other: u64,
    newest: Option<Position>,
}

/// How many events of an interval were alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventSum {
    /// Kind of the events, such as `job_moved`.
    pub event: &'static str,
    /// Queue of the jobs; absent for events without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// State before; absent for jobs that were made, and for events that are not about states.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<JobState>,
    /// State of the jobs after it; absent for events that are not about states.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub to: Option<JobState>,
    /// Number of the events.
    pub count: u64,
}

/// The sums of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IntervalSums {
    /// Each kind of event with its number.
    pub sums: Vec<EventSum>,
    /// Number of events that are in none of the sums.
    pub other: u64,
}

impl EventSums {
    /// Notes that the events up to this one have been looked at.
    pub fn advance(&mut self, event: &types::Event) {
        self.newest = Some(event.position);
    }

    /// Adds an event to the sum of those like it.
    pub fn add(&mut self, event: &types::Event) {
        let (queue, from, to) = match &event.happening {
            Happening::JobMoved {
                queue, from, to, ..
            } => (Some(queue), *from, Some(*to)),
            Happening::JobRemoved { queue, .. } | Happening::QueueChanged { queue, .. } => {
                (Some(queue), None, None)
            }
            _ => (None, None, None),
        };
        let key = (kind(&event.happening), queue.cloned(), from, to);
        if self.counts.len() < SUMS_MAX || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        } else {
            self.other += 1;
        }
    }

    /// Position of the newest event that was looked at; `None` before the first one.
    pub fn newest(&self) -> Option<Position> {
        self.newest
    }

    /// Returns the sums since the last call.
    pub fn take(&mut self) -> IntervalSums {
        let sums = std::mem::take(&mut self.counts).into_iter();
        let sums = sums.map(|((event, queue, from, to), count)| EventSum {
            event,
            queue: queue.map(|queue| text(queue.as_bytes())),
            from,
            to,
            count,
        });
        IntervalSums {
            sums: sums.collect(),
            other: std::mem::take(&mut self.other),
        }
    }
}
