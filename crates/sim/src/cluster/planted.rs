//! Planted bugs that need several shards. A run has at most one, to prove that the oracle finds it. They change
//! batches, commits and rows on their way; the engine does not change.

use ganger_types::command::Receive;
use ganger_types::{
    Bytes, Change, Command, JobId, JobKey, Message, MessageResult, Namespace, Outcome,
};

/// Every planted bug of level 3. Numbers are stable.
pub(crate) const BUGS: &[(u32, u8, &str)] = &[
    (
        301,
        3,
        "a message is removed from the outbox when it is sent",
    ),
    (
        302,
        3,
        "the receiver keeps its position in a commit of its own",
    ),
    (303, 3, "a batch that comes again is applied again"),
    (304, 3, "what was decided is forgotten after a restart"),
    (305, 3, "a part is started without the decision"),
    (306, 3, "the result of another dependency is delivered"),
    (
        307,
        3,
        "a submission is dropped on one shard after it was decided for",
    ),
    (
        308,
        3,
        "batches are applied though one is missing before them",
    ),
    (309, 3, "the end of a graph is not told to the other shards"),
    (
        310,
        3,
        "messages that are not confirmed are lost with a restart",
    ),
    (311, 3, "nobody is told of jobs that do not exist"),
    (312, 3, "dependencies elsewhere that nobody needs go on"),
    (313, 3, "a failure elsewhere counts as a success"),
    (314, 3, "results are lost on their way"),
    (315, 3, "an inquiry is never answered"),
    (316, 3, "who waits elsewhere is not stored"),
    (317, 3, "a decision is told to one shard only"),
    (
        318,
        3,
        "a commit is lost in a crash after its batch was confirmed",
    ),
    (319, 3, "that a job was cancelled is lost on its way"),
    (
        320,
        3,
        "an id that an ended job has is not looked up when it is submitted again",
    ),
    (321, 3, "a retry does not reach dependents on other shards"),
    (322, 3, "the retry of a graph stays on one shard"),
];

/// The planted bug of a run, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlantedBug(pub(crate) u32);

impl PlantedBug {
    pub(crate) fn is(self, bug: u32) -> bool {
        self.0 == bug
    }

    /// Whether the bug changes rows so that a restart cannot restore the same state.
    pub(crate) fn bends_restarts(self) -> bool {
        matches!(self.0, 302 | 304 | 310 | 316)
    }

    /// Changes a batch on its arrival; `turn` selects the times of bugs that occur sometimes.
    pub(crate) fn batch(self, batch: &mut Receive, received: u64, turn: u64) {
        match self.0 {
            303 if turn.is_multiple_of(3)
                && batch.messages.iter().all(|m| m.number <= received) =>
            {
                for (message, number) in batch.messages.iter_mut().zip(received + 1..) {
                    message.number = number;
                    batch.last_sent = batch.last_sent.max(number);
                }
            }
            308 if batch.messages.len() > 1 => {
                batch.messages.remove(0);
                batch
                    .messages
                    .iter_mut()
                    .for_each(|message| message.number -= 1);
            }
            _ => {}
        }
        for record in &mut batch.messages {
            self.message(&mut record.message);
        }
    }

    fn message(self, message: &mut Message) {
        let is_dropped = match (self.0, &mut *message) {
            (306, Message::Ended { result, .. }) => {
                if let MessageResult::Bytes(bytes) = result {
                    *bytes = Bytes::from_static(b"\"another\"");
                }
                false
            }
            (307, Message::Decided { is_committed, .. }) => {
                *is_committed = false;
                false
            }
            (312, Message::LetGo { unneeded_in, .. }) => {
                *unneeded_in = None;
                false
            }
            (313, Message::Ended { outcome, .. }) => {
                *outcome = Outcome::Succeeded;
                false
            }
            (314, Message::Ended { result, .. }) => {
                *result = MessageResult::None;
                false
            }
            (
                319,
                Message::Ended {
                    outcome: Outcome::Cancelled,
                    ..
                },
            )
            | (309, Message::CancelGraph { .. })
            | (321, Message::RetryDependent { .. })
            | (322, Message::RetryGraph { .. })
            | (311, Message::NoSuchJob { .. })
            | (315, Message::Inquire { .. }) => true,
            _ => false,
        };
        if is_dropped {
            *message = Message::LetGo {
                namespace: Namespace::default(),
                dependency: JobId::made(JobKey(0), ganger_types::IdTag(0)),
                dependent: JobKey(0),
                slot: 0,
                unneeded_in: None,
            };
        }
    }

    /// Changes a command before it reaches the shard.
    pub(crate) fn command(self, command: &mut Command, shard: &ganger_types::ShardId) {
        if let (305, Command::Prepare(part)) = (self.0, command) {
            part.record.decider = shard.clone();
        }
    }

    /// Changes the commit of a turn. `late` are the changes that an earlier turn held back.
    pub(crate) fn changes(self, changes: &mut Vec<Change>, late: &mut Vec<Change>, is_batch: bool) {
        match self.0 {
            302 => {
                if is_batch {
                    late.extend(
                        changes.extract_if(.., |change| matches!(change, Change::PutPeer(_))),
                    );
                }
                // The row is written sometimes, for several batches together.
                if late.len() > 3 {
                    changes.append(late);
                }
            }
            316 => changes.retain(|change| {
                !matches!(
                    change,
                    Change::PutDependent(..) | Change::RemoveDependent(..)
                )
            }),
            317 => {
                let mut told = 0;
                changes.retain(|change| {
                    let is_decision = matches!(change, Change::PutOutbox(record)
                        if matches!(record.message, Message::Decided { .. }));
                    told += u32::from(is_decision);
                    !(is_decision && told > 1)
                });
            }
            _ => {}
        }
    }
}
