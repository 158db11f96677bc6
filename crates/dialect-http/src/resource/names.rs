//! Names that are in use, for search and completion, and labels with their numbers of jobs.

use axum::response::Response;
use ganger_document::names::text;
use ganger_shard::{IndexedValue, NamesOf, ValueCount, ValueQuery};
use ganger_types::limits::PAGE_NAMES_MAX;
use ganger_types::{LabelKey, LabelValue};
use serde::Serialize;
use utoipa::ToSchema;

use crate::arguments::{Arguments, refused};
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Default number of names of an answer.
const LIMIT: usize = 20;
/// Maximum number of labels of an answer.
const LABELS_MAX: usize = 100;
/// Jobs that one answer about labels counts.
const COUNTED_MAX: u64 = 200_000;

/// Names that begin alike.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Names)]
pub(crate) struct NamesView {
    /// The names in order; those of graphs the shorter ones first.
    names: Vec<String>,
    /// Whether these are all names that begin so.
    complete: bool,
}

/// Keys of labels, or values of one key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Labels)]
pub(crate) struct LabelsView {
    /// Keys or values, the shorter ones first, then in order.
    labels: Vec<LabelView>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Key or value of labels, with its jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Label)]
pub(crate) struct LabelView {
    /// The key or value.
    name: String,
    /// Number of its jobs that have not ended.
    live: u64,
    /// Number of its jobs that have ended and are kept.
    kept: u64,
    /// Whether all its jobs were counted; if not, there are more.
    exact: bool,
}

pub(crate) async fn names(context: RequestContext) -> Result<Response, Problem> {
    let arguments = &context.arguments;
    let of = arguments.word("of", &NamesOf::ALL)?;
    let of = of.ok_or_else(|| {
        let words = NamesOf::ALL.map(|word| word.0).join(", ");
        refused("of", &format!("is missing: one of {words}"))
    })?;
    let prefix = arguments.prefix("prefix")?.unwrap_or_default();
    let limit = limit(arguments, PAGE_NAMES_MAX - 1)?;
    // One more name shows whether there are others.
    let shard = context.shard();
    let mut found = shard
        .names(&context.namespace, of, &prefix, limit + 1)
        .await?;
    let complete = found.len() <= limit;
    found.truncate(limit);
    Ok(json::ok(&NamesView {
        names: found.iter().map(|name| text(name)).collect(),
        complete,
    }))
}

pub(crate) async fn labels(context: RequestContext) -> Result<Response, Problem> {
    let arguments = &context.arguments;
    let key: Option<LabelKey> = arguments.name("key")?;
    let after: Option<LabelValue> = arguments.name("after")?;
    let limit = limit(arguments, LABELS_MAX)?;
    let query = ValueQuery {
        prefix: arguments.prefix("prefix")?.unwrap_or_default(),
        after: after.map(|after| after.as_bytes().to_vec()),
        limit,
        count_max: COUNTED_MAX / u64::try_from(limit).unwrap_or(1),
    };
    let of = key.map_or(IndexedValue::LabelKey, IndexedValue::Label);
    let page = context
        .shard()
        .values(&context.namespace, of, query)
        .await?;
    let last = page.values.last().filter(|_| page.has_more);
    let next = last.map(|last| text(&last.value));
    Ok(json::ok(&LabelsView {
        labels: page.values.iter().map(LabelView::from).collect(),
        next,
    }))
}

fn limit(arguments: &Arguments, most: usize) -> Result<usize, Problem> {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let given = arguments.number("limit", 1, most)?;
    Ok(given
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(LIMIT))
}

impl From<&ValueCount> for LabelView {
    fn from(found: &ValueCount) -> Self {
        Self {
            name: text(&found.value),
            live: found.live,
            kept: found.jobs - found.live,
            exact: !found.has_more,
        }
    }
}
