//! `ganger names`, `labels` and `tags`: names that are in use.

use clap::{Args, ValueEnum};
use ganger_client::NamesOf;
use serde_json::json;

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::escape;
use crate::show::table::Rows;

/// Number of labels fetched at once.
const LABELS_PAGE: u32 = 100;

/// Lists names that are in use and begin alike.
#[derive(Args, Debug)]
pub(crate) struct NamesArgs {
    /// What the names stand for.
    of: NamesOfArg,

    /// What the names begin with.
    #[arg(default_value = "")]
    prefix: String,

    /// Maximum number of names, 1 to 999.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=999))]
    limit: u32,
}

/// What names stand for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum NamesOfArg {
    /// Queues that jobs or settings name.
    Queue,
    /// Kinds of which an attempt started lately.
    Kind,
    /// Tags that a kept job has.
    Tag,
    /// Workers that are registered now.
    Worker,
    /// Schedules, paused ones too.
    Schedule,
    /// Graphs that have kept jobs.
    Graph,
    /// Groups of failures of one kind, by their names.
    Group,
}

/// Lists the keys of labels, or the values of one key, with their numbers of jobs.
#[derive(Args, Debug)]
pub(crate) struct LabelsArgs {
    /// Key whose values to list; the keys if absent.
    key: Option<String>,

    /// What the keys or values begin with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// Maximum number to list; 0 for all.
    #[arg(short, long, default_value_t = 100)]
    limit: u64,
}

/// Lists the most used tags with their numbers of jobs.
#[derive(Args, Debug)]
pub(crate) struct TagsArgs {
    /// Maximum number of tags, 1 to 1,000.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Number of tags to skip.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    skip: u32,
}

impl From<NamesOfArg> for NamesOf {
    fn from(of: NamesOfArg) -> Self {
        match of {
            NamesOfArg::Queue => Self::Queue,
            NamesOfArg::Kind => Self::Kind,
            NamesOfArg::Tag => Self::Tag,
            NamesOfArg::Worker => Self::Worker,
            NamesOfArg::Schedule => Self::Schedule,
            NamesOfArg::Graph => Self::Graph,
            NamesOfArg::Group => Self::Group,
        }
    }
}

/// Runs `ganger names`: names in use that begin alike, one a line.
pub(crate) async fn names(context: &Context, args: &NamesArgs) -> Outcome {
    let client = context.client().await?;
    let found = client
        .names(args.of.into(), &args.prefix, args.limit)
        .await?;
    if context.is_json() {
        context.json(&found)?;
        return Ok(Exit::Done);
    }
    for name in &found.names {
        context.line(escape::line(name))?;
    }
    if !found.complete {
        remark("there are more: give a longer prefix, or --limit N");
    }
    Ok(Exit::Done)
}

/// Runs `ganger labels`: keys of labels, or values of one key, with their numbers of jobs.
pub(crate) async fn labels(context: &Context, args: &LabelsArgs) -> Outcome {
    let client = context.client().await?;
    let mut left = match args.limit {
        0 => u64::MAX,
        limit => limit,
    };
    let mut rows = Rows::new(&["name", ">live", ">kept", "note"]);
    let mut after = String::new();
    let mut has_more = false;
    while left > 0 {
        let limit = u32::try_from(left).unwrap_or(LABELS_PAGE).min(LABELS_PAGE);
        let key = args.key.as_deref();
        let page = client.labels(key, &args.prefix, &after, limit).await?;
        for label in &page.labels {
            if context.is_json() {
                context.json(label)?;
            }
            rows.push([
                escape::line(&label.name),
                label.live.to_string(),
                label.kept.to_string(),
                if label.exact { "" } else { "at least" }.to_owned(),
            ]);
        }
        left = left.saturating_sub(u64::from(limit));
        has_more = page.next.is_some();
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if !context.is_json() {
        context.line(rows.text())?;
        if has_more {
            remark("there are more: give --limit N, or 0 for all");
        }
    }
    Ok(Exit::Done)
}

/// Runs `ganger tags`: the most used tags with their numbers of jobs.
pub(crate) async fn tags(context: &Context, args: &TagsArgs) -> Outcome {
    let tags = context.client().await?.tags(args.skip, args.limit).await?;
    let mut rows = Rows::new(&["tag", ">jobs"]);
    for (tag, jobs) in &tags {
        if context.is_json() {
            context.json(&json!({ "tag": tag, "count": jobs }))?;
        }
        rows.push([escape::line(tag), jobs.to_string()]);
    }
    if !context.is_json() {
        context.line(rows.text())?;
    }
    Ok(Exit::Done)
}
