//! Where the store is worked on: by the store thread, or by the shard's own for what is small.

use std::sync::{Arc, Mutex};

use ganger_store::Store;

use crate::clock::Clock;
use crate::core::{Keeper, Order, Report};
use crate::metrics::Numbers;

/// The store's keeper, and how long its commits take.
pub(crate) struct Desk<S> {
    keeper: Arc<Mutex<Keeper<S>>>,
    clock: Arc<dyn Clock>,
    numbers: Arc<Numbers>,
}

impl<S> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self {
            keeper: Arc::clone(&self.keeper),
            clock: Arc::clone(&self.clock),
            numbers: Arc::clone(&self.numbers),
        }
    }
}

impl<S: Store> Desk<S> {
    pub(crate) fn new(keeper: Keeper<S>, clock: Arc<dyn Clock>, numbers: Arc<Numbers>) -> Self {
        Self {
            keeper: Arc::new(Mutex::new(keeper)),
            clock,
            numbers,
        }
    }

    /// Carries an order out; whoever comes second waits.
    ///
    /// # Panics
    /// If it did so before, on whichever thread: what the store then holds is not known.
    pub(crate) fn carry_out(&self, order: Order) -> Option<Report<S::Reader>> {
        let is_commit = matches!(order, Order::Commit(_));
        let mut keeper = self
            .keeper
            .lock()
            .expect("a store that broke is not used again");
        let began = self.clock.monotonic();
        let report = keeper.carry_out(order);
        if is_commit {
            let took = self.clock.monotonic().saturating_sub(began);
            self.numbers.commit.observe_time(took);
        }
        report
    }
}
