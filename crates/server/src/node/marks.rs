//! What the nodes of a cluster tell each other: of confirmed commits, so that after the end of an owner the next one
//! notices if the database has lost some of them, as after the promotion of a standby that was behind or after a restore;
//! and of the newest server of the database, so that none uses a former primary that still answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::future::join_all;
use ganger_access::Identity;
use ganger_dialect_http::Problem;
use ganger_router::{ClusterNode, Link, RouteError};
use ganger_store_postgres::{KnownMark, Mark, NewestServer, ServerIdentity};
use ganger_types::ShardId;
use http::{Method, Request, Response, Uri};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::port_handler::refuse;
use crate::security::Protocol;
use crate::shard_dispatch::ShardDispatch;

/// Path of the message with what a node knows. The answer is such a message too.
pub(crate) const MARKS: &str = "/peer/marks";
/// Interval at which a node tells the others what it knows: commits of this time may get lost unnoticed.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Longest time for which a node that does not answer delays the next message to all.
const TELL_MAX: Duration = Duration::from_secs(1);
/// Maximum size of a message in bytes; that of 256 shards is a tenth of it.
const MESSAGE_BYTES_MAX: usize = 1 << 18;

/// The marks of a cluster's shards, and the newest server of their database.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    of_shards: Mutex<BTreeMap<ShardId, Arc<KnownMark>>>,
    newest: Arc<NewestServer>,
}

impl Marks {
    /// Knows no marks yet.
    pub(crate) fn new(newest: &Arc<NewestServer>) -> Self {
        Self {
            of_shards: Mutex::default(),
            newest: Arc::clone(newest),
        }
    }

    /// Returns the mark of a shard of this cluster.
    pub(crate) fn of(&self, shard: &ShardId) -> Arc<KnownMark> {
        let mut marks = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(marks.entry(shard.clone()).or_default())
    }

    /// Returns all marks, in the order of the shards' names.
    pub(super) fn all(&self) -> Vec<(ShardId, Mark)> {
        let marks = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let marks = marks.iter();
        marks
            .map(|(shard, known)| (shard.clone(), known.now()))
            .collect()
    }

    /// Returns the message with all marks and the newest server.
    fn message(&self) -> Value {
        let marks = self.all().into_iter().map(|(shard, Mark { epoch, sequence })| {
            json!({"shard": shard.as_str(), "epoch": epoch, "sequence": sequence})
        });
        let server = self
            .newest
            .now()
            .map(|it| json!({"system_identifier": it.system_identifier, "timeline": it.timeline}));
        json!({ "marks": marks.collect::<Vec<_>>(), "server": server })
    }

    /// Adds what a message says. Marks of shards that the cluster does not have, as far as is known, are left out. Returns
    /// `None` if the message cannot be read.
    fn learn(&self, message: &[u8], shards: &[ShardId]) -> Option<()> {
        let message: Value = serde_json::from_slice(message).ok()?;
        if let Some(server) = message.get("server").filter(|server| !server.is_null()) {
            let told = ServerIdentity {
                system_identifier: server.get("system_identifier")?.as_i64()?,
                timeline: server.get("timeline")?.as_u64()?.try_into().ok()?,
            };
            if self.newest.learn(told) {
                tracing::warn!(
                    timeline = told.timeline,
                    "another node uses a newer server of the database: a standby was promoted, and the former primary is not used any more"
                );
            }
        }
        for told in message.get("marks")?.as_array()? {
            let number = |name: &str| told.get(name)?.as_u64();
            let shard = ShardId::new(told.get("shard")?.as_str()?)?;
            let mark = Mark {
                epoch: number("epoch")?,
                sequence: number("sequence")?,
            };
            if shards.contains(&shard) {
                self.of(&shard).learn(mark);
            }
        }
        Some(())
    }
}

impl ShardDispatch {
    /// Learns what another node knows, and answers with what is known here.
    pub(crate) async fn learn_marks(&self, body: Body) -> Response<Body> {
        let known = self
            .try_learn_marks(body)
            .await
            .and_then(|()| self.what_is_known());
        match known {
            Some(known) => Response::new(Body::from(known)),
            None => {
                let words =
                    "the marks of shards cannot be read: use one version of ganger on all nodes";
                refuse(Protocol::Http, &Problem::new("invalid_value", words))
            }
        }
    }

    /// Learns what another node knows; `None` if its message cannot be read, or this is no node of a cluster.
    pub(crate) async fn try_learn_marks(&self, body: Body) -> Option<()> {
        let message = axum::body::to_bytes(body, MESSAGE_BYTES_MAX).await.ok()?;
        let owners = self.router().topology().owners()?;
        self.marks()?.learn(&message, &owners.shards())
    }

    /// Returns the message with what this node knows; `None` if it is no node of a cluster.
    pub(crate) fn what_is_known(&self) -> Option<String> {
        Some(self.marks()?.message().to_string())
    }
}

