//! Where a request goes: to a shard of this process, or to the server that serves its shard.

use std::sync::Arc;

use ganger_dialect_http::Problem;
use ganger_router::Address;
use ganger_types::{JobRef, ShardId};
use http::HeaderValue;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::forwarding::{FORWARDED_BY, HOPS_MAX, PLACES, hops, number};
use super::in_flight::Entered;
use super::{Dialects, ShardDispatch};
use crate::security::Protocol;

/// Header or gRPC metadata that names the shard of a request.
pub(crate) const SHARD: &str = "ganger-shard";
/// Query parameter that names the shard.
pub(crate) const SHARD_PARAMETER: &str = "shard";
/// Path prefix of a job.
const JOBS: &str = "/api/v1/jobs/";
/// Paths of HTTP about the server itself, whatever shards it has.
const OWN_PATHS: [&str; 11] = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/version",
    "/openapi.json",
    "/api/v1/whoami",
    "/api/v1/server",
    "/api/v1/alerts",
    "/api/v1/nodes",
    "/api/v1/shards",
];
/// Beginnings of paths of HTTP about the cluster, which every node knows.
const OWN_PREFIXES: [&str; 2] = ["/api/v1/nodes/", "/api/v1/shards/"];
/// Calls of gRPC about the server itself.
const OWN_CALLS: [&str; 8] = [
    "/ganger.v1.Admin/WhoAmI",
    "/ganger.v1.Admin/GetServer",
    "/ganger.v1.Admin/ListAlerts",
    "/ganger.v1.Admin/ListNodes",
    "/ganger.v1.Admin/ListShards",
    "/ganger.v1.Admin/DrainNode",
    "/ganger.v1.Admin/ResumeNode",
    "/ganger.v1.Admin/MoveShard",
];

/// Where a request goes.
pub(crate) enum Route {
    /// To a shard of this process, or to what answers about this process.
    Local(Arc<Dialects>, Entered),
    /// To the server of another shard.
    Remote(ShardId),
}

impl Route {
    /// To what answers about this process; no move of a shard waits for such a request.
    pub(super) fn about_server(own: Arc<Dialects>) -> Self {
        Self::Local(own, Entered::default())
    }
}

impl ShardDispatch {
    /// Returns the dialects that answer what concerns this server: those of the default shard if it is here.
    pub(super) fn own(&self) -> Arc<Dialects> {
        let home = self.local().get(self.router.home()).cloned();
        let own = home.or_else(|| self.vacant.clone());
        own.expect("the default shard is here, or there is a stand-in")
    }

    pub(super) fn route(&self, protocol: Protocol, head: &Parts) -> Result<Route, Problem> {
        let home = self.router.home();
        let named = named(protocol, head, home)?;
        if named.is_none() && is_about_server(protocol, head.uri.path()) {
            return Ok(Route::about_server(self.own()));
        }
        let shard = named.unwrap_or_else(|| home.clone());
        if let Some(route) = self.enter(&shard) {
            return Ok(route);
        }
        if self.router.topology().owners().is_some() {
            return self.route_in_cluster(shard, head);
        }
        if let Some(by) = head.headers.get(FORWARDED_BY) {
            let by = String::from_utf8_lossy(by.as_bytes());
            return Err(Problem::new(
                "shard_unreachable",
                format!(
                    "shard {shard} cannot be reached: the server of shard {by} has passed the request on to this one, which has shards {} only; the topologies of the servers disagree",
                    self.list_here()
                ),
            ));
        }
        if !self.router.knows(&shard) {
            let error = self.router.unknown(&shard).to_string();
            return Err(Problem::new(
                "unknown_shard",
                format!(
                    "{error}; the id of a job of shard {home} that has a slash in it is written {home}/ID"
                ),
            ));
        }
        Ok(Route::Remote(shard))
    }

    /// Returns where a request for a shard of another node goes.
    fn route_in_cluster(&self, shard: ShardId, head: &Parts) -> Result<Route, Problem> {
        let away = |reason: String| {
            let problem = Problem::new("shard_unreachable", reason);
            problem.retry_after(std::time::Duration::from_secs(1))
        };
        match self.router.topology().address(&shard) {
            Address::Unknown => Err(Problem::new(
                "unknown_shard",
                self.router.unknown(&shard).to_string(),
            )),
            // Nobody waits for a shard that stays closed until an operator acts.
            Address::Closed(reason) => Err(Problem::new(
                "unavailable",
                format!("shard {shard} is closed: {reason}"),
            )),
            Address::Away(reason) => Err(away(format!(
                "shard {shard} cannot be reached: {reason}; try again, nothing is lost"
            ))),
            Address::At(_) if self.handing_over.has(&shard) || self.is_to_wait(&shard, head) => {
                Err(away(format!(
                    "shard {shard} cannot be reached: it is moving to another node; try again, nothing is lost"
                )))
            }
            Address::At(_) if hops(&head.headers) >= HOPS_MAX => Err(away(format!(
                "shard {shard} cannot be reached: the nodes do not agree yet who owns it; try again, nothing is lost"
            ))),
            Address::At(_) => Ok(Route::Remote(shard)),
        }
    }

