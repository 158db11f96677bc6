//! `log`: appends an entry with a client's own text to a job's history.

use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::call::{Arguments, Call, refuse};
use crate::json;
use crate::procedures::history;
use crate::state::Qless;

/// `log jid message [data]`: `message` becomes the entry's `what`; the keys of the object `data` become its further
/// keys.
pub(super) fn log(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = arguments.required(0, "Log(): Argument 'jid' missing")?;
    let message = arguments.required(1, "Log(): Argument 'message' missing")?;
    let extra = match arguments.get(2) {
        Some(data) => json::object(data)?,
        None => Vec::new(),
    };
    if state.job(jid).is_none() {
        return Err(refuse(&[b"Log(): Job ", jid, b" does not exist"]));
    }
    let limit = history::limit(state)?;

    history::append(state, jid, limit, message.clone(), call.now, extra);
    Ok(QlessReply::Nil)
}
