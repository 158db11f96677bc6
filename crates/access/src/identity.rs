//! Who asks, and whether they may.

use std::fmt;
use std::sync::Arc;

use crate::grant::Grants;
use crate::operations::{Operation, Scope, find};
use crate::role::{Role, Verb};

/// What a certificate says of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// The shards of its names `ganger://shard/NAME` among the subject's alternative names.
    pub shards: Vec<String>,
}

/// How a principal has shown who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Nothing is asked for on this server.
    None,
    /// The one token of the server.
    SharedToken,
    /// A token of the access file.
    Token,
    /// A certificate.
    Certificate,
}

/// A client or worker that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name in the access file, or the certificate's.
    pub name: String,
    /// What it may do, and where.
    pub grants: Grants,
    /// How it has shown that.
    pub proof: Proof,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The server of other shards, by its certificate: which they are; at least one.
    Peer(Arc<[String]>),
    /// A client or worker.
    Principal(Arc<Principal>),
    /// Somebody who has shown nothing, where something is asked for.
    Anonymous,
}

/// Why an operation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} may not {operation}{place}: {needed}")]
pub struct Denied {
    /// Who asked.
    pub who: String,
    /// What for.
    pub operation: String,
    /// Where, as words; empty if it is about no namespace.
    pub place: String,
    /// Which role would do.
    pub needed: String,
}

impl Identity {
    /// Anybody, on a server that asks for nothing.
    pub fn unchecked() -> Self {
        Self::principal("anyone", Grants::everything(), Proof::None)
    }

    /// The holder of the server's one token, who may do everything.
    pub fn shared_token() -> Self {
        Self::principal("shared-token", Grants::everything(), Proof::SharedToken)
    }

    /// The server of these shards.
    pub fn peer<S: Into<String>>(shards: impl IntoIterator<Item = S>) -> Self {
        Self::Peer(shards.into_iter().map(Into::into).collect())
    }

    /// A client or worker.
    pub fn principal(name: impl Into<String>, grants: Grants, proof: Proof) -> Self {
        let name = name.into();
        Self::Principal(Arc::new(Principal {
            name,
            grants,
            proof,
        }))
    }

    /// Whether the operation, by its name in [`crate::OPERATIONS`], may be asked for, in `namespace` if
    /// it is about one. An operation that is not in the table may be asked for by nobody.
    ///
    /// # Errors
    /// If it may not; the message is for the caller and reveals nothing about what exists.
    pub fn may(&self, operation: &str, namespace: Option<&[u8]>) -> Result<(), Denied> {
        let Some(row) = find(operation) else {
            return Err(self.denied(
                operation,
                None,
                "nobody may: it is not in the table of operations",
            ));
        };
        if self.may_row(row, namespace) {
            return Ok(());
        }
        Err(self.denied(operation, namespace, &needed(row)))
    }

    /// Whether it could be allowed in some namespace: what can be told before the request is read.
    ///
    /// # Errors
    /// If it is allowed nowhere.
    pub fn may_somewhere(&self, operation: &str) -> Result<(), Denied> {
        match find(operation) {
            Some(row) if row.scope == Scope::Namespace => match self {
                Self::Peer(_) => Ok(()),
                Self::Principal(who) if who.grants.allow_somewhere(row.verb) => Ok(()),
                _ => Err(self.denied(operation, None, &needed(row))),
            },
            _ => self.may(operation, None),
        }
    }

    fn may_row(&self, row: &Operation, namespace: Option<&[u8]>) -> bool {
        let who = match self {
            _ if row.scope == Scope::Open => return true,
            Self::Anonymous => return false,
            // A peer has a part of every graph on its own store; there is nothing to keep from it.
            Self::Peer(_) => return true,
            Self::Principal(who) => who,
        };
        match (row.scope, namespace) {
            (Scope::Open | Scope::Known, _) => true,
            (Scope::Peer, _) => who.grants.are_total(),
            (Scope::Some, _) => who.grants.allow_somewhere(row.verb),
            (Scope::Namespace, Some(namespace)) => who.grants.allow(row.verb, namespace),
            (Scope::Server, _) | (Scope::Namespace, None) => who.grants.allow_everywhere(row.verb),
        }
    }

    /// Whether a namespace may be shown in a list of them: anything is allowed there.
    pub fn sees(&self, namespace: &[u8]) -> bool {
        match self {
            Self::Peer(_) => true,
            Self::Principal(who) => who.grants.touch(namespace),
            Self::Anonymous => false,
        }
    }

    /// Whether it may speak for that shard: the peer that has it, or an identity with every right.
    pub fn speaks_for(&self, shard: &str) -> bool {
        match self {
            Self::Peer(shards) => shards.iter().any(|own| own == shard),
            Self::Principal(who) => who.grants.are_total(),
            Self::Anonymous => false,
        }
    }

    fn denied(&self, operation: &str, namespace: Option<&[u8]>, needed: &str) -> Denied {
        let place = namespace.map(|name| format!(" in namespace \"{}\"", name.escape_ascii()));
        Denied {
            who: self.to_string(),
            operation: operation.to_owned(),
            place: place.unwrap_or_default(),
            needed: needed.to_owned(),
        }
    }
}

fn needed(row: &Operation) -> String {
    let roles: Vec<_> = Role::ALL
        .into_iter()
        .filter(|role| role.may(row.verb))
        .map(Role::as_str)
        .collect();
    let roles = roles.join(" or ");
    match row.scope {
        Scope::Open | Scope::Known => "show a token or a certificate".to_owned(),
        Scope::Peer => "only other shards may, by their certificates".to_owned(),
        Scope::Server => format!("it takes the role {roles} in all namespaces"),
        Scope::Some => format!("it takes the role {roles}"),
        Scope::Namespace if row.verb == Verb::Greet => "show a token or a certificate".to_owned(),
        Scope::Namespace => format!("it takes the role {roles} there"),
    }
}

/// For logs and messages, such as `token "ci"` or `shards "1", "2"`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(shards) => {
                f.write_str(if shards.len() == 1 { "shard" } else { "shards" })?;
                for (place, shard) in shards.iter().enumerate() {
                    let before = if place == 0 { "" } else { "," };
                    write!(f, "{before} \"{}\"", shard.escape_debug())?;
                }
                Ok(())
            }
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
    fn what_is_not_in_the_table_is_allowed_to_nobody() {
        for identity in [Identity::unchecked(), Identity::peer(["1"]), reader()] {
            assert!(identity.may("ganger.v1.Jobs/Explode", Some(b"a")).is_err());
            assert!(identity.may_somewhere("explode").is_err());
        }
    }

    #[test]
    fn a_refusal_tells_who_what_where_and_which_role_would_do() {
        let denied = reader()
            .may("enqueueJob", Some(b"b"))
            .expect_err("a reader");
        assert_eq!(
            denied.to_string(),
            "token \"r\" may not enqueueJob in namespace \"b\": it takes the role admin or operator or producer there"
        );
        let unknown = Identity::Anonymous
            .may("version", None)
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
        assert!(!reader().speaks_for("2") && !Identity::Anonymous.speaks_for("2"));
    }

    #[test]
    fn an_unknown_one_may_only_see_whether_the_server_lives() {
        for row in crate::OPERATIONS {
            let is_open = row.scope == Scope::Open;
            assert_eq!(
                Identity::Anonymous.may(row.name, Some(b"default")).is_ok(),
                is_open,
                "{}",
                row.name
            );
        }
    }
}
