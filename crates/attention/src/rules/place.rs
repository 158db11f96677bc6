//! Rules about schedules, shards, messages between shards, and the server.

use std::time::Duration;

use ganger_document::measure::{bytes, count, plural, span, whole};
use ganger_document::names::{show, text};
use ganger_document::time::calendar;
use ganger_document::view::attention::{Gravity, Item};
use ganger_shard::Health;
use ganger_types::{ScheduleId, ShardId, Timestamp};

use super::{
    CERTIFICATE_ERROR, CERTIFICATE_WARNING, COMMIT_MAX, COMMITS_MIN, MESSAGE_AGE_MAX, ago, item,
};
use crate::facts::{Facts, PeerFacts, ShardFacts};

pub(super) fn of_schedule(
    shard: &ShardFacts,
    schedule: &ScheduleId,
    at: Option<Timestamp>,
) -> Item {
    let words = format!(
        "Schedule {}: its last run failed",
        show(schedule.as_bytes())
    );
    Item {
        shard: Some(shard.shard.to_string()),
        schedule: Some(text(schedule.as_bytes())),
        since: at.map(calendar),
        count: Some(1),
        ..item("schedule_failed", Gravity::Warning, words)
    }
}

/// Returns the item for a shard that does not answer, with the reason if the viewer may know it.
pub fn unreachable(shard: &ShardId, reason: Option<&str>) -> Item {
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let words = format!("Shard {shard} cannot be reached{reason}");
    Item {
        shard: Some(shard.to_string()),
        ..item("shard_unreachable", Gravity::Error, words)
    }
}

/// Judges a shard. Callers who may not see the server learn that a shard does not work, and not why.
pub(super) fn of_shard(now: Timestamp, shard: &ShardFacts, sees_server: bool, out: &mut Vec<Item>) {
    let on = |item: Item| Item {
        shard: Some(shard.shard.to_string()),
        ..item
    };
    let name = &shard.shard;
    match &shard.health {
        Health::Ready | Health::Full if !shard.has_answered => {
            out.push(unreachable(name, Some("it does not answer")));
        }
        Health::Ready => {}
        Health::Full => {
            let words = format!("Shard {name} takes no new work: its disk is nearly full");
            out.push(on(item("store_full", Gravity::Error, words)));
        }
        Health::Starting { jobs } => {
            let words = format!(
                "Shard {name} is starting: {} read so far",
                plural(*jobs, "job")
            );
            out.push(on(item("shard_unreachable", Gravity::Error, words)));
        }
        Health::Unreachable { reason } => {
            let why = if sees_server {
                format!(": {reason}")
            } else {
                String::new()
            };
            let words = format!("Shard {name} waits for its store{why}");
            out.push(on(item("shard_unreachable", Gravity::Error, words)));
        }
        Health::Stopped { reason } => {
            let why = if sees_server {
                format!(": {reason}")
            } else {
                String::new()
            };
            let words = format!("Shard {name} has stopped{why}");
            out.push(on(item("shard_unreachable", Gravity::Error, words)));
        }
    }
    if !sees_server {
        return;
    }
    out.extend(nearly_full(shard).map(on));
    out.extend(slow_commits(shard).map(on));
    for peer in &shard.peers {
        out.extend(of_peer(now, name, peer).map(on));
    }
}

fn nearly_full(shard: &ShardFacts) -> Option<Item> {
    let free = shard.free_bytes?;
    let is_near = shard.health == Health::Ready && free < shard.reserve_bytes.saturating_mul(2);
    let words = || {
        format!(
            "Shard {}: {} are free on its disk, and below {} it takes no new work",
            shard.shard,
            bytes(free),
            bytes(shard.reserve_bytes)
        )
    };
    is_near.then(|| item("store_full", Gravity::Warning, words()))
}

fn slow_commits(shard: &ShardFacts) -> Option<Item> {
    let commits = shard.commits;
    if commits.count < COMMITS_MIN || commits.p99.is_some_and(|p99| p99 <= COMMIT_MAX) {
        return None;
    }
    let took = commits.p99.map_or_else(
        || "very long".to_owned(),
        |p99| format!("up to {}", span(p99)),
    );
    let words = format!(
        "Shard {}: the slowest of 100 commits took {took} in the last 5 min",
        shard.shard
    );
    Some(Item {
        count: Some(commits.count),
        ..item("slow_commits", Gravity::Warning, words)
    })
}

