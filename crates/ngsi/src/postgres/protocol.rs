//! The protocol between a worker and the child process that inserts for it: one JSON document per line. The worker sends
//! [`Request`]s, and the child answers each with a [`Reply`], in order.

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
    /// UUID of the task, 32 hexadecimal digits.
    pub uuid: String,
    /// Whether an earlier attempt may have inserted the task.
    pub is_repeat: bool,
    /// Milliseconds from now in which no other worker can get the same task; `None` for no limit.
    #[serde(rename = "sole_for_ms")]
    pub exclusive_for_ms: Option<u64>,
    /// The queued document, as [`crate::task::Task::to_json`] wrote it.
    pub input: Box<RawValue>,
}

/// The reply to a [`Request`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The outcome of each task, in order.
    pub outcomes: Vec<Outcome>,
}

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The task is in the database.
    Inserted {
        /// Number of the task's rows in the database.
        rows: u64,
    },
    /// No row of the task is in the database.
    Failed {
        /// The text that QuantumLeap shows in `errors`.
        error: String,
        /// Whether a later attempt may succeed.
        #[serde(rename = "curable")]
        is_retryable: bool,
    },
}

/// Formats a document as a line, with a line feed at the end.
///
/// # Panics
/// If the document cannot be JSON. The documents of this module can.
pub fn to_line<T: Serialize>(document: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(document).expect("these documents have string keys only");
    // A task's input is passed on as it was written. Line feeds inside JSON strings are escaped, so any line feed is
    // white space.
    for byte in &mut line {
        if *byte == b'\n' {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    line
}

/// Parses the document of a line.
///
/// # Errors
/// If the line is not such a document.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_always_one_line() {
        let input = "{\"a\":\n \"b\\nc\",\n\"n\": 1180591620717411303424}";
        let request = Request {
            inserts: vec![InsertRequest {
                uuid: "0".repeat(32),
                is_repeat: true,
                exclusive_for_ms: Some(5),
                input: RawValue::from_string(input.to_owned()).expect("valid JSON"),
            }],
        };

        let line = to_line(&request);

        let end = line.iter().position(|byte| *byte == b'\n');
        assert_eq!(end, Some(line.len() - 1));
        let back: Request = from_line(&line).expect("a valid line");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(back.inserts[0].input.get()), value(input));
        assert_eq!(back.inserts[0].exclusive_for_ms, Some(5));
    }

    #[test]
    fn outcomes_are_distinguished_by_their_members() {
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
        assert_eq!(from_line::<Reply>(&line).expect("a valid line"), reply);
    }
}
