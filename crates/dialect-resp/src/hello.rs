//! The commands `HELLO` and `AUTH`, and small commands such as `PING`.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::client::set_name;
use crate::command::{Command, local};
use crate::info::VERSION;
use crate::limits::SHOWN_BYTES_MAX;
use crate::login::LoginError;
use crate::number::integer;
use crate::plan::{is, shown};
use crate::refusal::{is_loading, loading, syntax_error, wrong_arity};
use crate::rights::Right;
use crate::session::Session;
use crate::value::{Protocol, Value};

pub(crate) const COMMANDS: &[Command] = &[
    local("ping", -1, Right::Known, ping),
    local("echo", 2, Right::Known, |_, arguments| {
        Value::Bulk(arguments[1].clone())
    }),
    local("time", 1, Right::Known, |_, _| time()),
    // In a transaction, the keys are not watched any more already.
    local("unwatch", 1, Right::Known, |session, _| {
        session.unwatch();
        Value::OK
    }),
];

fn ping(session: &mut Session, arguments: &[Bytes]) -> Value {
    // Shell scripts wait for `PONG` and then send commands on keys.
    if is_loading(&session.shared.handle.health()) {
        return loading();
    }
    let text = match &arguments[1..] {
        [] => None,
        [text] => Some(text.clone()),
        _ => return wrong_arity("ping"),
    };
    if session.is_listening_only() {
        return Value::Bulks(vec![Bytes::from_static(b"pong"), text.unwrap_or_default()]);
    }
    text.map_or(Value::Simple("PONG"), Value::Bulk)
}

fn time() -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (seconds, micros) = (now.as_secs().to_string(), now.subsec_micros().to_string());
    Value::Bulks(vec![seconds.into(), micros.into()])
}

/// `AUTH [user] password`: the password is a token of the server, which identifies the client; the user name is
/// ignored.
pub(crate) async fn auth(session: &mut Session, arguments: &[Bytes]) -> Value {
    let (user, token) = match &arguments[1..] {
        [token] => (None, token),
        [user, token] => (Some(user), token),
        _ => return syntax_error(),
    };
    match log_in(session, user, token).await {
        Ok(()) => Value::OK,
        Err(refusal) => refusal,
    }
}

async fn log_in(session: &mut Session, user: Option<&Bytes>, token: &Bytes) -> Result<(), Value> {
    if session.login.is_open() {
        return match user {
            Some(user) if is(user, "default") => Ok(()),
            Some(_) => Err(wrong_password()),
            None => Err(Value::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            )),
        };
    }
    match session.login.login(token).await {
        Ok(identity) => {
            session.set_identity(identity, Some(token.clone()));
            Ok(())
        }
        Err(LoginError::Wrong) => Err(wrong_password()),
        Err(LoginError::TooMany) => Err(Value::error(
            "WRONGPASS too many wrong tokens came from this address: correct the token, then come back",
        )),
    }
}

fn wrong_password() -> Value {
    Value::error("WRONGPASS invalid username-password pair or user is disabled.")
}

/// `HELLO [2 or 3 [AUTH user token] [SETNAME name]]`. The reply is in the new version of the protocol.
pub(crate) async fn hello(session: &mut Session, arguments: &[Bytes]) -> Value {
    match try_hello(session, arguments).await {
        Ok(()) => greeting(session),
        Err(refusal) => refusal,
    }
}

async fn try_hello(session: &mut Session, arguments: &[Bytes]) -> Result<(), Value> {
    let wanted = arguments
        .get(1)
        .map(|version| protocol(version))
        .transpose()?;
    let (mut login, mut name) = (None, None);
    let mut rest = arguments.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            [] => break,
            [word, user, token, rest @ ..] if is(word, "auth") => {
                login = Some((user, token));
                rest
            }
            [word, wanted, rest @ ..] if is(word, "setname") => {
                name = Some(wanted);
                rest
            }
            [word, ..] => {
                let word = shown(word, SHOWN_BYTES_MAX);
                return Err(Value::error(format!(
                    "ERR Syntax error in HELLO option '{word}'"
                )));
            }
        };
    }
    if let Some((user, token)) = login {
        log_in(session, Some(user), token).await?;
    }
    if !session.is_known() {
        return Err(Value::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        set_name(session, name)?;
    }
    if let Some(protocol) = wanted {
        session.set_protocol(protocol);
    }
    Ok(())
}

fn protocol(version: &[u8]) -> Result<Protocol, Value> {
    match integer(version) {
        Some(2) => Ok(Protocol::Two),
        Some(3) => Ok(Protocol::Three),
        Some(_) => Err(Value::error("NOPROTO unsupported protocol version")),
        None => Err(Value::error(
            "ERR Protocol version is not an integer or out of range",
        )),
    }
}

fn greeting(session: &Session) -> Value {
    let protocol = match session.protocol {
        Protocol::Two => 2,
        Protocol::Three => 3,
    };
    let id = i64::try_from(session.client.id).unwrap_or(i64::MAX);
    let rows = [
        ("server", Value::word("redis")),
        ("version", Value::word(VERSION)),
        ("proto", Value::Number(protocol)),
        ("id", Value::Number(id)),
        ("mode", Value::word("standalone")),
        ("role", Value::word("master")),
        ("modules", Value::Array(Vec::new())),
    ];
    Value::Map(
        rows.into_iter()
            .map(|(name, value)| (Value::word(name), value))
            .collect(),
    )
}
