//! The documents of graphs that were read, for all dialects.

use ganger_document::names::{full_name, read, show, text};
use ganger_document::time::calendar;
use ganger_document::view::graphs::{GraphItem, GraphLayout, GraphSource, GraphSummary, Graphs};
pub use ganger_graphs::BOXES_MAX;
use ganger_graphs::{Counts, Focus, Selection};
use ganger_types::{Graph, JobRef, Timestamp};

use super::{GraphError, GraphRow, GraphRows, GraphState, is_default};

/// Fewest boxes that a drawing may be asked to have.
pub const BOXES_MIN: usize = 10;
/// Boxes that one drawing opens.
pub const OPEN_MAX: usize = 20;
/// Most steps around a job.
pub const DEPTH_MAX: u32 = 5;

/// What a drawing is asked to show, as callers write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutRequest {
    /// Maximum number of boxes, [`BOXES_MIN`] to [`BOXES_MAX`]; others are moved into that range.
    pub boxes_max: usize,
    /// Ids of boxes to open; those after the first [`OPEN_MAX`] are ignored.
    pub open: Vec<String>,
    /// Job whose surroundings are drawn; `None`: the whole graph.
    pub focus: Option<JobRef>,
    /// Steps around that job, 1 to [`DEPTH_MAX`]; others are moved into that range.
    pub depth: u32,
}

impl GraphState {
    fn source<'a>(&'a self, graph: &'a Graph) -> GraphSource<'a> {
        GraphSource {
            graph: graph.as_bytes(),
            shape: &self.shape,
            states: &self.states,
            ended_at: self.ended_at,
            unreachable: &self.unreachable,
            is_cut: self.is_cut,
        }
    }

    /// The document of how far the graph is. The first one of these states takes time linear in the size of the graph.
    pub fn summary(&self, graph: &Graph) -> GraphSummary {
        let summary = || self.source(graph).summary();
        self.made.summary.get_or_init(summary).clone()
    }

    /// The document of a drawing. Takes time linear in the size of the graph; that of the whole graph only the first time
    /// for these states.
    ///
    /// # Errors
    /// If the job in focus is not in the graph.
    pub fn layout(
        &self,
        graph: &Graph,
        request: &LayoutRequest,
    ) -> Result<GraphLayout, GraphError> {
        let selection = self.selection(request)?;
        let layout = || self.source(graph).layout(&self.draw(&selection));
        if is_default(&selection) {
            return Ok(self.made.layout.get_or_init(layout).clone());
        }
        Ok(layout())
    }

    /// Finds the job in focus.
    fn selection(&self, request: &LayoutRequest) -> Result<Selection, GraphError> {
        let focus = match &request.focus {
            None => None,
            Some(job) => {
                let found = self.shape.find(job);
                Some(Focus {
                    job: found.ok_or_else(|| GraphError::NoMember {
                        job: full_name(&job.shard, &job.id),
                    })?,
                    depth: request.depth.clamp(1, DEPTH_MAX),
                })
            }
        };
        Ok(Selection {
            boxes_max: request.boxes_max.clamp(BOXES_MIN, BOXES_MAX),
            open: request.open.iter().take(OPEN_MAX).cloned().collect(),
            focus,
        })
    }
}

impl GraphRows {
    /// The document of the page.
    pub fn document(self) -> Graphs {
        Graphs {
            graphs: self.rows.iter().map(item).collect(),
            next: self.next.map(|position| position_text(&position)),
            complete: !self.is_cut,
            unreachable: self.unreachable.iter().map(ToString::to_string).collect(),
        }
    }
}

fn item(row: &GraphRow) -> GraphItem {
    let is_over = row.counts.is_some_and(|counts| counts.unfinished() == 0);
    GraphItem {
        graph: text(row.graph.as_bytes()),
        state: row.counts.as_ref().map(Counts::state),
        jobs: row.jobs,
        counts: row.counts.map(Into::into),
        submitted_at: calendar(row.submitted_at),
        ended_at: row.ended_at.filter(|_| is_over).map(calendar),
        shards: row.shards.iter().map(ToString::to_string).collect(),
    }
}

/// Writes the end of a page as the `next` of documents.
pub fn position_text((at, graph): &(Timestamp, Graph)) -> String {
    format!("{}:{}", at.0, show(graph.as_bytes()))
}

/// Reads the `next` of an earlier page; `None` if it is none.
pub fn read_position(text: &str) -> Option<(Timestamp, Graph)> {
    let (at, graph) = text.split_once(':')?;
    let graph = Graph::new(read(graph.as_bytes())).ok()?;
    Some((Timestamp(at.parse().ok()?), graph))
}