fn of_peer(now: Timestamp, shard: &ShardId, peer: &PeerFacts) -> Option<Item> {
    let (to, waiting) = (&peer.shard, plural(peer.waiting, "message"));
    let found = if peer.is_stopped {
        let words = format!(
            "Shard {shard} exchanges nothing with shard {to} until the two are reconciled: {waiting} waiting"
        );
        item("outbox_stopped", Gravity::Error, words)
    } else {
        let oldest = peer.oldest_for.filter(|age| *age > MESSAGE_AGE_MAX)?;
        let words = format!(
            "Shard {shard}: {waiting} waiting for shard {to}, the oldest for {}",
            span(whole(oldest))
        );
        item("outbox_old", Gravity::Warning, words)
    };
    Some(Item {
        count: Some(peer.waiting),
        since: peer.oldest_for.and_then(|age| ago(now, age)),
        ..found
    })
}

pub(super) fn of_server(facts: &Facts, out: &mut Vec<Item>) {
    let of = facts.shards.iter().map(|shard| shard.shard.to_string());
    let of: Vec<String> = of.collect();
    let server = match of.as_slice() {
        [one] => format!("The server of shard {one}"),
        several => format!("The server of shards {}", several.join(", ")),
    };
    if facts.server.is_insecure {
        let words = format!(
            "{server} can be used by other machines without encryption or without credentials"
        );
        out.push(item("insecure", Gravity::Warning, words));
    }
    let Some(ends_at) = facts.server.certificate_ends_at else {
        return;
    };
    let left = Duration::from_micros(ends_at.0.saturating_sub(facts.now.0));
    if left > CERTIFICATE_WARNING {
        return;
    }
    let gravity = if left <= CERTIFICATE_ERROR {
        Gravity::Error
    } else {
        Gravity::Warning
    };
    let when = if left.is_zero() {
        "has expired".to_owned()
    } else if left < Duration::from_secs(86_400) {
        format!("expires in {}", span(whole(left)))
    } else {
        format!("expires in {} days", count(left.as_secs() / 86_400))
    };
    let words = format!("{server}: its certificate {when}");
    out.push(item("certificate_expires", gravity, words));
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::*;
    use crate::facts::{CommitFacts, ServerFacts};

    const DAY: u64 = 86_400_000_000;
    const NOW: Timestamp = Timestamp(20_000 * DAY);

    fn shard(name: &str) -> ShardFacts {
        ShardFacts {
            shard: ShardId::new(name).expect("a shard"),
            health: Health::Ready,
            has_answered: true,
            loaded_ago: Duration::from_secs(3_600),
            queues: Vec::new(),
            failed_schedules: Vec::new(),
            peers: Vec::new(),
            free_bytes: Some(1 << 40),
            reserve_bytes: 256 << 20,
            commits: CommitFacts::default(),
        }
    }

    fn facts(shard: ShardFacts) -> Facts {
        Facts {
            now: NOW,
            shards: vec![shard],
            server: ServerFacts::default(),
        }
    }

    fn shown(facts: &Facts, sees_server: bool) -> Vec<(String, Gravity, String)> {
        let items = judge(facts, sees_server).into_iter();
        items
            .map(|item| (item.code, item.gravity, item.text))
            .collect()
    }

    fn one(facts: &Facts, code: &str, gravity: Gravity, text: &str) {
        let wanted = (code.to_owned(), gravity, text.to_owned());
        assert_eq!(shown(facts, true), [wanted]);
    }

    #[test]
    fn a_shard_that_works_is_well() {
        assert_eq!(shown(&facts(shard("1")), true), []);
    }

    #[test]
    fn a_shard_that_starts_has_stopped_or_is_silent_cannot_be_reached() {
        let with = |health, has_answered| {
            facts(ShardFacts {
                health,
                has_answered,
                ..shard("1")
            })
        };
        let starting = with(Health::Starting { jobs: 1_240_000 }, false);
        let text = "Shard 1 is starting: 1,240,000 jobs read so far";
        one(&starting, "shard_unreachable", Gravity::Error, text);
        let reason = "the file /data/x is gone".to_owned();
        let stopped = with(Health::Stopped { reason }, false);
        let text = "Shard 1 has stopped: the file /data/x is gone";
        one(&stopped, "shard_unreachable", Gravity::Error, text);
        assert_eq!(shown(&stopped, false)[0].2, "Shard 1 has stopped");
        let reason = "connection refused".to_owned();
        let waiting = with(Health::Unreachable { reason }, false);
        let text = "Shard 1 waits for its store: connection refused";
        one(&waiting, "shard_unreachable", Gravity::Error, text);
        let silent = with(Health::Ready, false);
        let text = "Shard 1 cannot be reached: it does not answer";
        one(&silent, "shard_unreachable", Gravity::Error, text);
    }

    #[test]
    fn a_disk_needs_attention_before_and_when_it_is_full() {
        let with = |health, free| {
            facts(ShardFacts {
                health,
                free_bytes: Some(free),
                ..shard("1")
            })
        };
        let near = with(Health::Ready, 300 << 20);
        let text = "Shard 1: 300 MiB are free on its disk, and below 256 MiB it takes no new work";
        one(&near, "store_full", Gravity::Warning, text);
        let full = with(Health::Full, 100 << 20);
        let text = "Shard 1 takes no new work: its disk is nearly full";
        one(&full, "store_full", Gravity::Error, text);
        assert_eq!(
            shown(&full, false).len(),
            1,
            "those who enqueue need to know"
        );
        assert_eq!(shown(&with(Health::Ready, 512 << 20), true), []);
    }

    #[test]
    fn slow_commits_need_attention() {
        let with = |count, p99| {
            let commits = CommitFacts { count, p99 };
            facts(ShardFacts {
                commits,
                ..shard("1")
            })
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(shown(&with(19, second), true), []);
        assert_eq!(shown(&with(20, Some(COMMIT_MAX)), true), []);
        let text = "Shard 1: the slowest of 100 commits took up to 1.0 s in the last 5 min";
        one(&with(20, second), "slow_commits", Gravity::Warning, text);
        assert_eq!(shown(&with(20, second), false), []);
    }

    #[test]
    fn messages_that_wait_or_must_not_go_need_attention() {
        let with = |is_stopped, seconds| {
            let peer = PeerFacts {
                shard: ShardId::new("2").expect("a shard"),
                waiting: 3,
                oldest_for: Some(Duration::from_secs(seconds)),
                is_stopped,
            };
            facts(ShardFacts {
                peers: vec![peer],
                ..shard("1")
            })
        };
        assert_eq!(shown(&with(false, 300), true), []);
        let text = "Shard 1: 3 messages waiting for shard 2, the oldest for 10 min";
        one(&with(false, 600), "outbox_old", Gravity::Warning, text);
        let text = "Shard 1 exchanges nothing with shard 2 until the two are reconciled: 3 messages waiting";
        one(&with(true, 1), "outbox_stopped", Gravity::Error, text);
        assert_eq!(shown(&with(true, 1), false), []);
    }

    #[test]
    fn a_schedule_whose_last_run_failed_needs_attention() {
        let failed = vec![(ScheduleId::from_static("nightly"), Some(NOW))];
        let facts = facts(ShardFacts {
            failed_schedules: failed,
            ..shard("1")
        });
        let text = "Schedule nightly: its last run failed";
        one(&facts, "schedule_failed", Gravity::Warning, text);
    }

    #[test]
    fn a_certificate_needs_attention_two_weeks_before_its_end() {
        let with = |left: u64| Facts {
            server: ServerFacts {
                certificate_ends_at: Some(Timestamp(NOW.0 + left)),
                ..ServerFacts::default()
            },
            ..facts(shard("1"))
        };
        assert_eq!(shown(&with(14 * DAY + 1), true), []);
        let text = "The server of shard 1: its certificate expires in 13 days";
        one(
            &with(13 * DAY + 7),
            "certificate_expires",
            Gravity::Warning,
            text,
        );
        let text = "The server of shard 1: its certificate expires in 12 h";
        one(&with(DAY / 2), "certificate_expires", Gravity::Error, text);
        let text = "The server of shard 1: its certificate has expired";
        one(&with(0), "certificate_expires", Gravity::Error, text);
    }

    #[test]
    fn a_server_that_is_open_to_all_needs_attention() {
        let facts = Facts {
            server: ServerFacts {
                is_insecure: true,
                certificate_ends_at: None,
            },
            shards: vec![shard("1"), shard("2")],
            now: NOW,
        };
        let text = "The server of shards 1, 2 can be used by other machines without encryption or without credentials";
        one(&facts, "insecure", Gravity::Warning, text);
        assert_eq!(shown(&facts, false), []);
    }
}
