//! The boxes and lines of a view of a graph: all of it, some groups opened, or the surroundings of a job.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ganger_types::JobState;

use crate::counts::Counts;
use crate::edges::EdgePolicy;
use crate::groups::{Grouping, Groups};
use crate::index::MemberIndex;
use crate::placement::{self, Point};
use crate::shape::Shape;
use crate::{BOXES_MAX, LINES_MAX};

/// Jobs that an opened group shows.
const OPENED_JOBS: usize = 50;
/// Boxes of the surroundings of a job that may stand for several jobs.
const REST_BOXES_MAX: usize = 20;
/// Box number of members that are in no box.
const NOWHERE: u32 = u32::MAX;

/// The surroundings of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// The job in the middle.
    pub job: MemberIndex,
    /// Steps that are shown in each direction, at least 1.
    pub depth: u32,
}

/// What a drawing shows.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Maximum number of boxes, 1 to [`BOXES_MAX`]; 0: as many as there may be.
    pub boxes_max: usize,
    /// Ids of groups that are opened. Unknown ids are ignored: groups change when jobs are removed.
    pub open: Vec<String>,
    /// Only the surroundings of a job; `None`: the whole graph.
    pub focus: Option<Focus>,
}

/// A box of a drawing: a job, or several.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnBox {
    /// Id of the box, the same as long as the graph has the same members and edges.
    pub id: String,
    /// Level of its jobs; the first if there are several.
    pub level: u32,
    /// Last level of its jobs.
    pub level_last: u32,
    /// Place of the kind of all its jobs in [`Shape::kinds`]; `None`: they have several kinds.
    pub kind: Option<usize>,
    /// The job, if there is only one.
    pub job: Option<MemberIndex>,
    /// Number of jobs in the box.
    pub jobs: u64,
    /// Whether these are the jobs that are left of a group or of the surroundings of a job.
    pub is_rest: bool,
    /// Whether the group can be opened.
    pub can_open: bool,
    /// Column and row of the box.
    pub at: Point,
}

/// A line of a drawing: all edges between two boxes.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnLine {
    /// Place of the box of the dependencies.
    pub from: usize,
    /// Place of the box of the dependents.
    pub to: usize,
    /// Number of edges that the line stands for.
    pub edges: u64,
    /// Whether one of them carries data.
    pub carries_data: bool,
    /// The strictest policy of the edges.
    pub policy: EdgePolicy,
    /// Points between the two boxes, one for each column in between.
    pub via: Vec<Point>,
}

/// Boxes and lines with their places.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// What the jobs of a box have in common.
    pub grouping: Grouping,
    /// Whether a box stands for several jobs.
    pub is_collapsed: bool,
    /// The boxes, in order of levels.
    pub boxes: Vec<DrawnBox>,
    /// The lines between them, of each pair of boxes one.
    pub lines: Vec<DrawnLine>,
    /// Number of lines that are not drawn because there are too many.
    pub lines_left_out: u64,
    /// Number of columns and rows.
    pub size: Point,
    /// Box of each member; out of range: none.
    box_of: Vec<u32>,
}

impl Drawing {
    /// Makes the drawing of a selection. The jobs shown of an opened group depend on the states.
    pub fn new(shape: &Shape, selection: &Selection, states: &[JobState]) -> Self {
        let boxes_max = match selection.boxes_max {
            0 => BOXES_MAX,
            max => max.min(BOXES_MAX),
        };
        let cells = match selection.focus {
            Some(focus) => around(shape, focus, boxes_max, states),
            None => whole(shape, boxes_max, &selection.open, states),
        };
        cells.into_drawing(shape)
    }

    /// Finds the places of the boxes, and the points of the lines.
    fn place(&mut self) {
        let levels: Vec<u32> = self.boxes.iter().map(|drawn| drawn.level).collect();
        let lines: Vec<(usize, usize)> = self.lines.iter().map(|it| (it.from, it.to)).collect();
        let placed = placement::place(&levels, &lines);
        for (drawn, at) in self.boxes.iter_mut().zip(placed.boxes) {
            drawn.at = at;
        }
        for (line, via) in self.lines.iter_mut().zip(placed.lines) {
            line.via = via;
        }
        self.size = placed.size;
    }

    /// Members by state of each box.
    pub fn counts(&self, states: &[JobState]) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.boxes.len()];
        for (state, place) in states.iter().zip(&self.box_of) {
            let place = usize::try_from(*place).unwrap_or(usize::MAX);
            if let Some(counts) = counts.get_mut(place) {
                counts.add(*state);
            }
        }
        counts
    }

    /// The box that a member is in; `None` if the drawing does not show it.
    pub fn box_of(&self, member: MemberIndex) -> Option<usize> {
        let place = usize::try_from(*self.box_of.get(member.at())?).ok()?;
        (place < self.boxes.len()).then_some(place)
    }
}

