//! Bounds the memory that all requests in progress hold together, on all ports, and the share of one identity.
//!
//! A server has one [`Budget`]. Each request (on the Redis port: each connection) opens a [`Hold`], grows it *before*
//! it stores bytes, and shrinks it when they are freed; dropping a hold returns everything. Nothing waits here: a hold
//! that cannot grow is refused at once, and the error says what the client can do.
//!
//! A third of the budget is a reserve for the first [`SMALL_BYTES`] of every hold, so that large bodies never keep
//! small requests out. In both parts an identity gets at most as much as it leaves free, so at most half of what the
//! others have left; of the part for large bodies it also gets at most a quarter.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::{Identity, Proof};

/// Bytes of each hold that come from the reserve.
pub const SMALL_BYTES: usize = 64 << 10;
/// The reserve is the budget divided by this.
const RESERVE_DIVISOR: usize = 3;
/// One identity's share is the rest of the budget divided by this.
const SHARE_DIVISOR: usize = 4;

/// Returns the address that identifies one client: an IPv4 address, or an IPv6 network of 64 bits, because one client
/// has all addresses of such a network.
pub fn address_group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// The party whose share is used: an identity, or an address if the caller is not identified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Another server, whose requests were counted there. It has no share and is bounded by the whole budget.
    Server,
    /// A token or certificate, by its name.
    Named(Proof, String),
    /// An unidentified caller, by address group.
    Address(IpAddr),
    /// An unidentified caller without an address.
    Unknown,
}

impl Owner {
    /// Returns the owner of a request of `identity` from `address`.
    pub fn of(identity: &Identity, address: Option<IpAddr>) -> Self {
        match identity {
            Identity::Peer(_) | Identity::Node(_) => Self::Server,
            Identity::Principal(who) if who.proof != Proof::None => {
                Self::Named(who.proof, who.name.clone())
            }
            Identity::Principal(_) | Identity::Anonymous => address
                .map_or(Self::Unknown, |address| {
                    Self::Address(address_group(address))
                }),
        }
    }
}

/// The error of a hold that cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The identity's requests in progress hold the identity's share.
    #[error(
        "requests in progress of this identity hold its share of the server's memory ({share} bytes): wait for some to end, or send less at once (`limits.bytes_in_flight` sets the whole)"
    )]
    Share {
        /// Maximum bytes for one identity.
        share: usize,
    },
    /// All requests in progress together leave too little.
    #[error(
        "requests in progress hold all the memory that they may use together ({total} bytes, `limits.bytes_in_flight`): try again"
    )]
    All {
        /// The whole budget, in bytes.
        total: usize,
    },
}

/// The memory that requests in progress may hold together. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Maximum bytes for the first part of all holds.
    reserve_max: usize,
    /// Maximum bytes for everything beyond.
    common_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: Amount,
    owners: HashMap<Owner, Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    reserve: usize,
    common: usize,
}

impl Budget {
    /// Creates a budget of `total` bytes.
    pub fn new(total: usize) -> Self {
        let reserve_max = total / RESERVE_DIVISOR;
        Self(Arc::new(Inner {
            reserve_max,
            common_max: total - reserve_max,
            state: Mutex::default(),
        }))
    }

    /// Opens a hold of no bytes.
    pub fn open(&self, owner: Owner) -> Hold {
        Hold {
            budget: self.clone(),
            owner,
            held: Mutex::default(),
        }
    }

    /// Returns the most bytes that one identity can hold besides its part of the reserve.
    pub fn share(&self) -> usize {
        self.0.common_max / SHARE_DIVISOR
    }

    /// Returns the whole budget in bytes.
    pub fn total(&self) -> usize {
        self.0.reserve_max + self.0.common_max
    }

