//! A submission in enq's form: an array of task specs with mock ids.

use std::collections::HashMap;
use std::fmt;

use ganger_types::command::{Dependency, NewEdge, NewInput, NewJob};
use ganger_types::{Bytes, FailurePolicy, JobId, JobName, JobRef, RetryPolicy, ShardId};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::error::DocumentError;
use crate::names::KindName;
use crate::one_of::read_word;
use crate::raw_json::{self, RawJson};
use crate::reference;
use crate::reference::Shards;
use crate::request::graph::MemberName;
use crate::time::Moment;

/// A task of enq's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"task_id\": {\"shard\": \"1\", \"id\": \"a\"}, \"method\": \"m\"}"
)]
#[schema(as = EnqTask)]
pub struct TaskIn {
    /// The shard to run on, and the mock id.
    task_id: TaskId,
    /// The name of the handler.
    method: KindName,
    /// Positional inputs of the task, in order; none if absent.
    #[serde(default)]
    args: Vec<Argument>,
    /// Maximum number of retries after the first run.
    max_retries: Option<u32>,
    /// Time after which no attempt is started; none if absent.
    deadline: Option<Moment>,
}

/// A task's id: its shard, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"shard\": \"1\", \"id\": \"a\"}"
)]
#[schema(as = EnqTaskId)]
pub struct TaskId {
    /// Name of the shard, such as `1`.
    pub shard: String,
    /// In a submission the mock id; in answers the final one.
    pub id: String,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.id)
    }
}

/// A positional input of enq's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"type\": \"VALUE\", \"value\": 1}"
)]
#[schema(as = EnqArgument)]
struct Argument {
    /// Type of the argument: `VALUE` or `TASKREF`.
    r#type: ArgumentType,
    /// JSON in a string, plain or as base64.
    value_json: Option<String>,
    /// Literal JSON, instead of `value_json`.
    #[serde(default, deserialize_with = "raw_json::given")]
    value: Option<RawJson>,
    /// The task whose result is the input.
    task_id: Option<TaskId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
enum ArgumentType {
    #[schema(rename = "VALUE")]
    Value,
    #[schema(rename = "TASKREF")]
    Reference,
}

impl<'de> Deserialize<'de> for ArgumentType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = [("VALUE", Self::Value), ("TASKREF", Self::Reference)];
        read_word(deserializer, &words)
    }
}

/// Jobs with their shards.
type Placed = Vec<(ShardId, NewJob)>;

/// The jobs of a submission with their shards, and their ids in the document.
///
/// # Errors
/// If an id occurs twice, a shard is unknown, or an argument has none of enq's forms.
pub fn convert(
    shards: &dyn Shards,
    tasks: Vec<TaskIn>,
) -> Result<(Placed, Vec<MemberName>), DocumentError> {
    let places = places(&tasks)?;
    let mut jobs = Vec::with_capacity(tasks.len());
    let mut called = Vec::with_capacity(tasks.len());
    for (place, task) in tasks.into_iter().enumerate() {
        let home = home(shards, place, &task.task_id)?;
        let mut inputs = Vec::with_capacity(task.args.len());
        for (position, argument) in task.args.into_iter().enumerate() {
            let input = argument.convert(shards, &home, &places);
            inputs.push(input.map_err(|fault| fault.in_argument(place, &task.task_id, position))?);
        }
        let job = NewJob {
            // The mock id is the name of the task in its submission; one that is too long for a name is not stored.
            name: JobName::new(task.task_id.to_string()).ok(),
            kind: task.method.0,
            inputs,
            retry: task.max_retries.map(|retries_max| RetryPolicy {
                retries_max,
                ..RetryPolicy::default()
            }),
            deadline: task.deadline.map(|time| time.0),
            ..NewJob::default()
        };
        jobs.push((home, job));
        called.push(MemberName::Task(task.task_id));
    }
    Ok((jobs, called))
}

/// The index of each mock id, which must be unique.
fn places(tasks: &[TaskIn]) -> Result<HashMap<TaskId, u32>, DocumentError> {
    let mut places = HashMap::with_capacity(tasks.len());
    for (place, task) in tasks.iter().enumerate() {
        let id = &task.task_id;
        let index = u32::try_from(place).unwrap_or(u32::MAX);
        if let Some(earlier) = places.insert(id.clone(), index) {
            return Err(DocumentError::new(
                "duplicate_id",
                format!("task {place} has the same task_id as task {earlier}, {id}: each mock id stands for one task"),
            )
            .at(format!("/{place}/task_id")));
        }
    }
    Ok(places)
}

