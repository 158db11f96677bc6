//! Groups of members: as fine as a drawing can be with so many boxes and lines.
//!
//! Every job is a group of its own if all fit. Otherwise jobs of one level and kind with the same neighbouring groups
//! are one group, then jobs of one level and kind, then levels, and then ranges of levels.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::groups::{Grouping, Groups};
use crate::index::MemberIndex;
use crate::shape::Shape;

/// Rounds of splitting groups by their neighbours. Each round looks one step further.
const ROUNDS_MAX: usize = 8;

impl Groups {
    /// Finds the finest groups with at most so many boxes and lines.
    pub(crate) fn new(shape: &Shape, boxes_max: usize, lines_max: usize) -> Self {
        let fits = |groups: &Self| {
            groups.count <= boxes_max && has_lines_within(shape, &groups.group_of, lines_max)
        };
        let members = shape.members().len();
        if members <= boxes_max {
            let jobs = Self::by_keys(Grouping::Jobs, shape, |member| member.0);
            if fits(&jobs) {
                return jobs;
            }
        }
        let kinds = Self::by_keys(Grouping::Kinds, shape, |member| {
            (shape.level(member), shape.kind_index(member))
        });
        if fits(&kinds) {
            return kinds.refined(shape, fits).ordered(shape);
        }
        let levels = Self::by_keys(Grouping::Levels, shape, |member| shape.level(member));
        if fits(&levels) {
            return levels.ordered(shape);
        }
        Self::by_ranges(shape, boxes_max, fits).ordered(shape)
    }

    /// Halves the number of ranges until they fit; one range always does.
    fn by_ranges(shape: &Shape, boxes_max: usize, fits: impl Fn(&Self) -> bool) -> Self {
        let levels = usize::try_from(shape.levels()).unwrap_or(usize::MAX);
        let mut ranges = boxes_max.max(1);
        loop {
            let width = levels.div_ceil(ranges).max(1);
            let width = u32::try_from(width).unwrap_or(u32::MAX);
            let found = Self::by_keys(Grouping::LevelRanges, shape, |member| {
                shape.level(member) / width
            });
            if ranges == 1 || fits(&found) {
                return found;
            }
            ranges /= 2;
        }
    }

    fn by_keys<K: std::hash::Hash + Eq>(
        by: Grouping,
        shape: &Shape,
        key: impl Fn(MemberIndex) -> K,
    ) -> Self {
        let mut places: HashMap<K, u32> = HashMap::new();
        let mut group_of = Vec::with_capacity(shape.members().len());
        for member in shape.indexes() {
            let next = u32::try_from(places.len()).expect("fewer groups than members");
            group_of.push(*places.entry(key(member)).or_insert(next));
        }
        Self {
            by,
            group_of,
            count: places.len(),
        }
    }

    /// Splits groups whose members have different neighbouring groups, as long as the result fits.
    fn refined(self, shape: &Shape, fits: impl Fn(&Self) -> bool) -> Self {
        let mut best = self;
        let mut near = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let groups = &best.group_of;
            let signatures: Vec<u64> = shape
                .indexes()
                .map(|member| signature(shape, groups, member, &mut near))
                .collect();
            let finer = Self::by_keys(Grouping::Neighbours, shape, |member| {
                (groups[member.at()], signatures[member.at()])
            });
            if finer.count == best.count {
                // No group was split: all members of a group have the same neighbours.
                best.by = Grouping::Neighbours;
                return best;
            }
            if !fits(&finer) {
                return best;
            }
            best = finer;
        }
        best
    }

    /// Numbers the groups by level, kind and first member.
    fn ordered(mut self, shape: &Shape) -> Self {
        let mut first: Vec<Option<MemberIndex>> = vec![None; self.count];
        for member in shape.indexes() {
            let group = usize::try_from(self.group_of[member.at()]).expect("32 bits fit");
            first[group].get_or_insert(member);
        }
        let mut order: Vec<(usize, MemberIndex)> = (0..)
            .zip(first)
            .filter_map(|(at, first)| Some((at, first?)))
            .collect();
        order.sort_by(|(_, a), (_, b)| {
            let key = |member: &MemberIndex| (shape.level(*member), shape.kind(*member), *member);
            key(a).cmp(&key(b))
        });
        let mut number = vec![0_u32; self.count];
        for (new, (old, _)) in (0_u32..).zip(order) {
            number[old] = new;
        }
        for group in &mut self.group_of {
            *group = number[usize::try_from(*group).expect("32 bits fit")];
        }
        self
    }
}

/// A number that is equal for members of the same neighbouring groups, in each direction.
fn signature(shape: &Shape, groups: &[u32], member: MemberIndex, near: &mut Vec<u32>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for adjacency in [&shape.backward, &shape.forward] {
        near.clear();
        near.extend(adjacency.of(member).iter().map(|other| groups[other.at()]));
        near.sort_unstable();
        near.dedup();
        near.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the edges between different groups are at most so many lines. Stops at the first line too many.
pub(crate) fn has_lines_within(shape: &Shape, group_of: &[u32], lines_max: usize) -> bool {
    let mut lines = HashSet::new();
    for member in shape.indexes() {
        let from = group_of[member.at()];
        for dependent in shape.forward.of(member) {
            let to = group_of[dependent.at()];
            if from != to && lines.insert((from, to)) && lines.len() > lines_max {
                return false;
            }
        }
    }
    true
}
