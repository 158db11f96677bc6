//! Limits the number of open streams, and the share of them that one identity gets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::budget::Owner;

/// One identity's share is the limit divided by this.
const SHARE_DIVISOR: usize = 4;

/// The limit of open streams. Clones share it.
#[derive(Clone, Debug)]
pub struct StreamLimit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_owner: HashMap<Owner, usize>,
}

/// Permit for one open stream, returned when dropped.
#[derive(Debug)]
pub struct StreamPermit {
    places: StreamLimit,
    owner: Owner,
}

/// The refusal of a further stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamLimitReached {
    /// The identity has its share.
    #[error(
        "this identity has {share} streams open, which is its share of `limits.streams`: close some, or try again"
    )]
    Share {
        /// Number of streams that one identity may open.
        share: usize,
    },
    /// The limit of all identities together is reached.
    #[error(
        "{total} streams are open, which is the limit (`limits.streams`): close some, or try again"
    )]
    All {
        /// Number of streams that may be open in all.
        total: usize,
    },
}

impl StreamLimit {
    /// Creates a limit of `total` streams. One identity gets a quarter of them, at least one.
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Inner {
            total,
            taken: Mutex::default(),
        }))
    }

    /// Takes a permit for one stream.
    ///
    /// # Errors
    /// If all permits are taken, or the owner's share is.
    pub fn take(&self, owner: Owner) -> Result<StreamPermit, StreamLimitReached> {
        let total = self.0.total;
        let share = (total / SHARE_DIVISOR).max(1);
        let mut taken = self.taken();
        if taken.all >= total {
            return Err(StreamLimitReached::All { total });
        }
        let own = taken.by_owner.get(&owner).copied().unwrap_or_default();
        if own >= share && owner != Owner::Server {
            return Err(StreamLimitReached::Share { share });
        }
        taken.all += 1;
        taken.by_owner.insert(owner.clone(), own + 1);
        drop(taken);
        Ok(StreamPermit {
            places: self.clone(),
            owner,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.by_owner.get_mut(&self.owner) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Proof;

    #[test]
    fn one_identity_gets_a_quarter_and_dropped_permits_are_free_again() {
        let named = |name: &str| Owner::Named(Proof::Token, name.to_owned());
        let places = StreamLimit::new(8);
        let own: Vec<_> = (0..2).map(|_| places.take(named("a"))).collect();
        assert!(own.iter().all(Result::is_ok));
        let refused = places.take(named("a")).expect_err("its share is two");
        assert_eq!(refused, StreamLimitReached::Share { share: 2 });
        let others: Vec<_> = (0..6)
            .map(|number| places.take(named(&number.to_string())))
            .collect();
        assert!(others.iter().all(Result::is_ok));
        let refused = places.take(named("b")).expect_err("all are taken");
        assert_eq!(refused, StreamLimitReached::All { total: 8 });
        drop((own, others));
        assert!(places.take(named("a")).is_ok());
        assert!(places.taken().by_owner.is_empty());
    }
}
