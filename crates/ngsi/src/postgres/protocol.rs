//! The lines that pass between a worker and the child process that inserts for it: one JSON document per line, a
//! [`Request`] to the child and for each an [`Reply`] back, in order.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Request to insert a list of tasks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Tasks to insert, in order.
    pub inserts: Vec<InsertRequest>,
}

/// A task to insert.
#[derive(Debug, Serialize, Deserialize)]
pub struct InsertRequest {
    /// The task's own part of its id, 32 hexadecimal digits.
    pub uuid: String,
    /// Whether an earlier attempt may have been inserted.
    pub is_repeat: bool,
    /// For how many milliseconds from now on nobody else can be given the same task; `None` is forever.
    #[serde(rename = "sole_for_ms")]
    pub exclusive_for_ms: Option<u64>,
    /// The queued document, as [`crate::task::Task::to_json`] made it.
    pub input: Box<RawValue>,
}

/// What became of the tasks of a [`Request`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// One per task, in order.
    pub outcomes: Vec<Outcome>,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// It is in the database.
    Inserted {
        /// Rows in the database because of it.
        rows: u64,
    },
    /// It is not, and nothing of it is.
    Failed {
        /// In the words in which `errors` shows it.
        error: String,
        /// Whether a later attempt may go well.
        #[serde(rename = "curable")]
        is_retryable: bool,
    },
}

/// The document as a line, its end included.
///
/// # Panics
/// If it cannot be JSON; those of this file can.
pub fn to_line<T: Serialize>(document: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(document).expect("these documents have string keys only");
    // A task's input passes through as it was written. Within JSON strings line feeds are escaped, so any that are
    // there are blanks between the parts of the document.
    for byte in &mut line {
        if *byte == b'\n' {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    line
}

/// The document of a line.
///
/// # Errors
/// If it is none of this kind.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_line_whatever_its_input() {
        let input = "{\"a\":\n \"b\\nc\",\n\"n\": 1180591620717411303424}";
        let request = Request {
            inserts: vec![InsertRequest {
                uuid: "0".repeat(32),
                is_repeat: true,
                exclusive_for_ms: Some(5),
                input: RawValue::from_string(input.to_owned()).expect("it is JSON"),
            }],
        };

        let line = to_line(&request);

        let end = line.iter().position(|byte| *byte == b'\n');
        assert_eq!(end, Some(line.len() - 1));
        let back: Request = from_line(&line).expect("it was made so");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(back.inserts[0].input.get()), value(input));
        assert_eq!(back.inserts[0].exclusive_for_ms, Some(5));
    }

    #[test]
    fn outcomes_are_told_apart_by_their_members() {
        let reply = Reply {
            outcomes: vec![
                Outcome::Inserted { rows: 2 },
                Outcome::Failed {
                    error: "E('no')".to_owned(),
                    is_retryable: true,
                },
            ],
        };
        let line = to_line(&reply);
        assert_eq!(
            line,
            b"{\"outcomes\":[{\"rows\":2},{\"error\":\"E('no')\",\"curable\":true}]}\n"
        );
        assert_eq!(from_line::<Reply>(&line).expect("it was made so"), reply);
    }
}
