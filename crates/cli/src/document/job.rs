//! A job to be, and a schedule to be, as documents; the same fields as over HTTP.

use std::collections::HashMap;

use ganger_client::{
    CatchUp, Dependency, Edge, Input, NewJob, NewSchedule, Overlap, ScheduleSpec, Start, Unique,
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::problem::Problem;
use super::shape::{Keeping, Labels, Policy, RetryIn, given, octets};
use super::short::{ShortOr, read_short_or, words};
use super::span::{Moment, Span};

/// A job to be enqueued. Only `kind` is required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobIn {
    /// Its name inside this submission.
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    /// The shard that runs it.
    shard: Option<String>,
    queue: Option<String>,
    kind: String,
    #[serde(default, deserialize_with = "given")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    #[serde(default)]
    inputs: Vec<InputIn>,
    #[serde(default)]
    after: Vec<AfterIn>,
    #[serde(default)]
    priority: i64,
    delay: Option<Span>,
    run_at: Option<Moment>,
    deadline: Option<Moment>,
    timeout: Option<Span>,
    retry: Option<RetryIn>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    tracked: bool,
    unique: Option<UniqueIn>,
    keep_succeeded: Option<Keeping>,
    keep_failed: Option<Keeping>,
}

/// One positional input: exactly one of the first four.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"value\": 1} or {\"result_of\": \"left\"}"
)]
struct InputIn {
    #[serde(default, deserialize_with = "given")]
    value: Option<Box<RawValue>>,
    value_base64: Option<String>,
    result_of: Option<String>,
    result_of_job: Option<String>,
    policy: Option<Policy>,
}

/// A job to wait for: exactly one of `name` and `job`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeIn {
    name: Option<String>,
    job: Option<String>,
    policy: Option<Policy>,
}

/// A job to wait for. A string is the name of a job of the same submission or, if none has it, the id of an
/// existing job.
#[derive(Debug)]
enum AfterIn {
    Short(String),
    Long(EdgeIn),
}

impl ShortOr for AfterIn {
    type Long = EdgeIn;
    const EXPECTED: &'static str =
        "the name or id of a job, or an object such as {\"name\": \"left\"} or {\"job\": \"a1\"}";

    fn short(text: &str) -> Self {
        Self::Short(text.to_owned())
    }

    fn long(edge: EdgeIn) -> Self {
        Self::Long(edge)
    }
}

impl<'de> Deserialize<'de> for AfterIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_short_or(deserializer)
    }
}

/// The key of a unique job, and for how long it counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UniqueKeyIn {
    key: String,
    window: Option<Span>,
}

/// A unique key: a string is one without a window.
#[derive(Debug)]
struct UniqueIn(UniqueKeyIn);

impl ShortOr for UniqueIn {
    type Long = UniqueKeyIn;
    const EXPECTED: &'static str =
        "a key such as \"user-1\", or an object such as {\"key\": \"user-1\", \"window\": \"1h\"}";

    fn short(text: &str) -> Self {
        Self(UniqueKeyIn {
            key: text.to_owned(),
            window: None,
        })
    }

    fn long(unique: UniqueKeyIn) -> Self {
        Self(unique)
    }
}

impl<'de> Deserialize<'de> for UniqueIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_short_or(deserializer)
    }
}

/// The names of a submission's jobs and their places.
pub(super) type Members = HashMap<String, u32>;

impl JobIn {
    /// How messages call it.
    pub(super) fn caption(&self, place: usize) -> String {
        match self.name.as_ref().or(self.id.as_ref()) {
            Some(name) => format!("job {place} ({name})"),
            None => format!("job {place}"),
        }
    }

    /// The job, where there are no names to refer to.
    pub(crate) fn convert_alone(self) -> Result<NewJob, Problem> {
        self.convert(&Members::new())
    }

    pub(super) fn convert(self, members: &Members) -> Result<NewJob, Problem> {
        if self.kind.is_empty() {
            return Err(Problem::new(
                "its kind is empty: name the program that runs it",
            ));
        }
        let payload = octets(self.payload, self.payload_base64, "payload")?;
        let inputs = self.inputs.into_iter().enumerate().map(|(place, input)| {
            input
                .convert(members)
                .map_err(|problem| problem.of(format_args!("input {place}")))
        });
        let after = self.after.into_iter().enumerate().map(|(place, edge)| {
            edge.convert(members)
                .map_err(|problem| problem.of(format_args!("after {place}")))
        });
        Ok(NewJob {
            id: self.id,
            shard: self.shard,
            name: self.name.unwrap_or_default(),
            queue: self.queue.unwrap_or_else(|| "default".to_owned()),
            kind: self.kind,
            payload: payload.unwrap_or_default(),
            inputs: inputs.collect::<Result<_, _>>()?,
            after: after.collect::<Result<_, _>>()?,
            priority: self.priority,
            start: start(self.delay, self.run_at)?,
            deadline: self.deadline.map(|time| time.0),
            timeout: self.timeout.map(|span| span.0),
            retry: self.retry.map(Into::into),
            tags: self.tags,
            labels: self.labels.0,
            tracked: self.tracked,
            unique: self.unique.map(|UniqueIn(given)| Unique {
                key: given.key,
                window: given.window.map(|span| span.0),
            }),
            keep_succeeded: self.keep_succeeded.map(|keep| keep.0),
            keep_failed: self.keep_failed.map(|keep| keep.0),
        })
    }
}

