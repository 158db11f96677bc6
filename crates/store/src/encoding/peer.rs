//! Other shards: what is known of them, what is said to them, who of theirs waits for a job of ours.
//!
//! Messages also travel in this form, so whatever comes is read with the same care as what was stored.

use ganger_types::{
    Bytes, Carried, Dependent, Graph, GraphRetry, JobId, JobKey, JobRef, Message, Namespace,
    OutboxRecord, PeerRecord, Queue, ShardId, Timestamp, Within,
};

use super::policy::{read_outcome, read_policy, write_outcome, write_policy};
use super::{Cursor, DecodeError, Record, Writer};

const ENDED: u8 = 1;
const NO_SUCH_JOB: u8 = 2;
const FOLLOW: u8 = 3;
const LET_GO: u8 = 4;
const DECIDED: u8 = 5;
const INQUIRE: u8 = 6;
const CANCEL_GRAPH: u8 = 7;
const FOLLOW_REVIVING: u8 = 8;
const RETRY_DEPENDENT: u8 = 9;
const RETRY_GRAPH: u8 = 10;
const GO_ON: u8 = 11;

const NO_RESULT: u8 = 1;
const STORED: u8 = 2;
const BYTES: u8 = 3;

pub(super) fn write_shard(out: &mut Writer<'_>, shard: &ShardId) {
    out.bytes(shard.as_str().as_bytes());
}

pub(super) fn read_shard(from: &mut Cursor<'_>) -> Result<ShardId, DecodeError> {
    let text = from.text()?;
    ShardId::new(text).ok_or_else(|| from.error("names a shard as none can be named"))
}

pub(super) fn write_job_ref(out: &mut Writer<'_>, job: &JobRef) {
    write_shard(out, &job.shard);
    out.bytes(job.id.as_bytes());
}

pub(super) fn read_job_ref(from: &mut Cursor<'_>) -> Result<JobRef, DecodeError> {
    Ok(JobRef {
        shard: read_shard(from)?,
        id: from.name(JobId::new)?,
    })
}

/// Random bits, which a varint would only make longer.
pub(super) fn write_bits(out: &mut Writer<'_>, bits: u64) {
    out.raw(&bits.to_le_bytes());
}

pub(super) fn read_bits(from: &mut Cursor<'_>) -> Result<u64, DecodeError> {
    let raw = from.raw(8)?.try_into().expect("eight bytes were taken");
    Ok(u64::from_le_bytes(raw))
}

impl Record for PeerRecord {
    const WHAT: &'static str = "peer";

    fn write(&self, out: &mut Writer<'_>) {
        write_shard(out, &self.shard);
        out.number(self.line);
        out.number(self.given);
        out.number(self.confirmed);
        out.number(self.received);
        write_bits(out, self.received_tag);
        out.number(self.received_line);
        out.flag(self.adopts);
        out.option(self.stopped.as_ref(), |out, why| out.bytes(why.as_bytes()));
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            shard: read_shard(from)?,
            line: from.number()?,
            given: from.number()?,
            confirmed: from.number()?,
            received: from.number()?,
            received_tag: read_bits(from)?,
            received_line: from.number()?,
            adopts: from.flag()?,
            stopped: from.option(|from| from.text().map(str::to_owned))?,
        })
    }
}

impl Record for Dependent {
    const WHAT: &'static str = "dependent";

    fn write(&self, out: &mut Writer<'_>) {
        write_shard(out, &self.shard);
        out.number(self.key.0);
        out.number(u64::from(self.slot));
        out.bytes(self.id.as_bytes());
        write_policy(out, self.policy);
        out.flag(self.is_member);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            shard: read_shard(from)?,
            key: JobKey(from.number()?),
            slot: from.small()?,
            id: from.name(JobId::new)?,
            policy: read_policy(from)?,
            is_member: from.flag()?,
        })
    }
}