/// A box before it has a place.
#[derive(Clone, Debug)]
struct Cell {
    id: String,
    is_rest: bool,
    is_part: bool,
}

/// Boxes, and the box of each member.
#[derive(Debug)]
struct Cells {
    grouping: Grouping,
    list: Vec<Cell>,
    box_of: Vec<u32>,
}

/// The order in which jobs of an opened group are shown: what needs attention comes first.
fn urgency(state: JobState) -> u8 {
    match state {
        JobState::Failed => 0,
        JobState::Running => 1,
        JobState::Ready => 2,
        JobState::Scheduled => 3,
        JobState::Blocked => 4,
        JobState::Cancelled => 5,
        JobState::Succeeded => 6,
    }
}

fn whole(shape: &Shape, boxes_max: usize, open: &[String], states: &[JobState]) -> Cells {
    let smaller;
    let groups = if boxes_max < BOXES_MAX {
        smaller = Groups::new(shape, boxes_max, LINES_MAX);
        &smaller
    } else {
        &shape.groups
    };
    let mut cells = Cells {
        grouping: groups.by,
        list: (0..groups.count)
            .map(|group| Cell {
                id: format!("b{group}"),
                is_rest: false,
                is_part: false,
            })
            .collect(),
        box_of: groups.group_of.clone(),
    };
    let count = groups.count;
    for id in open {
        let group: Option<usize> = id.strip_prefix('b').and_then(|text| text.parse().ok());
        if let Some(group) = group.filter(|group| *group < count)
            && cells.list[group].id == *id
            && !cells.list[group].is_rest
        {
            cells.open(shape, group, boxes_max, states);
        }
    }
    cells
}

impl Cells {
    /// Replaces a group by its first jobs and a box for the others, as far as boxes and lines are left.
    fn open(&mut self, shape: &Shape, group: usize, boxes_max: usize, states: &[JobState]) {
        let number = u32::try_from(group).expect("there are few boxes");
        let mut jobs: Vec<MemberIndex> = shape
            .indexes()
            .filter(|member| self.box_of[member.at()] == number)
            .collect();
        jobs.sort_by_key(|member| (urgency(states[member.at()]), *member));
        let mut shown = OPENED_JOBS
            .min(jobs.len())
            .min(boxes_max.saturating_sub(self.list.len()));
        while shown > 0 && jobs.len() > 1 {
            // If all jobs are shown, the first one takes the place of the group.
            let is_all = shown + 1 >= jobs.len();
            let apart = if is_all { &jobs[1..] } else { &jobs[..shown] };
            let mut box_of = self.box_of.clone();
            for (member, place) in apart.iter().zip(self.list.len()..) {
                box_of[member.at()] = u32::try_from(place).expect("there are few boxes");
            }
            if apart.len() + self.list.len() <= boxes_max
                && crate::partition::has_lines_within(shape, &box_of, LINES_MAX)
            {
                self.box_of = box_of;
                self.list
                    .extend(apart.iter().map(|member| job_cell(*member)));
                self.list[group] = if is_all {
                    job_cell(jobs[0])
                } else {
                    Cell {
                        id: format!("b{group}"),
                        is_rest: true,
                        is_part: true,
                    }
                };
                return;
            }
            shown /= 2;
        }
    }

    /// Finds the levels and kinds of the boxes, their lines, and their places.
    fn into_drawing(self, shape: &Shape) -> Drawing {
        let mut boxes: Vec<DrawnBox> = self
            .list
            .iter()
            .map(|cell| DrawnBox {
                id: cell.id.clone(),
                level: u32::MAX,
                level_last: 0,
                kind: None,
                job: None,
                jobs: 0,
                is_rest: cell.is_rest,
                can_open: !cell.is_part,
                at: Point::default(),
            })
            .collect();
        for member in shape.indexes() {
            let place = usize::try_from(self.box_of[member.at()]).unwrap_or(usize::MAX);
            if let Some(drawn) = boxes.get_mut(place) {
                drawn.add(shape, member);
            }
        }
        for drawn in &mut boxes {
            drawn.can_open &= drawn.jobs > 1;
            if drawn.jobs != 1 {
                drawn.job = None;
            }
        }
        // A selection may leave a box without jobs, such as the rest of nothing.
        let mut drawing = Drawing {
            grouping: self.grouping,
            is_collapsed: boxes.iter().any(|drawn| drawn.jobs > 1),
            lines: lines(shape, &self.box_of, boxes.len()),
            boxes,
            box_of: self.box_of,
            ..Drawing::default()
        };
        let most = drawing.lines.len();
        drawing.lines.truncate(LINES_MAX);
        drawing.lines_left_out = u64::try_from(most - drawing.lines.len()).unwrap_or(u64::MAX);
        drawing.place();
        drawing
    }
}

