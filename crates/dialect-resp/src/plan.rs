//! Planned calls: what a command asks the engine for, and how the answer becomes a reply.

use std::time::Duration;

use bytes::Bytes;
use ganger_types::keys::{End, KeyCall, KeyError, KeyKind, KeyReply};
use ganger_types::limits::KEY_NAME_MAX;
#[cfg(feature = "qless")]
use ganger_types::qless::{QlessAnswer, QlessRequest};

use crate::limits::{WAIT_LISTS_MAX, WAIT_NAMES_BYTES_MAX};
use crate::refusal::{key_too_long, refused};
#[cfg(feature = "qless")]
use crate::script_reply::{self, ReplyContext};
use crate::value::Value;

/// A call with the form of its reply.
pub(crate) struct PlannedCall {
    pub(crate) call: Call,
    pub(crate) shape: Shape,
    /// Whether the answer may be large.
    pub(crate) is_wide: bool,
    /// Number of calls for which it counts among those of a commit.
    pub(crate) weight: usize,
}

/// A call on keys or of qless.
#[derive(Clone)]
pub(crate) enum Call {
    Keys(KeyCall),
    #[cfg(feature = "qless")]
    Qless(QlessRequest),
}

/// The answer to a [`Call`].
pub(crate) enum Answer {
    Keys(Result<KeyReply, KeyError>),
    #[cfg(feature = "qless")]
    Qless(QlessAnswer),
}

impl Answer {
    /// The result of a call on keys; `None` if the call was of qless.
    #[cfg_attr(
        not(feature = "qless"),
        expect(clippy::unnecessary_wraps, reason = "every call is on keys")
    )]
    pub(crate) fn of_keys(self) -> Option<Result<KeyReply, KeyError>> {
        match self {
            Self::Keys(answer) => Some(answer),
            #[cfg(feature = "qless")]
            Self::Qless(_) => None,
        }
    }
}

/// How an answer becomes a reply.
pub(crate) enum Shape {
    /// By the usual conversion.
    Plain,
    /// By a conversion of its own.
    Of(fn(KeyReply) -> Value),
    /// By a conversion of its own that depends on the arguments.
    With(Box<dyn FnOnce(KeyReply) -> Value + Send>),
    /// As the result or error of a script.
    #[cfg(feature = "qless")]
    Script(ReplyContext),
}

/// The result of a handler: a call, or a reply that needs none.
pub(crate) type Plan = Result<PlannedCall, Value>;

/// A command that waits for an element of a list.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) lists: Vec<Bytes>,
    pub(crate) end: End,
    /// List and end that the element moves to; `None`: the element is removed, and the reply also names its list.
    pub(crate) to: Option<(Bytes, End)>,
    /// Maximum time to wait; `None`: forever.
    pub(crate) timeout_after: Option<Duration>,
}

impl PlannedCall {
    /// A call with the usual form of reply.
    #[expect(clippy::unnecessary_wraps, reason = "the last word of a handler")]
    pub(crate) fn plain(call: KeyCall) -> Plan {
        Ok(Self::new(Call::Keys(call), Shape::Plain))
    }

    /// A call with a conversion of its own.
    #[expect(clippy::unnecessary_wraps, reason = "the last word of a handler")]
    pub(crate) fn of(call: KeyCall, shape: fn(KeyReply) -> Value) -> Plan {
        Ok(Self::new(Call::Keys(call), Shape::Of(shape)))
    }

    /// A call with a conversion that depends on the arguments.
    #[expect(clippy::unnecessary_wraps, reason = "the last word of a handler")]
    pub(crate) fn with(
        call: KeyCall,
        shape: impl FnOnce(KeyReply) -> Value + Send + 'static,
    ) -> Plan {
        Ok(Self::new(Call::Keys(call), Shape::With(Box::new(shape))))
    }

    fn new(call: Call, shape: Shape) -> Self {
        Self {
            call,
            shape,
            is_wide: false,
            weight: 1,
        }
    }

    /// A call for a page, whose answer the connection handles itself.
    pub(crate) fn page(call: KeyCall) -> Self {
        Self::new(Call::Keys(call), Shape::Plain)
    }

    /// A query of qless that is not a call of the script.
    #[cfg(feature = "qless")]
    #[expect(clippy::unnecessary_wraps, reason = "the last word of a handler")]
    pub(crate) fn qless(request: QlessRequest) -> Plan {
        Ok(Self::new(Call::Qless(request), Shape::Plain))
    }

    /// A call of the script of qless that counts for `weight` calls.
    #[cfg(feature = "qless")]
    pub(crate) fn script(
        request: QlessRequest,
        told: ReplyContext,
        is_wide: bool,
        weight: usize,
    ) -> Self {
        Self {
            is_wide,
            weight,
            ..Self::new(Call::Qless(request), Shape::Script(told))
        }
    }
}

