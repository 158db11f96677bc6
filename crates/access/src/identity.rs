//! The caller of an operation, and whether the caller may do it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::grant::Grants;
use crate::operation::{Operation, Right, Scope};
use crate::role::{Role, Verb};

/// The names in a client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The subject's common name; `None` if it has none.
    pub common_name: Option<String>,
    /// Shards from names `ganger://shard/NAME` among the subject's alternative names.
    pub shards: Vec<String>,
    /// Clusters from names `ganger://cluster/NAME` among them.
    pub clusters: Vec<String>,
}

/// How a principal has proved its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The server asks for no credentials.
    None,
    /// The single token of the server.
    SharedToken,
    /// A token of the access file.
    Token,
    /// The principal showed a certificate.
    Certificate,
}

/// An identified client or worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Name in the access file, or the certificate's common name.
    pub name: String,
    /// Roles and the namespaces in which they are granted.
    pub grants: Grants,
    /// How the principal has proved its identity.
    pub proof: Proof,
    /// Time from which the access file no longer knows the credential; `None`: it does not expire.
    pub expires_at: Option<Timestamp>,
}

/// The caller whose rights are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The server of other shards, identified by its certificate; at least one shard.
    Peer(Arc<[String]>),
    /// A node of the same cluster, identified by its certificate; the name of the cluster. It may own each shard.
    Node(Arc<str>),
    /// An identified client or worker.
    Principal(Arc<Principal>),
    /// A caller without credentials on a server that asks for them.
    Anonymous,
}

/// The refusal of an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} may not {operation}{scope}: {needed}")]
pub struct Denied {
    /// Name of the caller.
    pub who: String,
    /// The operation that was refused.
    pub operation: String,
    /// Namespace or scope of the refused operation, as text; empty if it concerns no namespace.
    pub scope: String,
    /// The role that would allow it.
    pub needed: String,
}

impl Identity {
    /// Returns the identity of every caller of a server that asks for no credentials.
    pub fn unchecked() -> Self {
        Self::principal("anyone", Grants::everything(), Proof::None)
    }

    /// Returns the identity of the holder of the server's single token, who may do everything.
    pub fn shared_token() -> Self {
        Self::principal("shared-token", Grants::everything(), Proof::SharedToken)
    }

    /// Returns the identity of the server of these shards.
    pub fn peer<S: Into<String>>(shards: impl IntoIterator<Item = S>) -> Self {
        Self::Peer(shards.into_iter().map(Into::into).collect())
    }

    /// Returns the identity of a node of this cluster.
    pub fn node(cluster: &str) -> Self {
        Self::Node(cluster.into())
    }

    /// Whether the caller is another server, known by its certificate.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Node(_))
    }

    /// An identified client or worker.
    pub fn principal(name: impl Into<String>, grants: Grants, proof: Proof) -> Self {
        let name = name.into();
        Self::Principal(Arc::new(Principal {
            name,
            grants,
            proof,
            expires_at: None,
        }))
    }

    /// Returns the identity of a principal that expires at this time; every other identity is unchanged.
    #[must_use]
    pub fn until(self, expires_at: Option<Timestamp>) -> Self {
        match self {
            Self::Principal(who) => Self::Principal(Arc::new(Principal {
                expires_at,
                ..Principal::clone(&who)
            })),
            other => other,
        }
    }

    /// Checks whether the caller may use an operation, in `namespace` if it concerns one.
    ///
    /// # Errors
    /// If the caller may not; the message is for the caller and does not reveal what exists.
    pub fn may(&self, operation: Operation, namespace: Option<&[u8]>) -> Result<(), Denied> {
        if self.holds(operation.right, namespace) {
            return Ok(());
        }
        Err(self.denied(operation, namespace))
    }

    /// Checks whether the operation is allowed in some namespace, which can be decided before the request is read.
    ///
    /// # Errors
    /// If it is allowed in no namespace.
    pub fn may_somewhere(&self, operation: Operation) -> Result<(), Denied> {
        match (operation.right.scope, self) {
            (Scope::Namespace, Self::Peer(_) | Self::Node(_)) => Ok(()),
            (Scope::Namespace, Self::Principal(who))
                if who.grants.allow_somewhere(operation.right.verb) =>
            {
                Ok(())
            }
            (Scope::Namespace, _) => Err(self.denied(operation, None)),
            _ => self.may(operation, None),
        }
    }

    fn holds(&self, right: Right, namespace: Option<&[u8]>) -> bool {
        let who = match self {
            _ if right.scope == Scope::Open => return true,
            Self::Anonymous => return false,
            // A peer has a part of every graph in its own store; nothing must be hidden from it.
            Self::Peer(_) | Self::Node(_) => return true,
            Self::Principal(who) => who,
        };
        match (right.scope, namespace) {
            (Scope::Open | Scope::Authenticated, _) => true,
            (Scope::Peer, _) => who.grants.are_total(),
            (Scope::AnyNamespace, _) => who.grants.allow_somewhere(right.verb),
            (Scope::Namespace, Some(namespace)) => who.grants.allow(right.verb, namespace),
            (Scope::Server, _) | (Scope::Namespace, None) => {
                who.grants.allow_everywhere(right.verb)
            }
        }
    }

    /// Whether the caller may see a namespace in a list: some operation is allowed there.
    pub fn may_list(&self, namespace: &[u8]) -> bool {
        match self {
            Self::Peer(_) | Self::Node(_) => true,
            Self::Principal(who) => who.grants.touch(namespace),
            Self::Anonymous => false,
        }
    }

    /// Whether the caller may speak for that shard: the peer that owns it, a node of the same cluster, or an identity with
    /// every right.
    pub fn speaks_for(&self, shard: &str) -> bool {
        match self {
            Self::Peer(shards) => shards.iter().any(|own| own == shard),
            Self::Node(_) => true,
            Self::Principal(who) => who.grants.are_total(),
            Self::Anonymous => false,
        }
    }

    fn denied(&self, operation: Operation, namespace: Option<&[u8]>) -> Denied {
        let scope = namespace.map(|name| format!(" in namespace \"{}\"", name.escape_ascii()));
        Denied {
            who: self.to_string(),
            operation: operation.name.to_owned(),
            scope: scope.unwrap_or_default(),
            needed: needed(operation.right),
        }
    }
}

