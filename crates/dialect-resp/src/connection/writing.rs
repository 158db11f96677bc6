//! Output to the client: replies in order, messages between them, and a time limit for clients that do not read.

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};

use super::{CloseReason, Connection};
use crate::encode::Encoder;
use crate::limits::{IDLE_BYTES, STALLED_AFTER, WRITE_BYTES};
use crate::value::Value;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Adds replies to the output.
    pub(super) async fn write_replies(&mut self, replies: Vec<Value>) -> Result<(), CloseReason> {
        self.writing = replies.iter().map(Value::held).sum();
        // Messages published meanwhile, also by this connection, come before the replies.
        self.put_messages().await?;
        for reply in replies {
            self.put(reply).await?;
        }
        Ok(())
    }

    /// Appends a value to the output, in parts if it is large.
    pub(super) async fn put(&mut self, value: Value) -> Result<(), CloseReason> {
        let protocol = self.session.protocol;
        if value.is_short() {
            value.write(protocol, &mut self.out);
        } else {
            let mut encoder = Encoder::new(value);
            while !encoder.fill(protocol, &mut self.out, WRITE_BYTES) {
                self.write_out().await?;
            }
        }
        if self.out.len() >= WRITE_BYTES {
            self.write_out().await?;
        }
        Ok(())
    }

    pub(super) async fn put_messages(&mut self) -> Result<(), CloseReason> {
        for message in self.session.mailbox.take() {
            self.put(message.push()).await?;
        }
        Ok(())
    }

    /// Writes all replies and messages, unless the client reads too slowly.
    pub(super) async fn write(&mut self) -> Result<(), CloseReason> {
        if self.batch.is_empty() {
            self.put_messages().await?;
        }
        self.write_out().await?;
        self.writing = 0;
        // Elements whose replies are still in the batch are not written.
        if self.batch.is_empty() {
            self.undelivered = None;
        }
        if self.out.capacity() > IDLE_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Writes the output. Output that the client does not read soon counts in the budget, and has a time limit.
    async fn write_out(&mut self) -> Result<(), CloseReason> {
        let timeout_after = self.session.shared.settings.write_timeout;
        let begun = Instant::now();
        let mut counted = 0;
        while !self.out.is_empty() {
            let full = async {
                // A stop of the server lets replies be written; a connection that was cut because its client reads
                // too slowly ends here.
                self.session.client.cut.cancelled().await;
                if !self.session.mailbox.is_full() {
                    std::future::pending::<()>().await;
                }
            };
            let until = begun
                + if counted > 0 {
                    timeout_after
                } else {
                    timeout_after.min(STALLED_AFTER)
                };
            tokio::select! {
                biased;
                written = self.stream.write(&self.out) => match written? {
                    0 => return Err(CloseReason::Closed),
                    written => self.out.advance(written),
                },
                () = full => return Err(CloseReason::Slow),
                () = sleep_until(until) => {
                    if counted > 0 || timeout_after <= STALLED_AFTER {
                        return Err(CloseReason::Slow);
                    }
                    let before = self.session.memory.counted();
                    counted = self.writing.max(self.out.len());
                    let all = before.saturating_add(counted);
                    self.session.memory.set(all).map_err(|_| CloseReason::Slow)?;
                }
            }
        }
        self.stream.flush().await?;
        if counted > 0 {
            self.session.memory.set_anyway(self.held());
        }
        Ok(())
    }
}
