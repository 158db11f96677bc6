//! Calls of the qless script, by its text or its digest.

use std::sync::Arc;

use bytes::Bytes;
use ganger_access::Outcome;
use ganger_types::qless::{Generation, QlessRequest};

use super::commands::find;
use crate::counters::count;
use crate::number::integer_argument;
use crate::plan::{Plan, PlannedCall, is};
use crate::refusal::syntax_error;
use crate::rights::Right;
use crate::script_library::Digest;
use crate::script_reply::{ReplyContext, script_error};
use crate::session::Session;
use crate::value::Value;

/// Plans the command `EVAL`.
pub(crate) fn eval(session: &mut Session, arguments: &[Bytes]) -> Plan {
    by_text(session, arguments, false)
}

/// Plans the command `EVAL_RO`.
pub(crate) fn eval_ro(session: &mut Session, arguments: &[Bytes]) -> Plan {
    by_text(session, arguments, true)
}

/// Plans the command `EVALSHA`.
pub(crate) fn evalsha(session: &mut Session, arguments: &[Bytes]) -> Plan {
    by_digest(session, arguments, false)
}

/// Plans the command `EVALSHA_RO`.
pub(crate) fn evalsha_ro(session: &mut Session, arguments: &[Bytes]) -> Plan {
    by_digest(session, arguments, true)
}

/// Returns the error for a digest that is not loaded. Some clients compare the whole text.
fn not_loaded() -> Value {
    Value::error("NOSCRIPT No matching script. Please use EVAL.")
}

fn by_text(session: &mut Session, arguments: &[Bytes], only_reads: bool) -> Plan {
    let keys = keys(arguments)?;
    let (digest, generation) = session.shared.library.learn(&arguments[1])?;
    call(
        session,
        digest,
        generation,
        &arguments[3..],
        keys,
        only_reads,
    )
}

/// Plans a call by digest. A word that cannot be a digest is refused before its arguments are checked.
fn by_digest(session: &mut Session, arguments: &[Bytes], only_reads: bool) -> Plan {
    let digest = Digest::read(&arguments[1]).ok_or_else(not_loaded)?;
    let keys = keys(arguments)?;
    let generation = session.shared.library.find(digest).ok_or_else(not_loaded)?;
    call(
        session,
        digest,
        generation,
        &arguments[3..],
        keys,
        only_reads,
    )
}

/// Reads the number of keys, which Redis checks before all other arguments.
fn keys(arguments: &[Bytes]) -> Result<usize, Value> {
    let Ok(keys) = usize::try_from(integer_argument(&arguments[2])?) else {
        return Err(Value::error("ERR Number of keys can't be negative"));
    };
    if keys > arguments.len() - 3 {
        return Err(Value::error(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    Ok(keys)
}

/// Plans a call of the script. The words are a command, the caller's time, and the command's own arguments.
fn call(
    session: &Session,
    digest: Digest,
    generation: Generation,
    words: &[Bytes],
    keys: usize,
    only_reads: bool,
) -> Plan {
    if keys > 0 {
        return Err(script_error(b"No Keys should be provided", digest));
    }
    let row = find(words);
    session.check_right(row.name, row.right)?;
    if only_reads && row.right != Right::Read {
        let text: &[u8] = b"Write commands are not allowed from read-only scripts.";
        return Err(script_error(text, digest));
    }
    let counters = &session.shared.counters;
    count(counters.qless.calls(row.family));
    let audit = (row.right == Right::Manage).then(|| {
        let record = session.record(row.right, row.name, Outcome::Done);
        Box::new((session.shared.settings.audit.clone(), record))
    });
    let told = ReplyContext {
        digest,
        counters: Arc::clone(counters),
        audit,
    };
    let request = QlessRequest::Script {
        generation,
        words: words.to_vec(),
    };
    Ok(PlannedCall::script(request, told, row.is_wide, row.weight))
}

/// Answers the command `SCRIPT LOAD`.
pub(crate) fn load(session: &mut Session, arguments: &[Bytes]) -> Value {
    let learned = session.shared.library.learn(&arguments[2]);
    learned.map_or_else(
        |refusal| refusal,
        |(digest, _)| Value::Bulk(Bytes::from(digest.to_string())),
    )
}

/// Answers the command `SCRIPT EXISTS`.
pub(crate) fn exists(session: &mut Session, arguments: &[Bytes]) -> Value {
    let library = &session.shared.library;
    let is_there = |text: &Bytes| {
        let found = Digest::read(text).and_then(|digest| library.find(digest));
        Value::Number(i64::from(found.is_some()))
    };
    Value::Array(arguments[2..].iter().map(is_there).collect())
}

/// Answers the command `SCRIPT FLUSH`.
pub(crate) fn flush(session: &mut Session, arguments: &[Bytes]) -> Value {
    match &arguments[2..] {
        [] => {}
        [how] if is(how, "async") || is(how, "sync") => {}
        _ => return syntax_error(),
    }
    session.shared.library.forget();
    Value::OK
}
