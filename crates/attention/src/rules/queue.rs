//! Rules about queues: no worker, paused, at the limit, too old, failing, losing leases.

use std::time::Duration;

use ganger_document::measure::{count, percent, span, whole};
use ganger_document::names::{show, text};
use ganger_document::view::attention::{Gravity, Item};
use ganger_types::Timestamp;
use ganger_types::limits::ALERT_AGE_DEFAULT;

use super::{ATTEMPTS_MIN, FAILED_PERCENT, GROWN_MIN, LOST_MIN, SILENT_AFTER, ago, item};
use crate::facts::{QueueFacts, ShardFacts};

/// Judges a queue. Of the reasons why its ready jobs wait only the first is named: a paused queue has no workers to
/// ask for.
pub(super) fn of_queue(
    now: Timestamp,
    shard: &ShardFacts,
    queue: &QueueFacts,
    out: &mut Vec<Item>,
) {
    let about = |item: Item, count: u64, since: Option<Duration>| Item {
        shard: Some(shard.shard.to_string()),
        queue: Some(text(queue.view.queue.as_bytes())),
        count: Some(count),
        since: since.and_then(|since| ago(now, since)),
        ..item
    };
    let waiting = paused(queue)
        .or_else(|| no_worker(shard, queue))
        .or_else(|| at_limit(queue))
        .or_else(|| too_old(queue));
    if let Some((item, since)) = waiting {
        out.push(about(item, queue.view.counts.ready, since));
    }
    if let Some(item) = failing(queue) {
        let failed = u64::from(queue.recent.outcomes.failed);
        out.push(about(item, failed, None));
    }
    if let Some(item) = losing(queue) {
        out.push(about(item, u64::from(queue.recent.outcomes.lost), None));
    }
}

/// An item, and for how long it has been so, if that is known.
type Waiting = Option<(Item, Option<Duration>)>;

fn named(queue: &QueueFacts) -> String {
    format!("Queue {}", show(queue.view.queue.as_bytes()))
}

fn ready(queue: &QueueFacts) -> String {
    format!("{} ready", count(queue.view.counts.ready))
}

fn paused(queue: &QueueFacts) -> Waiting {
    let is_so = queue.view.settings.paused && queue.view.counts.ready > 0;
    let text = || {
        format!(
            "{}: {}, and the queue is paused",
            named(queue),
            ready(queue)
        )
    };
    is_so.then(|| (item("paused_with_jobs", Gravity::Warning, text()), None))
}

/// How long nobody has asked for jobs of a queue that has ready ones and runs none; `None` if somebody works there. A
/// worker whose slots are all busy need not ask.
fn silent_for(shard: &ShardFacts, queue: &QueueFacts) -> Option<Duration> {
    let counts = &queue.view.counts;
    let silent = queue.view.asked_ago.unwrap_or(shard.loaded_ago);
    (counts.ready > 0 && counts.running == 0).then_some(silent)
}

fn no_worker(shard: &ShardFacts, queue: &QueueFacts) -> Waiting {
    let silent = silent_for(shard, queue)?;
    let when = match queue.view.asked_ago {
        Some(asked_ago) if asked_ago < SILENT_AFTER => return None,
        Some(_) => format!("for {}", span(whole(silent))),
        // Nobody waits for a minute to learn that the first worker is missing.
        None => "since the server started".to_owned(),
    };
    let text = format!(
        "{}: {}, no worker has asked {when}",
        named(queue),
        ready(queue)
    );
    Some((item("no_worker", Gravity::Error, text), Some(silent)))
}

fn at_limit(queue: &QueueFacts) -> Waiting {
    let (counts, before) = (&queue.view.counts, queue.recent.ready_before?);
    let limit = queue.view.settings.running_max.map(u64::from)?;
    let grown = counts.ready.saturating_sub(before);
    if counts.running < limit || grown < GROWN_MIN.max(before / 10) {
        return None;
    }
    let text = format!(
        "{}: {}, {} more than 5 min ago, and all {} that may run do",
        named(queue),
        ready(queue),
        count(grown),
        count(limit)
    );
    Some((item("at_limit_growing", Gravity::Warning, text), None))
}

fn too_old(queue: &QueueFacts) -> Waiting {
    let limit = queue.view.settings.alert_age.unwrap_or(ALERT_AGE_DEFAULT);
    let oldest = queue
        .view
        .oldest_ready_for
        .filter(|oldest| *oldest > limit)?;
    let text = format!(
        "{}: {}, the oldest has waited for {}",
        named(queue),
        ready(queue),
        span(whole(oldest))
    );
    let since = oldest.checked_sub(limit);
    Some((item("oldest_age", Gravity::Warning, text), since))
}

fn failing(queue: &QueueFacts) -> Option<Item> {
    let outcomes = queue.recent.outcomes;
    let (ended, failed) = (u64::from(outcomes.ended), u64::from(outcomes.failed));
    if ended < ATTEMPTS_MIN || failed * 100 <= ended * FAILED_PERCENT {
        return None;
    }
    let text = format!(
        "{}: {} of attempts failed in the last 5 min ({})",
        named(queue),
        percent(failed * 1_000_000 / ended),
        count(failed)
    );
    Some(item("failing", Gravity::Warning, text))
}

fn losing(queue: &QueueFacts) -> Option<Item> {
    let lost = u64::from(queue.recent.outcomes.lost);
    let text = || {
        let (named, lost) = (named(queue), count(lost));
        format!("{named}: {lost} leases expired in the last 5 min: workers die, or do not renew")
    };
    (lost >= LOST_MIN).then(|| item("leases_lost", Gravity::Warning, text()))
}

