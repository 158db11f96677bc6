//! Retry policies: parts of several records.
//!
//! A retry policy is a part of five kinds of records, so what was added to it is marked in its own bytes: a
//! policy that does not use it reads and writes as ever, by older programs too.

use ganger_types::{Backoff, RetryPolicy};

use super::field::Field;
use super::{Cursor, DecodeError, Writer};

/// Set in the kind of backoff if a bound of losses follows the policy.
const LOSSES: u8 = 0x80;

impl Field for RetryPolicy {
    fn put(&self, out: &mut Writer<'_>) {
        out.number(u64::from(self.retries_max));
        out.byte(self.jitter_percent);
        let losses = if self.lease_expirations_max.is_some() {
            LOSSES
        } else {
            0
        };
        match &self.backoff {
            Backoff::Fixed(pause) => {
                out.byte(1 | losses);
                out.duration(*pause);
            }
            Backoff::List(pauses) => {
                out.byte(2 | losses);
                out.length(pauses.len());
                for pause in pauses {
                    out.duration(*pause);
                }
            }
            Backoff::Exponential { base, cap } => {
                out.byte(3 | losses);
                out.duration(*base);
                out.duration(*cap);
            }
        }
        if let Some(lease_expirations_max) = self.lease_expirations_max {
            out.number(u64::from(lease_expirations_max));
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let retries_max = from.small()?;
        let jitter_percent = from.byte()?;
        let kind = from.byte()?;
        let backoff = match kind & !LOSSES {
            1 => Backoff::Fixed(from.duration()?),
            2 => Backoff::List(from.list(Cursor::duration)?),
            3 => Backoff::Exponential {
                base: from.duration()?,
                cap: from.duration()?,
            },
            _ => return Err(from.error("has an unknown kind of backoff")),
        };
        let lease_expirations_max = if kind & LOSSES == 0 {
            None
        } else {
            Some(from.small()?)
        };
        Ok(Self {
            retries_max,
            backoff,
            jitter_percent,
            lease_expirations_max,
        })
    }
}

#[cfg(any(test, feature = "suite"))]
impl super::any::Any for RetryPolicy {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::prelude::*;

        let others = super::any::any_struct!(@of RetryPolicy {
            retries_max,
            backoff,
            jitter_percent,
            lease_expirations_max
        });
        prop_oneof![Just(Self::default()), others].boxed()
    }
}

#[cfg(any(test, feature = "suite"))]
super::any::any_enum!(Backoff {
    Fixed(pause)
    List(pauses)
    Exponential { base, cap }
});

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 5 retries, 10 per cent, 20 s doubling up to an hour, as it was written before losses had a bound.
    const OF_OLD: [u8; 8] = [5, 10, 3, 20, 0, 0x90, 0x1c, 0];

    fn of_old() -> RetryPolicy {
        RetryPolicy {
            retries_max: 5,
            jitter_percent: 10,
            ..RetryPolicy::default()
        }
    }

    fn written(retry: &RetryPolicy) -> Vec<u8> {
        let mut out = Vec::new();
        retry.put(&mut Writer::new(&mut out));
        out
    }

    #[test]
    fn a_policy_of_old_reads_as_one_without_a_bound_of_losses_and_is_written_as_it_was() {
        let mut from = Cursor::new(&OF_OLD, "policy");
        assert_eq!(RetryPolicy::take(&mut from), Ok(of_old()));
        assert_eq!(from.end(), Ok(()));
        assert_eq!(written(&of_old()), OF_OLD);
    }

    #[test]
    fn a_bound_of_losses_of_nothing_is_not_the_same_as_none() {
        for lease_expirations_max in [0, 3, u32::MAX] {
            let retry = RetryPolicy {
                lease_expirations_max: Some(lease_expirations_max),
                backoff: Backoff::Fixed(Duration::ZERO),
                ..of_old()
            };
            let bytes = written(&retry);
            let mut from = Cursor::new(&bytes, "policy");
            assert_eq!(RetryPolicy::take(&mut from), Ok(retry));
            assert_eq!(from.end(), Ok(()));
        }
    }
}
