//! A submission in enq's form: an array of task specs with mock ids.

use std::collections::HashMap;
use std::fmt;

use ganger_client::{Bytes, Dependency, Edge, Input, NewJob, RetryPolicy};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::problem::Problem;
use super::shape::{decode, given};
use super::short::words;
use super::span::Moment;

/// A task of enq's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskIn {
    /// The shard to run on, and the mock id.
    task_id: TaskId,
    /// The name of the handler.
    method: String,
    /// Positional inputs of the task, in order.
    #[serde(default)]
    args: Vec<Argument>,
    /// Retriable failures allowed after the first run.
    max_retries: Option<u32>,
    /// Never run, and no retry, after it.
    deadline: Option<Moment>,
}

/// A task's id: its shard, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskId {
    shard: String,
    id: String,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.id)
    }
}

/// A positional input of enq's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    r#type: ArgumentType,
    /// JSON in a string, plain or as base64.
    value_json: Option<String>,
    /// Literal JSON, instead of `value_json`.
    #[serde(default, deserialize_with = "given")]
    value: Option<Box<RawValue>>,
    /// The task whose result is the input.
    task_id: Option<TaskId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentType {
    Value,
    Reference,
}
words!(ArgumentType { "VALUE" => Value, "TASKREF" => Reference });

/// What the tasks of a submission become.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) jobs: Vec<NewJob>,
    pub(super) called: Vec<Option<String>>,
}

/// The jobs of a submission, in order.
pub(super) fn convert(tasks: Vec<TaskIn>) -> Result<Converted, Problem> {
    let places = places(&tasks)?;
    let mut out = Converted {
        jobs: Vec::new(),
        called: Vec::new(),
    };
    for (place, task) in tasks.into_iter().enumerate() {
        let caption = format!("task {place} ({})", task.task_id);
        if task.task_id.shard.is_empty() {
            return Err(Problem::new("the shard of its task_id is empty").of(caption));
        }
        if task.method.is_empty() {
            return Err(
                Problem::new("its method is empty: name the program that runs it").of(caption),
            );
        }
        let mut inputs = Vec::with_capacity(task.args.len());
        for (position, argument) in task.args.into_iter().enumerate() {
            let input = argument.convert(&places);
            inputs.push(
                input.map_err(|problem| {
                    problem.of(format_args!("argument {position}")).of(&caption)
                })?,
            );
        }
        out.jobs.push(NewJob {
            name: task.task_id.to_string(),
            shard: Some(task.task_id.shard.clone()),
            inputs,
            retry: task.max_retries.map(|retries_max| RetryPolicy {
                retries_max,
                ..RetryPolicy::default()
            }),
            deadline: task.deadline.map(|time| time.0),
            ..NewJob::new(task.method)
        });
        out.called.push(Some(task.task_id.to_string()));
    }
    Ok(out)
}

/// Where each mock id stands.
fn places(tasks: &[TaskIn]) -> Result<HashMap<TaskId, u32>, Problem> {
    let mut places = HashMap::with_capacity(tasks.len());
    for (place, task) in tasks.iter().enumerate() {
        let index = u32::try_from(place)
            .map_err(|_| Problem::new(format!("{} tasks are too many at once", tasks.len())))?;
        if let Some(earlier) = places.insert(task.task_id.clone(), index) {
            return Err(Problem::new(format!(
                "task {place} has the same task_id as task {earlier}, {}: each mock id stands for one task",
                task.task_id
            )));
        }
    }
    Ok(places)
}

impl Argument {
    fn convert(self, places: &HashMap<TaskId, u32>) -> Result<Input, Problem> {
        match (self.r#type, self.value_json, self.value, self.task_id) {
            (ArgumentType::Value, Some(text), None, None) => value_json(&text).map(Input::Value),
            (ArgumentType::Value, None, Some(exact), None) => {
                Ok(Input::Value(Bytes::copy_from_slice(exact.get().as_bytes())))
            }
            (ArgumentType::Value, ..) => Err(Problem::new(
                "a VALUE has exactly one of value_json and value, and no task_id",
            )),
            (ArgumentType::Reference, None, None, Some(task)) => Ok(reference(places, &task)),
            (ArgumentType::Reference, ..) => {
                Err(Problem::new("a TASKREF has a task_id, and no value"))
            }
        }
    }
}

/// JSON written in a string, or as base64: hardly a text is both, and then the plain reading counts.
fn value_json(text: &str) -> Result<Bytes, Problem> {
    let is_json = |bytes: &[u8]| serde_json::from_slice::<&RawValue>(bytes).is_ok();
    if is_json(text.as_bytes()) {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let decoded = decode(text).map_err(|error| {
        Problem::new(format!(
            "value_json is neither JSON nor base64 of JSON: {error}; literal JSON goes into \"value\""
        ))
    })?;
    if is_json(&decoded) {
        return Ok(decoded.into());
    }
    let start = decoded[..decoded.len().min(40)].escape_ascii();
    Err(Problem::new(format!(
        "value_json is base64, but what it encodes is not JSON: it begins with {start}"
    )))
}

/// A task of this submission by its mock id, or else an existing job by its final id.
fn reference(places: &HashMap<TaskId, u32>, task: &TaskId) -> Input {
    let dependency = match places.get(task) {
        Some(place) => Dependency::Member(*place),
        None => Dependency::Job(task.to_string()),
    };
    Input::Result(Edge::on(dependency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_json_is_plain_or_base64() {
        let read = |text| value_json(text).map_err(|problem| problem.to_string());
        assert_eq!(
            read("{\"uid\": 1234}"),
            Ok(Bytes::from_static(b"{\"uid\": 1234}"))
        );
        assert_eq!(
            read("eyJ1aWQiOjEyMzR9"),
            Ok(Bytes::from_static(b"{\"uid\":1234}"))
        );
        assert_eq!(read("1234"), Ok(Bytes::from_static(b"1234")));
        assert!(read("{uid: 1}").expect_err("neither").contains("neither"));
        assert!(read("aGVsbG8=").expect_err("hello").contains("hello"));
    }
}