impl Record for OutboxRecord {
    const WHAT: &'static str = "message";

    fn write(&self, out: &mut Writer<'_>) {
        write_shard(out, &self.to);
        out.number(self.number);
        write_bits(out, self.tag);
        out.number(self.at.0);
        write_message(out, &self.message);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            to: read_shard(from)?,
            number: from.number()?,
            tag: read_bits(from)?,
            at: Timestamp(from.number()?),
            message: read_message(from)?,
        })
    }
}

/// What every message begins with.
fn begin(out: &mut Writer<'_>, letter: u8, namespace: &Namespace) {
    out.byte(letter);
    out.bytes(namespace.as_bytes());
}

fn write_message(out: &mut Writer<'_>, message: &Message) {
    match message {
        Message::Ended {
            namespace,
            dependency,
            dependent,
            slot,
            outcome,
            result,
        } => {
            begin(out, ENDED, namespace);
            write_edge(out, dependency, *dependent, *slot);
            write_outcome(out, *outcome);
            write_carried(out, result);
        }
        Message::NoSuchJob {
            namespace,
            dependency,
            dependent,
            slot,
        } => {
            begin(out, NO_SUCH_JOB, namespace);
            write_edge(out, dependency, *dependent, *slot);
        }
        Message::Follow {
            namespace,
            dependency,
            dependent,
            retries,
        } => {
            let letter = if *retries { FOLLOW_REVIVING } else { FOLLOW };
            begin(out, letter, namespace);
            out.bytes(dependency.as_bytes());
            dependent.write(out);
        }
        Message::LetGo {
            namespace,
            dependency,
            dependent,
            slot,
            unneeded_in,
        } => {
            begin(out, LET_GO, namespace);
            write_edge(out, dependency, *dependent, *slot);
            out.option(unneeded_in.as_ref(), |out, graph| {
                out.bytes(graph.as_bytes());
            });
        }
        Message::Decided {
            namespace,
            graph,
            is_committed,
        } => {
            begin(out, DECIDED, namespace);
            out.bytes(graph.as_bytes());
            out.flag(*is_committed);
        }
        Message::RetryDependent {
            namespace,
            dependency,
            dependent,
            slot,
            within,
        } => {
            begin(out, RETRY_DEPENDENT, namespace);
            write_edge(out, dependency, *dependent, *slot);
            out.option(within.as_ref(), write_within);
        }
        Message::RetryGraph { namespace, retry } => {
            begin(out, RETRY_GRAPH, namespace);
            write_retry(out, retry);
        }
        Message::GoOn { namespace, retry } => {
            begin(out, GO_ON, namespace);
            write_retry(out, retry);
        }
        Message::Inquire { namespace, graph } => {
            begin(out, INQUIRE, namespace);
            out.bytes(graph.as_bytes());
        }
        Message::CancelGraph {
            namespace,
            graph,
            reason,
        } => {
            begin(out, CANCEL_GRAPH, namespace);
            out.bytes(graph.as_bytes());
            out.bytes(reason.as_bytes());
        }
    }
}

fn read_message(from: &mut Cursor<'_>) -> Result<Message, DecodeError> {
    let letter = from.byte()?;
    if !(ENDED..=GO_ON).contains(&letter) {
        return Err(from.error("says something that this program does not know"));
    }
    let namespace = from.name(Namespace::new)?;
    match letter {
        ENDED | NO_SUCH_JOB | LET_GO | RETRY_DEPENDENT => read_of_edge(letter, namespace, from),
        FOLLOW | FOLLOW_REVIVING => Ok(Message::Follow {
            namespace,
            dependency: from.name(JobId::new)?,
            dependent: Dependent::read(Dependent::VERSION, from)?,
            retries: letter == FOLLOW_REVIVING,
        }),
        RETRY_GRAPH => {
            let retry = read_retry(from)?;
            Ok(Message::RetryGraph { namespace, retry })
        }
        GO_ON => {
            let retry = read_retry(from)?;
            Ok(Message::GoOn { namespace, retry })
        }
        _ => read_of_graph(letter, namespace, from),
    }
}

