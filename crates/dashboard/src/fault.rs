//! Why a page cannot be shown, or an action was not done: a stable code, and sentences for people.

use std::time::Duration;

use ganger_access::Denied;
use ganger_router::{GraphError, RouteError};
use ganger_shard::CallError;

/// A refusal. The codes and their statuses are those of the HTTP API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The stable code, documented in `docs/errors.md`.
    pub(crate) code: &'static str,
    /// The heading of the page that shows it.
    pub(crate) heading: String,
    /// What, why, and the next step.
    pub(crate) detail: String,
    /// When trying again makes sense; `None` if a repeat would be refused likewise.
    pub(crate) retry_after: Option<Duration>,
    /// Names that come near the one that was not found, with their addresses.
    pub(crate) near: Vec<(String, String)>,
}

impl Fault {
    pub(crate) fn new(
        code: &'static str,
        heading: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            code,
            heading: heading.into(),
            detail: detail.into(),
            retry_after: None,
            near: Vec::new(),
        }
    }

    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// A parameter or field with a value that cannot be used.
    pub(crate) fn value(name: &str, reason: &str) -> Self {
        Self::new(
            "invalid_value",
            "This address cannot be used",
            format!("{name}: {reason}"),
        )
    }

    /// A reply of another kind than the command asks for: a defect.
    pub(crate) fn unexpected_reply() -> Self {
        Self::new(
            "internal",
            "A defect of the server",
            "the shard answered with another kind of reply; please report this",
        )
    }

    /// Something that is not there.
    pub(crate) fn missing(code: &'static str, heading: impl Into<String>) -> Self {
        Self::new(
            code,
            heading,
            "It was never here, or its retention has passed.",
        )
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::Rejected(rejection) => {
                Self::new(rejection.code(), "The server refused this", detail)
            }
            CallError::Overloaded { retry_after, .. } => {
                Self::new("overloaded", "The server is busy", detail).retry_after(retry_after)
            }
            CallError::Full { .. } => {
                Self::new("store_full", "The store's disk is nearly full", detail)
                    .retry_after(Duration::from_secs(10))
            }
            CallError::Unavailable { .. } => {
                Self::new("unavailable", "The server cannot answer now", detail)
                    .retry_after(Duration::from_secs(1))
            }
            CallError::Damaged { .. } => {
                Self::new("store_damaged", "A stored record is damaged", detail)
            }
            CallError::PositionTooOld { .. } => {
                Self::new("position_too_old", "These events are gone", detail)
            }
        }
    }
}

impl From<RouteError> for Fault {
    fn from(error: RouteError) -> Self {
        let detail = error.to_string();
        let refused = |code| Self::new(code, "The server refused this", detail.clone());
        match error {
            RouteError::Call(error) => error.into(),
            RouteError::Unknown { .. } => refused("unknown_shard"),
            RouteError::Unreachable { .. } => {
                refused("shard_unreachable").retry_after(Duration::from_secs(1))
            }
            RouteError::OutcomeUnknown { .. } => refused("outcome_unknown"),
            RouteError::NoSuchDependency { .. } => refused("dependency_not_found"),
            RouteError::Refused { .. } => refused("wrong_state"),
        }
    }
}

impl From<GraphError> for Fault {
    fn from(error: GraphError) -> Self {
        let detail = error.to_string();
        match error {
            GraphError::NotFound { graph } => {
                let graph = crate::text::plain(&graph);
                Self::missing("graph_not_found", format!("There is no graph {graph}"))
            }
            GraphError::NoMember { job } => {
                let heading = format!("There is no job {} in the graph", crate::text::plain(&job));
                Self::new("job_not_found", heading, detail)
            }
            GraphError::Computing { .. } => {
                Self::new("graph_computing", "The graph is being read", detail)
                    .retry_after(Duration::from_secs(1))
            }
            GraphError::Route(error) => error.into(),
        }
    }
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        Self::new(
            "permission_denied",
            "You may not do this",
            denied.to_string(),
        )
    }
}
