//! Operations, and the records of the audit log.

use ganger_types::operation::{
    AlteredFields, JobFilter, LeftOutJob, OperationAction, OperationNumber, OperationState,
};
use ganger_types::{AuditRecord, JobState, JobStates, OperationRecord, PageCursor};

use super::field::{Field, choice, fields, record};
use super::{Cursor, DecodeError, Writer};

record!("operation", version 2, OperationRecord {
    number,
    namespace,
    action,
    filter,
    end,
    at_most,
    spread_over,
    reason,
    by,
    began_at,
    ended_at,
    state,
    message,
    matching,
    done,
    skipped,
    failed,
    left_out,
    cursor,
});

record!("audit record", version 1, AuditRecord {
    number,
    at,
    who,
    what,
    on,
    namespace,
    from,
    outcome,
    detail,
    via,
});

choice!(OperationAction, "has an unknown action" {
    1 Retry { queue }
    2 Cancel {}
    3 Delete {}
    4 Alter(fields)
});

fields!(AlteredFields {
    priority,
    queue,
    tags_added,
    tags_removed,
    labels_set,
    labels_removed,
    start since 2 or None
});

fields!(JobFilter {
    queue,
    states,
    kind,
    kind_prefix,
    id_prefix,
    tags,
    labels,
    graph,
    schedule,
    group,
    failure_text,
    worker,
    created_from,
    created_before,
    finished_from,
    finished_before,
    tracked,
    attempt_min,
    unique_key
});

choice!(OperationState, "has an unknown state" {
    1 Running {}
    2 Done {}
    3 Stopped {}
    4 Failed {}
});

fields!(LeftOutJob { job, reason });

impl Field for OperationNumber {
    fn put(&self, out: &mut Writer<'_>) {
        out.number(self.0);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        from.number().map(Self)
    }
}

/// One bit for each state, at the place of its number.
impl Field for JobStates {
    fn put(&self, out: &mut Writer<'_>) {
        let bits = self.iter().fold(0, |bits, state| bits | bit(state));
        out.byte(bits);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let bits = from.byte()?;
        let states = JobState::ALL.into_iter();
        let known: Self = states.filter(|state| bits & bit(*state) != 0).collect();
        let known_bits = known.iter().fold(0, |bits, state| bits | bit(state));
        if known_bits == bits {
            Ok(known)
        } else {
            Err(from.error("has an unknown state of jobs"))
        }
    }
}

fn bit(state: JobState) -> u8 {
    1 << state.number()
}

/// The text that clients see.
impl Field for PageCursor {
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(self.to_string().as_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let text = from.text()?;
        let cursor: Option<Self> = text.parse().ok();
        // Another text of the same cursor would be written differently.
        let cursor = cursor.filter(|cursor| cursor.to_string() == text);
        cursor.ok_or_else(|| from.error("has a cursor that is none"))
    }
}
