//! The rules: from facts to items. They look at nothing else, so each is tested with facts alone.

mod place;
mod queue;

use std::time::Duration;

use ganger_document::time::calendar;
use ganger_document::view::attention::{Gravity, Item};
use ganger_types::Timestamp;

use crate::facts::Facts;

pub use place::unreachable;

/// A queue whose workers have been silent for longer has none.
pub const SILENT_AFTER: Duration = Duration::from_secs(60);
/// Attempts of 5 minutes below which no share of failures is judged.
pub const ATTEMPTS_MIN: u64 = 20;
/// Percentage of failed attempts above which a queue needs attention.
pub const FAILED_PERCENT: u64 = 10;
/// Number of expired leases in 5 minutes from which a queue needs attention.
pub const LOST_MIN: u64 = 5;
/// Number of jobs by which a queue at its limit must have grown in 5 minutes, besides a tenth.
pub const GROWN_MIN: u64 = 10;
/// Age of a message to another shard from which it needs attention.
pub const MESSAGE_AGE_MAX: Duration = Duration::from_secs(300);
/// Commits of 5 minutes below which their times are not judged.
pub const COMMITS_MIN: u64 = 20;
/// Time that 99 of 100 commits must not exceed.
pub const COMMIT_MAX: Duration = Duration::from_millis(500);
/// Time before the end of a certificate from which it needs attention.
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(14 * 86_400);
/// Time before the end of a certificate from which it is an error.
pub const CERTIFICATE_ERROR: Duration = Duration::from_secs(2 * 86_400);

/// Returns everything that needs attention, the worst first. Without `sees_server` it leaves out what concerns the
/// server more than the namespace: messages between shards, disks, commits, certificates.
pub fn judge(facts: &Facts, sees_server: bool) -> Vec<Item> {
    let mut items = Vec::new();
    for shard in &facts.shards {
        place::of_shard(facts.now, shard, sees_server, &mut items);
        for queue in &shard.queues {
            queue::of_queue(facts.now, shard, queue, &mut items);
        }
        for (schedule, at) in &shard.failed_schedules {
            items.push(place::of_schedule(shard, schedule, *at));
        }
    }
    if sees_server {
        place::of_server(facts, &mut items);
    }
    sort(&mut items);
    items
}

/// Puts the worst items first: errors, then those that concern the most jobs. Equal items keep the order of their
/// names, so that a list does not jump.
pub fn sort(items: &mut [Item]) {
    items.sort_by(|left, right| {
        let key = |item: &Item| {
            let count = std::cmp::Reverse(item.count.unwrap_or(u64::MAX));
            (item.gravity, count)
        };
        let order = key(left).cmp(&key(right));
        order.then_with(|| (&left.code, &left.text).cmp(&(&right.code, &right.text)))
    });
}

/// An item about nothing yet.
pub(crate) fn item(code: &str, gravity: Gravity, text: String) -> Item {
    Item {
        code: code.to_owned(),
        gravity,
        text,
        shard: None,
        queue: None,
        schedule: None,
        alert: None,
        since: None,
        count: None,
    }
}

/// The time that lies this long before `now`.
fn ago(now: Timestamp, span: Duration) -> Option<std::time::SystemTime> {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Some(calendar(Timestamp(now.0.checked_sub(micros)?)))
}
