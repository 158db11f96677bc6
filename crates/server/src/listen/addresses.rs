//! Counts the open connections of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ganger_access::address_group;

/// Counts connections by address, with at most as many entries as connections.
#[derive(Clone)]
pub(super) struct Addresses {
    limit: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection that counts until it is dropped.
pub(super) struct CountedAddress {
    group: IpAddr,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Addresses {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            open: Arc::default(),
        }
    }

    /// Counts a connection; `None` if its address has reached its limit.
    pub(super) fn count(&self, address: IpAddr) -> Option<CountedAddress> {
        let group = address_group(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(group).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(CountedAddress {
            group,
            open: Arc::clone(&self.open),
        })
    }
}

impl Drop for CountedAddress {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.group) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bounded_number_and_leaves_nothing_behind() {
        let addresses = Addresses::new(2);
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = addresses.count(one).expect("room");
        let second = addresses.count(one).expect("room");
        assert!(addresses.count(one).is_none());
        let others = addresses.count(other).expect("room of its own");
        drop(first);
        let third = addresses.count(one);
        assert!(third.is_some());
        drop((third, second, others));
        assert!(addresses.open.lock().expect("no panic").is_empty());
    }
}
