//! Commands of a connection: each is checked, then queued, added to the batch, or run at once.

use bytes::Bytes;
use ganger_types::keys::KeyCall;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{CloseReason, Connection};
use crate::command::{Command, Run, Special, run_second};
use crate::counters::count;
use crate::limits::CONFIRMATIONS;
use crate::memory::no_room;
use crate::plan::{Call, Plan, PlannedCall, Wait};
use crate::refusal::{is_loading, loading};
use crate::session::Queue;
use crate::value::Value;
use crate::{pubsub, table, transaction};

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Checks a command, and runs, queues or batches it.
    pub(super) async fn take(&mut self, arguments: Vec<Bytes>) -> Result<(), CloseReason> {
        count(&self.session.shared.counters.commands);
        let command = match self.judge(&arguments) {
            Ok(command) => command,
            Err(refusal) => {
                let refusal = transaction::refused(&mut self.session, &arguments[0], refusal);
                self.batch.ready(refusal);
                return Ok(());
            }
        };
        self.session.client.note(command.name);
        if let Some(queue) = &mut self.session.queue
            && !transaction::is_at_once(command)
        {
            let is_put = queue.put(arguments);
            let queued = queue.commands.len();
            self.session.client.state().queued = Some(queued);
            let reply = if is_put {
                self.with_room_for_queue(Value::Simple("QUEUED"))
            } else {
                Value::error("ERR the transaction exceeds its largest length")
            };
            self.batch.ready(reply);
            return Ok(());
        }
        match command.run {
            Run::Call(plan) => match plan(&arguments) {
                Ok(PlannedCall {
                    call: Call::Keys(KeyCall::Names { pattern, .. }),
                    ..
                }) => self.names(pattern).await,
                plan => {
                    self.put_in(plan, command.is_wide);
                    Ok(())
                }
            },
            Run::Script(plan) => {
                let planned = plan(&mut self.session, &arguments);
                self.put_in(planned, command.is_wide);
                Ok(())
            }
            Run::Local(run) => {
                let value = run(&mut self.session, &arguments);
                self.batch.ready(value);
                Ok(())
            }
            Run::Second(words) | Run::Scripts(words) => {
                let value = run_second(words, &mut self.session, &arguments);
                self.batch.ready(value);
                // Some subcommands look at all connections.
                tokio::task::yield_now().await;
                Ok(())
            }
            Run::Wait(plan) => match plan(&arguments).and_then(checked) {
                Ok(wait) => self.block(wait).await,
                Err(value) => {
                    self.batch.ready(value);
                    Ok(())
                }
            },
            Run::Special(special) => self.special(special, &arguments).await,
        }
    }

    /// Adds a call or a ready reply to the batch.
    fn put_in(&mut self, plan: Plan, is_wide: bool) {
        match plan {
            Ok(planned) => {
                if let Call::Keys(KeyCall::Get { key }) = &planned.call {
                    let session = &mut self.session;
                    let database = &session.shared.settings.databases[session.database];
                    session.popped.asked_for(database, key);
                }
                self.batch.call(self.session.namespace(), planned, is_wide);
            }
            Err(value) => {
                self.batch.ready(value);
            }
        }
    }

    /// The row of a command that the session may send now.
    fn judge(&self, arguments: &[Bytes]) -> Result<&'static Command, Value> {
        let session = &self.session;
        let Some(command) = table::find(&arguments[0]) else {
            count(&session.shared.counters.unknown);
            return Err(table::unknown(arguments));
        };
        command.check_words(arguments)?;
        command.check_right(session)?;
        if session.is_listening_only() && !pubsub::is_for_listeners(command) {
            return Err(Value::error(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        if session.queue.is_some() && transaction::is_refused(command) {
            return Err(Value::error("ERR Command not allowed inside a transaction"));
        }
        let needs_keys = match command.run {
            Run::Call(_) | Run::Wait(_) | Run::Script(_) => true,
            Run::Special(special) => matches!(
                special,
                Special::Watch | Special::Exec | Special::FlushAll | Special::FlushDb
            ),
            Run::Local(_) | Run::Second(_) | Run::Scripts(_) => false,
        };
        if needs_keys && is_loading(&session.shared.handle.health()) {
            return Err(loading());
        }
        Ok(command)
    }

    async fn special(&mut self, special: Special, arguments: &[Bytes]) -> Result<(), CloseReason> {
        let value = match special {
            Special::Multi if self.session.queue.is_some() => {
                Value::error("ERR MULTI calls can not be nested")
            }
            Special::Multi => {
                self.session.queue = Some(Queue::default());
                self.session.client.state().queued = Some(0);
                Value::OK
            }
            Special::Discard => transaction::discard(&mut self.session),
            Special::Exec => {
                self.settle().await?;
                transaction::execute(&mut self.session).await
            }
            Special::Watch => {
                self.settle().await?;
                transaction::watch(&mut self.session, &arguments[1..]).await
            }
            Special::Select => transaction::select(&mut self.session, arguments),
            Special::Auth | Special::Hello => {
                self.settle().await?;
                if special == Special::Auth {
                    crate::hello::auth(&mut self.session, arguments).await
                } else {
                    crate::hello::hello(&mut self.session, arguments).await
                }
            }
            Special::Quit => {
                self.session.is_ending = true;
                Value::OK
            }
            Special::Reset => {
                // Earlier commands are answered in the previous version of the protocol.
                self.settle().await?;
                self.session.reset();
                Value::Simple("RESET")
            }
            Special::Info | Special::FlushAll | Special::FlushDb => {
                transaction::spread(&mut self.session, &mut self.batch, special, arguments);
                return Ok(());
            }
            Special::Publish => {
                // Other connections must not see what is not durable yet.
                self.settle().await?;
                // The channel may be compared with many patterns.
                tokio::task::yield_now().await;
                pubsub::publish(&mut self.session, arguments)
            }
            Special::Subscribe(is_pattern) => return self.subscribe(is_pattern, arguments).await,
            Special::Unsubscribe(is_pattern) => {
                return self.unsubscribe(is_pattern, arguments).await;
            }
        };
        self.batch.ready(value);
        Ok(())
    }

    async fn subscribe(
        &mut self,
        is_pattern: bool,
        arguments: &[Bytes],
    ) -> Result<(), CloseReason> {
        // The confirmation comes before any message of the subscription.
        self.settle().await?;
        self.put_messages().await?;
        for names in arguments[1..].chunks(CONFIRMATIONS) {
            for value in pubsub::subscribe(&mut self.session, is_pattern, names) {
                self.put(value).await?;
            }
        }
        Ok(())
    }

    async fn unsubscribe(
        &mut self,
        is_pattern: bool,
        arguments: &[Bytes],
    ) -> Result<(), CloseReason> {
        // The confirmation comes after every message of the subscription.
        self.settle().await?;
        let confirmations = pubsub::unsubscribe(&mut self.session, is_pattern, &arguments[1..]);
        self.put_messages().await?;
        for value in confirmations {
            self.put(value).await?;
        }
        Ok(())
    }

    /// The reply to a queued command, or the error if the budget has no room for the queue.
    fn with_room_for_queue(&mut self, reply: Value) -> Value {
        let held = self.held();
        let Err(full) = self.session.memory.set(held) else {
            return reply;
        };
        if let Some(queue) = &mut self.session.queue {
            queue.give_up();
        }
        Value::error(no_room(full))
    }
}

fn checked(wait: Wait) -> Result<Wait, Value> {
    wait.check().map(|()| wait)
}
