//! What the viewer may see and do, by the table of operations of the HTTP API. No rule stands here.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganger_access::{Identity, Operation, Principal, Role};
use ganger_types::Namespace;

use crate::fault::Fault;
use crate::settings::Payloads;

/// The operations, by name.
pub(crate) type Table = Arc<BTreeMap<&'static str, Operation>>;

/// The rights of a viewer in the namespace of a view.
#[derive(Clone)]
pub(crate) struct Rights {
    identity: Identity,
    namespace: Namespace,
    table: Table,
    is_read_only: bool,
    payloads: Payloads,
}

impl Rights {
    pub(crate) fn new(
        identity: Identity,
        namespace: Namespace,
        table: Table,
        is_read_only: bool,
        payloads: Payloads,
    ) -> Self {
        Self {
            identity,
            namespace,
            table,
            is_read_only,
            payloads,
        }
    }

    /// The same rights in another namespace.
    pub(crate) fn in_namespace(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    /// The operation of that name.
    ///
    /// # Panics
    /// If the table has none: every name in this crate is of the table.
    pub(crate) fn operation(&self, name: &str) -> Operation {
        *self
            .table
            .get(name)
            .unwrap_or_else(|| panic!("the table has the operation {name}"))
    }

    /// Whether the viewer may use an operation that reads.
    pub(crate) fn may_read(&self, name: &str) -> bool {
        self.check(name).is_ok()
    }

    /// Whether the viewer may use an operation that changes something, here and now.
    pub(crate) fn may_do(&self, name: &str) -> bool {
        !self.is_read_only && self.may_read(name)
    }

    /// Checks an operation, in the namespace of the view if it concerns one.
    ///
    /// # Errors
    /// If the viewer may not use it.
    pub(crate) fn check(&self, name: &str) -> Result<(), Fault> {
        let operation = self.operation(name);
        let namespace = Some(self.namespace.as_bytes());
        Ok(self.identity.may(operation, namespace)?)
    }

    /// Whether the viewer may change the settings of a namespace, which need not be that of the view.
    pub(crate) fn may_govern(&self, namespace: &Namespace) -> bool {
        let operation = self.operation("setNamespace");
        let allowed = self.identity.may(operation, Some(namespace.as_bytes()));
        !self.is_read_only && allowed.is_ok()
    }

    /// Why an action is not offered, where its absence would puzzle; `None` if it is offered.
    pub(crate) fn why_not(&self, name: &str) -> Option<String> {
        if self.is_read_only {
            return Some("This dashboard is read only (`ui.read_only`).".to_owned());
        }
        let operation = self.operation(name);
        self.identity
            .may(operation, Some(self.namespace.as_bytes()))
            .err()?;
        let role = Role::least(operation.right.verb)?;
        let namespace =
            crate::text::plain(&ganger_document::names::show(self.namespace.as_bytes()));
        Some(format!("Needs the role {} in {namespace}.", role.as_str()))
    }

    /// Whether payloads, inputs, results and logs are shown.
    pub(crate) fn sees_payloads(&self) -> bool {
        self.payloads == Payloads::Shown || self.may_read("alterJob")
    }

    /// Whether a namespace is listed.
    pub(crate) fn lists(&self, namespace: &Namespace) -> bool {
        self.identity.may_list(namespace.as_bytes())
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Equal for viewers who see the same pages.
    pub(crate) fn fingerprint(&self) -> String {
        match &self.identity {
            Identity::Principal(who) => who.grants.to_string(),
            other => other.to_string(),
        }
    }

    /// Name and roles, as the frame shows them.
    pub(crate) fn who(&self) -> (String, String) {
        match &self.identity {
            Identity::Principal(who) => (who.name.clone(), roles(who)),
            other => (other.to_string(), String::new()),
        }
    }
}

/// The roles that a principal has in any namespace.
fn roles(who: &Principal) -> String {
    let grants = who.grants.to_string();
    let mut roles: Vec<&str> = grants
        .split(',')
        .filter_map(|grant| grant.split('@').next())
        .collect();
    roles.dedup();
    roles.join(", ")
}
