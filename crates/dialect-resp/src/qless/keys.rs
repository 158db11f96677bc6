//! The plain Redis commands `ZCARD` and `ZSCORE`, by which clients read sets of qless that the script does not return.

use bytes::Bytes;
use ganger_types::keys::{KeyCall, KeyError, KeyReply};
use ganger_types::qless::{QlessRequest, QlessSet};

use crate::command::{Command, command};
use crate::plan::{Plan, PlannedCall};
use crate::refusal::refused;
use crate::rights::Right;
use crate::value::Value;

/// The rows of these commands for the command table.
pub(crate) const COMMANDS: &[Command] = &[
    command("zcard", 2, Right::Read, |a| match set(&a[1]) {
        Some((queue, set)) => PlannedCall::qless(QlessRequest::Count { queue, set }),
        None => no_set(&a[1], |kind| kind.unwrap_or(Value::Number(0))),
    }),
    command("zscore", 3, Right::Read, |a| {
        match set(&a[1]) {
            Some((queue, QlessSet::Recur)) => PlannedCall::qless(QlessRequest::NextRun {
                queue,
                jid: a[2].clone(),
            }),
            // Clients read scores of no other set.
            _ => no_set(&a[1], |kind| kind.unwrap_or(Value::Nil)),
        }
    }),
];

/// Returns the queue and the set that a key names; `None` if it is not the key of a set. The name of a queue may
/// contain any bytes.
fn set(key: &Bytes) -> Option<(Bytes, QlessSet)> {
    const PREFIX: &[u8] = b"ql:q:";
    let end = key.iter().rposition(|byte| *byte == b'-')?;
    let set = match &key[end + 1..] {
        b"work" => QlessSet::Work,
        b"locks" => QlessSet::Locks,
        b"scheduled" => QlessSet::Scheduled,
        b"depends" => QlessSet::Depends,
        b"recur" => QlessSet::Recur,
        b"throttled" => QlessSet::Throttled,
        _ => return None,
    };
    let is_set = end >= PREFIX.len() && key.starts_with(PREFIX);
    is_set.then(|| (key.slice(PREFIX.len()..end), set))
}

/// Plans the reply for a key that is not a set of qless. `otherwise` gets `None` if the key is absent, and the error
/// for a wrong type if it is a string or a list.
fn no_set(key: &Bytes, otherwise: fn(Option<Value>) -> Value) -> Plan {
    let call = KeyCall::Kind { key: key.clone() };
    PlannedCall::with(call, move |reply| {
        let wrong = match reply {
            KeyReply::Kind(Some(_)) => Some(refused(KeyError::WrongKind)),
            _ => None,
        };
        otherwise(wrong)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_named_by_the_text_after_the_last_hyphen() {
        let found = |key: &'static str| {
            let (queue, set) = set(&Bytes::from_static(key.as_bytes()))?;
            Some((String::from_utf8(queue.to_vec()).expect("text"), set))
        };
        let is = |queue: &str, set| Some((queue.to_owned(), set));
        assert_eq!(found("ql:q:a-work"), is("a", QlessSet::Work));
        assert_eq!(found("ql:q:a-b:c-locks"), is("a-b:c", QlessSet::Locks));
        assert_eq!(found("ql:q:-recur"), is("", QlessSet::Recur));
        for none in [
            "ql:q:work",
            "ql:q:a-",
            "ql:q:a",
            "q:a-work",
            "-work",
            "",
            "ql:q-work",
        ] {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
