//! What a connection is in the middle of: protocol, database, identity, transaction, subscriptions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ganger_access::{Identity, Outcome, Record};
use ganger_types::Namespace;

use crate::clients::Client;
use crate::counters::count;
use crate::hub::Mailbox;
use crate::limits::{LOOK_EVERY, QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX};
use crate::login::Login;
use crate::popped::Popped;
use crate::port::Shared;
use crate::rights::{Right, Rights};
use crate::table::Command;
use crate::value::{Protocol, Value};

/// The state of a connection.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    pub(crate) login: Box<dyn Login>,
    pub(crate) protocol: Protocol,
    pub(crate) database: usize,
    identity: Identity,
    /// The token that it has shown.
    token: Option<Bytes>,
    rights: Rights,
    seen: Seen,
    /// The transaction that is being put together.
    pub(crate) queue: Option<Queue>,
    /// Keys that are watched: database, name, revision.
    pub(crate) watched: Vec<(usize, Bytes, u64)>,
    pub(crate) channels: BTreeSet<Bytes>,
    pub(crate) patterns: BTreeSet<Bytes>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// What it took from work queues.
    pub(crate) popped: Popped,
    /// Whether it ends once what it was answered is written.
    pub(crate) is_ending: bool,
}

/// When the rights were last looked up.
struct Seen {
    changes: u64,
    at: Instant,
}

/// Commands that wait for `EXEC`.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) commands: Vec<(&'static Command, Vec<Bytes>)>,
    bytes: usize,
    /// Whether one was refused, so that `EXEC` will be.
    pub(crate) is_broken: bool,
}

impl Queue {
    /// Puts a command at the end; false if there is no room.
    pub(crate) fn put(&mut self, command: &'static Command, arguments: Vec<Bytes>) -> bool {
        self.bytes += arguments.iter().map(Bytes::len).sum::<usize>();
        if self.commands.len() >= QUEUED_COMMANDS_MAX || self.bytes > QUEUED_BYTES_MAX {
            self.is_broken = true;
            self.commands = Vec::new();
            return false;
        }
        self.commands.push((command, arguments));
        true
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: Arc<Client>, login: Box<dyn Login>) -> Self {
        let mailbox = Mailbox::new(client.cut.clone());
        let seen = Seen {
            changes: login.changes(),
            at: Instant::now(),
        };
        let identity = login.stranger();
        let rights = Rights::of(&identity, &shared.settings.databases[0]);
        let mut session = Self {
            shared,
            client,
            login,
            protocol: Protocol::Two,
            database: 0,
            identity: Identity::Anonymous,
            token: None,
            rights,
            seen,
            queue: None,
            watched: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            mailbox,
            popped: Popped::default(),
            is_ending: false,
        };
        session.become_one(identity, None);
        session
    }

    /// The keys of which namespace it means.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.shared.settings.databases[self.database]
    }

    /// Whether it is known who asks.
    pub(crate) fn is_known(&self) -> bool {
        self.identity != Identity::Anonymous
    }

    /// Goes on as somebody else.
    pub(crate) fn become_one(&mut self, identity: Identity, token: Option<Bytes>) {
        self.mailbox.set_identity(identity.clone());
        self.client.facts().user = identity.to_string();
        self.identity = identity;
        self.token = token;
        self.seen = Seen {
            changes: self.login.changes(),
            at: Instant::now(),
        };
        self.look_up_rights();
    }

    /// Goes on in another database.
    pub(crate) fn select(&mut self, database: usize) {
        self.database = database;
        self.client.facts().database = database;
        self.look_up_rights();
    }

    /// Speaks another version of the protocol.
    pub(crate) fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client.facts().is_three = protocol == Protocol::Three;
    }

    fn look_up_rights(&mut self) {
        self.rights = Rights::of(&self.identity, self.namespace());
    }

    /// Whether it is still who it was: looked at after a change, and now and then.
    pub(crate) fn is_still(&mut self) -> bool {
        let changes = self.login.changes();
        if changes == self.seen.changes && self.seen.at.elapsed() < LOOK_EVERY {
            return true;
        }
        self.seen = Seen {
            changes,
            at: Instant::now(),
        };
        self.login.is_still(self.token.as_deref(), &self.identity)
    }

    /// Whether a command may be sent; else its refusal, which the audit log hears of.
    pub(crate) fn check(&self, command: &Command) -> Result<(), Value> {
        self.check_right(command.name, command.right)?;
        if command.right == Right::Clear && !self.shared.settings.may_flush {
            let name = command.name.to_uppercase();
            let text = format!(
                "ERR {name} is switched off: start the server with --resp-allow-flush to allow it"
            );
            return Err(Value::error(text));
        }
        Ok(())
    }

    /// Whether it has a right in its database; else the refusal of what needs it.
    pub(crate) fn check_right(&self, name: &'static str, right: Right) -> Result<(), Value> {
        if self.rights.hold(right) {
            Ok(())
        } else {
            Err(self.deny(name, right))
        }
    }

    /// The databases in which it has a right, by their numbers.
    pub(crate) fn databases_with(&self, right: Right) -> Vec<(usize, &Namespace)> {
        let all = self.shared.settings.databases.iter().enumerate();
        all.filter(|(_, namespace)| right.is_held(&self.identity, namespace))
            .collect()
    }

    fn deny(&self, name: &'static str, right: Right) -> Value {
        if !self.is_known() {
            return Value::error("NOAUTH Authentication required.");
        }
        count(&self.shared.counters.denied);
        self.tell(right, name, Outcome::Denied);
        Value::error(format!(
            "NOPERM this user has no permissions to run the '{name}' command"
        ))
    }

    /// Tells the audit log.
    pub(crate) fn tell(&self, right: Right, command: &str, outcome: Outcome) {
        let record = self.record(right, command, outcome);
        self.shared.settings.audit.write(&record);
    }

    /// What the audit log hears of a command.
    pub(crate) fn record(&self, right: Right, command: &str, outcome: Outcome) -> Record {
        Record {
            on: Some(command.to_owned()),
            namespace: Some(self.namespace().to_text().into_owned()),
            from: Some(self.client.from()),
            ..Record::new(self.identity.to_string(), right.operation(), outcome)
        }
    }

    /// Whether it listens to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Whether it may send only the few commands that subscribers may.
    pub(crate) fn is_listening_only(&self) -> bool {
        self.protocol == Protocol::Two && self.is_subscribed()
    }

    /// Notes that a command was refused before it could be queued.
    pub(crate) fn break_queue(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_broken = true;
        }
    }

    /// Ends listening to all.
    pub(crate) fn unsubscribe_all(&mut self) {
        for (is_pattern, names) in [
            (false, std::mem::take(&mut self.channels)),
            (true, std::mem::take(&mut self.patterns)),
        ] {
            for name in names {
                self.shared
                    .hub
                    .unsubscribe(is_pattern, &name, self.client.id);
            }
        }
    }

    /// As if it had just begun.
    pub(crate) fn reset(&mut self) {
        self.unsubscribe_all();
        self.queue = None;
        self.watched.clear();
        self.speak(Protocol::Two);
        self.client.facts().name = Bytes::new();
        self.select(0);
        self.become_one(self.login.stranger(), None);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unsubscribe_all();
        self.shared.clients.leave(self.client.id);
    }
}