/// A message about one slot of one job.
fn read_of_edge(
    letter: u8,
    namespace: Namespace,
    from: &mut Cursor<'_>,
) -> Result<Message, DecodeError> {
    let dependency = from.name(JobId::new)?;
    let dependent = JobKey(from.number()?);
    let slot = from.small()?;
    Ok(match letter {
        ENDED => Message::Ended {
            namespace,
            dependency,
            dependent,
            slot,
            outcome: read_outcome(from)?,
            result: read_carried(from)?,
        },
        LET_GO => Message::LetGo {
            namespace,
            dependency,
            dependent,
            slot,
            unneeded_in: from.option(|from| from.name(Graph::new))?,
        },
        RETRY_DEPENDENT => Message::RetryDependent {
            namespace,
            dependency,
            dependent,
            slot,
            within: from.option(read_within)?,
        },
        _ => Message::NoSuchJob {
            namespace,
            dependency,
            dependent,
            slot,
        },
    })
}

/// A message about a whole submission.
fn read_of_graph(
    letter: u8,
    namespace: Namespace,
    from: &mut Cursor<'_>,
) -> Result<Message, DecodeError> {
    let graph = from.name(Graph::new)?;
    Ok(match letter {
        DECIDED => Message::Decided {
            namespace,
            graph,
            is_committed: from.flag()?,
        },
        CANCEL_GRAPH => Message::CancelGraph {
            namespace,
            graph,
            reason: from.text()?.to_owned(),
        },
        _ => Message::Inquire { namespace, graph },
    })
}

fn write_edge(out: &mut Writer<'_>, dependency: &JobId, dependent: JobKey, slot: u32) {
    out.bytes(dependency.as_bytes());
    out.number(dependent.0);
    out.number(u64::from(slot));
}

fn write_within(out: &mut Writer<'_>, within: &Within) {
    out.bytes(within.graph.as_bytes());
    out.option(within.queue.as_ref(), |out, queue| {
        out.bytes(queue.as_bytes());
    });
}

fn read_within(from: &mut Cursor<'_>) -> Result<Within, DecodeError> {
    Ok(Within {
        graph: from.name(Graph::new)?,
        queue: from.option(|from| from.name(Queue::new))?,
    })
}

fn write_retry(out: &mut Writer<'_>, retry: &GraphRetry) {
    write_within(out, &retry.within);
    out.option(retry.after, |out, key| out.number(key.0));
    out.option(retry.before, Writer::number);
    out.flag(retry.has_changed);
    out.flag(retry.has_skipped);
}

fn read_retry(from: &mut Cursor<'_>) -> Result<GraphRetry, DecodeError> {
    Ok(GraphRetry {
        within: read_within(from)?,
        after: from.option(|from| from.number().map(JobKey))?,
        before: from.option(Cursor::number)?,
        has_changed: from.flag()?,
        has_skipped: from.flag()?,
    })
}

fn write_carried(out: &mut Writer<'_>, result: &Carried) {
    match result {
        Carried::None => out.byte(NO_RESULT),
        Carried::Stored(key) => {
            out.byte(STORED);
            out.number(key.0);
        }
        Carried::Bytes(bytes) => {
            out.byte(BYTES);
            out.bytes(bytes);
        }
    }
}

fn read_carried(from: &mut Cursor<'_>) -> Result<Carried, DecodeError> {
    match from.byte()? {
        NO_RESULT => Ok(Carried::None),
        STORED => Ok(Carried::Stored(JobKey(from.number()?))),
        BYTES => Ok(Carried::Bytes(Bytes::copy_from_slice(from.bytes()?))),
        _ => Err(from.error("carries its result in an unknown way")),
    }
}