fn needed(right: Right) -> String {
    let roles: Vec<_> = Role::ALL
        .into_iter()
        .filter(|role| role.may(right.verb))
        .map(Role::as_str)
        .collect();
    let roles = roles.join(" or ");
    match right.scope {
        Scope::Open | Scope::Authenticated => "show a token or a certificate".to_owned(),
        Scope::Peer => "only other shards may, by their certificates".to_owned(),
        Scope::Server => format!("it takes the role {roles} in all namespaces"),
        Scope::AnyNamespace => format!("it takes the role {roles}"),
        Scope::Namespace if right.verb == Verb::Greet => "show a token or a certificate".to_owned(),
        Scope::Namespace => format!("it takes the role {roles} there"),
    }
}

/// Formats the identity for logs and messages, such as `token "ci"`, `shards "1", "2"` or `node of cluster "jobs"`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(shards) => {
                f.write_str(if shards.len() == 1 { "shard" } else { "shards" })?;
                for (scope, shard) in shards.iter().enumerate() {
                    let before = if scope == 0 { "" } else { "," };
                    write!(f, "{before} \"{}\"", shard.escape_debug())?;
                }
                Ok(())
            }
            Self::Node(cluster) => write!(f, "node of cluster \"{}\"", cluster.escape_debug()),
            Self::Principal(who) => {
                let name = who.name.escape_debug();
                match who.proof {
                    Proof::None => f.write_str("anyone"),
                    Proof::SharedToken => f.write_str("the shared token"),
                    Proof::Token => write!(f, "token \"{name}\""),
                    Proof::Certificate => write!(f, "certificate \"{name}\""),
                }
            }
            Self::Anonymous => f.write_str("somebody unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Identity {
        Identity::principal("r", "reader@a".parse().expect("readable"), Proof::Token)
    }

    #[test]
    fn a_refusal_tells_who_what_where_and_which_role_would_do() {
        let denied = reader()
            .may(Operation::new("enqueueJob", Right::SUBMIT), Some(b"b"))
            .expect_err("a reader");
        assert_eq!(
            denied.to_string(),
            "token \"r\" may not enqueueJob in namespace \"b\": it takes the role admin or operator or producer there"
        );
        let unknown = Identity::Anonymous
            .may(Operation::new("version", Right::AUTHENTICATED), None)
            .expect_err("unknown");
        assert!(unknown.to_string().contains("show a token"), "{unknown}");
    }

    #[test]
    fn only_a_peer_or_the_operator_of_everything_speaks_for_a_shard() {
        let peer = Identity::peer(["2"]);
        assert!(peer.speaks_for("2") && !peer.speaks_for("3"));
        let several = Identity::peer(["2", "4"]);
        assert!(several.speaks_for("2") && several.speaks_for("4") && !several.speaks_for("3"));
        assert_eq!(several.to_string(), "shards \"2\", \"4\"");
        assert!(Identity::shared_token().speaks_for("3"));
        let node = Identity::node("jobs");
        assert!(node.speaks_for("3") && node.is_server());
        assert_eq!(node.to_string(), "node of cluster \"jobs\"");
        assert!(!reader().speaks_for("2") && !Identity::Anonymous.speaks_for("2"));
    }

    #[test]
    fn an_unknown_one_may_only_ask_for_what_is_open_to_anyone() {
        use Scope as S;
        for scope in [
            S::Open,
            S::Authenticated,
            S::Namespace,
            S::AnyNamespace,
            S::Server,
            S::Peer,
        ] {
            let operation = Operation::new("x", Right::new(Verb::Greet, scope));
            for namespace in [None, Some(&b"default"[..])] {
                let allowed = Identity::Anonymous.may(operation, namespace).is_ok();
                assert_eq!(allowed, scope == S::Open, "{scope:?}");
            }
            let allowed = Identity::Anonymous.may_somewhere(operation).is_ok();
            assert_eq!(allowed, scope == S::Open, "{scope:?}");
        }
    }
}