fn start(delay: Option<Span>, run_at: Option<Moment>) -> Result<Start, Problem> {
    match (delay, run_at) {
        (Some(_), Some(_)) => Err(Problem::new("delay and run_at are both given: give one")),
        (Some(delay), None) => Ok(Start::After(delay.0)),
        (None, Some(time)) => Ok(Start::At(time.0)),
        (None, None) => Ok(Start::Now),
    }
}

impl InputIn {
    fn convert(self, members: &Members) -> Result<Input, Problem> {
        let is_reference = self.result_of.is_some() || self.result_of_job.is_some();
        match octets(self.value, self.value_base64, "value")? {
            Some(_) if is_reference || self.policy.is_some() => Err(Problem::new(
                "an input is a value or the result of a job, not both",
            )),
            Some(value) => Ok(Input::Value(value)),
            None => {
                let fields = ("result_of", "result_of_job");
                let dependency = dependency(self.result_of, self.result_of_job, members, fields)?;
                let policy = self.policy.unwrap_or_default().into();
                Ok(Input::Result(Edge { dependency, policy }))
            }
        }
    }
}

impl AfterIn {
    fn convert(self, members: &Members) -> Result<Edge, Problem> {
        match self {
            Self::Short(text) => Ok(Edge::on(match members.get(&text) {
                Some(place) => Dependency::Member(*place),
                None => Dependency::Job(text),
            })),
            Self::Long(edge) => edge.convert(members),
        }
    }
}

impl EdgeIn {
    fn convert(self, members: &Members) -> Result<Edge, Problem> {
        let dependency = dependency(self.name, self.job, members, ("name", "job"))?;
        Ok(Edge {
            dependency,
            policy: self.policy.unwrap_or_default().into(),
        })
    }
}

/// The dependency that one of two fields names.
fn dependency(
    member: Option<String>,
    job: Option<String>,
    members: &Members,
    fields: (&str, &str),
) -> Result<Dependency, Problem> {
    match (member, job) {
        (Some(name), None) => members.get(&name).copied().map(Dependency::Member).ok_or_else(|| {
            Problem::new(format!(
                "no job of this submission is named {name:?}; the id of an existing job goes into {:?}",
                fields.1
            ))
        }),
        (None, Some(job)) => Ok(Dependency::Job(job)),
        _ => Err(Problem::new(format!("give exactly one of {:?} and {:?}", fields.0, fields.1))),
    }
}

/// A rule that enqueues again and again: `every`, or `cron`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleIn {
    every: Option<Span>,
    first_at: Option<Moment>,
    cron: Option<String>,
    time_zone: Option<String>,
    catch_up: Option<CatchUpIn>,
    catch_up_max: Option<u32>,
    overlap: Option<OverlapIn>,
    #[serde(default)]
    paused: bool,
    queue: Option<String>,
    kind: String,
    #[serde(default, deserialize_with = "given")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    #[serde(default)]
    priority: i64,
    retry: Option<RetryIn>,
    timeout: Option<Span>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

#[derive(Clone, Copy, Debug)]
enum CatchUpIn {
    None,
    Last,
    All,
}
words!(CatchUpIn { "none" => None, "last" => Last, "all" => All });

#[derive(Clone, Copy, Debug)]
enum OverlapIn {
    Allow,
    Skip,
    Replace,
}
words!(OverlapIn { "allow" => Allow, "skip" => Skip, "replace" => Replace });

impl ScheduleIn {
    /// The schedule of this name.
    pub(crate) fn convert(self, id: &str) -> Result<NewSchedule, Problem> {
        let spec = match (self.every, self.cron) {
            (Some(every), None) => ScheduleSpec::Interval {
                every: every.0,
                first_at: self.first_at.map(|time| time.0),
            },
            (None, Some(expression)) => ScheduleSpec::Cron {
                expression,
                time_zone: self.time_zone.unwrap_or_else(|| "UTC".to_owned()),
            },
            _ => return Err(Problem::new("give exactly one of \"every\" and \"cron\"")),
        };
        let payload = octets(self.payload, self.payload_base64, "payload")?;
        let queue = self.queue.unwrap_or_else(|| "default".to_owned());
        Ok(NewSchedule {
            catch_up: match self.catch_up {
                Some(CatchUpIn::None) => CatchUp::None,
                Some(CatchUpIn::All) => CatchUp::All {
                    max: self.catch_up_max.unwrap_or(0),
                },
                Some(CatchUpIn::Last) | None => CatchUp::Last,
            },
            overlap: match self.overlap {
                Some(OverlapIn::Skip) => Overlap::Skip,
                Some(OverlapIn::Replace) => Overlap::Replace,
                Some(OverlapIn::Allow) | None => Overlap::Allow,
            },
            paused: self.paused,
            queue,
            payload: payload.unwrap_or_default(),
            priority: self.priority,
            retry: self.retry.map(Into::into),
            timeout: self.timeout.map(|span| span.0),
            tags: self.tags,
            labels: self.labels.0,
            ..NewSchedule::new(id, self.kind, spec)
        })
    }
}
