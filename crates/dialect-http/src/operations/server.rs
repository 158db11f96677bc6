//! Operations on the server itself.

use ganger_access::Right;
use ganger_document::view::audit::AuditLog;
use ganger_document::view::cluster::{ClusterShards, NodeList};
use ganger_document::view::server::Server;
use ganger_document::view::whoami::WhoAmI;
use http::Method;

use super::{Operation, operation};
use crate::description::Content;
use crate::resource::health::{LiveView, ReadinessView, VersionView};
use crate::resource::home::HomeView;
use crate::resource::numbers::Done;
use crate::resource::{audit_log, cluster, health, home, metrics, server, whoami};

pub(super) fn about_the_server() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/",
            "home",
            Right::OPEN,
            "What this is: a page for browsers (Accept: text/html), else JSON.",
            home::show_home,
        )
        .reply::<HomeView>(),
        operation(
            M::GET,
            "/healthz",
            "live",
            Right::OPEN,
            "Tells whether the process answers.",
            health::live,
        )
        .reply::<LiveView>(),
        operation(
            M::GET,
            "/readyz",
            "ready",
            Right::OPEN,
            "Tells whether the shard can work.",
            health::ready,
        )
        .reply::<ReadinessView>(),
        operation(
            M::GET,
            "/version",
            "version",
            Right::AUTHENTICATED,
            "Shows the version of the server and its shard.",
            health::version,
        )
        .reply::<VersionView>(),
        operation(
            M::GET,
            "/api/v1/whoami",
            "whoAmI",
            Right::AUTHENTICATED,
            "Shows who the caller is, and what it may do.",
            whoami::show,
        )
        .reply::<WhoAmI>(),
        operation(
            M::GET,
            "/api/v1/server",
            "getServer",
            Right::OBSERVE.on_server(),
            "Shows the server: its shards, how busy they are, their space, and the settings that are not secret.",
            server::show,
        )
        .reply::<Server>(),
        operation(
            M::GET,
            "/api/v1/audit-log",
            "listAuditLog",
            Right::GOVERN.on_server(),
            "Lists the newest 10,000 records of the audit log, newest first.",
            audit_log::list,
        )
        .query(audit_log::PARAMETERS)
        .reply::<AuditLog>(),
        operation(
            M::GET,
            "/metrics",
            "metrics",
            Right::OBSERVE.on_server(),
            "Returns metrics in the Prometheus text format.",
            metrics::show_all,
        )
        .reply_as(Content::without_schema("text/plain")),
        operation(
            M::GET,
            "/openapi.json",
            "openapi",
            Right::AUTHENTICATED,
            "Returns this document.",
            health::describe,
        )
        .reply_as(Content::without_schema("application/json")),
    ]
}

pub(super) fn about_the_cluster() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/nodes",
            "listNodes",
            Right::OBSERVE.on_server(),
            "Lists the nodes of the cluster, as the node that answers sees them.",
            cluster::nodes,
        )
        .reply::<NodeList>(),
        operation(
            M::POST,
            "/api/v1/nodes/{node}/drain",
            "drainNode",
            Right::OPERATE.on_server(),
            "Makes a node of the cluster give its shards away; it gets none until it is resumed or starts again.",
            cluster::drain,
        )
        .reply::<Done>(),
        operation(
            M::POST,
            "/api/v1/nodes/{node}/resume",
            "resumeNode",
            Right::OPERATE.on_server(),
            "Lets a node of the cluster take shards again.",
            cluster::resume,
        )
        .reply::<Done>(),
        operation(
            M::POST,
            "/api/v1/shards/{shard}/move",
            "moveShard",
            Right::OPERATE.on_server(),
            "Moves a shard of the cluster to a node.",
            cluster::move_shard,
        )
        .query(&[("to", "Name of the node that is to own the shard.")])
        .reply::<Done>(),
        operation(
            M::GET,
            "/api/v1/shards",
            "listShards",
            Right::OBSERVE.on_server(),
            "Lists the shards of the cluster with their owners, as the node that answers sees them.",
            cluster::shards,
        )
        .reply::<ClusterShards>(),
    ]
}
