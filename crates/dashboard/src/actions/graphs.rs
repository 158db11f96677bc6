//! Actions on a whole graph.
//!
//! Few jobs are changed at once, by one command that also reaches the shards of other servers. Many are changed by an
//! operation on each shard, which shows its progress and can be stopped, if this server has all shards of the graph.

use std::time::Duration;

use ganger_document::names::show;
use ganger_router::GraphError;
use ganger_types::operation::JobFilter;
use ganger_types::query::JobQuery;
use ganger_types::{Graph, JobState, JobStates};
use maud::html;

use crate::fault::Fault;
use crate::format::{count, plural};
use crate::notice::Notice;
use crate::question::Shard;
use crate::text::plain;
use crate::view::View;

use super::bulk::{DryRun, JobsAction};
use super::jobs::reason_field;
use super::operations::{self, FEW_JOBS_MAX};
use super::{Done, Form, Question, bulk, changes};

/// How long a question waits for a large graph to be read.
const WAIT: Duration = Duration::from_secs(2);

/// A graph, where it is, and what an action would do to it.
struct Plan {
    graph: Graph,
    shown: String,
    /// Shards that have jobs of the graph; all of them if it is not read yet.
    shards: Vec<Shard>,
    dry_run: DryRun,
    /// Numbers of unfinished and of all jobs on all shards; `None` if the graph is not read yet.
    counts: Option<(u64, u64)>,
    /// Whether an operation on each shard does it.
    is_operation: bool,
}

/// Cancels all jobs of a graph that have not ended, on all its shards.
pub(super) async fn cancel(view: &View, form: &Form) -> Result<Done, Fault> {
    let plan = plan(view, form, JobsAction::Cancel).await?;
    if !form.is_confirmed() {
        return Ok(ask(view, form, JobsAction::Cancel, &plan, None));
    }
    if plan.is_operation {
        return operate(view, form, JobsAction::Cancel, plan).await;
    }
    act(view, form, JobsAction::Cancel, plan).await
}

/// Retries the jobs of a graph that failed or were cancelled, on all its shards.
pub(super) async fn retry(view: &View, form: &Form) -> Result<Done, Fault> {
    let plan = plan(view, form, JobsAction::Retry).await?;
    if plan.is_operation {
        if !form.is_confirmed() {
            return Ok(ask(view, form, JobsAction::Retry, &plan, None));
        }
        return operate(view, form, JobsAction::Retry, plan).await;
    }
    act(view, form, JobsAction::Retry, plan).await
}

/// Cancels or retries the jobs of a graph, shard by shard.
async fn act(view: &View, form: &Form, chosen: JobsAction, plan: Plan) -> Result<Done, Fault> {
    let question = changes::ActOnGraph {
        chosen,
        graph: plan.graph,
        reason: form.fields.text("reason")?.unwrap_or_default().to_owned(),
    };
    let (mut changed, mut failed) = (None, Vec::new());
    for shard in plan.shards {
        match shard.ask(view, &question).await {
            Ok(jobs) => *changed.get_or_insert(0) += jobs,
            Err(fault) if changed.is_none() => return Err(fault),
            // Other shards are changed, which must be said too.
            Err(fault) => failed.push(format!(" {}: {}.", fault.heading, fault.detail)),
        }
    }
    let jobs = changed.unwrap_or_default();
    Ok(done(chosen, jobs, &plan.shown, &failed.concat()))
}

async fn plan(view: &View, form: &Form, chosen: JobsAction) -> Result<Plan, Fault> {
    let graph: Graph = form.name("graph")?;
    let (shards, counts) = shards(view, &graph).await?;
    let query = query(view, &graph, chosen);
    let dry_run = bulk::try_all(view, &shards, chosen, &query).await?;
    let is_large = dry_run.is_bounded() || dry_run.would_change() > FEW_JOBS_MAX;
    Ok(Plan {
        shown: show(graph.as_bytes()).into_owned(),
        graph,
        shards,
        dry_run,
        counts,
        is_operation: is_large,
    })
}

