//! Which rights a command takes, in terms of the one table of operations in `ganger-access`.

use ganger_access::Identity;
use ganger_types::Namespace;

/// What a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Nothing: anyone may send it.
    Open,
    /// That the server knows who asks.
    Known,
    /// Reading keys. Workers may as well: cleaning is theirs.
    Read,
    /// Writing keys.
    Add,
    /// Taking elements and removing keys.
    Take,
    /// Changing what others have put in and how it is worked on.
    Manage,
    /// Removing everything.
    Clear,
    /// Seeing other connections.
    Inspect,
    /// Ending other connections.
    Rule,
}

impl Right {
    const ALL: [Self; 9] = [
        Self::Open,
        Self::Known,
        Self::Read,
        Self::Add,
        Self::Take,
        Self::Manage,
        Self::Clear,
        Self::Inspect,
        Self::Rule,
    ];

    /// The operations that bring it: each of them does.
    fn operations(self) -> &'static [&'static str] {
        match self {
            Self::Open => &[],
            Self::Known => &["resp.connect"],
            Self::Read => &["resp.read", "resp.work"],
            Self::Add => &["resp.add", "resp.work"],
            Self::Take => &["resp.work", "resp.repair"],
            Self::Manage => &["resp.repair"],
            Self::Clear => &["resp.clear"],
            Self::Inspect => &["resp.listConnections"],
            Self::Rule => &["resp.endConnection"],
        }
    }

    /// The operation that the audit log tells of.
    pub(crate) fn operation(self) -> &'static str {
        self.operations().first().copied().unwrap_or("resp.connect")
    }

    fn bit(self) -> u16 {
        let place = Self::ALL.iter().position(|right| *right == self);
        1 << place.expect("all are there")
    }

    /// Whether an identity holds it in a namespace.
    pub(crate) fn is_held(self, identity: &Identity, namespace: &Namespace) -> bool {
        let place = Some(namespace.as_bytes());
        let may = |operation: &&str| identity.may(operation, place).is_ok();
        self == Self::Open || self.operations().iter().any(may)
    }
}

/// What an identity may do in a namespace, looked up once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights(u16);

impl Rights {
    /// Looks it up.
    pub(crate) fn of(identity: &Identity, namespace: &Namespace) -> Self {
        let held = Right::ALL
            .into_iter()
            .filter(|right| right.is_held(identity, namespace));
        Self(held.fold(0, |bits, right| bits | right.bit()))
    }

    /// Whether this one is among them.
    pub(crate) fn hold(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use ganger_access::Proof;

    use super::*;

    #[test]
    fn each_role_may_do_its_part() {
        let rights = |grants: &str| {
            let identity =
                Identity::principal("x", grants.parse().expect("readable"), Proof::Token);
            let namespace = Namespace::from_static("default");
            let rights = Rights::of(&identity, &namespace);
            let held = Right::ALL.into_iter().filter(|right| rights.hold(*right));
            held.collect::<Vec<_>>()
        };
        assert_eq!(
            rights("reader@default"),
            [Right::Open, Right::Known, Right::Read]
        );
        assert_eq!(
            rights("producer@default"),
            [Right::Open, Right::Known, Right::Read, Right::Add]
        );
        assert_eq!(
            rights("worker@default"),
            [
                Right::Open,
                Right::Known,
                Right::Read,
                Right::Add,
                Right::Take
            ]
        );
        assert_eq!(
            rights("operator@default"),
            [
                Right::Open,
                Right::Known,
                Right::Read,
                Right::Add,
                Right::Take,
                Right::Manage,
                Right::Clear
            ]
        );
        assert_eq!(rights("admin@*"), Right::ALL);
        assert_eq!(rights("admin@other"), [Right::Open, Right::Known]);
        let nobody = Rights::of(&Identity::Anonymous, &Namespace::from_static("default"));
        assert_eq!(nobody, Rights(Right::Open.bit()));
    }
}