#[cfg(test)]
mod tests {
    use ganger_shard::Health;
    use ganger_shard::series::{Outcomes, Recent};
    use ganger_types::reply::QueueView;
    use ganger_types::{Queue, QueueCounts, QueueSettings, ShardId};

    use super::*;
    use crate::facts::CommitFacts;

    fn shard() -> ShardFacts {
        ShardFacts {
            shard: ShardId::new("1").expect("a shard"),
            health: Health::Ready,
            has_answered: true,
            loaded_ago: Duration::from_secs(3_600),
            queues: Vec::new(),
            failed_schedules: Vec::new(),
            peers: Vec::new(),
            free_bytes: None,
            reserve_bytes: 0,
            commits: CommitFacts::default(),
        }
    }

    /// A queue with 1,204 ready jobs, for which a worker asked a second ago.
    fn queue() -> QueueFacts {
        QueueFacts {
            view: QueueView {
                queue: Queue::from_static("mail"),
                settings: QueueSettings::default(),
                counts: QueueCounts {
                    ready: 1_204,
                    ..QueueCounts::default()
                },
                schedules: 0,
                oldest_ready_for: Some(Duration::from_secs(5)),
                asked_ago: Some(Duration::from_secs(1)),
                created_at: Timestamp(0),
                enqueued_total: 0,
                finished_total: 0,
            },
            recent: Recent::default(),
        }
    }

    /// Code and text of each item.
    fn items(queue: &QueueFacts) -> Vec<(String, String)> {
        let mut out = Vec::new();
        of_queue(Timestamp(9_000_000_000), &shard(), queue, &mut out);
        for item in &out {
            assert_eq!(item.queue.as_deref(), Some("mail"));
            assert_eq!(item.shard.as_deref(), Some("1"));
        }
        out.into_iter().map(|item| (item.code, item.text)).collect()
    }

    fn one(queue: &QueueFacts, code: &str, text: &str) {
        assert_eq!(items(queue), [(code.to_owned(), text.to_owned())]);
    }

    #[test]
    fn a_queue_that_workers_ask_is_well() {
        assert_eq!(items(&queue()), []);
    }

    #[test]
    fn ready_jobs_for_which_nobody_asks_have_no_worker() {
        let mut queue = queue();
        queue.view.asked_ago = Some(Duration::from_secs(59));
        assert_eq!(items(&queue), []);
        queue.view.asked_ago = Some(Duration::from_secs(720));
        one(
            &queue,
            "no_worker",
            "Queue mail: 1,204 ready, no worker has asked for 12 min",
        );
        queue.view.asked_ago = None;
        let text = "Queue mail: 1,204 ready, no worker has asked since the server started";
        one(&queue, "no_worker", text);
        // Its workers are busy.
        queue.view.counts.running = 2;
        assert_eq!(items(&queue), []);
        queue.view.counts = QueueCounts::default();
        assert_eq!(items(&queue), []);
    }

    #[test]
    fn a_paused_queue_needs_attention_while_jobs_are_ready() {
        let mut queue = queue();
        queue.view.settings.paused = true;
        queue.view.asked_ago = None;
        queue.view.oldest_ready_for = Some(Duration::from_secs(7_000));
        one(
            &queue,
            "paused_with_jobs",
            "Queue mail: 1,204 ready, and the queue is paused",
        );
        queue.view.counts.ready = 0;
        queue.view.oldest_ready_for = None;
        assert_eq!(items(&queue), []);
    }

    #[test]
    fn the_oldest_job_may_wait_ten_minutes_or_as_long_as_the_queue_says() {
        let mut queue = queue();
        queue.view.oldest_ready_for = Some(Duration::from_secs(600));
        assert_eq!(items(&queue), []);
        queue.view.oldest_ready_for = Some(Duration::from_secs(724));
        let text = "Queue mail: 1,204 ready, the oldest has waited for 12 min 4 s";
        one(&queue, "oldest_age", text);
        queue.view.settings.alert_age = Some(Duration::from_secs(3_600));
        assert_eq!(items(&queue), []);
        queue.view.settings.alert_age = Some(Duration::from_secs(2));
        assert_eq!(items(&queue).len(), 1);
    }

    #[test]
    fn a_queue_at_its_limit_needs_attention_if_it_grows() {
        let mut queue = queue();
        queue.view.settings.running_max = Some(8);
        queue.view.counts.running = 8;
        assert_eq!(items(&queue), [], "what was before is unknown");
        queue.recent.ready_before = Some(1_195);
        assert_eq!(items(&queue), [], "9 more are too few");
        queue.recent.ready_before = Some(1_100);
        assert_eq!(items(&queue), [], "less than a tenth more");
        queue.recent.ready_before = Some(204);
        let text = "Queue mail: 1,204 ready, 1,000 more than 5 min ago, and all 8 that may run do";
        one(&queue, "at_limit_growing", text);
        queue.view.counts.running = 7;
        assert_eq!(items(&queue), []);
    }

    #[test]
    fn more_than_a_tenth_of_at_least_twenty_attempts_must_fail() {
        let mut queue = queue();
        let mut with = |ended, failed| {
            queue.recent.outcomes = Outcomes {
                ended,
                failed,
                lost: 0,
            };
            items(&queue)
        };
        assert_eq!(with(19, 19), []);
        assert_eq!(with(20, 2), []);
        let text = "Queue mail: 15 % of attempts failed in the last 5 min (3)";
        assert_eq!(with(20, 3), [("failing".to_owned(), text.to_owned())]);
    }

    #[test]
    fn five_expired_leases_need_attention() {
        let mut queue = queue();
        queue.recent.outcomes.lost = 4;
        assert_eq!(items(&queue), []);
        queue.recent.outcomes.lost = 5;
        let text = "Queue mail: 5 leases expired in the last 5 min: workers die, or do not renew";
        one(&queue, "leases_lost", text);
    }
}
