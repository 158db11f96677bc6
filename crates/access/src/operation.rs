//! What it takes to ask for an operation. Each API declares it where it declares the operation: in the row of the HTTP
//! API's table, as an option of the gRPC method, on the Redis command.

use crate::role::Verb;

/// Where a verb must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nowhere: anyone may ask, without showing anything.
    Open,
    /// Nowhere, but the caller must have shown valid credentials.
    Authenticated,
    /// In the namespace that the request names.
    Namespace,
    /// In at least one namespace; the answer is about those only.
    AnyNamespace,
    /// In all namespaces: the operation shows or changes what belongs to no single one.
    Server,
    /// Other shards, and callers with every right.
    Peer,
}

/// What it takes to ask for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// What the operation does.
    pub verb: Verb,
    /// Where the caller must hold the verb.
    pub scope: Scope,
}

impl Right {
    /// Anyone may ask, without showing anything.
    pub const OPEN: Self = Self::new(Verb::Greet, Scope::Open);
    /// Anyone with valid credentials may ask.
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

    /// A right from its two parts.
    pub const fn new(verb: Verb, scope: Scope) -> Self {
        Self { verb, scope }
    }

    /// The same verb, held in all namespaces.
    #[must_use]
    pub const fn on_server(self) -> Self {
        Self::new(self.verb, Scope::Server)
    }

    /// The same verb, held in at least one namespace.
    #[must_use]
    pub const fn somewhere(self) -> Self {
        Self::new(self.verb, Scope::AnyNamespace)
    }
}

/// An operation of an API, as far as rights and the audit log are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name in the audit log and in refusals: an operation id of HTTP, `package.Service/Method` of gRPC.
    pub name: &'static str,
    /// What it takes to ask for it.
    pub right: Right,
}

impl Operation {
    /// An operation from its name and its right.
    pub const fn new(name: &'static str, right: Right) -> Self {
        Self { name, right }
    }

    /// Whether the audit log records every use, and not refused ones only (`rel S15`).
    pub fn is_audited(self) -> bool {
        self.right.verb.is_audited()
    }
}
