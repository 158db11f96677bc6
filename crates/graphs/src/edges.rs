//! The edges of a graph, stored compactly in both directions.

use ganger_types::FailurePolicy;

use crate::index::MemberIndex;

/// What happens to dependents if a dependency does not succeed; several edges drawn as one line have the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgePolicy {
    /// The dependent runs all the same.
    Ignore,
    /// The dependent fails too.
    #[default]
    Fail,
    /// The dependent waits until the dependency was retried and has succeeded.
    Wait,
}

impl From<FailurePolicy> for EdgePolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Ignore => Self::Ignore,
            FailurePolicy::Fail => Self::Fail,
            FailurePolicy::Wait => Self::Wait,
        }
    }
}

impl From<EdgePolicy> for FailurePolicy {
    fn from(policy: EdgePolicy) -> Self {
        match policy {
            EdgePolicy::Ignore => Self::Ignore,
            EdgePolicy::Fail => Self::Fail,
            EdgePolicy::Wait => Self::Wait,
        }
    }
}

/// An edge between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The dependency: the edge leads from it.
    pub from: MemberIndex,
    /// The dependent: the edge leads to it.
    pub to: MemberIndex,
    /// Whether the result of the dependency is an input of the dependent.
    pub carries_data: bool,
    /// Failure policy of the edge.
    pub policy: EdgePolicy,
}

/// What an edge is besides its ends, in one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeKind(u8);

impl EdgeKind {
    pub(crate) fn carries_data(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn policy(self) -> EdgePolicy {
        match self.0 & 3 {
            0 => EdgePolicy::Ignore,
            1 => EdgePolicy::Fail,
            _ => EdgePolicy::Wait,
        }
    }
}

impl From<&Edge> for EdgeKind {
    fn from(edge: &Edge) -> Self {
        let policy = match edge.policy {
            EdgePolicy::Ignore => 0,
            EdgePolicy::Fail => 1,
            EdgePolicy::Wait => 2,
        };
        Self(policy | if edge.carries_data { 4 } else { 0 })
    }
}

/// For each member the other ends of its edges, in one direction, without duplicates and in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adjacency {
    /// Where the ends of each member begin in `ends`; one more than there are members.
    starts: Vec<u32>,
    ends: Vec<MemberIndex>,
    kinds: Vec<EdgeKind>,
}

impl Adjacency {
    /// Sorts edges by `key`, a pair of the near and the far end.
    pub(crate) fn new(
        members: usize,
        edges: &mut [Edge],
        key: impl Fn(&Edge) -> (MemberIndex, MemberIndex),
    ) -> Self {
        edges.sort_unstable_by_key(&key);
        let mut made = Self {
            starts: Vec::with_capacity(members + 1),
            ends: Vec::with_capacity(edges.len()),
            kinds: Vec::with_capacity(edges.len()),
        };
        let mut last = None;
        for edge in edges.iter() {
            let (near, far) = key(edge);
            if last == Some((near, far)) {
                made.merge(edge);
                continue;
            }
            last = Some((near, far));
            made.begin(near.0);
            made.ends.push(far);
            made.kinds.push(edge.into());
        }
        made.begin(u32::try_from(members).unwrap_or(u32::MAX));
        made
    }

    /// Notes that the edges of all members up to this one begin at the end of what was pushed, unless they began.
    fn begin(&mut self, member: u32) {
        let at = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        let wanted = usize::try_from(member).unwrap_or(usize::MAX);
        while self.starts.len() <= wanted {
            self.starts.push(at);
        }
    }

    /// Adds a further edge between the same members to the last one.
    fn merge(&mut self, edge: &Edge) {
        if let Some(kind) = self.kinds.last_mut() {
            let both = Edge {
                carries_data: kind.carries_data() || edge.carries_data,
                policy: kind.policy().max(edge.policy),
                ..*edge
            };
            *kind = EdgeKind::from(&both);
        }
    }

    fn range(&self, member: MemberIndex) -> std::ops::Range<usize> {
        let at = |place: usize| usize::try_from(self.starts[place]).unwrap_or(usize::MAX);
        at(member.at())..at(member.at() + 1)
    }

    /// The other ends of a member's edges.
    pub(crate) fn of(&self, member: MemberIndex) -> &[MemberIndex] {
        &self.ends[self.range(member)]
    }

    /// The other ends of a member's edges, each with what the edge is.
    pub(crate) fn with_kinds(
        &self,
        member: MemberIndex,
    ) -> impl Iterator<Item = (MemberIndex, EdgeKind)> {
        let range = self.range(member);
        let ends = self.ends[range.clone()].iter().copied();
        ends.zip(self.kinds[range].iter().copied())
    }

    /// Number of edges of all members, without duplicates.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}
