//! Retry policies, which are fields of several records.
//!
//! Five kinds of records contain a retry policy, so a later field is marked in the policy's own bytes. A policy
//! without it has the same bytes as before, which older programs can read.

use ganger_types::{Backoff, RetryPolicy};

use super::field::Field;
use super::{Cursor, DecodeError, Writer};

/// Bit in the kind of backoff: the limit of lease expirations follows the policy.
const EXPIRATIONS: u8 = 0x80;

impl Field for RetryPolicy {
    fn put(&self, out: &mut Writer<'_>) {
        out.number(u64::from(self.retries_max));
        out.byte(self.jitter_percent);
        let expirations = if self.lease_expirations_max.is_some() {
            EXPIRATIONS
        } else {
            0
        };
        match &self.backoff {
            Backoff::Fixed(pause) => {
                out.byte(1 | expirations);
                out.duration(*pause);
            }
            Backoff::List(pauses) => {
                out.byte(2 | expirations);
                out.length(pauses.len());
                for pause in pauses {
                    out.duration(*pause);
                }
            }
            Backoff::Exponential { base, cap } => {
                out.byte(3 | expirations);
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
        let backoff = match kind & !EXPIRATIONS {
            1 => Backoff::Fixed(from.duration()?),
            2 => Backoff::List(from.list(Cursor::duration)?),
            3 => Backoff::Exponential {
                base: from.duration()?,
                cap: from.duration()?,
            },
            _ => return Err(from.error("has an unknown kind of backoff")),
        };
        let lease_expirations_max = if kind & EXPIRATIONS == 0 {
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

    /// 5 retries, 10 percent jitter, 20 s doubling up to an hour, as written before the limit of lease expirations
    /// existed.
    const OLD: [u8; 8] = [5, 10, 3, 20, 0, 0x90, 0x1c, 0];

    fn old() -> RetryPolicy {
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
    fn an_old_policy_reads_as_one_without_a_limit_of_expirations_and_is_written_as_before() {
        let mut from = Cursor::new(&OLD, "policy");
        assert_eq!(RetryPolicy::take(&mut from), Ok(old()));
        assert_eq!(from.end(), Ok(()));
        assert_eq!(written(&old()), OLD);
    }

    #[test]
    fn a_limit_of_zero_expirations_differs_from_no_limit() {
        for lease_expirations_max in [0, 3, u32::MAX] {
            let retry = RetryPolicy {
                lease_expirations_max: Some(lease_expirations_max),
                backoff: Backoff::Fixed(Duration::ZERO),
                ..old()
            };
            let bytes = written(&retry);
            let mut from = Cursor::new(&bytes, "policy");
            assert_eq!(RetryPolicy::take(&mut from), Ok(retry));
            assert_eq!(from.end(), Ok(()));
        }
    }
}
