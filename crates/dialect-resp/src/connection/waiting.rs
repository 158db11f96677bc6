//! Waits of a connection: for input, for messages, for its end, or for the result of a command.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::{CloseReason, Connection};
use crate::limits::{
    BEHIND_WAIT_BYTES_MAX, IDLE_LOOK_EVERY, LOOK_EVERY, READ_BYTES, READ_TOGETHER_BYTES,
};

/// Why a wait ended.
pub(super) enum WakeReason<T> {
    /// The client sent bytes.
    Input,
    /// The awaited result is ready.
    Ready(T),
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Reads the bytes that are available, up to a limit, so that their commands run together.
    pub(super) fn read_more(&mut self) -> Result<(), CloseReason> {
        while self.input.len() < READ_TOGETHER_BYTES {
            self.make_room();
            match self.stream.read_buf(&mut self.input).now_or_never() {
                None => break,
                Some(Ok(0)) => {
                    // Commands before the end still run; the next read returns the end again.
                    break;
                }
                Some(read) => read?,
            };
        }
        Ok(())
    }

    fn make_room(&mut self) {
        let room = self.input.len().clamp(READ_BYTES, READ_TOGETHER_BYTES);
        self.input.reserve(room);
    }

    /// Waits for input or for `until`, and meanwhile sends messages and checks for the end. Without `is_heeded`,
    /// input is only collected.
    pub(super) async fn wait<T>(
        &mut self,
        other: impl Future<Output = T>,
        is_heeded: bool,
    ) -> Result<WakeReason<T>, CloseReason> {
        tokio::pin!(other);
        let is_prompt = !is_heeded || self.session.is_subscribed();
        let look_every = if is_prompt {
            LOOK_EVERY
        } else {
            IDLE_LOOK_EVERY
        };
        let mut look_at = self.first_look(look_every);
        let too_slow_at = self.pace.as_ref().map(|pace| pace.until);
        loop {
            if self.input.len() > BEHIND_WAIT_BYTES_MAX + READ_TOGETHER_BYTES
                || !is_heeded && self.session.memory.set(self.held()).is_err()
            {
                return Err(CloseReason::Cut);
            }
            self.make_room();
            let session = &self.session;
            let is_asked = is_prompt && !session.login.is_open();
            tokio::select! {
                biased;
                () = session.client.cut.cancelled() => return Err(CloseReason::Cut),
                () = session.login.changed(session.changes_seen()), if is_asked => {
                    if !self.session.is_unchanged() {
                        return Err(CloseReason::Unknown);
                    }
                }
                read = self.stream.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(CloseReason::Closed);
                    }
                    if is_heeded {
                        return Ok(WakeReason::Input);
                    }
                }
                value = &mut other => return Ok(WakeReason::Ready(value)),
                () = session.mailbox.arrived() => {
                    if !self.session.is_unchanged() {
                        return Err(CloseReason::Unknown);
                    }
                    self.write().await?;
                }
                () = at(look_at), if look_at.is_some() => {
                    if !self.session.is_known() || !self.session.check_identity_now() {
                        return Err(CloseReason::Unknown);
                    }
                    look_at = Some(Instant::now() + look_every);
                }
                () = at(too_slow_at), if too_slow_at.is_some() => return Err(CloseReason::Slow),
            }
        }
    }

    /// Time of the first check of the identity; `None` if the port requires no authentication.
    fn first_look(&self, look_every: Duration) -> Option<Instant> {
        if self.session.login.is_open() {
            None
        } else if self.session.is_known() {
            Some(Instant::now() + look_every)
        } else {
            Some(self.begun + self.session.shared.settings.login_timeout)
        }
    }
}

/// Waits until a time, or forever.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
