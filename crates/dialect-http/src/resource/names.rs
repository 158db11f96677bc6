//! Names that are in use, for search and completion, and labels with their numbers of jobs.

use axum::response::Response;
use ganger_document::names::text;
use ganger_document::view::names::{LabelCount, Labels, Names};
use ganger_shard::{NamesOf, ValueCount};
use ganger_types::limits::PAGE_NAMES_MAX;
use ganger_types::{LabelKey, LabelValue};

use crate::arguments::{Arguments, refused};
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Default number of names of an answer.
const LIMIT: usize = 20;
/// Maximum number of labels of an answer.
const LABELS_MAX: usize = 100;

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
    Ok(json::ok(&Names {
        names: found.iter().map(|name| text(name)).collect(),
        complete,
    }))
}

pub(crate) async fn labels(context: RequestContext) -> Result<Response, Problem> {
    let arguments = &context.arguments;
    let key: Option<LabelKey> = arguments.name("key")?;
    let after: Option<LabelValue> = arguments.name("after")?;
    let limit = limit(arguments, LABELS_MAX)?;
    let between = (arguments.prefix("prefix")?.unwrap_or_default(), after);
    let shard = context.shard();
    let page = shard
        .labels(&context.namespace, key, between, limit)
        .await?;
    let last = page.values.last().filter(|_| page.has_more);
    let next = last.map(|last| text(&last.value));
    Ok(json::ok(&Labels {
        labels: page.values.iter().map(count_of).collect(),
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

fn count_of(found: &ValueCount) -> LabelCount {
    LabelCount {
        name: text(&found.value),
        live: found.live,
        kept: found.jobs - found.live,
        exact: !found.has_more,
    }
}