impl Shape {
    /// Converts the answer of the call to the reply.
    pub(crate) fn reply(self, answer: Answer) -> Value {
        match answer {
            Answer::Keys(Err(error)) => refused(error),
            Answer::Keys(Ok(reply)) => match self {
                Self::Plain => plain(reply),
                #[cfg(feature = "qless")]
                Self::Script(_) => plain(reply),
                Self::Of(shape) => shape(reply),
                Self::With(shape) => shape(reply),
            },
            #[cfg(feature = "qless")]
            Answer::Qless(answer) => match (self, answer) {
                (Self::Script(told), answer) => told.reply(answer),
                (_, Ok(reply)) => script_reply::result(reply),
                (_, Err(refusal)) => {
                    unreachable!("only a script's commands are refused, not with {refusal:?}")
                }
            },
        }
    }
}

impl Call {
    /// Whether the call is of qless.
    pub(crate) fn is_of_qless(&self) -> bool {
        !matches!(self, Self::Keys(_))
    }

    /// Approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Keys(call) => call.bytes(),
            #[cfg(feature = "qless")]
            Self::Qless(request) => request.bytes(),
        }
    }
}

impl Wait {
    /// Checks the number of lists and the length of their names.
    pub(crate) fn check(&self) -> Result<(), Value> {
        let names = self.lists.iter().chain(self.to.as_ref().map(|(to, _)| to));
        if names.clone().any(|name| name.len() > KEY_NAME_MAX) {
            return Err(key_too_long());
        }
        let bytes: usize = names.map(Bytes::len).sum();
        if self.lists.len() > WAIT_LISTS_MAX || bytes > WAIT_NAMES_BYTES_MAX {
            return Err(Value::error(format!(
                "ERR a command may wait for {WAIT_LISTS_MAX} lists with names of {WAIT_NAMES_BYTES_MAX} bytes together at most"
            )));
        }
        Ok(())
    }

    /// The reply to the result of the wait.
    pub(crate) fn reply(&self, popped: Option<(Bytes, Bytes)>) -> Value {
        match popped {
            None => Value::NilList,
            Some((_, element)) if self.to.is_some() => Value::Bulk(element),
            Some((list, element)) => Value::Bulks(vec![list, element]),
        }
    }

    /// The same call without a wait, for transactions.
    pub(crate) fn at_once(self) -> Plan {
        let Self {
            mut lists, end, to, ..
        } = self;
        let Some(from) = lists.pop().filter(|_| lists.is_empty()) else {
            return Err(Value::error(
                "ERR ganger takes from one list only inside a transaction: send a command for each",
            ));
        };
        match to {
            Some((to, to_end)) => PlannedCall::plain(KeyCall::Move {
                from,
                to,
                from_end: end,
                to_end,
            }),
            None => {
                let call = KeyCall::Pop {
                    key: from.clone(),
                    end,
                    count: None,
                };
                PlannedCall::with(call, move |reply| match reply {
                    KeyReply::Value(element) => Value::Bulks(vec![from, element]),
                    _ => Value::NilList,
                })
            }
        }
    }
}

/// The usual conversion of a reply.
pub(crate) fn plain(reply: KeyReply) -> Value {
    match reply {
        KeyReply::Done => Value::OK,
        KeyReply::NilList => Value::NilList,
        KeyReply::Number(number) => Value::Number(number),
        KeyReply::Value(bytes) => Value::Bulk(bytes),
        KeyReply::Values(all) => Value::Bulks(all),
        KeyReply::Options(all) => {
            let option = |bytes: Option<Bytes>| bytes.map_or(Value::Nil, Value::Bulk);
            Value::Array(all.into_iter().map(option).collect())
        }
        KeyReply::Indexes(all) => Value::Array(all.into_iter().map(Value::Number).collect()),
        KeyReply::Kind(kind) => Value::Simple(match kind {
            None => "none",
            Some(KeyKind::String) => "string",
            Some(KeyKind::List) => "list",
        }),
        KeyReply::Page(cursor, names) => Value::Array(vec![
            Value::Bulk(Bytes::from(cursor.to_string())),
            Value::Bulks(names),
        ]),
        // The connection asks for further pages.
        KeyReply::Names(names, _) => Value::Bulks(names),
        // Commands with one of the last two replies have a conversion of their own.
        KeyReply::Nil | KeyReply::TimeLeft(_) | KeyReply::Revision(_) => Value::Nil,
    }
}

/// 1 if the write was made, else 0.
#[expect(clippy::needless_pass_by_value, reason = "it is a `Shape::Of`")]
pub(crate) fn one_or_zero(reply: KeyReply) -> Value {
    Value::Number(i64::from(reply == KeyReply::Done))
}

/// An argument in an error message, cut to a number of bytes and at the first zero byte, as in C.
pub(crate) fn shown(argument: &[u8], bytes_max: usize) -> String {
    let end = argument.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(argument.len()).min(bytes_max);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}

/// Whether an argument is this word, in any letter case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
