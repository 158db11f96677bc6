//! Inputs and dependencies of a job.

use std::borrow::Cow;

use ganger_types::{Bytes, FailurePolicy, InputRow, InputState};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::text;
use crate::one_of::{PolicyWord, word_if_any};
use crate::raw_json::{self, Base64, RawJson};

/// Inputs and dependencies of a job.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Inputs {
    /// Inputs in the order of their positions; dependencies without data come last.
    pub inputs: Vec<Input>,
    /// Value of `from` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// One input or dependency of a job.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Input {
    /// Position among the inputs, from 0; absent for a dependency without data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// State of the input: `value`, `missing`, `delivered` or `ignored`.
    #[schema(value_type = String)]
    pub state: Cow<'static, str>,
    /// The input, if it is known here and JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<RawJson>,
    /// The input in base64, if it is known here and not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<Base64>,
    /// Job whose result the input is: its id, or `shard/id` if another shard holds it; absent for a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What happens if that job does not succeed: `fail`, `wait` or `ignore`; absent for a value.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<PolicyWord>)]
    pub policy: Option<FailurePolicy>,
}

impl Input {
    /// An input with this position and state, and without other fields.
    pub fn new(position: Option<u32>, state: impl Into<Cow<'static, str>>) -> Self {
        Self {
            position,
            state: state.into(),
            value: None,
            value_base64: None,
            job: None,
            policy: None,
        }
    }

    /// The input with these bytes as its value.
    #[must_use]
    pub fn with_value(self, bytes: &Bytes) -> Self {
        let (value, value_base64) = raw_json::show(bytes);
        Self {
            value,
            value_base64,
            ..self
        }
    }

    /// The input as the result of a job, named by its bytes.
    fn of_job(self, job: &[u8], policy: FailurePolicy) -> Self {
        Self {
            job: Some(text(job)),
            policy: Some(policy),
            ..self
        }
    }
}

impl From<InputRow> for Input {
    fn from(row: InputRow) -> Self {
        let input = |state| Self::new(row.position(), state);
        match &row.state {
            InputState::Value(bytes) => input("value").with_value(bytes),
            InputState::Missing { id, policy, .. } => {
                input("missing").of_job(id.as_bytes(), *policy)
            }
            InputState::Delivered { id, policy, .. } => {
                input("delivered").of_job(id.as_bytes(), *policy)
            }
            InputState::Ignored { id } => {
                input("ignored").of_job(id.as_bytes(), FailurePolicy::Ignore)
            }
            InputState::Remote {
                dependency, policy, ..
            } => input("missing").of_job(dependency.to_name().as_bytes(), *policy),
            InputState::Received {
                dependency,
                policy,
                value,
            } => {
                let input = input("delivered").with_value(value);
                input.of_job(dependency.to_name().as_bytes(), *policy)
            }
        }
    }
}