    /// Returns the bytes that all holds have now.
    pub fn used(&self) -> usize {
        let used = self.state().used;
        used.reserve + used.common
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` for the owner, the small part from the reserve if it has room.
    fn take(&self, owner: &Owner, held: Amount, bytes: usize) -> Result<Amount, Full> {
        let small = bytes.min(SMALL_BYTES.saturating_sub(held.reserve + held.common));
        let mut state = self.state();
        let own = state.owners.get(owner).copied().unwrap_or_default();
        let reserve_left = self
            .0
            .reserve_max
            .saturating_sub(state.used.reserve + small);
        let has_reserve = state.used.reserve + small <= self.0.reserve_max
            && (*owner == Owner::Server || own.reserve + small <= reserve_left);
        let taken = if has_reserve {
            Amount {
                reserve: small,
                common: bytes - small,
            }
        } else {
            Amount {
                reserve: 0,
                common: bytes,
            }
        };
        if taken.common > 0 {
            let used_after = state.used.common.saturating_add(taken.common);
            let left = self.0.common_max.checked_sub(used_after).ok_or(Full::All {
                total: self.total(),
            });
            let own_after = own.common.saturating_add(taken.common);
            let is_own = *owner != Owner::Server && own_after > self.share();
            if is_own {
                return Err(Full::Share {
                    share: self.share(),
                });
            }
            if *owner != Owner::Server && own_after > left? {
                return Err(Full::All {
                    total: self.total(),
                });
            }
            left?;
        }
        state.used.reserve += taken.reserve;
        state.used.common += taken.common;
        let own = state.owners.entry(owner.clone()).or_default();
        own.reserve += taken.reserve;
        own.common += taken.common;
        Ok(taken)
    }

    /// Takes bytes beyond the share and the whole, unless another hold has done so already.
    fn overdraw(&self, owner: &Owner, bytes: usize) -> Result<(), Full> {
        if self.state().used.common > self.0.common_max {
            return Err(Full::All {
                total: self.total(),
            });
        }
        self.take_anyway(owner, bytes);
        Ok(())
    }

    /// Takes bytes unconditionally. Later requests are refused until they are returned.
    fn take_anyway(&self, owner: &Owner, bytes: usize) {
        let mut state = self.state();
        state.used.common = state.used.common.saturating_add(bytes);
        let own = state.owners.entry(owner.clone()).or_default();
        own.common = own.common.saturating_add(bytes);
    }

    fn give_back(&self, owner: &Owner, given: Amount) {
        let mut state = self.state();
        state.used.reserve = state.used.reserve.saturating_sub(given.reserve);
        state.used.common = state.used.common.saturating_sub(given.common);
        if let Some(own) = state.owners.get_mut(owner) {
            own.reserve = own.reserve.saturating_sub(given.reserve);
            own.common = own.common.saturating_sub(given.common);
            if *own == Amount::default() {
                state.owners.remove(owner);
            }
        }
    }
}

/// Bytes of a streamed request body that its handler keeps: what it has read and has not finished with.
///
/// The server puts one beside the body of a stream, and the handler keeps it up to date. The stream's hold follows it, so
/// a stream that has been processed holds nothing, however much went through it. Clones share the number.
#[derive(Clone, Debug)]
pub struct BytesInProcess(Arc<AtomicUsize>);

impl Default for BytesInProcess {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }
}

impl BytesInProcess {
    /// Sets the number of bytes that the handler keeps now.
    pub fn set(&self, bytes: usize) {
        self.0.store(bytes.min(usize::MAX - 1), Ordering::Relaxed);
    }

    /// Returns the number of bytes that the handler keeps; `None` if it does not count them, so all that it has read.
    pub fn get(&self) -> Option<usize> {
        let bytes = self.0.load(Ordering::Relaxed);
        (bytes != usize::MAX).then_some(bytes)
    }
}

/// Bytes that one request or connection holds, returned when it is dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    owner: Owner,
    held: Mutex<Amount>,
}

impl Hold {
    /// Holds `bytes` more.
    ///
    /// # Errors
    /// If the owner's share or the budget does not have them; the hold is then unchanged.
    pub fn grow(&self, bytes: usize) -> Result<(), Full> {
        let mut held = self.held();
        let taken = self.budget.take(&self.owner, *held, bytes)?;
        held.reserve += taken.reserve;
        held.common += taken.common;
        Ok(())
    }

    /// Holds `bytes` more even if the share or the budget has no room: for the reply to a change that was made, which
    /// must be sent. The owner's next requests are refused until the bytes are returned.
    pub fn grow_anyway(&self, bytes: usize) {
        if self.grow(bytes).is_err() {
            let mut held = self.held();
            self.budget.take_anyway(&self.owner, bytes);
            held.common += bytes;
        }
    }

    /// Holds `bytes` more, even beyond the share or the whole if no other hold does so now: for requests larger than
    /// a share that are allowed, such as a large graph that has been read. Others wait until it ends.
    ///
    /// # Errors
    /// If another hold has exceeded the whole already.
    pub fn overdraw(&self, bytes: usize) -> Result<(), Full> {
        if self.grow(bytes).is_ok() {
            return Ok(());
        }
        let mut held = self.held();
        self.budget.overdraw(&self.owner, bytes)?;
        held.common += bytes;
        Ok(())
    }

    /// Returns up to `bytes`.
    pub fn shrink(&self, bytes: usize) {
        let mut held = self.held();
        let common = bytes.min(held.common);
        let given = Amount {
            common,
            reserve: (bytes - common).min(held.reserve),
        };
        held.common -= given.common;
        held.reserve -= given.reserve;
        self.budget.give_back(&self.owner, given);
    }

    /// Sets the number of bytes held, up or down.
    ///
    /// # Errors
    /// See [`Hold::grow`].
    pub fn set(&self, bytes: usize) -> Result<(), Full> {
        let now = self.bytes();
        if bytes > now {
            return self.grow(bytes - now);
        }
        self.shrink(now - bytes);
        Ok(())
    }

    /// Returns the number of bytes held now.
    pub fn bytes(&self) -> usize {
        let held = self.held();
        held.reserve + held.common
    }

    /// Returns the budget of the hold.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the owner whose share the hold uses.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    fn held(&self) -> MutexGuard<'_, Amount> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = *self.held();
        if held != Amount::default() {
            self.budget.give_back(&self.owner, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn named(name: &str) -> Owner {
        Owner::Named(Proof::Token, name.to_owned())
    }

    #[test]
    fn one_identity_gets_a_quarter_and_others_are_not_affected() {
        let budget = Budget::new(12 * MIB);
        let first = budget.open(named("a"));
        assert_eq!(first.grow(2 * MIB), Ok(()));
        let refused = first.grow(MIB).expect_err("more than its share");
        assert_eq!(refused, Full::Share { share: 2 * MIB });
        assert_eq!(first.bytes(), 2 * MIB, "a refusal changes nothing");
        let again = budget.open(named("a"));
        assert!(again.grow(MIB).is_err(), "the share is the identity's");
        let other = budget.open(named("b"));
        assert_eq!(other.grow(MIB), Ok(()));
        drop(first);
        assert_eq!(again.grow(MIB), Ok(()));
        drop((again, other));
        assert_eq!(budget.used(), 0);
        assert!(budget.state().owners.is_empty());
    }

    #[test]
    fn small_requests_have_a_reserve_that_large_ones_cannot_take() {
        let budget = Budget::new(12 * MIB);
        let large = budget.open(Owner::Server);
        large
            .grow(8 * MIB + SMALL_BYTES)
            .expect("the whole budget but its reserve");
        assert!(budget.open(named("a")).grow(MIB).is_err());
        let small = budget.open(named("a"));
        assert_eq!(small.grow(SMALL_BYTES), Ok(()));
        assert!(small.grow(1).is_err(), "beyond the small part");
    }

    #[test]
    fn an_identity_gets_at_most_half_of_what_the_others_leave() {
        let budget = Budget::new(12 * MIB);
        let mut holds = Vec::new();
        for name in ["a", "b", "c", "d"] {
            loop {
                let hold = budget.open(named(name));
                if hold.grow(4 << 10).is_err() {
                    break;
                }
                holds.push(hold);
            }
        }
        let newcomer = budget.open(named("e"));
        assert_eq!(newcomer.grow(64 << 10), Ok(()));
        assert!(budget.used() <= budget.total());
    }

    #[test]
    fn a_reply_that_must_be_sent_counts_against_later_requests() {
        let budget = Budget::new(12 * MIB);
        let hold = budget.open(named("a"));
        hold.grow_anyway(5 * MIB);
        assert_eq!(hold.bytes(), 5 * MIB);
        assert!(budget.open(named("a")).grow(MIB).is_err());
        hold.shrink(5 * MIB);
        assert_eq!((hold.bytes(), budget.used()), (0, 0));
    }

    #[test]
    fn only_one_hold_at_a_time_exceeds_the_budget() {
        let budget = Budget::new(12 * MIB);
        let (first, second) = (budget.open(named("a")), budget.open(named("b")));
        assert_eq!(first.overdraw(20 * MIB), Ok(()));
        assert_eq!(
            second.overdraw(20 * MIB),
            Err(Full::All { total: 12 * MIB })
        );
        let small = budget.open(named("c"));
        assert_eq!(small.grow(SMALL_BYTES), Ok(()), "the reserve is untouched");
        drop(first);
        assert_eq!(second.overdraw(20 * MIB), Ok(()));
        drop((second, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let group = |text: &str| address_group(text.parse().expect("an address"));
        assert_eq!(group("2001:db8::1"), group("2001:db8::ffff:1"));
        assert_ne!(group("2001:db8::1"), group("2001:db8:0:1::1"));
        assert_eq!(group("::ffff:10.0.0.1"), group("10.0.0.1"));
    }
}
