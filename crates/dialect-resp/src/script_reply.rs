//! How what came of a call is told: to its caller as Redis 7 tells a script's result or error, and to the audit log.

use std::sync::Arc;

use bytes::Bytes;
use ganger_access::{Audit, Outcome, Record};
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::counters::{Counters, count};
use crate::script_library::Digest;
use crate::value::Value;

/// What is needed to tell of a call.
pub(crate) struct ReplyContext {
    /// The script that was called.
    pub(crate) digest: Digest,
    pub(crate) counters: Arc<Counters>,
    /// What the audit log hears, if it is to hear of it.
    pub(crate) audit: Option<Box<(Audit, Record)>>,
}

impl ReplyContext {
    /// The reply. Clients take the message out of an error by its shape, and know their own errors by it.
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

/// What a script, or a question about its sets, has given.
pub(crate) fn result(reply: QlessReply) -> Value {
    match reply {
        QlessReply::Nil => Value::Nil,
        QlessReply::Number(number) => Value::Number(number),
        QlessReply::Text(text) => Value::Bulk(text),
        QlessReply::List(all) => Value::Bulks(all),
        QlessReply::Score(number) => Value::Double(number),
    }
}

/// The error of a script, which may have any bytes in it.
pub(crate) fn script_error(message: &[u8], digest: Digest) -> Value {
    let head: &[u8] = b"ERR user_script:1: ";
    let tail = format!(" script: {digest}, on @user_script:1.");
    Value::Failure(Bytes::from([head, message, tail.as_bytes()].concat()))
}
