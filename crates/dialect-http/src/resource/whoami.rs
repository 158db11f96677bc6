//! The caller: its name, its roles, and until when they hold.

use std::time::SystemTime;

use axum::response::Response;
use ganger_access::{Identity, Role};
use ganger_document::names::text;
use ganger_document::view::whoami::{Grant, WhoAmI};

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

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
        Grant {
            role: grant.role.as_str().to_owned(),
            namespace: format!("{}{star}", text(name)),
        }
    });
    WhoAmI {
        who: identity.to_string(),
        grants: grants.collect(),
        expires_at: who.expires_at.map(SystemTime::from),
        read_only: roles.into_iter().all(Role::is_read_only),
    }
}
