//! Places of boxes: columns by level, and rows so that few lines cross.
//!
//! Levels are given, so this is the second half of a layered drawing (Sugiyama, Tagawa and Toda, 1981): lines that pass
//! columns get a place in each of them, columns are sorted by the mean place of their neighbours in turns, and rows
//! are moved towards those neighbours where there is room.

/// Turns of sorting the columns from left to right and back.
const SORTING_TURNS: usize = 6;
/// Turns of moving rows towards their neighbours.
const MOVING_TURNS: usize = 4;
/// Places of lines in columns; lines beyond are drawn straight.
const PASSED_MAX: usize = 5_000;

/// A place in columns and rows, from the left and from the top.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Column, from 0 at the left.
    pub x: u32,
    /// Row, from 0 at the top; quarters are possible.
    pub y: f32,
}

/// A box, or the place of a line in a column that it passes.
#[derive(Debug, Default)]
struct Node {
    column: usize,
    y: f32,
    /// Neighbours in the columns before and behind.
    before: Vec<usize>,
    behind: Vec<usize>,
}

/// Boxes and passing lines, column by column.
#[derive(Debug, Default)]
struct Layers {
    nodes: Vec<Node>,
    /// The nodes of each column, from the top.
    columns: Vec<Vec<usize>>,
}

/// Places of boxes and lines.
pub(crate) struct Placed {
    /// Place of each box.
    pub(crate) boxes: Vec<Point>,
    /// For each line the points that it passes, one in each column between its boxes.
    pub(crate) lines: Vec<Vec<Point>>,
    /// Number of columns and rows.
    pub(crate) size: Point,
}

/// Places boxes with these levels, and lines between them given by the places of their ends.
pub(crate) fn place(levels: &[u32], lines: &[(usize, usize)]) -> Placed {
    let columns = columns(levels);
    let mut layers = Layers::default();
    for column in &columns {
        layers.add(*column);
    }
    let passed = connect(lines, &columns, &mut layers);
    layers.sort();
    layers.spread();
    let point = |node: &Node| Point {
        x: u32::try_from(node.column).unwrap_or(u32::MAX),
        y: (node.y * 4.0).round() / 4.0,
    };
    let boxes = layers.nodes.iter().take(columns.len()).map(point).collect();
    let points = |nodes: Vec<usize>| nodes.iter().map(|at| point(&layers.nodes[*at])).collect();
    let lowest = layers.nodes.iter().map(|node| node.y).fold(-1.0, f32::max);
    Placed {
        boxes,
        lines: passed.into_iter().map(points).collect(),
        size: Point {
            x: u32::try_from(layers.columns.len()).unwrap_or(u32::MAX),
            y: (lowest + 1.0).ceil(),
        },
    }
}

/// The column of each box: its level, without levels that have no box.
fn columns(levels: &[u32]) -> Vec<usize> {
    let mut known = levels.to_vec();
    known.sort_unstable();
    known.dedup();
    let column = |level: &u32| known.partition_point(|it| it < level);
    levels.iter().map(column).collect()
}

/// Connects the boxes of each line, over a place in each column that it passes; returns these places for each line.
fn connect(lines: &[(usize, usize)], columns: &[usize], layers: &mut Layers) -> Vec<Vec<usize>> {
    let mut count = 0;
    let mut passed = Vec::with_capacity(lines.len());
    for (from, to) in lines {
        let (first, last) = (columns[*from], columns[*to]);
        let mut places = Vec::new();
        if first < last && count + (last - first) <= PASSED_MAX {
            let mut near = *from;
            for column in first + 1..last {
                let node = layers.add(column);
                layers.join(near, node);
                places.push(node);
                near = node;
            }
            count += places.len();
            layers.join(near, *to);
        }
        passed.push(places);
    }
    passed
}

impl Layers {
    fn add(&mut self, column: usize) -> usize {
        let node = self.nodes.len();
        if self.columns.len() <= column {
            self.columns.resize_with(column + 1, Vec::new);
        }
        self.columns[column].push(node);
        self.nodes.push(Node {
            column,
            ..Node::default()
        });
        node
    }

    fn join(&mut self, from: usize, to: usize) {
        self.nodes[from].behind.push(to);
        self.nodes[to].before.push(from);
    }

    /// Mean place of the neighbours of a node; its own if it has none on that side.
    fn mean(&self, node: usize, is_before: bool) -> f32 {
        let node = &self.nodes[node];
        let near = if is_before {
            &node.before
        } else {
            &node.behind
        };
        if near.is_empty() {
            return node.y;
        }
        let sum: f32 = near.iter().map(|at| self.nodes[*at].y).sum();
        sum / count(near.len())
    }

    /// Sorts each column by its neighbours, forward and back in turns.
    fn sort(&mut self) {
        self.number();
        for turn in 0..SORTING_TURNS {
            let is_forward = turn % 2 == 0;
            for at in 0..self.columns.len() {
                let at = if is_forward {
                    at
                } else {
                    self.columns.len() - 1 - at
                };
                let mut column = std::mem::take(&mut self.columns[at]);
                let mut keyed: Vec<(f32, usize)> = column
                    .iter()
                    .map(|node| (self.mean(*node, is_forward), *node))
                    .collect();
                // The sort is stable: equal means keep their order.
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                for (place, (_, node)) in keyed.iter().enumerate() {
                    column[place] = *node;
                    self.nodes[*node].y = count(place);
                }
                self.columns[at] = column;
            }
        }
    }

    fn number(&mut self) {
        for column in &self.columns {
            for (place, node) in column.iter().enumerate() {
                self.nodes[*node].y = count(place);
            }
        }
    }

    /// Moves nodes towards their neighbours without changing the order of a column, at least a row apart.
    fn spread(&mut self) {
        for turn in 0..MOVING_TURNS {
            for at in 0..self.columns.len() {
                let at = if turn % 2 == 0 {
                    at
                } else {
                    self.columns.len() - 1 - at
                };
                self.settle(at, turn % 2 == 0);
            }
        }
        let top = self
            .nodes
            .iter()
            .map(|node| node.y)
            .fold(f32::INFINITY, f32::min);
        for node in &mut self.nodes {
            node.y -= if top.is_finite() { top } else { 0.0 };
        }
    }

    /// Gives the nodes of a column places as near as possible to those that they want: blocks of nodes that would
    /// overlap share the mean of what they want.
    fn settle(&mut self, at: usize, is_before: bool) {
        // (First place, number of nodes, sum of the places that the block's first node should have.)
        let mut blocks: Vec<(f32, usize, f32)> = Vec::new();
        for node in &self.columns[at] {
            let wanted = self.mean(*node, is_before);
            let mut block = (wanted, 1, wanted);
            while let Some(last) = blocks.last().copied() {
                if last.0 + count(last.1) <= block.0 {
                    break;
                }
                blocks.pop();
                let shifted = block.2 - count(last.1) * count(block.1);
                let (nodes, sum) = (last.1 + block.1, last.2 + shifted);
                block = (sum / count(nodes), nodes, sum);
            }
            blocks.push(block);
        }
        let places = blocks
            .iter()
            .flat_map(|(first, nodes, _)| (0..*nodes).map(move |at| first + count(at)));
        for (node, y) in self.columns[at].iter().zip(places) {
            self.nodes[*node].y = y;
        }
    }
}

/// A small number as a coordinate.
fn count(number: usize) -> f32 {
    f32::from(u16::try_from(number).unwrap_or(u16::MAX))
}
