//! The reason why the server ended a request's body before its sender did.

use std::time::Duration;

use crate::budget::Full;

/// The reason, as the body's error. Dialects find it among the causes of a read error with [`BodyCut::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyCut {
    /// The memory budget has no room for the body.
    #[error(transparent)]
    Full(#[from] Full),
    /// The sender sent nothing for this time.
    #[error("no byte of the body arrived for {} s; nothing was done, send it again", .0.as_secs())]
    Silent(Duration),
    /// The sender sent fewer bytes a second than this.
    #[error(
        "the body arrived more slowly than {0} bytes per second; nothing was done, send it again"
    )]
    Slow(u64),
    /// The sender's right has ended.
    #[error(
        "the token or certificate that sends this was revoked, has expired, or has other rights now: send it again with one that is valid"
    )]
    Revoked,
}

impl BodyCut {
    /// Returns the stable code of the refusal; see docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full(_) => "overloaded",
            Self::Silent(_) | Self::Slow(_) => "body_incomplete",
            Self::Revoked => "unauthorized",
        }
    }

    /// Finds the reason among the causes of an error; `None` if there is none.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(cut) = error.downcast_ref::<Self>() {
                return Some(*cut);
            }
            cause = error.source();
        }
        None
    }
}
