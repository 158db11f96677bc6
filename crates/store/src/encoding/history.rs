//! The lines of a job's history. Their times lie near the job's creation and are written so.

use ganger_types::job::AttemptEnd;
use ganger_types::{Group, HistoryEntry, Queue, Timestamp, What, Worker};

use super::{Cursor, DecodeError, Writer};

pub(super) fn write_entry(out: &mut Writer<'_>, entry: &HistoryEntry, created_at: Timestamp) {
    out.near(entry.at.0, created_at.0);
    match &entry.what {
        What::Enqueued { queue } => {
            out.byte(1);
            out.bytes(queue.as_bytes());
        }
        What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } => {
            out.byte(2);
            out.number(u64::from(*number));
            out.bytes(worker.as_bytes());
            out.near(leased_at.0, created_at.0);
            write_end(out, end);
        }
        What::Failed { group } => {
            out.byte(3);
            out.bytes(group.as_bytes());
        }
        What::Cancelled { reason } => {
            out.byte(4);
            out.bytes(reason.as_bytes());
        }
        What::Retried => out.byte(5),
        What::TimedOutByHand => out.byte(6),
        What::Note { text, data } => {
            out.byte(7);
            out.bytes(text.as_bytes());
            out.bytes(data.as_bytes());
        }
    }
}

pub(super) fn read_entry(
    from: &mut Cursor<'_>,
    created_at: Timestamp,
) -> Result<HistoryEntry, DecodeError> {
    let at = Timestamp(from.near(created_at.0)?);
    let what = match from.byte()? {
        1 => What::Enqueued {
            queue: from.name(Queue::new)?,
        },
        2 => What::Attempt {
            number: from.small()?,
            worker: from.name(Worker::new)?,
            leased_at: Timestamp(from.near(created_at.0)?),
            end: read_end(from)?,
        },
        3 => What::Failed {
            group: from.name(Group::new)?,
        },
        4 => What::Cancelled {
            reason: from.text()?.to_owned(),
        },
        5 => What::Retried,
        6 => What::TimedOutByHand,
        7 => What::Note {
            text: from.text()?.to_owned(),
            data: from.text()?.to_owned(),
        },
        _ => return Err(from.error("has an unknown kind of history entry")),
    };
    Ok(HistoryEntry { at, what })
}

fn write_end(out: &mut Writer<'_>, end: &AttemptEnd) {
    match end {
        AttemptEnd::Succeeded => out.byte(1),
        AttemptEnd::Failed {
            group,
            message,
            permanent,
        } => {
            out.byte(2);
            out.bytes(group.as_bytes());
            out.bytes(message.as_bytes());
            out.flag(*permanent);
        }
        AttemptEnd::Expired => out.byte(3),
        AttemptEnd::TimedOut => out.byte(4),
        AttemptEnd::Released { counted, reason } => {
            out.byte(5);
            out.flag(*counted);
            out.bytes(reason.as_bytes());
        }
        AttemptEnd::Cancelled => out.byte(6),
    }
}

fn read_end(from: &mut Cursor<'_>) -> Result<AttemptEnd, DecodeError> {
    Ok(match from.byte()? {
        1 => AttemptEnd::Succeeded,
        2 => AttemptEnd::Failed {
            group: from.name(Group::new)?,
            message: from.text()?.to_owned(),
            permanent: from.flag()?,
        },
        3 => AttemptEnd::Expired,
        4 => AttemptEnd::TimedOut,
        5 => AttemptEnd::Released {
            counted: from.flag()?,
            reason: from.text()?.to_owned(),
        },
        6 => AttemptEnd::Cancelled,
        _ => return Err(from.error("has an unknown end of an attempt")),
    })
}
