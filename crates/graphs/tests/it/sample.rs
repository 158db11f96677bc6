//! Graphs for tests.

use ganger_graphs::{Edge, EdgePolicy, MemberIndex, Shape, ShapeBuilder};
use ganger_types::{IdTag, JobId, JobKey, Kind, ShardId, Timestamp};

/// A graph of jobs with these kinds, and edges between them by their places.
pub(crate) fn graph(kinds: &[&str], edges: &[(usize, usize)]) -> Shape {
    let kinds = kinds
        .iter()
        .map(|kind| (*kind).to_owned())
        .collect::<Vec<_>>();
    let edges = edges
        .iter()
        .map(|(from, to)| (*from, *to, EdgePolicy::Fail));
    large(&kinds, edges)
}

/// As [`graph`], with a policy for each edge.
pub(crate) fn large(
    kinds: &[String],
    edges: impl IntoIterator<Item = (usize, usize, EdgePolicy)>,
) -> Shape {
    let mut builder = ShapeBuilder::default();
    builder.shard(ShardId::default());
    let mut indexes = Vec::with_capacity(kinds.len());
    for (kind, number) in kinds.iter().zip(1..) {
        let (key, kind) = (JobKey(number), Kind::new(kind).expect("a kind"));
        let id = JobId::made(key, IdTag(7));
        indexes.push(builder.member(key, &id, None, &kind, Timestamp(number)));
    }
    for (from, to, policy) in edges {
        builder.edge(Edge {
            from: indexes[from],
            to: indexes[to],
            carries_data: from % 2 == 0,
            policy,
        });
    }
    builder.build()
}

/// One job, then `width` jobs that wait for it, then one that waits for all of these.
pub(crate) fn diamond(width: usize) -> Shape {
    let mut kinds = vec!["split".to_owned()];
    kinds.extend(std::iter::repeat_n("resize".to_owned(), width));
    kinds.push("join".to_owned());
    let edges = (1..=width).flat_map(|at| [(0, at), (at, width + 1)]);
    large(&kinds, edges.map(|(from, to)| (from, to, EdgePolicy::Fail)))
}

pub(crate) fn index(at: u32) -> MemberIndex {
    MemberIndex(at)
}