impl DrawnBox {
    fn add(&mut self, shape: &Shape, member: MemberIndex) {
        let (level, kind) = (shape.level(member), shape.kind_index(member));
        self.kind = match self.kind {
            _ if self.jobs == 0 => Some(kind),
            Some(known) if known == kind => Some(kind),
            _ => None,
        };
        self.level = self.level.min(level);
        self.level_last = self.level_last.max(level);
        self.job = Some(member);
        self.jobs += 1;
    }
}

fn job_cell(member: MemberIndex) -> Cell {
    Cell {
        id: format!("j{}", member.0),
        is_rest: false,
        is_part: true,
    }
}

/// All edges between different boxes, those of each pair together, in the order of the boxes.
fn lines(shape: &Shape, box_of: &[u32], boxes: usize) -> Vec<DrawnLine> {
    let mut lines: HashMap<(usize, usize), DrawnLine> = HashMap::new();
    let place = |member: MemberIndex| {
        let place = usize::try_from(box_of[member.at()]).ok()?;
        (place < boxes).then_some(place)
    };
    for member in shape.indexes() {
        let Some(from) = place(member) else { continue };
        for (dependent, kind) in shape.forward.with_kinds(member) {
            let Some(to) = place(dependent).filter(|to| *to != from) else {
                continue;
            };
            let line = lines.entry((from, to)).or_insert_with(|| DrawnLine {
                from,
                to,
                edges: 0,
                carries_data: false,
                policy: kind.policy(),
                via: Vec::new(),
            });
            line.edges += 1;
            line.carries_data |= kind.carries_data();
            line.policy = line.policy.max(kind.policy());
        }
    }
    let mut lines: Vec<DrawnLine> = lines.into_values().collect();
    lines.sort_by_key(|line| (line.from, line.to));
    lines
}

/// A job and the jobs within some steps of it, the nearest first; those that do not fit are boxes by level.
fn around(shape: &Shape, focus: Focus, boxes_max: usize, states: &[JobState]) -> Cells {
    let near = within(shape, focus, states);
    let rest_max = REST_BOXES_MAX.min(boxes_max.saturating_sub(1)).max(1);
    let mut shown = if near.len() <= boxes_max {
        near.len()
    } else {
        (boxes_max - rest_max.min(boxes_max)).max(1)
    };
    loop {
        let cells = split(shape, &near, shown, rest_max);
        if shown <= 1 || lines(shape, &cells.box_of, cells.list.len()).len() <= LINES_MAX {
            return cells;
        }
        shown /= 2;
    }
}

/// The first `shown` jobs each in a box, the others by level in at most `rest_max` boxes.
fn split(shape: &Shape, near: &[MemberIndex], shown: usize, rest_max: usize) -> Cells {
    let mut box_of = vec![NOWHERE; shape.members().len()];
    let mut cells = Vec::new();
    let (apart, rest) = near.split_at(shown.min(near.len()));
    for (member, place) in apart.iter().zip(0_u32..) {
        box_of[member.at()] = place;
        cells.push(job_cell(*member));
    }
    let levels: BTreeMap<u32, usize> = {
        let mut levels: Vec<u32> = rest.iter().map(|member| shape.level(*member)).collect();
        levels.sort_unstable();
        levels.dedup();
        // The levels beyond the last box share it.
        let places = (0..).map(|at: usize| cells.len() + at.min(rest_max - 1));
        levels.into_iter().zip(places).collect()
    };
    for member in rest {
        let place = levels[&shape.level(*member)];
        box_of[member.at()] = u32::try_from(place).expect("there are few boxes");
    }
    let boxes = levels.values().max().map_or(cells.len(), |last| last + 1);
    for place in cells.len()..boxes {
        cells.push(Cell {
            id: format!("r{place}"),
            is_rest: true,
            is_part: true,
        });
    }
    Cells {
        grouping: Grouping::Jobs,
        list: cells,
        box_of,
    }
}

/// The jobs within the steps of a focus, in both directions, the nearest first and the urgent ones of a step first.
fn within(shape: &Shape, focus: Focus, states: &[JobState]) -> Vec<MemberIndex> {
    let mut found: Vec<(u32, u8, MemberIndex)> = vec![(0, 0, focus.job)];
    let mut seen = vec![false; shape.members().len()];
    seen[focus.job.at()] = true;
    for adjacency in [&shape.backward, &shape.forward] {
        let mut waiting = VecDeque::from([(focus.job, 0)]);
        while let Some((member, steps)) = waiting.pop_front() {
            if steps >= focus.depth {
                continue;
            }
            for other in adjacency.of(member) {
                if !std::mem::replace(&mut seen[other.at()], true) {
                    found.push((steps + 1, urgency(states[other.at()]), *other));
                    waiting.push_back((*other, steps + 1));
                }
            }
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, _, member)| member).collect()
}