    /// Whether a request that another node has forwarded must wait for what this node sees at its next beat: the other
    /// node has seen newer places, or it owned the shard and has given it up for this one.
    fn is_to_wait(&self, shard: &ShardId, head: &Parts) -> bool {
        let Some(owners) = self.router.topology().owners() else {
            return false;
        };
        let state = owners.now();
        let theirs: Option<u64> = number(&head.headers, PLACES);
        if theirs.is_some_and(|version| version > state.version) {
            return true;
        }
        let by = head.headers.get(FORWARDED_BY).map(HeaderValue::as_bytes);
        let is_by = |node: &Option<String>| node.as_ref().map(String::as_bytes) == by;
        by.is_some()
            && state
                .shard(shard)
                .is_some_and(|it| is_by(&it.owner) && it.node.as_ref() == Some(&state.node))
    }

    /// Returns where a request for a shard goes; `None` if no server has it.
    pub(crate) fn route_to(&self, shard: &ShardId) -> Option<Route> {
        if let Some(route) = self.enter(shard) {
            return Some(route);
        }
        let is_known = self.router.knows(shard);
        is_known.then(|| Route::Remote(shard.clone()))
    }

    /// Counts a request to a shard of this process; `None` if the shard is not here, or leaving.
    fn enter(&self, shard: &ShardId) -> Option<Route> {
        let dialects = self.local().get(shard).cloned()?;
        let entered = dialects.enter()?;
        Some(Route::Local(dialects, entered))
    }

    fn list_here(&self) -> String {
        let local = self.local();
        let shards: Vec<&str> = local.keys().map(ShardId::as_str).collect();
        shards.join(", ")
    }
}

/// Whether a request that names no shard is about the server that it reached.
fn is_about_server(protocol: Protocol, path: &str) -> bool {
    if protocol == Protocol::Grpc {
        return OWN_CALLS.contains(&path) || path.starts_with("/grpc.");
    }
    OWN_PATHS.contains(&path) || OWN_PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// Returns the shard that a request names: by the job in its path, its header, or its query; `None` if it names none.
fn named(protocol: Protocol, head: &Parts, home: &ShardId) -> Result<Option<ShardId>, Problem> {
    let path = head.uri.path();
    if protocol == Protocol::Http
        && let Some(rest) = path.strip_prefix(JOBS)
    {
        let segment = rest.split('/').next().unwrap_or_default();
        let text: Vec<u8> = percent_decode_str(segment).collect();
        // The dialect refuses an invalid id with its own message.
        if text.contains(&b'/')
            && let Ok(job) = JobRef::read(&text, home)
        {
            return Ok(Some(job.shard));
        }
    }
    if let Some(value) = head.headers.get(SHARD) {
        let text = String::from_utf8_lossy(value.as_bytes());
        return shard(&text, &format!("header {SHARD}")).map(Some);
    }
    if protocol == Protocol::Http {
        for pair in head.uri.query().unwrap_or_default().split('&') {
            if let Some((SHARD_PARAMETER, value)) = pair.split_once('=') {
                let text = percent_decode_str(value).decode_utf8_lossy();
                return shard(&text, "parameter shard").map(Some);
            }
        }
    }
    Ok(None)
}

/// Returns the shard that the header of a request names; `None` if there is none, or it is no shard.
pub(super) fn named_shard(head: &Parts) -> Option<ShardId> {
    ShardId::new(head.headers.get(SHARD)?.to_str().ok()?)
}

fn shard(text: &str, place: &str) -> Result<ShardId, Problem> {
    ShardId::new(text).ok_or_else(|| {
        let shown: String = text.escape_debug().take(80).collect();
        Problem::new(
            "invalid_value",
            format!("{place}: \"{shown}\" is not a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -"),
        )
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn found(
        protocol: Protocol,
        uri: &str,
        header: Option<&str>,
    ) -> Result<Option<String>, &'static str> {
        let mut request = Request::builder().uri(uri);
        if let Some(value) = header {
            request = request.header(SHARD, value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let home = ShardId::default();
        named(protocol, &head, &home)
            .map(|shard| shard.map(|shard| shard.to_string()))
            .map_err(|problem| problem.code)
    }

    #[test]
    fn a_request_names_its_shard_by_its_job_its_header_or_its_query() {
        let http = |uri, header| found(Protocol::Http, uri, header);
        let some = |shard: &str| Ok(Some(shard.to_owned()));
        assert_eq!(http("/api/v1/jobs/2%2Fa", None), some("2"));
        assert_eq!(http("/api/v1/jobs/2%2fa/log?shard=3", Some("4")), some("2"));
        assert_eq!(http("/api/v1/jobs/a?shard=3", Some("4")), some("4"));
        assert_eq!(http("/api/v1/jobs?limit=1&shard=eu.3", None), some("eu.3"));
        assert_eq!(http("/api/v1/jobs/a", None), Ok(None));
        assert_eq!(http("/api/v1/jobs/https%3A%2F%2Fa", None), some("1"));
        assert_eq!(http("/api/v1/jobs?shard=a%2Fb", None), Err("invalid_value"));
        assert_eq!(http("/api/v1/jobs", Some("")), Err("invalid_value"));
        let grpc = "/ganger.v1.Jobs/Get?shard=3";
        assert_eq!(found(Protocol::Grpc, grpc, None), Ok(None));
        assert_eq!(found(Protocol::Grpc, grpc, Some("2")), some("2"));
    }
}