/// The shards that have jobs of a graph, and the numbers of unfinished and of all jobs, if they are known yet.
async fn shards(view: &View, graph: &Graph) -> Result<(Vec<Shard>, Option<(u64, u64)>), Fault> {
    let all = view.everywhere();
    let state = match view.site.graphs.read(view.namespace(), graph, WAIT).await {
        Ok(state) => state,
        Err(GraphError::Computing { .. }) => return Ok((all.to_vec(), None)),
        Err(error) => return Err(error.into()),
    };
    let of_graph = state.shape.shards();
    let with_jobs = all.iter().filter(|shard| of_graph.contains(shard.id()));
    let counts = (state.counts.unfinished(), state.counts.total());
    Ok((with_jobs.cloned().collect(), Some(counts)))
}

/// The jobs of a graph that an action is about.
fn query(view: &View, graph: &Graph, chosen: JobsAction) -> JobQuery {
    let states = match chosen {
        JobsAction::Retry => [JobState::Failed, JobState::Cancelled]
            .into_iter()
            .collect(),
        JobsAction::Cancel | JobsAction::Delete => JobStates::LIVE,
    };
    JobQuery {
        namespace: view.namespace().clone(),
        graph: Some(graph.clone()),
        states,
        ..JobQuery::default()
    }
}

/// Starts an operation on each shard, if the number that was typed is right.
async fn operate(view: &View, form: &Form, chosen: JobsAction, plan: Plan) -> Result<Done, Fault> {
    if let Some(refusal) = bulk::wrong_number(form)? {
        return Ok(ask(view, form, chosen, &plan, Some(refusal)));
    }
    let wanted = operations::Wanted {
        filter: JobFilter::of(query(view, &plan.graph, chosen)),
        spread_over: form.fields.text("spread_over")?.and_then(bulk::spread),
        reason: form.fields.text("reason")?.unwrap_or_default().to_owned(),
        is_all: !plan.dry_run.is_bounded(),
    };
    let found = plan.dry_run.shards.into_iter();
    let found = found.map(|(shard, result)| (shard, result.changed));
    operations::start(view, chosen, wanted, found.collect()).await
}

/// The question before an action on a graph, with the numbers of the dry run.
fn ask(view: &View, form: &Form, chosen: JobsAction, plan: &Plan, refusal: Option<&str>) -> Done {
    let would = plan.dry_run.would_change();
    let bound = if plan.dry_run.is_bounded() {
        "at least "
    } else {
        ""
    };
    let number = plural(would, "job");
    let is_cancel = chosen == JobsAction::Cancel;
    let typed = bulk::typed(would).filter(|_| plan.is_operation);
    let mut pairs = vec![("graph", plan.shown.as_str())];
    pairs.extend(typed.as_deref().map(|typed| ("typed", typed)));
    let content = html! {
        @if let Some(refusal) = refusal { div.alert role="alert" { p { (refusal) } } }
        @if is_cancel {
            @match plan.counts {
                Some((unfinished, all)) => p { (plural(unfinished, "job")) " of " (count(all)) " have not ended and will be cancelled, on all shards of the graph." },
                None => p { (bound) (number) " of the graph have not ended and will be cancelled, on all its shards." },
            }
            p { "What runs loses its lease. Jobs that have ended stay as they are." }
        } @else {
            p { (bound) (number) " of the graph failed or were cancelled. Each goes back on its queue with a new series of attempts." }
        }
        (bulk::numbers(&plan.dry_run))
        @if plan.is_operation {
            p { "So many are changed page by page, and you can stop that." }
        }
        @if is_cancel { (reason_field()) }
        @if plan.is_operation && !is_cancel { (bulk::spread_field()) }
        @if plan.is_operation { (bulk::number_field(would)) }
    };
    let button = if is_cancel {
        "Cancel this graph".to_owned()
    } else {
        format!("Retry {number}")
    };
    let question = Question {
        heading: format!("{} the graph {}?", chosen.verb(), plain(&plan.shown)),
        content,
        button,
        action: if is_cancel {
            "cancelGraph"
        } else {
            "retryGraph"
        },
        pairs: &pairs,
        is_danger: is_cancel,
    };
    question.page(view, form)
}

fn done(chosen: JobsAction, jobs: u64, shown: &str, failed: &str) -> Done {
    let text = format!(
        "{} {} of the graph {}.{failed}",
        chosen.done(),
        plural(jobs, "job"),
        plain(shown)
    );
    Done::Notice {
        notice: Notice::done(text),
        to: None,
    }
}
