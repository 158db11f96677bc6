//! What a graph of jobs looks like: its levels, its groups, a drawing of bounded size, and what holds it up.
//!
//! `shape` holds members and edges, which `builder` puts together; `partition` collapses them into groups; `drawing` chooses the boxes and lines of a
//! view; `placement` gives them their places; `progress` finds the critical path and the jobs that hold the graph up.
//! Nothing here reads a store or a clock: `ganger-router` collects the members from their shards.

#![forbid(unsafe_code)]

mod builder;
mod counts;
mod drawing;
mod edges;
mod groups;
mod index;
mod partition;
mod placement;
mod progress;
mod shape;

pub use builder::ShapeBuilder;
pub use counts::Counts;
pub use drawing::{Drawing, DrawnBox, DrawnLine, Focus, Selection};
pub use edges::{Edge, EdgePolicy};
pub use groups::Grouping;
pub use index::MemberIndex;
pub use placement::Point;
pub use progress::{Chain, Holder};
pub use shape::{LevelRow, Member, Shape};

/// Maximum number of boxes in a drawing.
pub const BOXES_MAX: usize = 150;
/// Maximum number of lines in a drawing.
pub const LINES_MAX: usize = 300;
