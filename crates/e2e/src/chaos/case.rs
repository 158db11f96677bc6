//! What is done to which part of the cluster, and at what moment.

use std::fmt;
use std::time::Duration;

use super::topology::{Databases, LEASE};
use crate::random::Random;

/// What goes wrong with a part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Killed, and started again later.
    Kill,
    /// Stands still for so long.
    Pause(Duration),
    /// A node and the others do not hear each other.
    CutFromPeers,
    /// A node and the database do not hear each other; all nodes, if the database is the target.
    CutFromDatabase,
    /// What a node sends arrives nowhere, and it hears everything.
    IsNotHeard,
    /// A node hears nothing, and what it sends arrives.
    HearsNothing,
    /// Everything to it and from it arrives half a second later.
    Slow,
    /// Starts with a wall clock that is wrong by so many hours, and is put right while it runs.
    Clock(i64),
    /// A standby takes the primary's place.
    Promote(FormerPrimary),
    /// The nodes' role may not write to the log.
    NoRights,
    /// Another session holds the tables of the log as a dump does.
    Dump,
    /// Another session holds an old snapshot.
    Snapshot,
    /// Its disk has no free space.
    Full,
}

/// What has become of the primary whose place a standby takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerPrimary {
    /// It was killed before.
    Dead,
    /// It runs, and no node reaches it.
    CutOff,
    /// It runs, and nodes have connections with it.
    Alive,
}

/// The part of the cluster that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The node that owns the shard of the load.
    Owner,
    /// A node that does not.
    OtherNode,
    /// The primary of the database.
    Primary,
    /// A standby of the database.
    Standby,
    /// The pooler before the primary.
    Pooler,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Under load, some time.
    Steady,
    /// While rows are written.
    Rows,
    /// While a table of the log is emptied.
    Truncate,
    /// While another node claims the shard, because its owner was killed.
    Claim,
    /// While the owner is drained.
    HandOver,
}

/// One fault, its target and its moment; perhaps another fault while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What goes wrong with it.
    pub fault: Fault,
    /// The part that it happens to.
    pub target: Target,
    /// What the cluster does when it begins.
    pub moment: Moment,
    /// What goes wrong with another part a little later; `None` if nothing does.
    pub second: Option<Second>,
}

/// A fault that begins while another one lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Second {
    /// What goes wrong with it.
    pub fault: Fault,
    /// The part that it happens to; another node, if both are at nodes.
    pub target: Target,
}

/// How long a target stands still: below, about and above the lease, and much longer.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    LEASE.saturating_sub(Duration::from_secs(1)),
    LEASE.saturating_add(Duration::from_secs(1)),
    Duration::from_secs(30),
];

const MOMENTS: [Moment; 5] = [
    Moment::Steady,
    Moment::Rows,
    Moment::Truncate,
    Moment::Claim,
    Moment::HandOver,
];

/// Returns every case of the matrix that this topology can have.
pub fn all_cases(databases: Databases) -> Vec<Case> {
    use Fault::{
        Clock, CutFromDatabase, CutFromPeers, Dump, Full, HearsNothing, IsNotHeard, Kill, NoRights,
        Promote, Slow, Snapshot,
    };
    let pauses = PAUSES.map(Fault::Pause);
    let of_any = [&[Kill][..], &pauses].concat();
    let of_nodes = [
        CutFromPeers,
        CutFromDatabase,
        IsNotHeard,
        HearsNothing,
        Slow,
        Clock(1),
        Clock(-1),
    ];
    let of_primary = [
        CutFromDatabase,
        IsNotHeard,
        HearsNothing,
        Slow,
        NoRights,
        Dump,
        Snapshot,
    ];
    let former = [
        FormerPrimary::Dead,
        FormerPrimary::CutOff,
        FormerPrimary::Alive,
    ]
    .map(Promote);
    let mut kinds: Vec<(Target, Vec<Fault>)> = vec![
        (Target::Owner, [&of_any, &of_nodes[..]].concat()),
        (Target::OtherNode, [&of_any, &of_nodes[..]].concat()),
        (Target::Primary, [&of_any, &of_primary[..]].concat()),
    ];
    if databases.has_disks {
        kinds.push((Target::Primary, vec![Full]));
    }
    if databases.standbys > 0 {
        kinds.push((Target::Primary, former.to_vec()));
        kinds.push((Target::Standby, of_any.clone()));
    }
    if databases.has_pooler {
        kinds.push((Target::Pooler, vec![Kill]));
    }
    let of_moment = |moment: Moment| {
        let cases = kinds.iter().flat_map(move |(target, faults)| {
            faults.iter().map(move |fault| Case {
                fault: *fault,
                target: *target,
                moment,
                second: None,
            })
        });
        cases.collect::<Vec<_>>()
    };
    MOMENTS.into_iter().flat_map(of_moment).collect()
}

/// Returns so many cases of two faults, chosen at random from these cases of one.
pub fn pairs(cases: &[Case], count: usize, random: &mut Random) -> Vec<Case> {
    let mut pairs = Vec::with_capacity(count);
    while pairs.len() < count && cases.iter().any(|case| case.target.is_node()) {
        let [first, second] = [(); 2].map(|()| random.choose(cases));
        // Two faults of the database would need each other's servers to begin and to end, and two of one node each
        // other's process.
        let is_possible = match (first.target, second.target) {
            (Target::Owner | Target::OtherNode, Target::OtherNode) => true,
            (one, other) => one.is_node() != other.is_node(),
        };
        if is_possible && !(second.target == Target::Owner && first.moment == Moment::Claim) {
            let Case { fault, target, .. } = second;
            let second = Some(Second { fault, target });
            pairs.push(Case { second, ..first });
        }
    }
    pairs
}

impl Target {
    fn is_node(self) -> bool {
        matches!(self, Self::Owner | Self::OtherNode)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}", self.target, self.fault, self.moment)?;
        match self.second {
            Some(Second { fault, target }) => write!(f, "; then {target} {fault}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => write!(f, "killed"),
            Self::Pause(length) => write!(f, "paused {} s", length.as_secs()),
            Self::CutFromPeers => write!(f, "cut from nodes"),
            Self::CutFromDatabase => write!(f, "cut from database"),
            Self::IsNotHeard => write!(f, "not heard"),
            Self::HearsNothing => write!(f, "hears nothing"),
            Self::Slow => write!(f, "slow"),
            Self::Clock(hours) => write!(f, "clock {hours:+} h"),
            Self::Promote(FormerPrimary::Dead) => write!(f, "dead, standby promoted"),
            Self::Promote(FormerPrimary::CutOff) => write!(f, "cut off, standby promoted"),
            Self::Promote(FormerPrimary::Alive) => write!(f, "alive, standby promoted"),
            Self::NoRights => write!(f, "without rights"),
            Self::Dump => write!(f, "dumped"),
            Self::Snapshot => write!(f, "with an old snapshot"),
            Self::Full => write!(f, "with a full disk"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Owner => "owner",
            Self::OtherNode => "other node",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::Pooler => "pooler",
        };
        f.write_str(name)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Steady => "steady",
            Self::Rows => "rows",
            Self::Truncate => "truncate",
            Self::Claim => "claim",
            Self::HandOver => "hand-over",
        };
        f.write_str(name)
    }
}
