//! The session of a connection: protocol, database, identity, transaction, subscriptions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ganger_access::{Hold, Identity, Outcome, Owner, Record};
use ganger_types::Namespace;

use crate::clients::Client;
use crate::counters::count;
use crate::hub::Mailbox;
use crate::limits::{ARGUMENT_BYTES, LOOK_EVERY, QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX};
use crate::login::Login;
use crate::memory::{Memory, no_room};
use crate::relayed_session::RelayedSession;
use crate::rights::{Right, Rights};
use crate::shared::Shared;
use crate::unconfirmed_pops::UnconfirmedPops;
use crate::value::{Protocol, Value};

/// The state of a connection.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    pub(crate) login: Arc<dyn Login>,
    pub(crate) protocol: Protocol,
    pub(crate) database: usize,
    identity: Identity,
    /// Token of the client; `None` if it has sent none.
    token: Option<Bytes>,
    rights: Rights,
    seen: RightsCheck,
    /// Open transaction; `None` outside of one.
    pub(crate) queue: Option<Queue>,
    /// Watched keys: database, name, revision.
    pub(crate) watched: Vec<(usize, Bytes, u64)>,
    pub(crate) channels: BTreeSet<Bytes>,
    pub(crate) patterns: BTreeSet<Bytes>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Elements that the connection took from work queues.
    pub(crate) popped: UnconfirmedPops,
    /// Whether the connection only authenticates here: its commands run on another node.
    pub(crate) is_for_relay: bool,
    /// Whether the connection ends after the next reply.
    pub(crate) is_ending: bool,
    /// Memory of commands and replies.
    pub(crate) memory: Memory,
    /// Memory of watched keys and subscriptions.
    kept: Hold,
}

/// The last check of the rights.
struct RightsCheck {
    changes: u64,
    at: Instant,
}

/// The memory of a watched key, in bytes.
pub(crate) fn watched_bytes(key: &Bytes) -> usize {
    const BESIDE_NAME: usize = 128;
    BESIDE_NAME + key.len()
}

/// The memory of a subscription, in bytes. A compiled pattern takes at most 256 bits per byte, and at least 2 KiB.
pub(crate) fn subscription_bytes(is_pattern: bool, name: &Bytes) -> usize {
    const BESIDE_NAME: usize = 256;
    const WORD_BYTES: usize = 257 * 8;
    let compiled = if is_pattern {
        (name.len() / 64 + 1) * WORD_BYTES
    } else {
        0
    };
    BESIDE_NAME + name.len() + compiled
}

/// The commands that wait for `EXEC`.
#[derive(Default)]
pub(crate) struct Queue {
    /// Words of each command, its name first. Each was found in the table before it was queued.
    pub(crate) commands: Vec<Vec<Bytes>>,
    bytes: usize,
    /// Whether a command was refused, so that `EXEC` fails.
    pub(crate) is_broken: bool,
}

impl Queue {
    /// Adds a command. Returns false if there are too many.
    pub(crate) fn put(&mut self, arguments: Vec<Bytes>) -> bool {
        let bytes = arguments.iter().map(|each| each.len() + ARGUMENT_BYTES);
        let bytes = self.bytes + ARGUMENT_BYTES + bytes.sum::<usize>();
        if self.commands.len() >= QUEUED_COMMANDS_MAX || bytes > QUEUED_BYTES_MAX {
            self.give_up();
            return false;
        }
        self.bytes = bytes;
        self.commands.push(arguments);
        true
    }

    /// Drops the commands and makes `EXEC` fail.
    pub(crate) fn give_up(&mut self) {
        self.is_broken = true;
        self.commands = Vec::new();
        self.bytes = 0;
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held(&self) -> usize {
        self.bytes
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, client: Arc<Client>, login: Arc<dyn Login>) -> Self {
        let unknown = Owner::of(&Identity::Anonymous, Some(client.from().ip()));
        let open = || shared.settings.budget.open(unknown.clone());
        let mailbox = Mailbox::new(client.cut.clone(), open());
        let (memory, kept) = (Memory::new(open()), open());
        let seen = RightsCheck {
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
            popped: UnconfirmedPops::default(),
            is_for_relay: false,
            is_ending: false,
            memory,
            kept,
        };
        session.set_identity(identity, None);
        session
    }

    /// The namespace of the selected database.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.shared.settings.databases[self.database]
    }

    /// Whether the client has a valid identity.
    pub(crate) fn is_known(&self) -> bool {
        self.identity != Identity::Anonymous
    }

    /// Returns what another node must know to go on with the session. It is known, and has run no command but those
    /// that authenticate it.
    pub(crate) fn to_relay(&self) -> RelayedSession {
        RelayedSession {
            identity: self.identity.clone(),
            protocol: self.protocol,
            name: self.client.state().name.clone(),
        }
    }

    /// Continues a session that began on another node.
    pub(crate) fn continue_relayed(&mut self, session: RelayedSession) {
        self.set_identity(session.identity, None);
        self.set_protocol(session.protocol);
        self.client.state().name = session.name;
    }

    /// Whether the connection is to be passed on to another node now.
    pub(crate) fn is_to_be_relayed(&self) -> bool {
        self.is_for_relay && self.is_known()
    }

