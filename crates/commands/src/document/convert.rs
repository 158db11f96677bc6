//! Converts parsed documents to requests of the client.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use ganger_client::{
    Dependency, Edge, Input, KeepFor, NewJob, NewSchedule, ScheduleSpec, Start, Unique,
};
use ganger_document::Shards;
use ganger_document::request::schedule::ScheduleIn;
use ganger_types::{JobId, Namespace, ScheduleId, ShardId, Tag, Timestamp, command};

use super::Problem;

/// Placeholder for the shard of the server, which only the server knows.
static SERVERS_SHARD: LazyLock<ShardId> =
    LazyLock::new(|| ShardId::new("the-shard-of-the-server-that-is-asked").expect("a short name"));

/// Accepts every shard: only the server knows which exist.
pub(super) struct AnyShard;

impl Shards for AnyShard {
    fn own(&self) -> &ShardId {
        &SERVERS_SHARD
    }

    fn why_unknown(&self, _: &ShardId) -> Option<String> {
        None
    }
}

/// Converts a name to text, since requests to the server have names in UTF-8.
pub(super) fn text(field: &str, name: &[u8]) -> Result<String, Problem> {
    String::from_utf8(name.to_vec()).map_err(|_| {
        Problem::new(format!(
            "{field} {:?} is not UTF-8: the command line sends names as UTF-8 text; send such a name over HTTP",
            name.escape_ascii().to_string()
        ))
    })
}

/// Returns the id of a job for the server: without the shard if that is the server's own.
fn reference(shard: &ShardId, id: &JobId) -> Result<String, Problem> {
    let id = text("id", id.as_bytes())?;
    Ok(if *shard == *SERVERS_SHARD {
        id
    } else {
        format!("{shard}/{id}")
    })
}

/// Converts a job of a submission.
pub(super) fn job((shard, job): (ShardId, command::NewJob)) -> Result<NewJob, Problem> {
    let edge = |edge| self::edge(&shard, edge);
    let inputs = job.inputs.into_iter().map(|input| {
        Ok(match input {
            command::NewInput::Value(value) => Input::Value(value),
            command::NewInput::Result(on) => Input::Result(edge(on)?),
        })
    });
    let name = job.name.map(|name| text("name", name.as_bytes()));
    let unique = job.unique.map(|unique| {
        let key = text("unique key", unique.key.as_bytes())?;
        let window = unique.window;
        Ok::<_, Problem>(Unique { key, window })
    });
    Ok(NewJob {
        id: job.id.map(|id| reference(&shard, &id)).transpose()?,
        inputs: inputs.collect::<Result<_, Problem>>()?,
        after: job.after.into_iter().map(edge).collect::<Result<_, _>>()?,
        shard: (shard != *SERVERS_SHARD).then(|| shard.to_string()),
        name: name.transpose()?.unwrap_or_default(),
        queue: text("queue", job.queue.as_bytes())?,
        kind: text("kind", job.kind.as_bytes())?,
        payload: job.payload,
        priority: job.priority.to_whole(),
        start: match job.start {
            command::Start::Now => Start::Now,
            command::Start::After(delay) => Start::After(delay),
            command::Start::At(time) => Start::At(calendar(time)),
        },
        deadline: job.deadline.map(calendar),
        timeout: job.timeout,
        retry: job.retry,
        tags: texts("tag", job.tags.iter().map(Tag::as_bytes))?,
        labels: labels(&job.labels)?,
        tracked: job.tracked,
        unique: unique.transpose()?,
        keep_succeeded: job.keep_succeeded.map(keep),
        keep_failed: job.keep_failed.map(keep),
    })
}

/// Converts the schedule `id`. Without `first_at` the server chooses the first time.
pub(super) fn schedule(given: ScheduleIn, id: &str) -> Result<NewSchedule, Problem> {
    let has_first_at = given.has_first_at();
    let name = ScheduleId::new(id).map_err(|error| Problem::new(error.to_string()))?;
    let record = given.convert(Namespace::default(), name, Timestamp::default())?;
    let spec = match record.spec {
        ganger_types::ScheduleSpec::Interval { every, first_at } => ScheduleSpec::Interval {
            every,
            first_at: has_first_at.then(|| calendar(first_at)),
        },
        ganger_types::ScheduleSpec::Cron {
            expression,
            time_zone,
        } => ScheduleSpec::Cron {
            expression,
            time_zone,
        },
    };
    Ok(NewSchedule {
        catch_up: record.catch_up,
        overlap: record.overlap,
        paused: record.paused,
        queue: text("queue", record.queue.as_bytes())?,
        payload: record.payload,
        priority: record.priority.to_whole(),
        retry: record.retry,
        timeout: record.timeout,
        tags: texts("tag", record.tags.iter().map(Tag::as_bytes))?,
        labels: labels(&record.labels)?,
        ..NewSchedule::new(id, text("kind", record.kind.as_bytes())?, spec)
    })
}

fn edge(home: &ShardId, edge: command::NewEdge) -> Result<Edge, Problem> {
    Ok(Edge {
        dependency: match edge.dependency {
            command::Dependency::Member(place) => Dependency::Member(place),
            command::Dependency::Job(id) => Dependency::Job(reference(home, &id)?),
            command::Dependency::Remote { job, .. } => {
                Dependency::Job(reference(&job.shard, &job.id)?)
            }
        },
        policy: edge.policy,
    })
}

fn keep(keep: Option<Duration>) -> KeepFor {
    keep.map_or(KeepFor::Ever, KeepFor::Time)
}

fn texts<'a>(field: &str, names: impl Iterator<Item = &'a [u8]>) -> Result<Vec<String>, Problem> {
    names.map(|name| text(field, name)).collect()
}

fn labels(
    labels: &[(ganger_types::LabelKey, ganger_types::LabelValue)],
) -> Result<Vec<(String, String)>, Problem> {
    let label = |(key, value): &(ganger_types::LabelKey, ganger_types::LabelValue)| {
        Ok((
            text("label", key.as_bytes())?,
            text("label", value.as_bytes())?,
        ))
    };
    labels.iter().map(label).collect()
}

fn calendar(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(time.0)
}
