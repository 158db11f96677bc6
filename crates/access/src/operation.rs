//! The right that an operation needs. Each API declares it where it declares the operation: in the row of the HTTP
//! API's table, as an option of the gRPC method, on the Redis command.

use crate::role::Verb;

/// The namespaces in which the caller must hold a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// None: anyone may call, without credentials.
    Open,
    /// None, but the caller must have valid credentials.
    Authenticated,
    /// The namespace that the request names.
    Namespace,
    /// At least one namespace; the answer covers only those.
    AnyNamespace,
    /// All namespaces: the operation shows or changes something that belongs to no single one.
    Server,
    /// Only other shards, and callers with every right.
    Peer,
}

/// The right that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// What the operation does.
    pub verb: Verb,
    /// Scope in which the caller must hold the verb.
    pub scope: Scope,
}

impl Right {
    /// Anyone may call, without credentials.
    pub const OPEN: Self = Self::new(Verb::Greet, Scope::Open);
    /// Anyone with valid credentials may call.
    pub const AUTHENTICATED: Self = Self::new(Verb::Greet, Scope::Authenticated);
    /// Reading in the namespace that the request names.
    pub const OBSERVE: Self = Self::new(Verb::Observe, Scope::Namespace);
    /// Enqueuing in the namespace that the request names.
    pub const SUBMIT: Self = Self::new(Verb::Submit, Scope::Namespace);
    /// Cancelling in the namespace that the request names.
    pub const CANCEL: Self = Self::new(Verb::Cancel, Scope::Namespace);
    /// Leasing and reporting in the namespace that the request names.
    pub const WORK: Self = Self::new(Verb::Work, Scope::Namespace);
    /// Changing jobs, queues and schedules in the namespace that the request names.
    pub const OPERATE: Self = Self::new(Verb::Operate, Scope::Namespace);
    /// Limiting the namespace that the request names.
    pub const GOVERN: Self = Self::new(Verb::Govern, Scope::Namespace);
    /// Speaking for another shard.
    pub const PEER: Self = Self::new(Verb::Peer, Scope::Peer);

    /// Creates a right from its two parts.
    pub const fn new(verb: Verb, scope: Scope) -> Self {
        Self { verb, scope }
    }

    /// Returns the right with the same verb in all namespaces.
    #[must_use]
    pub const fn on_server(self) -> Self {
        Self::new(self.verb, Scope::Server)
    }

    /// Returns the right with the same verb in at least one namespace.
    #[must_use]
    pub const fn somewhere(self) -> Self {
        Self::new(self.verb, Scope::AnyNamespace)
    }
}

/// An operation of an API, as far as rights and the audit log are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Name in the audit log and in refusals: an operation id of HTTP, `package.Service/Method` of gRPC.
    pub name: &'static str,
    /// The right that the operation needs.
    pub right: Right,
}

impl Operation {
    /// Creates an operation from its name and its right.
    pub const fn new(name: &'static str, right: Right) -> Self {
        Self { name, right }
    }

    /// Whether the audit log records every use, and not only refused ones (`rel S15`).
    pub fn is_audited(self) -> bool {
        self.right.verb.is_audited()
    }
}
