//! Graphs as a whole: the list, how far one is, and its drawing, to messages and back.

use ganger_document::view::graphs::{
    CriticalPath, GraphBox, GraphItem, GraphLayout, GraphLine, GraphMember, GraphPoint,
    GraphSummary, Graphs, HoldingUp, StateCounts,
};

use super::{At, FieldError, calendar, failure_policy, job_state, known_state, non_empty};
use super::{state_number, us};
use crate::v1;

impl From<StateCounts> for v1::StateCounts {
    fn from(counts: StateCounts) -> Self {
        Self {
            blocked: counts.blocked,
            scheduled: counts.scheduled,
            ready: counts.ready,
            running: counts.running,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

impl From<v1::StateCounts> for StateCounts {
    fn from(wire: v1::StateCounts) -> Self {
        Self {
            blocked: wire.blocked,
            scheduled: wire.scheduled,
            ready: wire.ready,
            running: wire.running,
            succeeded: wire.succeeded,
            failed: wire.failed,
            cancelled: wire.cancelled,
        }
    }
}

impl From<Graphs> for v1::ListGraphsReply {
    fn from(list: Graphs) -> Self {
        Self {
            graphs: list.graphs.into_iter().map(Into::into).collect(),
            next: list.next.unwrap_or_default(),
            complete: list.complete,
            unreachable: list.unreachable,
        }
    }
}

impl From<GraphItem> for v1::GraphItem {
    fn from(item: GraphItem) -> Self {
        Self {
            graph: item.graph,
            state: item.state.map_or(0, state_number),
            jobs: item.jobs,
            counts: item.counts.map(Into::into),
            submitted_at_us: us(item.submitted_at),
            ended_at_us: item.ended_at.map(us),
            shards: item.shards,
        }
    }
}

/// The document of a list of graphs.
///
/// # Errors
/// If the state of a graph is unknown.
pub fn graphs(wire: v1::ListGraphsReply) -> Result<Graphs, FieldError> {
    let item = |wire: v1::GraphItem| {
        Ok(GraphItem {
            graph: wire.graph,
            state: job_state(At::top("graphs.state"), wire.state)?,
            jobs: wire.jobs,
            counts: wire.counts.map(Into::into),
            submitted_at: calendar(wire.submitted_at_us),
            ended_at: wire.ended_at_us.map(calendar),
            shards: wire.shards,
        })
    };
    Ok(Graphs {
        graphs: wire
            .graphs
            .into_iter()
            .map(item)
            .collect::<Result<_, FieldError>>()?,
        next: non_empty(wire.next),
        complete: wire.complete,
        unreachable: wire.unreachable,
    })
}

impl From<GraphMember> for v1::GraphMember {
    fn from(job: GraphMember) -> Self {
        Self {
            id: job.id,
            name: job.name.unwrap_or_default(),
            kind: job.kind,
            state: state_number(job.state),
        }
    }
}

fn member(wire: v1::GraphMember) -> Result<GraphMember, FieldError> {
    Ok(GraphMember {
        id: wire.id,
        name: non_empty(wire.name),
        kind: wire.kind,
        state: known_state(At::top("job.state"), wire.state)?,
    })
}

impl From<GraphSummary> for v1::GraphSummary {
    fn from(graph: GraphSummary) -> Self {
        let holding_up = graph.holding_up.into_iter().map(|held| v1::HoldingUp {
            job: Some(held.job.into()),
            behind: held.behind,
            exact: held.exact,
        });
        Self {
            graph: graph.graph,
            state: state_number(graph.state),
            jobs: graph.jobs,
            counts: Some(graph.counts.into()),
            submitted_at_us: us(graph.submitted_at),
            ended_at_us: graph.ended_at.map(us),
            levels: graph.levels,
            edges: graph.edges,
            edges_outside: graph.edges_outside,
            critical_length: graph.critical_path.length,
            critical_path: graph
                .critical_path
                .jobs
                .into_iter()
                .map(Into::into)
                .collect(),
            holding_up: holding_up.collect(),
            shards: graph.shards,
            complete: graph.complete,
            unreachable: graph.unreachable,
        }
    }
}

/// The document of how far a graph is.
///
/// # Errors
/// If a state is missing or unknown, or a job is missing.
pub fn graph_summary(wire: v1::GraphSummary) -> Result<GraphSummary, FieldError> {
    let held = |wire: v1::HoldingUp| {
        let job = wire.job.ok_or_else(|| {
            FieldError::missing(At::top("holding_up.job"), "the job that holds others up")
        })?;
        Ok(HoldingUp {
            job: member(job)?,
            behind: wire.behind,
            exact: wire.exact,
        })
    };
    let holding_up = wire.holding_up.into_iter().map(held);
    Ok(GraphSummary {
        graph: wire.graph,
        state: known_state(At::top("state"), wire.state)?,
        jobs: wire.jobs,
        counts: wire.counts.unwrap_or_default().into(),
        submitted_at: calendar(wire.submitted_at_us),
        ended_at: wire.ended_at_us.map(calendar),
        levels: wire.levels,
        edges: wire.edges,
        edges_outside: wire.edges_outside,
        critical_path: CriticalPath {
            length: wire.critical_length,
            jobs: wire
                .critical_path
                .into_iter()
                .map(member)
                .collect::<Result<_, _>>()?,
        },
        holding_up: holding_up.collect::<Result<_, FieldError>>()?,
        shards: wire.shards,
        complete: wire.complete,
        unreachable: wire.unreachable,
    })
}

impl From<GraphPoint> for v1::GraphPoint {
    fn from(point: GraphPoint) -> Self {
        Self {
            x: point.x,
            y: point.y,
        }
    }
}

impl From<GraphBox> for v1::GraphBox {
    fn from(drawn: GraphBox) -> Self {
        let (x, y) = (drawn.x, drawn.y);
        Self {
            id: drawn.id,
            level: drawn.level,
            level_last: drawn.level_last,
            kind: drawn.kind,
            jobs: drawn.jobs,
            job: drawn.job,
            name: drawn.name,
            counts: Some(drawn.counts.into()),
            rest: drawn.rest,
            can_open: drawn.can_open,
            at: Some(v1::GraphPoint { x, y }),
        }
    }
}

impl From<v1::GraphBox> for GraphBox {
    fn from(wire: v1::GraphBox) -> Self {
        let at = wire.at.unwrap_or_default();
        Self {
            id: wire.id,
            level: wire.level,
            level_last: wire.level_last,
            kind: wire.kind,
            jobs: wire.jobs,
            job: wire.job,
            name: wire.name,
            counts: wire.counts.unwrap_or_default().into(),
            rest: wire.rest,
            can_open: wire.can_open,
            x: at.x,
            y: at.y,
        }
    }
}

impl From<GraphLayout> for v1::GraphLayout {
    fn from(layout: GraphLayout) -> Self {
        let lines = layout.lines.into_iter().map(|line| v1::GraphLine {
            from: line.from,
            to: line.to,
            jobs: line.jobs,
            carries_data: line.carries_data,
            policy: i32::from(v1::FailurePolicy::from(line.policy)),
            via: line.via.into_iter().map(Into::into).collect(),
        });
        Self {
            graph: layout.graph,
            levels: layout.levels,
            grouping: layout.grouping,
            collapsed: layout.collapsed,
            columns: layout.columns,
            rows: layout.rows,
            boxes: layout.boxes.into_iter().map(Into::into).collect(),
            lines: lines.collect(),
            lines_left_out: layout.lines_left_out,
            complete: layout.complete,
            unreachable: layout.unreachable,
        }
    }
}

/// The document of a drawing of a graph.
///
/// # Errors
/// If the policy of a line is missing or unknown.
pub fn graph_layout(wire: v1::GraphLayout) -> Result<GraphLayout, FieldError> {
    let line = |wire: v1::GraphLine| {
        let via = wire.via.into_iter().map(|point| GraphPoint {
            x: point.x,
            y: point.y,
        });
        Ok(GraphLine {
            from: wire.from,
            to: wire.to,
            jobs: wire.jobs,
            carries_data: wire.carries_data,
            policy: failure_policy(At::top("lines.policy"), wire.policy)?,
            via: via.collect(),
        })
    };
    Ok(GraphLayout {
        graph: wire.graph,
        levels: wire.levels,
        grouping: wire.grouping,
        collapsed: wire.collapsed,
        columns: wire.columns,
        rows: wire.rows,
        boxes: wire.boxes.into_iter().map(Into::into).collect(),
        lines: wire
            .lines
            .into_iter()
            .map(line)
            .collect::<Result<_, FieldError>>()?,
        lines_left_out: wire.lines_left_out,
        complete: wire.complete,
        unreachable: wire.unreachable,
    })
}
