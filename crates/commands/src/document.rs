//! Submitted documents: a graph, enq's array of task specs, one job, or a stream of jobs, one in each line.
//!
//! The documents are those of the HTTP API (`ganger_document`). In addition, comments and trailing commas are allowed
//! everywhere. The result is converted to requests of the client.

mod convert;
mod lines;
mod problem;
mod relax;
pub(crate) mod span;

use ganger_client::{NewJob, NewSchedule};
use ganger_document::raw_json::RawJson;
use ganger_document::request::graph::{MemberName, read_any};
use ganger_document::request::schedule::ScheduleIn;
use ganger_document::{json, place};
use serde::de::DeserializeOwned;

use convert::AnyShard;
pub(crate) use lines::Lines;
pub(crate) use problem::Problem;
use relax::relax;

/// The parsed document of a submission.
#[derive(Debug)]
pub(crate) struct Document {
    /// The jobs, in the order of the document.
    pub(crate) jobs: Vec<NewJob>,
    /// Name or mock id of each job in the document; `None` if it has none.
    pub(crate) names: Vec<Option<String>>,
    /// Whether the document is a single job.
    pub(crate) is_single: bool,
    /// Idempotency key of the document; `None` if it has none.
    pub(crate) idempotency_key: Option<String>,
}

/// Parses a document in any of its forms.
pub(crate) fn read(text: &[u8]) -> Result<Document, Problem> {
    let text = relax(text)?;
    check_beginning(&text)?;
    let submission = read_any(&AnyShard, &text)?;
    if submission.jobs.is_empty() {
        return Err(Problem::new("the submission is empty: it has no jobs"));
    }
    let jobs = submission.jobs.into_iter().map(convert::job);
    let key = submission.idempotency_key;
    Ok(Document {
        jobs: jobs.collect::<Result<_, _>>()?,
        names: submission.called.iter().map(MemberName::text).collect(),
        is_single: submission.is_single,
        idempotency_key: key
            .map(|key| convert::text("idempotency_key", key.as_bytes()))
            .transpose()?,
    })
}

/// Checks the first character; the error names the possible forms.
fn check_beginning(text: &[u8]) -> Result<(), Problem> {
    let trimmed = text.trim_ascii_start();
    match trimmed.first() {
        None => Err(Problem::new(
            "there is nothing to submit: give a JSON document on standard input or a file",
        )),
        Some(b'[' | b'{') => Ok(()),
        Some(byte) => Err(Problem::new(format!(
            "a submission begins with '[' (task specs) or '{{' (a job or a graph), not with {:?}",
            char::from(*byte)
        ))
        .at(place::of_offset(text, text.len() - trimmed.len()))),
    }
}

/// Parses a JSON value with comments and trailing commas; returns its exact text without them.
pub(crate) fn read_value(text: &str) -> Result<RawJson, Problem> {
    read_one(text.as_bytes())
}

/// Parses the document of the schedule `id`.
pub(crate) fn read_schedule(text: &[u8], id: &str) -> Result<NewSchedule, Problem> {
    convert::schedule(read_one::<ScheduleIn>(text)?, id)
}

fn read_one<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    Ok(json::read(&relax(text)?)?)
}

#[cfg(test)]
mod tests;
