//! Impersonation: a forwarded request names its original caller and the caller's grants.
//!
//! The server that a client calls identifies it; the server that owns the shard authorizes it with the same table,
//! and writes the same name into its audit log. Only a caller that may act as a peer is trusted here, and it could do
//! everything itself.

use ganger_access::{Grants, Identity, Operation, Proof, Right};
use http::HeaderValue;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Name of the header that names the identity.
pub(crate) const ON_BEHALF: &str = "ganger-on-behalf-of";

/// The right to act for others, and to call every method of the service `Peers` without a right of its own.
pub(crate) const PEERS: Operation = Operation::new("ganger.v1.Peers/*", Right::PEER);

/// Encodes the caller as a header; `None` for an anonymous one.
pub(crate) fn write(identity: &Identity) -> Option<HeaderValue> {
    let text = match identity {
        Identity::Anonymous => return None,
        Identity::Peer(shards) => server(&format!("shard {}", shards.join(", "))),
        Identity::Node(cluster) => server(&format!("node of {cluster}")),
        Identity::Principal(who) => line(who.proof, &who.name, &who.grants),
    };
    HeaderValue::from_str(&text).ok()
}

fn server(name: &str) -> String {
    line(Proof::Certificate, name, &Grants::everything())
}

fn line(proof: Proof, name: &str, grants: &Grants) -> String {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    format!("{};{name};{grants}", word(proof))
}

/// Returns the original caller, given the sender of the request.
///
/// # Errors
/// If the sender may not act for others, or the header cannot be read; the message is for the sending server.
pub(crate) fn read(sender: &Identity, value: &HeaderValue) -> Result<Identity, String> {
    sender
        .may(PEERS, None)
        .map_err(|_| format!("{sender} may not ask on behalf of others: only other servers may"))?;
    let unreadable = || format!("the header {ON_BEHALF} cannot be read");
    let text = value.to_str().map_err(|_| unreadable())?;
    let mut parts = text.splitn(3, ';');
    let (Some(proof), Some(name), Some(grants)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(unreadable());
    };
    let proof = PROOFS.into_iter().find(|known| word(*known) == proof);
    let name = percent_decode_str(name).decode_utf8();
    let grants = if grants.is_empty() {
        Some(Grants::default())
    } else {
        grants.parse().ok()
    };
    match (proof, name, grants) {
        (Some(proof), Ok(name), Some(grants)) => Ok(Identity::principal(name, grants, proof)),
        _ => Err(unreadable()),
    }
}

const PROOFS: [Proof; 4] = [
    Proof::None,
    Proof::SharedToken,
    Proof::Token,
    Proof::Certificate,
];

fn word(proof: Proof) -> &'static str {
    match proof {
        Proof::None => "none",
        Proof::SharedToken => "shared-token",
        Proof::Token => "token",
        Proof::Certificate => "certificate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(grants: &str) -> Identity {
        let grants = grants.parse().expect("readable");
        Identity::principal("a;b \u{e9}", grants, Proof::Token)
    }

    #[test]
    fn a_caller_keeps_its_identity() {
        let peer = Identity::peer(["1"]);
        for caller in [
            somebody("producer@mail,reader@a;b*"),
            Identity::unchecked(),
            Identity::shared_token(),
            Identity::principal("none", Grants::default(), Proof::Certificate),
        ] {
            let header = write(&caller).expect("somebody");
            assert_eq!(read(&peer, &header), Ok(caller), "{header:?}");
        }
        assert!(write(&Identity::Anonymous).is_none());
    }

    #[test]
    fn only_a_peer_may_impersonate() {
        let header = write(&Identity::shared_token()).expect("somebody");
        assert!(read(&somebody("producer@mail,admin@a"), &header).is_err());
        assert!(read(&Identity::Anonymous, &header).is_err());
        assert!(read(&somebody("admin@*"), &header).is_ok());
        let nonsense = HeaderValue::from_static("token;x");
        assert!(read(&Identity::shared_token(), &nonsense).is_err());
    }
}
