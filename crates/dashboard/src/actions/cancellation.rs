//! What the cancellation of a job does to the jobs around it, for its question.

use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::{CancelEffects, JobId, Reply};

use crate::fault::Fault;
use crate::format::{count, plural};
use crate::view::View;

/// What becomes of the jobs around one that is cancelled.
pub(super) async fn effects(
    view: &View,
    shard: &Handle,
    job: JobId,
) -> Result<CancelEffects, Fault> {
    let query = Query::CancelEffects(view.namespace().clone(), job);
    match view.ask(shard, query).await? {
        Reply::CancelEffects(effects) => Ok(*effects),
        _ => Err(Fault::unexpected_reply()),
    }
}

/// The same in a sentence, such as "3 jobs behind it will fail, 2 will wait."
pub(super) fn consequence(effects: &CancelEffects) -> String {
    let behind = [
        (effects.failed.count, "will fail"),
        (effects.waiting.count, "will wait"),
        (effects.continuing.count, "will go on without its result"),
    ];
    let mut parts: Vec<String> = Vec::new();
    for (number, fate) in behind.into_iter().filter(|(number, _)| *number > 0) {
        parts.push(if parts.is_empty() {
            format!("{} behind it {fate}", plural(number, "job"))
        } else {
            format!("{} {fate}", count(number))
        });
    }
    if effects.cancelled.count > 0 {
        let jobs = plural(effects.cancelled.count, "job");
        parts.push(format!(
            "{jobs} before it that nothing else needs will be cancelled too"
        ));
    }
    if effects.elsewhere > 0 {
        let jobs = plural(effects.elsewhere, "job");
        parts.push(format!("{jobs} on other shards will be told"));
    }
    if parts.is_empty() {
        return "No other job waits for it.".to_owned();
    }
    let bound = if effects.is_complete {
        ""
    } else {
        "At least: "
    };
    format!("{bound}{}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{AffectedJobs, JobState};

    #[test]
    fn the_consequences_of_a_cancellation_are_counted_by_what_becomes_of_each_job() {
        let effects = |failed, waiting, continuing, cancelled, elsewhere, is_complete| {
            let jobs = |count| AffectedJobs {
                count,
                jobs: Vec::new(),
            };
            CancelEffects {
                state: JobState::Ready,
                failed: jobs(failed),
                waiting: jobs(waiting),
                continuing: jobs(continuing),
                cancelled: jobs(cancelled),
                elsewhere,
                is_complete,
            }
        };
        for (effects, sentence) in [
            (effects(0, 0, 0, 0, 0, true), "No other job waits for it."),
            (
                effects(3, 2, 0, 0, 0, true),
                "3 jobs behind it will fail, 2 will wait.",
            ),
            (
                effects(0, 1, 1, 0, 0, true),
                "1 job behind it will wait, 1 will go on without its result.",
            ),
            (
                effects(1, 0, 0, 2, 4, true),
                "1 job behind it will fail, 2 jobs before it that nothing else needs will be cancelled too, 4 jobs on other shards will be told.",
            ),
            (
                effects(1_500, 0, 0, 0, 0, false),
                "At least: 1,500 jobs behind it will fail.",
            ),
        ] {
            assert_eq!(consequence(&effects), sentence);
        }
    }
}
