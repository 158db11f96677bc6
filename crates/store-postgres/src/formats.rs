//! Formats of the tables: which ones a program can use, and when a cluster gets the next one.
//!
//! Programs write the format that the cluster has, so that nodes with an older and a newer program run side by side, and
//! the older one can come back. Once every live node knows the next format, the cluster can have it: after ten minutes by
//! itself, or when an operator says so. From then on, a program that does not know it is refused.

use std::time::Duration;

use crate::schema::FORMAT;

/// Time for which all live nodes must have known the next format before the cluster has it without being told.
pub(crate) const KNOWN_FOR: Duration = Duration::from_mins(10);

/// The formats that a program can read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The oldest format that it can use.
    pub min: u32,
    /// The newest format that it can use.
    pub max: u32,
}

impl Formats {
    /// Those of this program.
    pub const OWN: Self = Self {
        min: 1,
        max: FORMAT,
    };

    /// Whether the program can use tables of a format.
    pub fn has(self, format: u32) -> bool {
        (self.min..=self.max).contains(&format)
    }
}

/// A live node, and the formats that its program knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knows<'a> {
    pub(crate) node: &'a str,
    pub(crate) formats: Formats,
}

/// What becomes of the format of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextFormat {
    /// All live nodes know the next one, which is this.
    Ready(u32),
    /// No live node knows a newer one than this, which the cluster has.
    Newest(u32),
    /// Some live nodes know a newer one, and this one does not.
    Held {
        /// Format of the cluster.
        format: u32,
        /// Name of a node with an older program.
        node: String,
    },
    /// No node lives, so nobody knows what the programs of this cluster can use.
    NoNodes,
}

/// Returns what becomes of a cluster's format when these nodes live.
pub(crate) fn next_format<'a>(format: u32, live: impl Iterator<Item = Knows<'a>>) -> NextFormat {
    let live: Vec<Knows<'_>> = live.collect();
    let Some(newest) = live.iter().map(|it| it.formats.max).max() else {
        return NextFormat::NoNodes;
    };
    if newest <= format || format == 0 {
        return NextFormat::Newest(format);
    }
    let next = format + 1;
    match live.iter().find(|it| !it.formats.has(next)) {
        Some(other) => NextFormat::Held {
            format,
            node: other.node.to_owned(),
        },
        None => NextFormat::Ready(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(format: u32, nodes: &[(&'static str, u32, u32)]) -> NextFormat {
        let live = nodes.iter().map(|(node, min, max)| Knows {
            node,
            formats: Formats {
                min: *min,
                max: *max,
            },
        });
        next_format(format, live)
    }

    #[test]
    fn a_cluster_gets_the_next_format_once_all_live_nodes_know_it() {
        let held = NextFormat::Held {
            format: 1,
            node: "b".to_owned(),
        };
        assert_eq!(next(1, &[]), NextFormat::NoNodes);
        assert_eq!(next(1, &[("a", 1, 1), ("b", 1, 1)]), NextFormat::Newest(1));
        assert_eq!(next(1, &[("a", 1, 2), ("b", 1, 1)]), held);
        assert_eq!(next(1, &[("a", 1, 2), ("b", 1, 2)]), NextFormat::Ready(2));
        // One after the other: rows of format 1 may be there.
        assert_eq!(next(1, &[("a", 1, 3), ("b", 1, 3)]), NextFormat::Ready(2));
        assert_eq!(
            next(2, &[("a", 1, 3), ("b", 2, 2)]),
            NextFormat::Held {
                format: 2,
                node: "b".to_owned()
            }
        );
    }

    #[test]
    fn a_program_knows_the_formats_between_its_oldest_and_its_newest() {
        let formats = Formats { min: 2, max: 3 };
        let known: Vec<u32> = (0..6).filter(|format| formats.has(*format)).collect();
        assert_eq!(known, [2, 3]);
        assert!(Formats::OWN.has(FORMAT));
    }
}
