//! Names and labels in use, as documents.

use serde::Serialize;
use utoipa::ToSchema;

/// Names that begin alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Names {
    /// The names in order; those of graphs the shorter ones first.
    pub names: Vec<String>,
    /// Whether these are all names that begin so.
    pub complete: bool,
}

/// Keys of labels, or values of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Labels {
    /// Keys or values, the shorter ones first, then in order.
    pub labels: Vec<LabelCount>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Key or value of labels, with its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Label)]
pub struct LabelCount {
    /// The key or value.
    pub name: String,
    /// Number of its jobs that have not ended.
    pub live: u64,
    /// Number of its jobs that have ended and are kept.
    pub kept: u64,
    /// Whether all its jobs were counted; if not, there are more.
    pub exact: bool,
}
