//! Graphs as a whole: the list, how far one is, and its drawing.

use std::time::SystemTime;

use ganger_graphs::{Counts, Drawing, MemberIndex, Shape};
use ganger_types::{FailurePolicy, JobState, ShardId, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::{PolicyWord, StateWord, word, word_if_any};
use crate::time::{Moment, calendar, moment, moment_if_any};

/// Number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StateCounts)]
pub struct StateCounts {
    /// Number of blocked jobs.
    pub blocked: u64,
    /// Number of scheduled jobs.
    pub scheduled: u64,
    /// Number of ready jobs.
    pub ready: u64,
    /// Number of running jobs.
    pub running: u64,
    /// Number of succeeded jobs.
    pub succeeded: u64,
    /// Number of failed jobs.
    pub failed: u64,
    /// Number of cancelled jobs.
    pub cancelled: u64,
}

impl From<Counts> for StateCounts {
    fn from(counts: Counts) -> Self {
        Self {
            blocked: counts.of(JobState::Blocked),
            scheduled: counts.of(JobState::Scheduled),
            ready: counts.of(JobState::Ready),
            running: counts.of(JobState::Running),
            succeeded: counts.of(JobState::Succeeded),
            failed: counts.of(JobState::Failed),
            cancelled: counts.of(JobState::Cancelled),
        }
    }
}

impl StateCounts {
    /// Number of jobs that have ended.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    /// Number of jobs that have not ended.
    pub fn unfinished(&self) -> u64 {
        self.blocked + self.scheduled + self.ready + self.running
    }
}

/// A page of the graphs of a namespace, the newest first, over all shards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Graphs {
    /// Graphs of this page.
    pub graphs: Vec<GraphItem>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether the list has all graphs; a list has the newest 50,000 of a shard.
    pub complete: bool,
    /// Shards that did not answer, whose graphs and jobs are missing.
    pub unreachable: Vec<String>,
}

/// A graph in a list.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphItem {
    /// Name of the graph.
    pub graph: String,
    /// State of the graph: `running` until the last job has ended; then `failed`, `cancelled` or `succeeded`, the first
    /// of these that a job has. Absent without `counts`.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<StateWord>)]
    pub state: Option<JobState>,
    /// Number of jobs that are kept.
    pub jobs: u64,
    /// Jobs by state; absent if there are too many to look at for a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<StateCounts>,
    /// Time at which the first kept job was enqueued.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub submitted_at: SystemTime,
    /// Time at which the last job ended; absent while the graph runs, and without `counts`.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub ended_at: Option<SystemTime>,
    /// Shards that have jobs of the graph.
    pub shards: Vec<String>,
}

/// How far a graph is, and what holds it up.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphSummary {
    /// Name of the graph.
    pub graph: String,
    /// State of the graph: `running` until the last job has ended; then `failed`, `cancelled` or `succeeded`, the first
    /// of these that a job has.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub state: JobState,
    /// Number of jobs that are kept.
    pub jobs: u64,
    /// Number of jobs in each state.
    pub counts: StateCounts,
    /// Time at which the first kept job was enqueued.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub submitted_at: SystemTime,
    /// Time at which the last job ended; absent while the graph runs.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub ended_at: Option<SystemTime>,
    /// Number of levels: jobs in the longest chain of dependencies.
    pub levels: u32,
    /// Number of dependencies between its jobs; several inputs from one job count once.
    pub edges: u64,
    /// Number of dependencies on jobs outside the graph or on jobs that were removed.
    pub edges_outside: u64,
    /// The longest chain of jobs that have not ended.
    pub critical_path: CriticalPath,
    /// At most 10 jobs with the most unfinished jobs behind them: failed ones first, then those that wait for no job.
    pub holding_up: Vec<HoldingUp>,
    /// Shards that have jobs of the graph.
    pub shards: Vec<String>,
    /// Whether all jobs and dependencies were read; at most 2,000,000 jobs are.
    pub complete: bool,
    /// Shards that did not answer, whose jobs and dependencies are missing.
    pub unreachable: Vec<String>,
}