/// Tells the other nodes again and again what this one knows, until the server stops.
pub(crate) async fn tell(
    dispatcher: Arc<ShardDispatch>,
    marks: Arc<Marks>,
    stopping: CancellationToken,
) {
    let mut links: BTreeMap<String, (String, Link)> = BTreeMap::new();
    let mut ticks = interval(TELL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stopping.cancelled() => return,
        }
        let Some(owners) = dispatcher.router().topology().owners() else {
            return;
        };
        let state = owners.now();
        let is_told = |node: &&ClusterNode| node.is_live && node.name != state.node;
        let others: Vec<&ClusterNode> = state.nodes.iter().filter(is_told).collect();
        links.retain(|name, (address, _)| {
            let is_same = |node: &&ClusterNode| node.name == *name && node.address == *address;
            others.iter().any(is_same)
        });
        for node in others {
            if links.contains_key(&node.name) {
                continue;
            }
            match dispatcher.router().link_at(&node.address) {
                Ok(link) => drop(links.insert(node.name.clone(), (node.address.clone(), link))),
                Err(error) => tracing::debug!(node = node.name, %error, "the node cannot be told"),
            }
        }
        let message = marks.message().to_string();
        let (marks, shards) = (&marks, owners.shards());
        join_all(links.iter().map(|(node, (_, link))| {
            let told = tell_one(&dispatcher, link.clone(), message.clone());
            let shards = &shards;
            async move {
                match timeout(TELL_MAX, told).await {
                    Ok(Ok(known)) => {
                        if marks.learn(&known, shards).is_none() {
                            tracing::debug!(node, "what the node knows cannot be read");
                        }
                    }
                    Ok(Err(error)) => tracing::debug!(node, %error, "the node was not told"),
                    Err(_) => tracing::debug!(node, "the node does not answer"),
                }
            }
        }))
        .await;
    }
}

async fn tell_one(
    dispatcher: &ShardDispatch,
    link: Link,
    message: String,
) -> Result<Bytes, RouteError> {
    let mut request = Request::new(Body::from(message));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(MARKS);
    let home = dispatcher.router().home();
    let this_node = Identity::peer([home.as_str()]);
    dispatcher.add_forwarding_headers(request.headers_mut(), home, &this_node);
    let response = link.forward(home, request).await?;
    let body = axum::body::to_bytes(Body::new(response.into_body()), MESSAGE_BYTES_MAX).await;
    body.map_err(|error| RouteError::Unreachable {
        shard: home.clone(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use ganger_store_postgres::{Durability, DurabilityMode, ServerRun};

    use super::*;

    fn shard(id: &str) -> ShardId {
        ShardId::new(id).expect("it is a name")
    }

    #[test]
    fn a_node_learns_the_marks_of_shards_that_it_knows() {
        let (theirs, ours) = (Marks::default(), Marks::default());
        let mark = Mark {
            epoch: 1 << 33,
            sequence: u64::MAX,
        };
        theirs.of(&shard("1")).learn(mark);
        theirs.of(&shard("9")).learn(mark);
        let message = theirs.message().to_string();
        assert_eq!(
            ours.learn(message.as_bytes(), &[shard("1"), shard("2")]),
            Some(())
        );
        assert_eq!(ours.of(&shard("1")).now(), mark);
        assert_eq!(ours.of_shards.lock().expect("no panic").len(), 1);
    }

    #[test]
    fn a_node_that_uses_a_former_primary_hears_of_the_new_one() {
        let server = |timeline| ServerIdentity {
            system_identifier: -7,
            timeline,
        };
        let (theirs, ours) = (known(server(3)), known(server(2)));
        assert_eq!(
            theirs.learn(ours.message().to_string().as_bytes(), &[]),
            Some(())
        );
        assert_eq!(theirs.newest.now(), Some(server(3)));
        assert_eq!(
            ours.learn(theirs.message().to_string().as_bytes(), &[]),
            Some(())
        );
        assert_eq!(
            (ours.newest.now(), ours.newest.number()),
            (Some(server(3)), 1)
        );
    }

    /// A node that uses a server.
    fn known(server: ServerIdentity) -> Marks {
        let marks = Marks::default();
        let ServerIdentity {
            system_identifier,
            timeline,
        } = server;
        let used = Durability {
            mode: DurabilityMode::Quorum,
            system_identifier,
            timeline,
            run: ServerRun::default(),
        };
        marks.newest.admit(&used).expect("it is the first");
        marks
    }

    #[test]
    fn a_message_that_cannot_be_read_teaches_nothing() {
        let marks = Marks::default();
        for wrong in [
            "",
            "{}",
            r#"{"marks":[{"shard":"1","epoch":-1,"sequence":1}]}"#,
            r#"{"marks":[{"shard":"1","epoch":1}]}"#,
            r#"{"marks":[{"shard":"","epoch":1,"sequence":1}]}"#,
            r#"{"marks":[],"server":{"system_identifier":1,"timeline":4294967296}}"#,
        ] {
            assert_eq!(
                marks.learn(wrong.as_bytes(), &[shard("1")]),
                None,
                "{wrong}"
            );
        }
        assert_eq!(marks.message(), json!({"marks": [], "server": null}));
    }
}