/// The shard of a task.
fn home(shards: &dyn Shards, place: usize, id: &TaskId) -> Result<ShardId, DocumentError> {
    shards.read_shard(&id.shard).map_err(|reason| {
        DocumentError::new("unknown_shard", format!("task {place} ({id}): {reason}"))
            .at(format!("/{place}/task_id/shard"))
    })
}

/// An error in an argument, without its place.
struct Fault {
    code: &'static str,
    field: &'static str,
    reason: String,
}

impl Fault {
    fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self {
            code: "invalid_value",
            field,
            reason: reason.into(),
        }
    }

    fn in_argument(self, place: usize, task: &TaskId, position: usize) -> DocumentError {
        let detail = format!(
            "task {place} ({task}), argument {position}: {}",
            self.reason
        );
        DocumentError::new(self.code, detail).at(format!("/{place}/args/{position}/{}", self.field))
    }
}

impl Argument {
    fn convert(
        self,
        shards: &dyn Shards,
        home: &ShardId,
        places: &HashMap<TaskId, u32>,
    ) -> Result<NewInput, Fault> {
        match (self.r#type, self.value_json, self.value, self.task_id) {
            (ArgumentType::Value, Some(text), None, None) => value_json(&text).map(NewInput::Value),
            (ArgumentType::Value, None, Some(exact), None) => Ok(NewInput::Value(
                Bytes::copy_from_slice(exact.0.get().as_bytes()),
            )),
            (ArgumentType::Value, ..) => Err(Fault::new(
                "value_json",
                "a VALUE has exactly one of value_json and value, and no task_id",
            )),
            (ArgumentType::Reference, None, None, Some(task)) => {
                reference(shards, home, places, &task)
            }
            (ArgumentType::Reference, ..) => Err(Fault::new(
                "task_id",
                "a TASKREF has a task_id, and no value",
            )),
        }
    }
}

/// JSON in a string, or as base64; no text is both.
fn value_json(text: &str) -> Result<Bytes, Fault> {
    let is_json =
        |bytes: &[u8]| serde_json::from_slice::<&serde_json::value::RawValue>(bytes).is_ok();
    if is_json(text.as_bytes()) {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let unreadable = |reason: String| Fault::new("value_json", reason);
    let decoded = raw_json::decode(text).map_err(|error| {
        unreadable(format!(
            "value_json is neither JSON nor base64 of JSON: {error}; literal JSON goes into \"value\""
        ))
    })?;
    if is_json(&decoded) {
        return Ok(decoded);
    }
    let start = decoded[..decoded.len().min(40)].escape_ascii();
    Err(unreadable(format!(
        "value_json is base64, but what it encodes is not JSON: it begins {start}"
    )))
}

/// A task of this submission by its mock id, else an existing job by its final id.
fn reference(
    shards: &dyn Shards,
    home: &ShardId,
    places: &HashMap<TaskId, u32>,
    task: &TaskId,
) -> Result<NewInput, Fault> {
    let dependency = match places.get(task) {
        Some(place) => Dependency::Member(*place),
        None => {
            let shard = shards.read_shard(&task.shard).map_err(|reason| Fault {
                code: "unknown_shard",
                field: "task_id/shard",
                reason: format!("it refers to {task}: {reason}"),
            })?;
            let id = JobId::new(crate::names::read(task.id.as_bytes()))
                .map_err(|error| Fault::new("task_id/id", error.to_string()))?;
            reference::dependency(JobRef { shard, id }, home)
        }
    };
    Ok(NewInput::Result(NewEdge {
        dependency,
        policy: FailurePolicy::Fail,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_json_is_plain_or_base64() {
        let read = |text| value_json(text).map_err(|fault| fault.reason);
        assert_eq!(
            read("{\"uid\": 1234}"),
            Ok(Bytes::from_static(b"{\"uid\": 1234}"))
        );
        assert_eq!(
            read("eyJ1aWQiOjEyMzR9"),
            Ok(Bytes::from_static(b"{\"uid\":1234}"))
        );
        assert_eq!(read("1234"), Ok(Bytes::from_static(b"1234")));
        assert_eq!(read("true"), Ok(Bytes::from_static(b"true")));
        assert!(read("{uid: 1}").expect_err("neither").contains("neither"));
        assert!(read("aGVsbG8=").expect_err("hello").contains("hello"));
    }
}
