//! The rights that commands need.

use ganger_access::{Identity, Operation, Right as Needed};
use ganger_types::Namespace;

// One of several operations is enough: a program that cleans up after workers is a worker itself.
const CONNECT: Operation = Operation::new("resp.connect", Needed::AUTHENTICATED);
const LIST_CONNECTIONS: Operation =
    Operation::new("resp.listConnections", Needed::OBSERVE.on_server());
const END_CONNECTION: Operation = Operation::new("resp.endConnection", Needed::OPERATE.on_server());
const READ: Operation = Operation::new("resp.read", Needed::OBSERVE);
const ADD: Operation = Operation::new("resp.add", Needed::SUBMIT);
const WORK: Operation = Operation::new("resp.work", Needed::WORK);
const REPAIR: Operation = Operation::new("resp.repair", Needed::OPERATE);
const CLEAR: Operation = Operation::new("resp.clear", Needed::OPERATE);

/// The right that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// None: any client may send the command.
    Open,
    /// A valid identity, whatever its rights.
    Known,
    /// Right to read keys, which workers have too, because they clean up.
    Read,
    /// Right to write keys.
    Add,
    /// Right to take elements and remove keys.
    Take,
    /// Right to change the keys of other clients.
    Manage,
    /// Right to remove everything.
    Clear,
    /// Right to see other connections.
    Inspect,
    /// Right to end other connections.
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

    /// The operations of which any one gives the right.
    fn operations(self) -> &'static [Operation] {
        match self {
            Self::Open => &[],
            Self::Known => &[CONNECT],
            Self::Read => &[READ, WORK],
            Self::Add => &[ADD, WORK],
            Self::Take => &[WORK, REPAIR],
            Self::Manage => &[REPAIR],
            Self::Clear => &[CLEAR],
            Self::Inspect => &[LIST_CONNECTIONS],
            Self::Rule => &[END_CONNECTION],
        }
    }

    /// The operation that the audit log records.
    pub(crate) fn operation(self) -> &'static str {
        self.operations().first().unwrap_or(&CONNECT).name
    }

    fn bit(self) -> u16 {
        let place = Self::ALL.iter().position(|right| *right == self);
        1 << place.expect("all are there")
    }

    /// Whether an identity has the right in a namespace.
    pub(crate) fn is_held(self, identity: &Identity, namespace: &Namespace) -> bool {
        let place = Some(namespace.as_bytes());
        let may = |operation: &Operation| identity.may(*operation, place).is_ok();
        self == Self::Open || self.operations().iter().any(may)
    }
}

/// The set of rights of an identity in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights(u16);

impl Rights {
    /// Returns the rights of an identity in a namespace.
    pub(crate) fn of(identity: &Identity, namespace: &Namespace) -> Self {
        let held = Right::ALL
            .into_iter()
            .filter(|right| right.is_held(identity, namespace));
        Self(held.fold(0, |bits, right| bits | right.bit()))
    }

    /// Whether the set contains a right.
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
