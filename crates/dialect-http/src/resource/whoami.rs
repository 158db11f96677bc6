//! The caller: its name, its roles, and until when they hold.

use axum::response::Response;
use ganger_access::{Identity, Role};
use ganger_document::names::text;
use serde::Serialize;
use utoipa::ToSchema;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Who the caller is, and what it may do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WhoAmI {
    /// Name of the caller, such as `token "ci"` or `anyone`.
    who: String,
    /// Roles and the namespaces in which they are granted; empty for other shards, which have no roles.
    grants: Vec<GrantView>,
    /// Time from which the credential is no longer known; null if it does not expire.
    expires_at: Option<String>,
    /// Whether no role of the caller changes anything.
    read_only: bool,
}

/// A role in some namespaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Grant)]
struct GrantView {
    /// Name of the role: `admin`, `operator`, `producer`, `worker` or `reader`.
    role: &'static str,
    /// Namespace, or the beginning of names and `*`; `*` alone is every namespace.
    namespace: String,
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    Ok(json::ok(&view(&context.identity)))
}

fn view(identity: &Identity) -> WhoAmI {
    let Identity::Principal(who) = identity else {
        return WhoAmI {
            who: identity.to_string(),
            grants: Vec::new(),
            expires_at: None,
            read_only: false,
        };
    };
    let roles: Vec<Role> = who.grants.0.iter().map(|grant| grant.role).collect();
    let grants = who.grants.0.iter().map(|grant| {
        let (name, is_prefix) = grant.namespaces();
        let star = if is_prefix { "*" } else { "" };
        GrantView {
            role: grant.role.as_str(),
            namespace: format!("{}{star}", text(name)),
        }
    });
    WhoAmI {
        who: identity.to_string(),
        grants: grants.collect(),
        expires_at: who.expires_at.map(|at| at.to_string()),
        read_only: roles.into_iter().all(Role::is_read_only),
    }
}
