//! `ganger job graph`: the jobs around a job.

use std::collections::HashMap;

use clap::Args;
use ganger_client::{GraphJob, GraphView};

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::{Palette, escape};

/// Shows the jobs around a job.
#[derive(Args, Debug)]
pub(crate) struct GraphArgs {
    /// Id of the job.
    pub(super) job: String,

    /// Maximum distance in steps; 0 for no limit.
    #[arg(long, default_value_t = 0)]
    depth: u32,

    /// Maximum number of jobs.
    #[arg(long, default_value_t = 1_000)]
    limit: u32,

    /// Print the graph in the language of Graphviz.
    #[arg(long)]
    dot: bool,
}

pub(crate) async fn run(context: &Context, args: &GraphArgs) -> Outcome {
    let depth = if args.depth == 0 {
        args.limit
    } else {
        args.depth
    };
    let view = context
        .client()
        .await?
        .graph(&args.job, depth, args.limit)
        .await?;
    if context.is_json() {
        context.json(&view)?;
    } else if args.dot {
        context.line(dot(&view))?;
    } else {
        context.line(layers(&view, context.palette()))?;
    }
    if view.more && !context.is_json() {
        remark(format!("there is more than --limit {} shows", args.limit));
    }
    for job in view.edges_cut.iter().filter(|_| !context.is_json()) {
        let job = escape::line(job);
        remark(format!(
            "{job} has more dependencies than are shown: `ganger job inputs {job}`"
        ));
    }
    Ok(Exit::Done)
}

/// Prints dependencies before their dependents, one job a line.
fn layers(view: &GraphView, palette: Palette) -> String {
    let depths = depths(view);
    let mut jobs: Vec<&GraphJob> = view.jobs.iter().collect();
    jobs.sort_by_key(|job| depths.get(job.id.as_str()).copied().unwrap_or(0));
    let mut out = Vec::new();
    if let Some(graph) = &view.graph {
        out.push(format!("graph {}", escape::line(graph)));
    }
    let asked_for = view.jobs.first().map(|job| &job.id);
    for job in jobs {
        let depth = depths.get(job.id.as_str()).copied().unwrap_or(0);
        let dependencies: Vec<String> = view
            .edges
            .iter()
            .filter(|edge| edge.to == job.id)
            .map(|edge| escape::line(&edge.from))
            .collect();
        let from = match dependencies.len() {
            0 => String::new(),
            1..=4 => format!("  <- {}", dependencies.join(", ")),
            count => format!(
                "  <- {}, ... ({count} in all)",
                dependencies[..3].join(", ")
            ),
        };
        let mark = if Some(&job.id) == asked_for { "*" } else { " " };
        let (kind, id) = (escape::line(&job.kind), escape::line(&job.id));
        let name = job
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!("  {}", escape::line(name)));
        out.push(format!(
            "{mark} {}{id}{name}  {kind}  {}{from}",
            "  ".repeat(depth),
            palette.state(job.state)
        ));
    }
    out.join("\n")
}

/// Returns the longest path from a job without dependencies to each job. A graph has no cycles, but the shown part
/// may be incomplete: as many rounds as there are jobs are always enough.
fn depths(view: &GraphView) -> HashMap<&str, usize> {
    let mut depths: HashMap<&str, usize> = HashMap::new();
    for _ in 0..view.jobs.len() {
        let mut has_changed = false;
        for edge in &view.edges {
            let wanted = depths.get(edge.from.as_str()).copied().unwrap_or(0) + 1;
            let depth = depths.entry(edge.to.as_str()).or_default();
            if *depth < wanted {
                *depth = wanted;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    depths
}

/// Returns the graph in the language of Graphviz.
fn dot(view: &GraphView) -> String {
    let quote = |text: &str| {
        format!(
            "\"{}\"",
            escape::line(text)
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
        )
    };
    let mut out = vec![
        "digraph jobs {".to_owned(),
        "  rankdir=LR; node [shape=box];".to_owned(),
    ];
    for job in &view.jobs {
        let what = match &job.name {
            Some(name) => format!("{name}: {}", job.kind),
            None => job.kind.clone(),
        };
        let label = format!("{what} ({}): {}", job.id, job.state);
        out.push(format!("  {} [label={}];", quote(&job.id), quote(&label)));
    }
    for edge in &view.edges {
        let style = if edge.carries_data {
            ""
        } else {
            " [style=dashed]"
        };
        out.push(format!(
            "  {} -> {}{style};",
            quote(&edge.from),
            quote(&edge.to)
        ));
    }
    out.push("}".to_owned());
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use ganger_client::{FailurePolicy, GraphEdge, JobState};

    use super::*;

    fn diamond() -> GraphView {
        let job = |id: &str| GraphJob {
            id: id.to_owned(),
            kind: "k".to_owned(),
            state: JobState::Ready,
            queue: "default".to_owned(),
            attempt: 0,
            progress: None,
            name: (id == "a").then(|| "first".to_owned()),
        };
        let edge = |from: &str, to: &str| GraphEdge {
            from: from.to_owned(),
            to: to.to_owned(),
            carries_data: true,
            position: Some(0),
            policy: FailurePolicy::Fail,
        };
        GraphView {
            graph: None,
            jobs: ["d", "b", "c", "a"].map(job).to_vec(),
            edges: vec![
                edge("b", "d"),
                edge("c", "d"),
                edge("a", "b"),
                edge("a", "c"),
            ],
            more: false,
            edges_cut: Vec::new(),
            next: None,
        }
    }

    #[test]
    fn dependencies_are_printed_before_their_dependents() {
        let text = layers(&diamond(), Palette::new(false));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  a  first  k  ready");
        assert_eq!(lines[3], "*     d  k  ready  <- b, c");
    }

    #[test]
    fn names_cannot_break_out_of_the_description() {
        let mut view = diamond();
        view.jobs[0].kind = "x\"; evil -> \"\n".to_owned();
        let text = dot(&view);
        assert!(text.contains(r#"x\"; evil -> \"\\n"#), "{text}");
    }
}
