//! Actions on a whole graph.

use ganger_document::names::show;
use ganger_router::GraphError;
use ganger_shard::Handle;
use ganger_types::command::{Cancel, Selection};
use ganger_types::{Command, Graph, Reply, ShardId};
use maud::html;
use std::time::Duration;

use crate::fault::Fault;
use crate::format::{count, plural};
use crate::notice::Notice;
use crate::text::plain;
use crate::view::View;

use super::jobs::reason_field;
use super::{Done, Form, Question, apply};

/// How long a question waits for a large graph to be counted.
const WAIT: Duration = Duration::from_secs(2);

/// The shards of this process that have jobs of a graph; all of them if the graph is not read yet.
async fn shards(view: &View, graph: &Graph) -> Result<(Vec<Handle>, Option<(u64, u64)>), Fault> {
    let state = match view.site.graphs.read(view.namespace(), graph, WAIT).await {
        Ok(state) => state,
        Err(GraphError::Computing { .. }) => return Ok((view.shards().to_vec(), None)),
        Err(error) => return Err(error.into()),
    };
    let of_graph: &[ShardId] = state.shape.shards();
    let here = view
        .shards()
        .iter()
        .filter(|shard| of_graph.contains(shard.id()));
    let here: Vec<Handle> = here.cloned().collect();
    let counts = (state.counts.unfinished(), state.counts.total());
    Ok((here, Some(counts)))
}

/// Cancels all jobs of a graph that have not ended, on all its shards.
pub(super) async fn cancel(view: &View, form: &Form) -> Result<Done, Fault> {
    let graph: Graph = form.name("graph")?;
    let shown = show(graph.as_bytes()).into_owned();
    let (shards, counts) = shards(view, &graph).await?;
    if !form.is_confirmed() {
        let question = Question {
            heading: format!("Cancel the graph {}?", plain(&shown)),
            content: html! {
                @match counts {
                    Some((unfinished, all)) => p { (plural(unfinished, "job")) " of " (count(all)) " have not ended and will be cancelled, on all shards of the graph." },
                    None => p { "All jobs of the graph that have not ended will be cancelled, on all its shards. The graph is large and is still being counted." },
                }
                p { "What runs loses its lease. Jobs that have ended stay as they are." }
                (reason_field())
            },
            button: "Cancel this graph".to_owned(),
            action: "cancelGraph",
            pairs: &[("graph", &shown)],
            is_danger: true,
        };
        return Ok(question.page(view, form));
    }
    let reason = form.fields.text("reason")?.unwrap_or_default().to_owned();
    let mut cancelled = 0;
    for shard in shards {
        let command = Cancel {
            namespace: view.namespace().clone(),
            jobs: Selection::Graph(graph.clone()),
            reason: reason.clone(),
        };
        match apply(&shard, Command::Cancel(Box::new(command))).await? {
            Reply::Changed { count, .. } => cancelled += count,
            _ => return Err(Fault::unexpected_reply()),
        }
    }
    let notice = Notice::done(format!(
        "Cancelled {} of the graph {}.",
        plural(cancelled, "job"),
        plain(&shown)
    ));
    Ok(Done::Notice { notice, to: None })
}

/// Retries the jobs of a graph that failed or were cancelled, on all its shards.
pub(super) async fn retry(view: &View, form: &Form) -> Result<Done, Fault> {
    let graph: Graph = form.name("graph")?;
    let (shards, _) = shards(view, &graph).await?;
    let mut retried = 0;
    for shard in shards {
        let done = shard
            .retry_graph(view.namespace().clone(), graph.clone(), None, None)
            .await?;
        retried += done.changed;
    }
    let notice = Notice::done(format!(
        "Retried {} of the graph {}.",
        plural(retried, "job"),
        plain(&show(graph.as_bytes()))
    ));
    Ok(Done::Notice { notice, to: None })
}
