//! Deliveries and answers to reports.

use bytes::Bytes;
use ganger_proto::v1;
use ganger_shard::Delivery;
use ganger_types::{Reply, ShardId};

use super::{labels, ms, state, tags, text_or_empty};
use crate::problem::Problem;

/// A job handed out. Payload and inputs are shared, not copied.
pub(crate) fn delivery(shard: &ShardId, delivery: Delivery) -> v1::Delivery {
    let Delivery {
        grant,
        payload,
        inputs,
    } = delivery;
    v1::Delivery {
        job: grant.job.to_text().into_owned(),
        shard: shard.as_str().to_owned(),
        number: grant.key.0,
        queue: grant.queue.to_text().into_owned(),
        kind: grant.kind.to_text().into_owned(),
        attempt: grant.attempt,
        retries_left: grant.retries_left,
        token: Bytes::copy_from_slice(&grant.token.to_bytes()),
        // Rounded down: the holder must not believe in more than it has.
        lease_ms: u64::try_from(grant.lease_for.as_millis()).unwrap_or(u64::MAX),
        timeout_ms: grant.timeout.map(ms),
        deadline_at_us: grant.deadline.map(|at| at.0),
        created_at_us: grant.created_at.0,
        priority: grant.priority.to_whole(),
        payload,
        inputs,
        graph: text_or_empty(grant.graph.as_ref()),
        tags: tags(&grant.tags),
        labels: labels(&grant.labels),
    }
}

/// The answer to a report.
pub(crate) fn answer(number: u64, reply: Result<Reply, Problem>) -> v1::ReportAnswer {
    use v1::report_answer::Outcome;
    let outcome = match reply {
        Ok(Reply::Reported {
            state: now,
            retry_at,
            repeat,
        }) => Outcome::Reported(v1::Reported {
            state: state(now),
            retry_at_us: retry_at.map(|at| at.0),
            repeat,
        }),
        Ok(Reply::Renewed { lease_for }) => Outcome::Renewed(v1::Renewed {
            lease_ms: u64::try_from(lease_for.as_millis()).unwrap_or(u64::MAX),
        }),
        Ok(Reply::LogAppended { bytes, dropped }) => Outcome::Log(v1::LogGrown { bytes, dropped }),
        Ok(_) => Outcome::Refused(Problem::unexpected().into()),
        Err(problem) => Outcome::Refused(problem.into()),
    };
    v1::ReportAnswer {
        number,
        outcome: Some(outcome),
    }
}
