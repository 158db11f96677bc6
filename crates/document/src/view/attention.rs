//! What needs attention, as a document.

use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{Moment, moment_if_any};

/// Gravity of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// Work stands still, or soon will.
    Error,
    /// Work goes on, but something is wrong.
    Warning,
}

impl Gravity {
    /// Returns the word of documents: `error` or `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AttentionItem)]
pub struct Item {
    /// Code of the item, such as `no_worker`.
    pub code: String,
    /// Gravity of the item: `error` or `warning`.
    pub gravity: Gravity,
    /// Sentence for people, without a full stop.
    pub text: String,
    /// Name of the shard; absent if the item is about a whole server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Name of the queue, if the item is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Name of the schedule, if the item is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Name of the alert of the configuration, if the item is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// Time since which it has been so; absent if that is unknown.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub since: Option<SystemTime>,
    /// Number of jobs, attempts or messages concerned; absent if nothing is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// What needs attention in a namespace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attention)]
pub struct AttentionDoc {
    /// Items, the worst first; empty if all is well.
    pub items: Vec<Item>,
}
