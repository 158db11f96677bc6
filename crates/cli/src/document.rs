//! What people submit: enq's array of task specs, a graph of our own, one job, or a stream of lines.
//!
//! Everything is read strictly (no unknown and no double fields) but for two habits of people: commas
//! before a closing bracket and comments are taken everywhere.

mod enq;
mod graph;
mod job;
mod lines;
mod problem;
mod relax;
mod shape;
mod short;
pub(crate) mod span;

use ganger_client::NewJob;

pub(crate) use job::ScheduleIn;
pub(crate) use lines::Lines;
pub(crate) use problem::Problem;

use relax::relax;

/// A submission that has been read.
#[derive(Debug)]
pub(crate) struct Document {
    /// In the order of the document.
    pub(crate) jobs: Vec<NewJob>,
    /// How the document calls each job; `None`: not at all.
    pub(crate) called: Vec<Option<String>>,
    /// Whether it is one job alone.
    pub(crate) is_single: bool,
    /// The idempotency key that stands in the document.
    pub(crate) idempotency_key: Option<String>,
}

/// Reads a document in any of its forms.
pub(crate) fn read(text: &[u8]) -> Result<Document, Problem> {
    let text = relax(text)?;
    problem::check_depth(&text)?;
    let trimmed = text.trim_ascii_start();
    match trimmed.first() {
        None => Err(Problem::new(
            "there is nothing to submit: give a JSON document on standard input or a file",
        )),
        Some(b'[') => graph::read_array(&text),
        Some(b'{') => graph::read_object(&text),
        Some(byte) => Err(Problem::new(format!(
            "a submission begins with '[' (task specs) or '{{' (a job or a graph), not with {:?}",
            char::from(*byte)
        ))
        .locate(&text, text.len() - trimmed.len())),
    }
}

/// Reads a JSON value in the relaxed form, as exact text.
pub(crate) fn read_value(text: &str) -> Result<Box<serde_json::value::RawValue>, Problem> {
    let relaxed = relax(text.as_bytes())?;
    problem::parse(&relaxed)
}

/// Reads one document of type `T` in the relaxed form.
pub(crate) fn read_one<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    problem::parse(&relax(text)?)
}

#[cfg(test)]
mod tests;
