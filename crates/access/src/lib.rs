//! Who may do what, and how much: identities, roles, the table of operations, the access file, the audit log, the
//! memory that requests may hold.
//!
//! No network and no TLS here: the server finds out who asks (`Identity`), the faces ask whether that
//! identity may (`Identity::may`), and both tell the audit log (`Audit`). Default deny: an operation
//! that is not in [`OPERATIONS`] is refused to everyone.

#![forbid(unsafe_code)]

mod audit;
mod budget;
mod cut;
mod edit;
mod error;
mod file;
mod grant;
mod identity;
mod operations;
mod parsed;
mod places;
mod quota;
mod role;
mod secret;

pub use audit::{Audit, Outcome, Record};
pub use budget::{Budget, Full, Hold, Owner, SMALL_BYTES, address_group};
pub use cut::BodyCut;
pub use edit::{add, revoke};
pub use error::AccessError;
pub use file::{AccessFile, Entry, Kind};
pub use grant::{Grant, Grants};
pub use identity::{CertificateNames, Denied, Identity, Principal, Proof};
pub use operations::{OPERATIONS, Operation, Scope, find};
pub use parsed::{tree_bytes, typed_bytes};
pub use places::{NoPlace, Place, Places};
pub use role::{Role, Verb};
pub use secret::{Hash, NewSecret};
