//! Calls of a connection on its shard: the batch, the pages of `KEYS`, and waits for an element of a list.

use std::sync::Arc;

use bytes::Bytes;
use ganger_types::KeyWait;
use ganger_types::keys::{KeyCall, KeyError, KeyReply};
use ganger_types::limits::KEY_REPLY_ELEMENTS_MAX;
use tokio::io::{AsyncRead, AsyncWrite};

use super::waiting::WakeReason;
use super::{CloseReason, Connection};
use crate::batch::{Batch, BatchOutcome};
use crate::counters::Gauge;
use crate::limits::PART_BYTES;
use crate::memory::no_room;
use crate::plan::{Answer, PlannedCall, Wait};
use crate::refusal::{refused, unavailable};
use crate::unconfirmed_pops::{Pop, is_taken};
use crate::value::Value;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Waits for an element of a list. Later commands wait until it is done; if the client disconnects, the wait
    /// ends.
    pub(super) async fn block(&mut self, wait: Wait) -> Result<(), CloseReason> {
        self.settle().await?;
        self.write().await?;
        let shared = Arc::clone(&self.session.shared);
        let asked = KeyWait {
            namespace: self.session.namespace().clone(),
            lists: wait.lists.clone(),
            end: wait.end,
            to: wait.to.clone(),
        };
        let pop = shared.handle.pop(asked.clone(), wait.timeout_after);
        let blocked = Gauge::of(&shared.counters.blocked);
        self.session.client.state().is_blocked = true;
        // If the client disconnects, this future is dropped: the wait ends, and an element that was taken for it goes
        // back.
        let woken = self.wait(pop, false).await;
        self.session.client.state().is_blocked = false;
        drop(blocked);
        let value = match woken? {
            WakeReason::Ready(Ok(Ok(popped))) => {
                let is_unchanged = popped.is_none() || self.session.check_identity_now();
                if let Some((list, element)) = &popped {
                    if let Some((to, _)) = &asked.to
                        && is_taken(list, to)
                    {
                        self.session.popped.note(Pop {
                            namespace: asked.namespace.clone(),
                            list: list.clone(),
                            element: element.clone(),
                        });
                    }
                    self.undelivered = Some((asked, list.clone(), element.clone()));
                }
                if !is_unchanged {
                    // The element goes back.
                    return Err(CloseReason::Unknown);
                }
                wait.reply(popped)
            }
            WakeReason::Ready(Ok(Err(error))) => refused(error),
            WakeReason::Ready(Err(error)) => unavailable(&error),
            WakeReason::Input => unreachable!("bytes are gathered only"),
        };
        self.batch.ready(value);
        Ok(())
    }

    /// Runs the batch and adds the replies to the output.
    pub(super) async fn settle(&mut self) -> Result<(), CloseReason> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let (is_wide, is_read_only) = (batch.is_wide(), batch.is_read_only());
        let shared = Arc::clone(&self.session.shared);
        let permit = shared.permit(is_wide).await;
        let BatchOutcome::Replies(mut replies, popped) = batch.gather(&shared.handle).await else {
            unreachable!("nothing is watched outside of a transaction");
        };
        for pop in popped {
            self.session.popped.note(pop);
        }
        let parts: usize = replies.iter().map(Value::parts).sum();
        let held = self.held() + parts * PART_BYTES;
        if is_wide && let Err(full) = self.session.memory.set(held) {
            if is_read_only && let Some(last) = replies.last_mut() {
                *last = Value::error(no_room(full));
            } else {
                self.session.memory.set_anyway(held);
            }
        }
        drop(permit);
        self.write_replies(replies).await
    }

    /// Runs `KEYS` page by page, so that other commands can run in between. A key that exists throughout is returned
    /// once.
    pub(super) async fn names(&mut self, pattern: Bytes) -> Result<(), CloseReason> {
        self.settle().await?;
        let shared = Arc::clone(&self.session.shared);
        let permit = shared.permit(true).await;
        let (mut names, mut after) = (Vec::new(), None);
        let value = loop {
            let mut page = Batch::default();
            let call = KeyCall::Names {
                pattern: pattern.clone(),
                after: after.take(),
                is_whole: false,
            };
            page.call(self.session.namespace(), PlannedCall::page(call), true);
            let found = match page.answers(&shared.handle).await.pop() {
                Some(Ok(Answer::Keys(Ok(KeyReply::Names(found, next))))) => {
                    after = next;
                    found
                }
                Some(Ok(Answer::Keys(Err(error)))) => break refused(error),
                Some(Err(error)) => break error,
                other => unreachable!("names are asked for, not {:?}", other.is_some()),
            };
            names.extend(found);
            if names.len() > KEY_REPLY_ELEMENTS_MAX {
                break refused(KeyError::ReplyTooLarge);
            }
            let held = self.held() + names.len() * PART_BYTES;
            if let Err(full) = self.session.memory.set(held) {
                break Value::error(no_room(full));
            }
            if after.is_none() {
                break Value::Bulks(names);
            }
        };
        drop(permit);
        self.write_replies(vec![value]).await
    }
}