/// The longest chain of jobs that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CriticalPath {
    /// Number of jobs in the chain.
    pub length: u32,
    /// The first 100 of them, in the order in which they run.
    pub jobs: Vec<GraphMember>,
}

/// A job of a graph, by name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphMember {
    /// Global name of the job, `shard/id`.
    pub id: String,
    /// Name that its submission gave the job; absent if it gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// State of the job.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub state: JobState,
}

/// A job that others wait for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HoldingUp {
    /// The job that others wait for.
    #[serde(flatten)]
    pub job: GraphMember,
    /// Number of unfinished jobs behind it, over any number of steps.
    pub behind: u64,
    /// Whether `behind` is exact; otherwise there are more.
    pub exact: bool,
}

/// A drawing of a graph with at most 150 boxes and 300 lines.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphLayout {
    /// Name of the graph.
    pub graph: String,
    /// Number of levels of the whole graph.
    pub levels: u32,
    /// What the jobs of a box have in common: `jobs` (each box is a job), `neighbours` (level, kind and neighbouring
    /// boxes), `kinds` (level and kind), `levels`, or `level_ranges`.
    pub grouping: String,
    /// Whether a box stands for several jobs.
    pub collapsed: bool,
    /// Number of columns; each level with boxes has one.
    pub columns: u32,
    /// Number of rows of the longest column.
    pub rows: f64,
    /// The boxes, those of lower levels first.
    pub boxes: Vec<GraphBox>,
    /// The lines between the boxes, one for each pair.
    pub lines: Vec<GraphLine>,
    /// Number of lines that are left out because there are too many.
    pub lines_left_out: u64,
    /// Whether all jobs and dependencies were read; at most 2,000,000 jobs are.
    pub complete: bool,
    /// Shards that did not answer, whose jobs and dependencies are missing.
    pub unreachable: Vec<String>,
}

/// A box of a drawing: a job, or several.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphBox {
    /// Id of the box in this drawing, and for `open`.
    pub id: String,
    /// Level of its jobs, from 0: the longest chain of dependencies before them.
    pub level: u32,
    /// Last level of its jobs, if they are of several; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_last: Option<u32>,
    /// Kind of its jobs; null if they have several.
    pub kind: Option<String>,
    /// Number of its jobs.
    pub jobs: u64,
    /// The job as `shard/id`, if there is only one; otherwise null.
    pub job: Option<String>,
    /// Name that the submission gave that job; absent if it gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of its jobs in each state.
    pub counts: StateCounts,
    /// Whether these are the jobs that are left of an opened box or of the surroundings of a job.
    pub rest: bool,
    /// Whether the box can be opened.
    pub can_open: bool,
    /// Column of the box, from 0 at the left.
    pub x: u32,
    /// Row, from 0; quarters are possible.
    pub y: f64,
}

/// A line of a drawing: all dependencies between two boxes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphLine {
    /// Id of the box of the dependencies.
    pub from: String,
    /// Id of the box of the dependents.
    pub to: String,
    /// Number of dependencies that the line stands for.
    pub jobs: u64,
    /// Whether one of them carries a result.
    pub carries_data: bool,
    /// The strictest policy: `wait`, then `fail`, then `ignore`.
    #[serde(serialize_with = "word")]
    #[schema(value_type = PolicyWord)]
    pub policy: FailurePolicy,
    /// Column and row of each column that the line passes between its boxes.
    pub via: Vec<GraphPoint>,
}

/// A point that a line passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct GraphPoint {
    /// Column of the point, from 0 at the left.
    pub x: u32,
    /// Row of the point, from 0 at the top.
    pub y: f64,
}

/// What is shown of a graph that was read.
#[derive(Clone, Copy, Debug)]
pub struct GraphSource<'a> {
    /// Name of the graph.
    pub graph: &'a [u8],
    /// Members and edges of the graph, as they were read.
    pub shape: &'a Shape,
    /// The states of the members, in their order.
    pub states: &'a [JobState],
    /// Time at which the last of the members that have ended did so.
    pub ended_at: Option<Timestamp>,
    /// Shards that did not answer.
    pub unreachable: &'a [ShardId],
    /// Whether there are more members or edges than were read.
    pub is_cut: bool,
}

