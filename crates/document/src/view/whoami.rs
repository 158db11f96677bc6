//! The caller as a document: its name, its roles, and until when they hold.

use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{Moment, moment_if_any};

/// Who the caller is, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhoAmI {
    /// Name of the caller, such as `token "ci"` or `anyone`.
    pub who: String,
    /// Roles and the namespaces in which they are granted; empty for other shards, which have no roles.
    pub grants: Vec<Grant>,
    /// Time from which the credential is no longer known; null if it does not expire.
    #[serde(serialize_with = "moment_if_any")]
    #[schema(value_type = Option<Moment>)]
    pub expires_at: Option<SystemTime>,
    /// Whether no role of the caller changes anything.
    pub read_only: bool,
}

/// A role in some namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Grant {
    /// Name of the role: `admin`, `operator`, `producer`, `worker` or `reader`.
    pub role: String,
    /// Namespace, or the beginning of names and `*`; `*` alone is every namespace.
    pub namespace: String,
}
