//! Names of rows of qless. Each begins with the number of the row's kind.

use ganger_types::QlessKey;

use super::qless::{
    JOB, QUEUE, RECURRING, SETTING, STATISTICS, TAG_COUNT, THROTTLE, TRACKED, WORKER, text, time,
    write_time,
};
use super::{Cursor, DecodeError, Writer};

pub(super) fn write_key(out: &mut Writer<'_>, key: &QlessKey) {
    let (kind, name) = match key {
        QlessKey::Job { jid, .. } => (JOB, jid),
        QlessKey::Recurring(jid) => (RECURRING, jid),
        QlessKey::Queue(name) => (QUEUE, name),
        QlessKey::Worker(name) => (WORKER, name),
        QlessKey::Setting(option) => (SETTING, option),
        QlessKey::TagCount(tag) => (TAG_COUNT, tag),
        QlessKey::Tracked(jid) => (TRACKED, jid),
        QlessKey::Statistics(queue, _) => (STATISTICS, queue),
        QlessKey::Throttle(id) => (THROTTLE, id),
    };
    out.byte(kind);
    out.bytes(name);
    match key {
        QlessKey::Job { number, .. } => out.number(*number),
        QlessKey::Statistics(_, day) => write_time(out, *day),
        _ => {}
    }
}

pub(super) fn read_key(from: &mut Cursor<'_>) -> Result<QlessKey, DecodeError> {
    let kind = from.byte()?;
    if !(JOB..=THROTTLE).contains(&kind) {
        return Err(from.error("names a row of a kind that this program does not know"));
    }
    let name = text(from)?;
    Ok(match kind {
        JOB => QlessKey::Job {
            jid: name,
            number: from.number()?,
        },
        RECURRING => QlessKey::Recurring(name),
        QUEUE => QlessKey::Queue(name),
        WORKER => QlessKey::Worker(name),
        SETTING => QlessKey::Setting(name),
        TAG_COUNT => QlessKey::TagCount(name),
        TRACKED => QlessKey::Tracked(name),
        STATISTICS => QlessKey::Statistics(name, time(from)?),
        _ => QlessKey::Throttle(name),
    })
}
