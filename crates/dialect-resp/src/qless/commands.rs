//! The commands of the script: the right that each needs, and the counter that counts it.
//!
//! The engine runs the commands. A command that is not in the table goes to the engine too, which refuses it.

use bytes::Bytes;

use crate::counters::Family;
use crate::limits::WIDE_JOBS;
use crate::rights::Right;

/// Row in the table of qless commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Name of the command, case-sensitive.
    pub(crate) name: &'static str,
    /// The right that the caller needs.
    pub(crate) right: Right,
    /// The family of commands that the counters count it under.
    pub(crate) family: Family,
    /// Whether the reply may be large.
    pub(crate) is_wide: bool,
    /// Number of calls for which it counts among those of a commit.
    pub(crate) weight: usize,
}

const fn row(name: &'static str, right: Right, family: Family) -> Row {
    Row {
        name,
        right,
        family,
        is_wide: false,
        weight: 1,
    }
}

const fn look(name: &'static str) -> Row {
    row(name, Right::Read, Family::Look)
}

const fn wide(row: Row) -> Row {
    Row {
        is_wide: true,
        ..row
    }
}

/// Every command of the script. Commands that change only what is due at their time, such as a query of a queue, need
/// only the right to read.
const COMMANDS: &[Row] = &[
    look("get"),
    wide(look("multiget")),
    wide(look("peek")),
    wide(look("failed")),
    wide(look("jobs")),
    wide(look("queues")),
    wide(look("workers")),
    look("length"),
    look("stats"),
    look("config.get"),
    look("recur.get"),
    look("throttle.get"),
    look("throttle.ttl"),
    wide(look("throttle.locks")),
    wide(look("throttle.pending")),
    look("queue.throttle.get"),
    row("put", Right::Add, Family::Put),
    row("requeue", Right::Add, Family::Put),
    row("recur", Right::Add, Family::Recur),
    row("recur.update", Right::Add, Family::Recur),
    row("recur.tag", Right::Add, Family::Recur),
    row("recur.untag", Right::Add, Family::Recur),
    row("unrecur", Right::Add, Family::Recur),
    row("depends", Right::Add, Family::Change),
    row("priority", Right::Add, Family::Change),
    wide(row("tag", Right::Add, Family::Change)),
    wide(row("track", Right::Add, Family::Change)),
    wide(row("pop", Right::Take, Family::Pop)),
    row("complete", Right::Take, Family::Finish),
    row("fail", Right::Take, Family::Finish),
    row("retry", Right::Take, Family::Finish),
    row("timeout", Right::Take, Family::Finish),
    row("heartbeat", Right::Take, Family::Heartbeat),
    row("log", Right::Take, Family::Change),
    row("worker.deregister", Right::Take, Family::Manage),
    row("cancel", Right::Manage, Family::Change),
    row("unfail", Right::Manage, Family::Change),
    row("pause", Right::Manage, Family::Manage),
    row("unpause", Right::Manage, Family::Manage),
    row("queue.forget", Right::Manage, Family::Manage),
    row("config.set", Right::Manage, Family::Manage),
    row("config.unset", Right::Manage, Family::Manage),
    row("throttle.set", Right::Manage, Family::Manage),
    row("throttle.delete", Right::Manage, Family::Manage),
    row("throttle.release", Right::Manage, Family::Manage),
    row("queue.throttle.set", Right::Manage, Family::Manage),
];

/// The row of commands that the engine refuses.
const UNKNOWN: Row = row("evalsha", Right::Read, Family::Unknown);

/// Returns the row of a call. Its words are the command, the caller's time, and the command's own arguments.
pub(crate) fn find(words: &[Bytes]) -> Row {
    let Some(name) = words.first() else {
        return UNKNOWN;
    };
    let row = COMMANDS.iter().find(|row| row.name.as_bytes() == *name);
    let row = row.copied().unwrap_or(UNKNOWN);
    // Such a reply is no larger than those of as many calls of `get`.
    if row.name == "pop"
        && let Some(weight @ 1..=WIDE_JOBS) = jobs_popped(words)
    {
        return Row {
            is_wide: false,
            weight,
            ..row
        };
    }
    let only_reads = match row.name {
        "tag" => words.get(2).is_some_and(|how| how == "get" || how == "top"),
        "track" => words.len() <= 2,
        _ => false,
    };
    if only_reads {
        return Row {
            right: Right::Read,
            family: Family::Look,
            ..row
        };
    }
    row
}

/// The number of jobs that a `pop` asks for; `None` if that is no whole number.
fn jobs_popped(words: &[Bytes]) -> Option<usize> {
    std::str::from_utf8(words.get(4)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use ganger_qless::Qless;
    use ganger_types::Elapsed;
    use ganger_types::qless::{Generation, QlessRequest};

    use super::*;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect()
    }

    #[test]
    fn a_pop_of_few_jobs_is_one_of_many_calls_of_a_commit() {
        let pop = |count: &str| {
            let row = find(&words(&format!("pop 1.5 queue worker {count}")));
            (row.is_wide, row.weight)
        };
        assert_eq!(pop("1"), (false, 1));
        assert_eq!(pop("64"), (false, 64));
        for wide in ["65", "0", "-1", "1e3", "x", "99999999999999999999"] {
            assert_eq!(pop(wide), (true, 1), "{wide}");
        }
        assert!(find(&words("pop 1.5 queue worker")).is_wide);
    }

    #[test]
    fn every_command_of_the_script_is_in_the_table_and_no_other() {
        let known = |name: &str| {
            let request = QlessRequest::Script {
                generation: Generation::Three,
                words: words(&format!("{name} 0")),
            };
            let answer = Qless::default().call(Elapsed(0), request, &mut Vec::new());
            answer.map_or_else(|why| !why.0.starts_with(b"Unknown command"), |_| true)
        };
        assert!(!known("nonsense"));
        for row in COMMANDS {
            assert!(known(row.name), "{}", row.name);
        }
        let described = "get multiget put requeue pop peek complete fail retry unfail failed cancel heartbeat depends \
            track timeout priority tag jobs log recur recur.get recur.update recur.tag recur.untag unrecur length \
            queues pause unpause queue.forget stats workers worker.deregister config.get config.set config.unset \
            throttle.set throttle.get throttle.delete throttle.locks throttle.pending throttle.ttl throttle.release \
            queue.throttle.get queue.throttle.set";
        for name in described.split_whitespace() {
            assert!(COMMANDS.iter().any(|row| row.name == name), "{name}");
        }
        assert_eq!(described.split_whitespace().count(), COMMANDS.len());
    }

    #[test]
    fn no_command_stands_twice() {
        let names: std::collections::BTreeSet<_> = COMMANDS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), COMMANDS.len());
    }

    #[test]
    fn forms_that_only_read_need_less() {
        let right = |line: &str| find(&words(line)).right;
        assert_eq!(right("tag 0 get a"), Right::Read);
        assert_eq!(right("tag 0 top"), Right::Read);
        assert_eq!(right("tag 0 add j a"), Right::Add);
        assert_eq!(right("tag 0"), Right::Add);
        assert_eq!(right("track 0"), Right::Read);
        assert_eq!(right("track 0 track j"), Right::Add);
        assert_eq!(right("nonsense 0"), Right::Read);
    }
}
