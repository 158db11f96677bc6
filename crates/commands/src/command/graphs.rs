//! `ganger graphs`: the graphs of a namespace, or how far one is and what holds it up.

use std::time::SystemTime;

use clap::Args;
use ganger_client::{GraphMember, GraphSummary, Graphs, LayoutOptions, StateCounts};

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{Palette, escape, time};

/// Lists graphs, or shows how far one is and what holds it up.
#[derive(Args, Debug)]
pub(crate) struct GraphsArgs {
    /// Name of a graph; without one, list the graphs, the newest first.
    graph: Option<String>,

    /// Maximum number of graphs in the list.
    #[arg(long, default_value_t = 100)]
    limit: u32,

    /// Continue a list: the last line of the page before has the value.
    #[arg(long, default_value = "")]
    after: String,

    /// Print the drawing of the graph as JSON: at most 150 boxes with their places.
    #[arg(long, requires = "graph")]
    layout: bool,
}

pub(crate) async fn run(context: &Context, args: &GraphsArgs) -> Outcome {
    let client = context.client().await?;
    let Some(graph) = &args.graph else {
        let page = client.graphs(&args.after, args.limit).await?;
        return list(context, &page);
    };
    if args.layout {
        let layout = client.graph_layout(graph, LayoutOptions::default()).await?;
        context.json(&layout)?;
        return Ok(Exit::Done);
    }
    let summary = client.graph_summary(graph).await?;
    if context.is_json() {
        context.json(&summary)?;
    } else {
        context.line(shown(&summary, context.palette()))?;
        remark_missing(&summary.unreachable, summary.complete);
    }
    Ok(Exit::Done)
}

fn list(context: &Context, page: &Graphs) -> Outcome {
    if context.is_json() {
        context.json(page)?;
        return Ok(Exit::Done);
    }
    if page.graphs.is_empty() {
        remark("no graphs: `ganger submit` enqueues one");
    } else {
        let now = SystemTime::now();
        let mut rows = Rows::new(&["graph", "state", ">jobs", ">ended", ">failed", "submitted"]);
        for item in &page.graphs {
            let state = item.state.map_or("-", |state| state.as_str());
            let number = |of: fn(&StateCounts) -> u64| {
                item.counts
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |counts| of(counts).to_string())
            };
            rows.push([
                escape::line(&item.graph),
                state.to_owned(),
                item.jobs.to_string(),
                number(StateCounts::ended),
                number(|counts| counts.failed),
                time::relative(item.submitted_at, now),
            ]);
        }
        context.line(rows.text())?;
    }
    if let Some(next) = &page.next {
        remark(format!("there are more: --after '{}'", escape::line(next)));
    }
    remark_missing(&page.unreachable, page.complete);
    Ok(Exit::Done)
}

fn remark_missing(unreachable: &[String], is_complete: bool) {
    for shard in unreachable {
        remark(format!(
            "shard {shard} cannot be reached; its jobs are not in these numbers"
        ));
    }
    if !is_complete {
        remark("there are more jobs or graphs than were read");
    }
}

fn shown(summary: &GraphSummary, palette: Palette) -> String {
    let now = SystemTime::now();
    let counts = &summary.counts;
    let states = [
        ("blocked", counts.blocked),
        ("scheduled", counts.scheduled),
        ("ready", counts.ready),
        ("running", counts.running),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
    ];
    let states = states.iter().filter(|(_, jobs)| *jobs > 0);
    let states: Vec<String> = states
        .map(|(word, jobs)| format!("{jobs} {word}"))
        .collect();
    let mut lines = vec![facts(&[
        ("graph", escape::line(&summary.graph)),
        ("state", palette.state(summary.state)),
        ("jobs", format!("{} ({})", summary.jobs, states.join(", "))),
        ("submitted", time::both(summary.submitted_at, now)),
        ("levels", summary.levels.to_string()),
        ("shards", summary.shards.join(", ")),
    ])];
    let path = &summary.critical_path;
    if path.length > 0 {
        lines.push(format!("\ncritical path, {} jobs", path.length));
        lines.extend(path.jobs.iter().take(10).map(|job| member(job, palette)));
        if path.length > 10 {
            lines.push(format!("  and {} more", path.length - 10));
        }
    }
    if !summary.holding_up.is_empty() {
        lines.push("\nholding it up".to_owned());
        lines.extend(summary.holding_up.iter().map(|held| {
            let more = if held.exact { "" } else { "more than " };
            format!(
                "{}, {more}{} behind it",
                member(&held.job, palette),
                held.behind
            )
        }));
    }
    lines.join("\n")
}

fn member(job: &GraphMember, palette: Palette) -> String {
    let name = job.name.as_ref();
    let name = name.map_or_else(String::new, |name| format!("  {}", escape::line(name)));
    let (id, kind) = (escape::line(&job.id), escape::line(&job.kind));
    format!("  {id}{name}  {kind}  {}", palette.state(job.state))
}

#[cfg(test)]
mod tests {
    use ganger_client::{CriticalPath, HoldingUp, JobState};

    use super::*;

    #[test]
    fn a_graph_is_shown_with_what_holds_it_up() {
        let job = GraphMember {
            id: "1/a".to_owned(),
            name: Some("split\n".to_owned()),
            kind: "resize".to_owned(),
            state: JobState::Running,
        };
        let summary = GraphSummary {
            graph: "g".to_owned(),
            state: JobState::Running,
            jobs: 3,
            counts: StateCounts {
                running: 1,
                blocked: 2,
                ..StateCounts::default()
            },
            submitted_at: SystemTime::now(),
            ended_at: None,
            levels: 2,
            edges: 2,
            edges_outside: 0,
            critical_path: CriticalPath {
                length: 12,
                jobs: vec![job.clone()],
            },
            holding_up: vec![HoldingUp {
                job,
                behind: 2,
                exact: true,
            }],
            shards: vec!["1".to_owned()],
            complete: true,
            unreachable: Vec::new(),
        };
        let text = shown(&summary, Palette::new(false));
        assert!(text.contains("3 (2 blocked, 1 running)"), "{text}");
        assert!(text.contains("and 2 more"), "{text}");
        assert!(
            text.contains("1/a  split\\n  resize  running, 2 behind it"),
            "{text}"
        );
    }
}
