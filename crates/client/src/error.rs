//! The error of a call: a stable code, a message for people, and whether a retry can help.

use std::fmt;
use std::time::Duration;

use ganger_proto::convert::FieldError;
use ganger_proto::{metadata, v1};
use tonic::{Code, Status};

/// Codes of errors that the client makes. All others come from the server: see `docs/errors.md`.
pub mod code {
    /// No connection could be made, or it broke.
    pub const UNREACHABLE: &str = "unreachable";
    /// The address belongs to something other than a ganger server, or expects TLS.
    pub const WRONG_PORT: &str = "wrong_port";
    /// The call was not answered in time.
    pub const TIMED_OUT: &str = "timed_out";
    /// The server's address cannot be read.
    pub const BAD_URL: &str = "bad_url";
    /// The token has bytes that a header cannot contain.
    pub const BAD_TOKEN: &str = "bad_token";
    /// A certificate or key cannot be used.
    pub const BAD_TRUST: &str = "bad_trust";
    /// The server's answer cannot be decoded by this version.
    pub const BAD_REPLY: &str = "bad_reply";
    /// The stream was closed on this side.
    pub const CLOSED: &str = "closed";
    /// The lease expired before the report could be delivered.
    pub const LEASE_LOST: &str = "lease_lost";
}

/// Whether an error with this code means for certain that nothing was changed.
fn is_outcome_certain(code: &str) -> bool {
    !matches!(code, "unavailable" | "outcome_unknown")
}

/// The error of a call. Its `Display` is the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    details: Box<Details>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    code: String,
    message: String,
    is_retryable: bool,
    retry_after: Option<Duration>,
    has_changed_nothing: bool,
}

impl From<FieldError> for Error {
    /// Returns the error for an answer that cannot be decoded.
    fn from(error: FieldError) -> Self {
        Self::bad_reply(&error.message)
    }
}

impl Error {
    /// Returns the stable code, such as `job_not_found`.
    pub fn code(&self) -> &str {
        &self.details.code
    }

    /// Returns the message: what failed, the limit if there is one, and the next step.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.details.is_retryable
    }

    /// Returns the pause before a retry that the server asks for; `None` if it names none.
    pub fn retry_after(&self) -> Option<Duration> {
        self.details.retry_after
    }

    /// Whether the call certainly changed nothing: it was refused, or never sent.
    pub fn has_changed_nothing(&self) -> bool {
        self.details.has_changed_nothing
    }

    /// Whether the server could not be reached, or cannot answer at the moment.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self.code(),
            code::UNREACHABLE | code::WRONG_PORT | "unavailable"
        )
    }

    pub(crate) fn local(code: &str, message: impl Into<String>) -> Self {
        Self::make(code, message.into(), false, None, true)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::make(code::UNREACHABLE, message.into(), true, None, false)
    }

    /// Returns the error for a plain address of a port with TLS; a retry cannot help.
    pub(crate) fn speaks_tls(url: &str) -> Self {
        let address = url.trim_start_matches("http://");
        let message = format!("{address} speaks TLS: use https://{address}");
        Self::local(code::WRONG_PORT, message)
    }

    /// Returns the error for an address of another program. A retry may help, since a proxy may answer while the
    /// server is away.
    pub(crate) fn wrong_port(url: &str) -> Self {
        let message = format!(
            "what answers at {url} does not look like a ganger server: is it the port of another program, or of a proxy without HTTP/2?"
        );
        Self::make(code::WRONG_PORT, message, true, None, false)
    }

    pub(crate) fn timed_out(message: impl Into<String>) -> Self {
        Self::make(code::TIMED_OUT, message.into(), true, None, false)
    }

    fn make(
        code: &str,
        message: String,
        is_retryable: bool,
        retry_after: Option<Duration>,
        has_changed_nothing: bool,
    ) -> Self {
        let code = code.to_owned();
        Self {
            details: Box::new(Details {
                code,
                message,
                is_retryable,
                retry_after,
                has_changed_nothing,
            }),
        }
    }

    pub(crate) fn bad_reply(what: &str) -> Self {
        let message =
            format!("the server's answer cannot be understood: {what}; is it of another version?");
        Self::make(code::BAD_REPLY, message, false, None, false)
    }

    /// Converts the error of an item of a batch.
    pub(crate) fn from_item(error: v1::Error) -> Self {
        let after = error.retry_after_ms.map(Duration::from_millis);
        let is_sure = is_outcome_certain(&error.code);
        Self::make(&error.code, error.message, error.retryable, after, is_sure)
    }

    /// Converts the status of a call. A status without ganger's code comes from the transport or a proxy.
    pub(crate) fn from_status(status: &Status) -> Self {
        let told = |key| {
            status
                .metadata()
                .get(key)
                .and_then(|value| value.to_str().ok())
        };
        if let Some(code) = told(metadata::CODE) {
            let after = told(metadata::RETRY_AFTER_MS).and_then(|text| text.parse().ok());
            return Self::make(
                code,
                status.message().to_owned(),
                told(metadata::RETRYABLE) == Some("true"),
                after.map(Duration::from_millis),
                is_outcome_certain(code),
            );
        }
        Self::from_transport(status)
    }

    fn from_transport(status: &Status) -> Self {
        let message = words(status);
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => {
                Self::make(code::TIMED_OUT, message, true, None, false)
            }
            Code::Unauthenticated => Self::local("unauthorized", message),
            Code::PermissionDenied => Self::local("permission_denied", message),
            Code::Unimplemented => Self::local("unimplemented", message),
            Code::OutOfRange | Code::ResourceExhausted => Self::local("too_large", message),
            Code::InvalidArgument => Self::local("invalid_argument", message),
            _ => Self::make(
                code::UNREACHABLE,
                message,
                true,
                None,
                was_never_sent(status),
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.details.message)
    }
}

impl std::error::Error for Error {}

/// Returns the status and its causes in one line: the transport's own message is only "transport error".
fn words(status: &Status) -> String {
    const EMPTY: &str = "transport error";
    let message = status.message();
    let mut text = message
        .trim_end_matches(EMPTY)
        .trim_end_matches(": ")
        .to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        if more != EMPTY && !text.contains(&more) {
            text = if text.is_empty() {
                more
            } else {
                format!("{text}: {more}")
            };
        }
        cause = error.source();
    }
    if text.is_empty() {
        EMPTY.clone_into(&mut text);
    }
    text
}

/// Whether the connection could not be established.
fn was_never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
