//! Access control: identities, roles, rights, the access file, the audit log, and limits on memory and streams.
//!
//! This crate does no network I/O or TLS: the server identifies the caller (`Identity`), the APIs check the caller's
//! rights (`Identity::may`), and both write the audit log (`Audit`). An API cannot offer an operation without a
//! [`Right`]: the declaration of the operation takes one.

#![forbid(unsafe_code)]

mod audit;
mod budget;
mod continuation;
mod cut;
mod edit;
mod error;
mod file;
mod grant;
mod identity;
mod operation;
mod parsed;
mod quota;
mod role;
mod secret;
mod stream_limit;

pub use audit::{Audit, Outcome, Record};
pub use budget::{Budget, BytesInProcess, Full, Hold, Owner, SMALL_BYTES, address_group};
pub use continuation::CONTINUE;
pub use cut::BodyCut;
pub use edit::{add, revoke};
pub use error::AccessError;
pub use file::{AccessFile, Entry, Kind};
pub use grant::{Grant, Grants};
pub use identity::{CertificateNames, Denied, Identity, Principal, Proof};
pub use operation::{Operation, Right, Scope};
pub use parsed::{tree_bytes, typed_bytes};
pub use role::{Role, Verb};
pub use secret::{Hash, NewSecret};
pub use stream_limit::{StreamLimit, StreamLimitReached, StreamPermit};
