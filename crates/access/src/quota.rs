//! Limits the lines of the audit log that one party causes: a flood of refusals must not fill the store's disk.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;

use crate::audit::{Outcome, Record};
use crate::budget::address_group;
use crate::identity::Identity;

/// Maximum number of refusals of one party written in a minute.
pub(crate) const REFUSALS_PER_MINUTE: u32 = 60;
/// Maximum number of changes of one party written in a minute.
pub(crate) const CHANGES_PER_MINUTE: u32 = 6_000;
/// Number of parties counted separately in a minute; all others are counted together.
const PARTIES_MAX: usize = 10_000;

/// The party that causes lines: an identity, or an address if the caller is not identified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Party {
    who: String,
    address: Option<IpAddr>,
}

/// Number of lines of one party in this minute.
#[derive(Clone, Debug, Default)]
struct LineCount {
    refusals: u32,
    changes: u32,
    left_out: u64,
}

/// Counts of lines in the current minute.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    minute: i64,
    parties: HashMap<Party, LineCount>,
}

/// Number of lines that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OmittedLines {
    pub(crate) who: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) count: u64,
}

impl Quota {
    /// Counts a line; returns whether to write it. Call [`Self::settle`] first.
    pub(crate) fn count(&mut self, record: &Record) -> bool {
        let party = self.party(record);
        let lines = self.parties.entry(party).or_default();
        let (count, max) = match record.outcome {
            Outcome::Done => (&mut lines.changes, CHANGES_PER_MINUTE),
            Outcome::Refused | Outcome::Denied => (&mut lines.refusals, REFUSALS_PER_MINUTE),
        };
        if *count >= max {
            lines.left_out += 1;
            return false;
        }
        *count += 1;
        true
    }

    /// Returns, once, what was omitted in the minute that has ended.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<OmittedLines> {
        let minute = now.as_second() / 60;
        if minute == self.minute {
            return Vec::new();
        }
        self.minute = minute;
        self.settle_all()
    }

    /// Returns, once, what was omitted until now.
    pub(crate) fn settle_all(&mut self) -> Vec<OmittedLines> {
        let ended = std::mem::take(&mut self.parties).into_iter();
        let left_out = ended.filter(|(_, lines)| lines.left_out > 0);
        left_out
            .map(|(party, lines)| OmittedLines {
                who: party.who,
                address: party.address,
                count: lines.left_out,
            })
            .collect()
    }

    fn party(&self, record: &Record) -> Party {
        let is_unidentified = record.who == Identity::Anonymous.to_string()
            || record.who == Identity::unchecked().to_string();
        let address = record.from.filter(|_| is_unidentified);
        let party = Party {
            who: record.who.clone(),
            address: address.map(|from| address_group(from.ip())),
        };
        if self.parties.len() < PARTIES_MAX || self.parties.contains_key(&party) {
            return party;
        }
        Party {
            who: "others".to_owned(),
            address: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_quota_of_a_minute_are_counted_in_one_line() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut quota = Quota::default();
        let denied = |who: &str| Record::new(who, "getJob", Outcome::Denied);
        assert_eq!(quota.settle(at(600)), []);
        let written = (0..100).filter(|_| quota.count(&denied("a"))).count();
        assert_eq!(written, 60);
        assert!(quota.count(&denied("b")), "another has its own");
        assert!(quota.count(&Record::new("a", "cancelJob", Outcome::Done)));
        assert_eq!(quota.settle(at(659)), [], "the minute goes on");
        let left_out = OmittedLines {
            who: "a".to_owned(),
            address: None,
            count: 40,
        };
        assert_eq!(quota.settle(at(660)), [left_out]);
        assert!(quota.count(&denied("a")));
    }

    #[test]
    fn unidentified_callers_are_counted_by_address_and_memory_is_bounded() {
        let mut quota = Quota::default();
        let who = Identity::Anonymous.to_string();
        for number in 0..20_000_u32 {
            let from = IpAddr::from(number.to_be_bytes());
            quota.count(&Record {
                from: Some((from, 1).into()),
                ..Record::new(who.clone(), "login", Outcome::Denied)
            });
        }
        assert!(quota.parties.len() <= PARTIES_MAX + 1);
    }
}
