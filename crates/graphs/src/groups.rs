//! Groups of members, and what the members of a group have in common.

/// What the members of a group have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each job is a group.
    #[default]
    Jobs,
    /// Level, kind, and the groups of their neighbours.
    Neighbours,
    /// Their level and their kind.
    Kinds,
    /// Their level; kinds may differ.
    Levels,
    /// A range of levels.
    LevelRanges,
}

impl Grouping {
    /// The word for documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Neighbours => "neighbours",
            Self::Kinds => "kinds",
            Self::Levels => "levels",
            Self::LevelRanges => "level_ranges",
        }
    }
}

/// Groups that together have all members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// What the members of a group have in common.
    pub(crate) by: Grouping,
    /// Group of each member.
    pub(crate) group_of: Vec<u32>,
    /// Number of groups; each has a member.
    pub(crate) count: usize,
}