impl GraphSource<'_> {
    fn member(&self, index: MemberIndex) -> GraphMember {
        let job = self.shape.reference(index);
        let name = self.shape.member(index).name.as_ref();
        GraphMember {
            id: full_name(&job.shard, &job.id),
            name: name.map(|name| text(name.as_bytes())),
            kind: text(self.shape.kind(index).as_bytes()),
            state: self.states[index.at()],
        }
    }

    fn unreachable(&self) -> Vec<String> {
        self.unreachable.iter().map(ToString::to_string).collect()
    }

    /// The document of how far the graph is.
    pub fn summary(&self) -> GraphSummary {
        let counts: Counts = self.states.iter().copied().collect();
        let chain = self.shape.critical_path(self.states);
        let holders = self.shape.holding_up(self.states).into_iter();
        let is_over = counts.unfinished() == 0;
        GraphSummary {
            graph: text(self.graph),
            state: counts.state(),
            jobs: counts.total(),
            counts: counts.into(),
            submitted_at: calendar(self.shape.submitted_at().unwrap_or_default()),
            ended_at: self.ended_at.filter(|_| is_over).map(calendar),
            levels: self.shape.levels(),
            edges: u64::try_from(self.shape.edges()).unwrap_or(u64::MAX),
            edges_outside: self.shape.edges_outside(),
            critical_path: CriticalPath {
                length: chain.length,
                jobs: chain.jobs.into_iter().map(|job| self.member(job)).collect(),
            },
            holding_up: holders
                .map(|holder| HoldingUp {
                    job: self.member(holder.job),
                    behind: holder.behind,
                    exact: holder.is_exact,
                })
                .collect(),
            shards: self
                .shape
                .shards()
                .iter()
                .map(ToString::to_string)
                .collect(),
            complete: !self.is_cut,
            unreachable: self.unreachable(),
        }
    }

    /// The document of a drawing of the graph.
    pub fn layout(&self, drawing: &Drawing) -> GraphLayout {
        let counts = drawing.counts(self.states);
        let boxes = drawing.boxes.iter().zip(counts);
        let boxes = boxes.map(|(drawn, counts)| {
            let job = drawn.job.map(|job| self.member(job));
            let kind = drawn.kind.map(|kind| &self.shape.kinds()[kind]);
            GraphBox {
                id: drawn.id.clone(),
                level: drawn.level,
                level_last: Some(drawn.level_last).filter(|last| *last != drawn.level),
                kind: kind.map(|kind| text(kind.as_bytes())),
                jobs: drawn.jobs,
                name: job.as_ref().and_then(|job| job.name.clone()),
                job: job.map(|job| job.id),
                counts: counts.into(),
                rest: drawn.is_rest,
                can_open: drawn.can_open,
                x: drawn.at.x,
                y: drawn.at.y.into(),
            }
        });
        let id = |place: usize| drawing.boxes[place].id.clone();
        let lines = drawing.lines.iter().map(|line| GraphLine {
            from: id(line.from),
            to: id(line.to),
            jobs: line.edges,
            carries_data: line.carries_data,
            policy: line.policy.into(),
            via: line
                .via
                .iter()
                .map(|point| GraphPoint {
                    x: point.x,
                    y: point.y.into(),
                })
                .collect(),
        });
        GraphLayout {
            graph: text(self.graph),
            levels: self.shape.levels(),
            grouping: drawing.grouping.as_str().to_owned(),
            collapsed: drawing.is_collapsed,
            columns: drawing.size.x,
            rows: drawing.size.y.into(),
            boxes: boxes.collect(),
            lines: lines.collect(),
            lines_left_out: drawing.lines_left_out,
            complete: !self.is_cut,
            unreachable: self.unreachable(),
        }
    }
}
