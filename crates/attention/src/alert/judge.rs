//! Whether the condition of an alert holds.

use std::time::Duration;

use ganger_document::measure::{bytes, count, percent, span, whole};
use ganger_document::names::show;

use super::{Alert, Condition};
use crate::facts::{Facts, QueueFacts, ShardFacts};

/// Time after the load of a shard from which its counts cover 5 minutes.
const COUNTED_AFTER: Duration = Duration::from_secs(300);

/// Whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds: what was found, for people.
    Holds(String),
    /// It does not hold.
    Clear,
    /// It cannot be told now: a shard does not answer, or has counted for too short a time. What was so before stays.
    Unknown,
}

impl Verdict {
    /// Of two queues or shards the worse one.
    fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Holds(_), _) | (Self::Unknown, Self::Clear) => self,
            _ => other,
        }
    }
}

impl Alert {
    /// Judges the facts about the namespace of the alert.
    pub fn judge(&self, facts: &Facts) -> Verdict {
        if let Condition::CertificateEndsWithin(within) = self.condition {
            return certificate(facts, within);
        }
        let mut verdict = Verdict::Clear;
        for shard in &facts.shards {
            verdict = verdict.or(self.judge_shard(shard));
        }
        verdict
    }

    fn judge_shard(&self, shard: &ShardFacts) -> Verdict {
        match self.condition {
            Condition::DiskFreeBelow(limit) => return disk(shard, limit),
            Condition::CommitsSlowerThan(limit) => return commits(shard, limit),
            _ if !shard.has_answered => return Verdict::Unknown,
            _ => {}
        }
        let mut verdict = Verdict::Clear;
        for queue in &shard.queues {
            if self
                .queue
                .as_ref()
                .is_none_or(|wanted| *wanted == queue.view.queue)
            {
                verdict = verdict.or(self.judge_queue(shard, queue));
            }
        }
        verdict
    }

    fn judge_queue(&self, shard: &ShardFacts, queue: &QueueFacts) -> Verdict {
        let name = format!("queue {}", show(queue.view.queue.as_bytes()));
        let counts = &queue.view.counts;
        match self.condition {
            Condition::OlderThan(limit) => match queue.view.oldest_ready_for {
                Some(oldest) if oldest > limit => Verdict::Holds(format!(
                    "{name}: the oldest of {} ready jobs has waited for {}",
                    count(counts.ready),
                    span(whole(oldest))
                )),
                _ => Verdict::Clear,
            },
            Condition::FailureRateAbove {
                millionths,
                attempts_min,
            } => {
                let outcomes = queue.recent.outcomes;
                let (ended, failed) = (u64::from(outcomes.ended), u64::from(outcomes.failed));
                if ended < attempts_min.max(1) {
                    return young(shard);
                }
                let part = failed * 1_000_000 / ended;
                if part > millionths {
                    let (part, ended) = (percent(part), count(ended));
                    Verdict::Holds(format!(
                        "{name}: {part} of {ended} attempts failed in the last 5 min"
                    ))
                } else {
                    Verdict::Clear
                }
            }
            Condition::NoWorkersFor(limit) => {
                if counts.ready == 0 || counts.running > 0 {
                    return Verdict::Clear;
                }
                match queue.view.asked_ago {
                    Some(silent) if silent < limit => Verdict::Clear,
                    // A restart is no reason to report workers that are about to come back.
                    None if shard.loaded_ago < limit => Verdict::Unknown,
                    silent => {
                        let silent = silent.unwrap_or(shard.loaded_ago);
                        Verdict::Holds(format!(
                            "{name}: {} ready, no worker has asked for {}",
                            count(counts.ready),
                            span(whole(silent))
                        ))
                    }
                }
            }
            Condition::CommitsSlowerThan(_)
            | Condition::CertificateEndsWithin(_)
            | Condition::DiskFreeBelow(_) => Verdict::Clear,
        }
    }
}

/// Too few events to judge: known only once the shard has counted for 5 minutes.
fn young(shard: &ShardFacts) -> Verdict {
    if shard.loaded_ago < COUNTED_AFTER {
        Verdict::Unknown
    } else {
        Verdict::Clear
    }
}

fn certificate(facts: &Facts, within: Duration) -> Verdict {
    let Some(ends_at) = facts.server.certificate_ends_at else {
        return Verdict::Clear;
    };
    let left = Duration::from_micros(ends_at.0.saturating_sub(facts.now.0));
    if left > within {
        return Verdict::Clear;
    }
    Verdict::Holds(if left.is_zero() {
        "the server's certificate has expired".to_owned()
    } else {
        format!("the server's certificate ends in {}", span(whole(left)))
    })
}

fn disk(shard: &ShardFacts, limit: u64) -> Verdict {
    match shard.free_bytes {
        Some(free) if free < limit => Verdict::Holds(format!(
            "shard {}: {} are free on its disk",
            shard.shard,
            bytes(free)
        )),
        Some(_) => Verdict::Clear,
        None => Verdict::Unknown,
    }
}

fn commits(shard: &ShardFacts, limit: Duration) -> Verdict {
    let commits = shard.commits;
    if commits.count < crate::rules::COMMITS_MIN {
        return young(shard);
    }
    match commits.p99 {
        Some(p99) if p99 <= limit => Verdict::Clear,
        p99 => {
            let took = p99.map_or_else(
                || "very long".to_owned(),
                |p99| format!("up to {}", span(p99)),
            );
            Verdict::Holds(format!(
                "shard {}: the slowest of 100 commits took {took} in the last 5 min",
                shard.shard
            ))
        }
    }
}
