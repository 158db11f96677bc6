//! The command `CLIENT` and its subcommands.

use bytes::Bytes;
use ganger_access::Outcome;

use crate::command::{Command, Local, Word, family, local};
use crate::limits::{CLIENT_NAME_BYTES_MAX, SHOWN_BYTES_MAX};
use crate::number::integer;
use crate::plan::{is, shown};
use crate::refusal::syntax_error;
use crate::rights::Right;
use crate::session::Session;
use crate::value::Value;

pub(crate) const COMMANDS: &[Command] = &[family("client", -2, Right::Known, WORDS)];

/// Subcommands that need more rights than the command.
static LIST: Command = local("client|list", -2, Right::Inspect, list);
static KILL: Command = local("client|kill", -3, Right::Rule, kill);

const WORDS: &[Word] = &[
    ("id", 2, |session, _| {
        Value::Number(i64::try_from(session.client.id).unwrap_or(i64::MAX))
    }),
    ("getname", 2, |session, _| {
        let name = session.client.state().name.clone();
        if name.is_empty() {
            Value::Nil
        } else {
            Value::Bulk(name)
        }
    }),
    ("setname", 3, |session, a| {
        set_name(session, &a[2]).map_or_else(|error| error, |()| Value::OK)
    }),
    ("setinfo", 4, set_info),
    ("info", 2, |session, _| Value::Text(session.client.line())),
    ("list", -2, |session, a| checked(session, &LIST, list, a)),
    ("kill", -3, |session, a| checked(session, &KILL, kill, a)),
    ("no-evict", 3, |_, a| on_or_off(&a[2])),
    ("no-touch", 3, |_, a| on_or_off(&a[2])),
    ("reply", 3, |_, a| {
        if is(&a[2], "on") {
            Value::OK
        } else if is(&a[2], "off") || is(&a[2], "skip") {
            Value::error("ERR ganger answers every command: CLIENT REPLY takes ON only")
        } else {
            syntax_error()
        }
    }),
];

/// Runs a subcommand that needs more rights than the command.
fn checked(session: &mut Session, row: &Command, run: Local, arguments: &[Bytes]) -> Value {
    match row.check_right(session) {
        Ok(()) => run(session, arguments),
        Err(refusal) => refusal,
    }
}

/// Sets the name of a connection; empty: none.
pub(crate) fn set_name(session: &mut Session, name: &Bytes) -> Result<(), Value> {
    check_name("Client names", name)?;
    session.client.state().name = name.clone();
    Ok(())
}

fn check_name(what: &str, name: &[u8]) -> Result<(), Value> {
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return Err(Value::error(format!(
            "ERR {what} exceeds the largest length of {CLIENT_NAME_BYTES_MAX} bytes"
        )));
    }
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Value::error(format!(
        "ERR {what} cannot contain spaces, newlines or special characters."
    )))
}

fn set_info(session: &mut Session, arguments: &[Bytes]) -> Value {
    let (what, value) = (&arguments[2], &arguments[3]);
    let (name, is_version) = if is(what, "lib-name") {
        ("lib-name", false)
    } else if is(what, "lib-ver") {
        ("lib-ver", true)
    } else {
        let what = shown(what, SHOWN_BYTES_MAX);
        return Value::error(format!("ERR Unrecognized option '{what}'"));
    };
    if let Err(refusal) = check_name(name, value) {
        return refusal;
    }
    let mut facts = session.client.state();
    if is_version {
        facts.library_version = value.clone();
    } else {
        facts.library = value.clone();
    }
    Value::OK
}

fn on_or_off(word: &[u8]) -> Value {
    if is(word, "on") || is(word, "off") {
        Value::OK
    } else {
        syntax_error()
    }
}

fn list(session: &mut Session, arguments: &[Bytes]) -> Value {
    let clients = &session.shared.clients;
    match &arguments[2..] {
        [] => Value::Text(clients.list(None)),
        [word, kind] if is(word, "type") => {
            if is(kind, "normal") {
                Value::Text(clients.list(None))
            } else if ["master", "replica", "slave", "pubsub"]
                .iter()
                .any(|known| is(kind, known))
            {
                Value::Text(String::new())
            } else {
                let kind = shown(kind, SHOWN_BYTES_MAX);
                Value::error(format!("ERR Unknown client type '{kind}'"))
            }
        }
        [word, ids @ ..] if is(word, "id") && !ids.is_empty() => {
            let ids: Option<Vec<u64>> = ids.iter().map(|id| client_id(id)).collect();
            ids.map_or_else(
                || Value::error("ERR Invalid client ID"),
                |ids| Value::Text(clients.list(Some(&ids))),
            )
        }
        _ => syntax_error(),
    }
}

fn client_id(text: &[u8]) -> Option<u64> {
    integer(text)
        .and_then(|id| u64::try_from(id).ok())
        .filter(|id| *id > 0)
}

/// `CLIENT KILL ID n`; other filters are refused.
fn kill(session: &mut Session, arguments: &[Bytes]) -> Value {
    let [word, id] = &arguments[2..] else {
        return syntax_error();
    };
    if !is(word, "id") {
        return syntax_error();
    }
    let Some(id) = client_id(id) else {
        return Value::error("ERR client-id should be greater than 0");
    };
    session.tell(Right::Rule, KILL.name, Outcome::Done);
    if id == session.client.id {
        // The connection ends after this reply.
        session.is_ending = true;
        return Value::Number(1);
    }
    Value::Number(i64::from(session.shared.clients.end(id)))
}
