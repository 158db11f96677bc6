//! The fence of a shard: who owns it, who may take it over, and what a commit that was not appended means. Pure rules;
//! the statements that read and lock it are elsewhere.

use std::sync::Arc;

use ganger_store::StoreError;
use ganger_types::Epoch;

use crate::fault::Fault;
use crate::formats::Formats;
use crate::mark::Mark;

/// State of a shard that can have an owner.
pub(crate) const OPEN: &str = "open";
/// State of a shard whose log has lost commits, until an operator accepts that.
pub(crate) const REWOUND: &str = "rewound";

/// The row `log` of the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Number of the last claim; 0 before the first.
    pub epoch: u64,
    /// Name of the store that made the last claim; empty before the first.
    pub owner: String,
    /// `open`, or why nobody may own the shard.
    pub state: String,
    /// Random number of the shard, which its records carry.
    pub identity: [u8; 16],
    /// Format of the shard's tables.
    pub format: u32,
}

/// One claim of a shard. A database that was restored may give the epoch of a claim that it has lost to another store, so
/// whatever an owner writes names both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Number of the claim.
    pub epoch: u64,
    /// Name of the store that made it.
    pub owner: Arc<str>,
}

/// A store that wants to take a shard over.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// Name of the store, which no other store has.
    pub owner: &'a str,
    /// The epoch that it had, if it takes the shard back only from itself; `None` if it takes it from anybody.
    pub back: Option<Epoch>,
    /// What is known to be confirmed.
    pub mark: Mark,
}

impl Fence {
    /// Returns the epoch of a claim. `label` names the store in errors.
    ///
    /// A shard is taken back by the store that made the last claim, be its outcome known to it or not.
    ///
    /// # Errors
    /// If the shard cannot be taken over, or has been taken over by somebody else since `back`.
    pub fn next_epoch(&self, claimant: Claimant<'_>, label: &str) -> Result<u64, Fault> {
        let path = label.to_owned();
        let known = Formats::OWN.max;
        if self.format > known {
            return Err(Fault::Store(StoreError::TooNew {
                path,
                found: self.format,
                known,
            }));
        }
        if self.state != OPEN {
            if claimant.back.is_some() {
                return Err(Fault::Fenced {
                    theirs: Some(Epoch(self.epoch)),
                });
            }
            let reason = match self.state.as_str() {
                REWOUND => "it is rewound: it has lost commits that were confirmed; `ganger cluster status` shows its last one, and `ganger cluster accept-rewind` opens it again".to_owned(),
                state => format!(
                    "it is {state}: the shard is being moved, or has moved, to another database"
                ),
            };
            return Err(Fault::Store(StoreError::Io {
                path,
                doing: "opened",
                reason,
            }));
        }
        if claimant.back.is_some() && claimant.owner != self.owner {
            return Err(Fault::Fenced {
                theirs: Some(Epoch(self.epoch)),
            });
        }
        Ok(self.epoch + 1)
    }

    /// Whether this is the last claim of the shard.
    pub fn is_held_by(&self, ours: &Ownership) -> bool {
        self.epoch == ours.epoch && *self.owner == *ours.owner
    }

    /// Returns why a statement of an owner appended nothing.
    pub fn refusal(&self, ours: &Ownership) -> Fault {
        if !self.is_held_by(ours) || self.state != OPEN {
            return Fault::Fenced {
                theirs: Some(Epoch(self.epoch)),
            };
        }
        // It was acknowledged: the database went back in time.
        Fault::Rewound("the record before this one is not in the log".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence() -> Fence {
        Fence {
            epoch: 7,
            owner: "one".to_owned(),
            state: "open".to_owned(),
            identity: [0; 16],
            format: Formats::OWN.max,
        }
    }

    fn next(owner: &str, back: Option<u64>) -> Option<u64> {
        let back = back.map(Epoch);
        let claimant = Claimant {
            owner,
            back,
            mark: Mark::default(),
        };
        fence().next_epoch(claimant, "test").ok()
    }

    #[test]
    fn a_shard_is_taken_from_anybody_and_taken_back_from_ourselves_alone() {
        assert_eq!(next("two", None), Some(8));
        // Another store has the epoch, if that of ours was lost and the database restored.
        assert_eq!(next("two", Some(7)), None);
        assert_eq!(next("two", Some(6)), None);
        assert_eq!(next("one", Some(7)), Some(8));
        // The claim of epoch 7 was ours, and its outcome was unknown.
        assert_eq!(next("one", Some(6)), Some(8));
    }

    #[test]
    fn a_commit_that_was_not_appended_is_fenced_or_out_of_order() {
        let theirs = Some(Epoch(7));
        let by = |epoch, owner: &str| Ownership {
            epoch,
            owner: owner.into(),
        };
        for other in [by(6, "one"), by(7, "two")] {
            let refused = fence().refusal(&other);
            assert!(matches!(refused, Fault::Fenced { theirs: found } if found == theirs));
        }
        let ours = by(7, "one");
        assert!(matches!(fence().refusal(&ours), Fault::Rewound(_)));
        let mut sealed = fence();
        sealed.state = "sealed".to_owned();
        assert!(matches!(sealed.refusal(&ours), Fault::Fenced { .. }));
        let claimant = Claimant {
            owner: "two",
            back: None,
            mark: Mark::default(),
        };
        assert!(matches!(
            sealed.next_epoch(claimant, "test"),
            Err(Fault::Store(StoreError::Io { .. }))
        ));
        let claimant = Claimant {
            back: Some(Epoch(7)),
            ..claimant
        };
        assert!(matches!(
            sealed.next_epoch(claimant, "test"),
            Err(Fault::Fenced { .. })
        ));
    }
}
