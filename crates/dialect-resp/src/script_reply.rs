//! The reply to a call of a script, in the form of Redis 7, and its record in the audit log.

use std::sync::Arc;

use bytes::Bytes;
use ganger_access::{Audit, Outcome, Record};
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::counters::{Counters, count};
use crate::script_library::Digest;
use crate::value::Value;

/// What the reply to a call of a script needs besides the engine's answer.
pub(crate) struct ReplyContext {
    /// Digest of the script that was called.
    pub(crate) digest: Digest,
    /// The counters, of which one counts refused calls.
    pub(crate) counters: Arc<Counters>,
    /// The audit log and the record to write; `None` for calls that it does not record.
    pub(crate) audit: Option<Box<(Audit, Record)>>,
}

impl ReplyContext {
    /// Writes the audit record and returns the reply. Clients recognise their own errors by the form of the error text,
    /// and extract the message from it.
    pub(crate) fn reply(self, answer: QlessAnswer) -> Value {
        if let Some(audit) = self.audit {
            let (audit, mut record) = *audit;
            if let Err(refusal) = &answer {
                record.outcome = Outcome::Refused;
                record.detail = Some(String::from_utf8_lossy(&refusal.0).into_owned());
            }
            audit.write(&record);
        }
        match answer {
            Ok(reply) => result(reply),
            Err(refusal) => {
                count(&self.counters.qless.refused);
                script_error(&refusal.0, self.digest)
            }
        }
    }
}

/// Converts the result of a script, or of a query of its sets, to a reply.
pub(crate) fn result(reply: QlessReply) -> Value {
    match reply {
        QlessReply::Nil => Value::Nil,
        QlessReply::Number(number) => Value::Number(number),
        QlessReply::Text(text) => Value::Bulk(text),
        QlessReply::List(all) => Value::Bulks(all),
        QlessReply::Score(number) => Value::Double(number),
    }
}

/// Returns the error of a script. Its message may contain any bytes.
pub(crate) fn script_error(message: &[u8], digest: Digest) -> Value {
    let head: &[u8] = b"ERR user_script:1: ";
    let tail = format!(" script: {digest}, on @user_script:1.");
    Value::Failure(Bytes::from([head, message, tail.as_bytes()].concat()))
}