    /// Returns the token of the client; `None` if it has sent none.
    pub(crate) fn token(&self) -> Option<&[u8]> {
        self.token.as_deref()
    }

    /// Sets the identity of the session, after `AUTH` or `HELLO`.
    pub(crate) fn set_identity(&mut self, identity: Identity, token: Option<Bytes>) {
        let owner = Owner::of(&identity, Some(self.client.from().ip()));
        let budget = &self.shared.settings.budget;
        self.mailbox
            .set_identity(identity.clone(), budget.open(owner.clone()));
        // The memory counts in the share of the present identity.
        let kept = budget.open(owner.clone());
        kept.grow_anyway(self.kept.bytes());
        self.kept = kept;
        let held = self.memory.counted();
        self.memory = Memory::new(budget.open(owner));
        self.memory.set_anyway(held);
        self.client.state().user = identity.to_string();
        self.identity = identity;
        self.token = token;
        self.seen = RightsCheck {
            changes: self.login.changes(),
            at: Instant::now(),
        };
        self.look_up_rights();
    }

    /// Selects the database, and so the namespace, of later commands.
    pub(crate) fn select(&mut self, database: usize) {
        self.database = database;
        self.client.state().database = database;
        self.look_up_rights();
    }

    /// Changes the version of the protocol.
    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client.state().is_three = protocol == Protocol::Three;
    }

    fn look_up_rights(&mut self) {
        self.rights = Rights::of(&self.identity, self.namespace());
    }

    /// Whether the identity is still valid. It is checked after a change of rights and at intervals.
    pub(crate) fn is_unchanged(&mut self) -> bool {
        let changes = self.login.changes();
        if changes == self.seen.changes && self.seen.at.elapsed() < LOOK_EVERY {
            return true;
        }
        self.check_identity_now()
    }

    /// Checks that the session has a right in its database.
    pub(crate) fn check_right(&self, name: &'static str, right: Right) -> Result<(), Value> {
        if self.rights.hold(right) {
            Ok(())
        } else {
            Err(self.deny(name, right))
        }
    }

    /// The numbers and namespaces of the databases in which the session has a right.
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

    /// Writes a record to the audit log.
    pub(crate) fn tell(&self, right: Right, command: &str, outcome: Outcome) {
        let record = self.record(right, command, outcome);
        self.shared.settings.audit.write(&record);
    }

    /// The record of a command for the audit log.
    pub(crate) fn record(&self, right: Right, command: &str, outcome: Outcome) -> Record {
        Record {
            on: Some(command.to_owned()),
            namespace: Some(self.namespace().to_text().into_owned()),
            from: Some(self.client.from()),
            ..Record::new(self.identity.to_string(), right.operation(), outcome)
        }
    }

    /// Reserves memory for a watched key or a subscription, or refuses.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), Value> {
        self.kept
            .grow(bytes)
            .map_err(|full| Value::error(no_room(full)))
    }

    /// Frees memory of watched keys or subscriptions.
    pub(crate) fn free(&mut self, bytes: usize) {
        self.kept.shrink(bytes);
    }

    /// Checks now whether the identity is still valid.
    pub(crate) fn check_identity_now(&mut self) -> bool {
        self.seen = RightsCheck {
            changes: self.login.changes(),
            at: Instant::now(),
        };
        self.login
            .is_unchanged(self.token.as_deref(), &self.identity)
    }

    /// The number of the last change of rights that was checked.
    pub(crate) fn changes_seen(&self) -> u64 {
        self.seen.changes
    }

    /// Whether the connection has subscriptions.
    pub(crate) fn is_subscribed(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Whether the connection may send only the commands that RESP2 allows to subscribers.
    pub(crate) fn is_listening_only(&self) -> bool {
        self.protocol == Protocol::Two && self.is_subscribed()
    }

    /// Ends the watch of all keys, and returns them.
    pub(crate) fn unwatch(&mut self) -> Vec<(usize, Bytes, u64)> {
        let watched = std::mem::take(&mut self.watched);
        let bytes = watched.iter().map(|(_, key, _)| watched_bytes(key));
        self.free(bytes.sum());
        watched
    }

    /// Records that a command was refused before it could be queued.
    pub(crate) fn break_queue(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_broken = true;
        }
    }

    /// Ends all subscriptions of the session, to channels and patterns.
    pub(crate) fn unsubscribe_all(&mut self) {
        for (is_pattern, names) in [
            (false, std::mem::take(&mut self.channels)),
            (true, std::mem::take(&mut self.patterns)),
        ] {
            for name in names {
                self.shared
                    .hub
                    .unsubscribe(is_pattern, &name, self.client.id);
                self.free(subscription_bytes(is_pattern, &name));
            }
        }
    }

    /// Resets the session to its initial state.
    pub(crate) fn reset(&mut self) {
        self.unsubscribe_all();
        self.queue = None;
        self.unwatch();
        self.set_protocol(Protocol::Two);
        self.client.state().name = Bytes::new();
        self.select(0);
        self.set_identity(self.login.stranger(), None);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unsubscribe_all();
        self.shared.clients.leave(self.client.id);
    }
}
