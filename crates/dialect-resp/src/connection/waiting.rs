//! Waiting of a connection: for bytes, for messages, for its end, or for something that a command waits for.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::{Connection, End};
use crate::limits::{
    BEHIND_WAIT_BYTES_MAX, IDLE_LOOK_EVERY, LOOK_EVERY, READ_BYTES, READ_TOGETHER_BYTES,
};

/// What woke a connection that waited.
pub(super) enum Woken<T> {
    /// Bytes came from the client.
    Input,
    /// What it waited for.
    Ready(T),
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Reads what is there already, up to a bound, so that it is run together.
    pub(super) fn read_more(&mut self) -> Result<(), End> {
        while self.input.len() < READ_TOGETHER_BYTES {
            self.make_room();
            match self.stream.read_buf(&mut self.input).now_or_never() {
                None => break,
                Some(Ok(0)) => {
                    // What was sent before the end is run yet; the next read finds the end again.
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

    /// Waits for bytes or for something else, while messages go out and the end is noticed. Without `is_heeded` bytes
    /// are gathered only.
    pub(super) async fn wait<T>(
        &mut self,
        other: impl Future<Output = T>,
        is_heeded: bool,
    ) -> Result<Woken<T>, End> {
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
                return Err(End::Cut);
            }
            self.make_room();
            let session = &self.session;
            let is_asked = is_prompt && !session.login.is_open();
            tokio::select! {
                biased;
                () = session.client.cut.cancelled() => return Err(End::Cut),
                () = session.login.changed(session.changes_seen()), if is_asked => {
                    if !self.session.is_unchanged() {
                        return Err(End::Unknown);
                    }
                }
                read = self.stream.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(End::Closed);
                    }
                    if is_heeded {
                        return Ok(Woken::Input);
                    }
                }
                value = &mut other => return Ok(Woken::Ready(value)),
                () = session.mailbox.arrived() => {
                    if !self.session.is_unchanged() {
                        return Err(End::Unknown);
                    }
                    self.write().await?;
                }
                () = at(look_at), if look_at.is_some() => {
                    if !self.session.is_known() || !self.session.is_still_now() {
                        return Err(End::Unknown);
                    }
                    look_at = Some(Instant::now() + look_every);
                }
                () = at(too_slow_at), if too_slow_at.is_some() => return Err(End::Slow),
            }
        }
    }

    /// When to look first whether it is still who it is; never, where nobody is asked.
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

/// Waits until then, or forever.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
