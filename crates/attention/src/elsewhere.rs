//! Asks the servers of other shards what needs attention there.

use std::time::Duration;

use futures::future::join_all;
use ganger_proto::v1;
use ganger_proto::v1::insight_client::InsightClient;
use ganger_router::Router;
use ganger_types::{Namespace, ShardId};

use crate::Item;
use crate::rules::unreachable;

/// How long another server may take.
const SERVER_WAIT: Duration = Duration::from_secs(1);
/// Shards of other servers that are asked.
const SHARDS_MAX: usize = 64;

/// Returns what needs attention at the shards of other servers. A shard that does not answer is an item itself.
pub(crate) async fn look(router: &Router, namespace: &Namespace, sees_server: bool) -> Vec<Item> {
    let known = router.known().into_iter();
    let elsewhere: Vec<ShardId> = known
        .filter(|shard| router.handle(shard).is_none())
        .take(SHARDS_MAX)
        .collect();
    let answers = join_all(elsewhere.iter().map(|shard| async move {
        let asked = ask(router, shard, namespace, sees_server);
        tokio::time::timeout(SERVER_WAIT, asked).await
    }));
    let mut items: Vec<Item> = Vec::new();
    for (shard, answer) in elsewhere.iter().zip(answers.await) {
        let found = match answer {
            Ok(Ok(found)) => found,
            Ok(Err(reason)) => vec![unreachable(shard, sees_server.then_some(&*reason))],
            Err(_) => vec![unreachable(shard, Some("it does not answer"))],
        };
        for item in found {
            // A server with several shards is asked once for each.
            let is_known = |known: &Item| {
                (&known.code, &known.text, &known.shard) == (&item.code, &item.text, &item.shard)
            };
            if !items.iter().any(is_known) {
                items.push(item);
            }
        }
    }
    items
}

async fn ask(
    router: &Router,
    shard: &ShardId,
    namespace: &Namespace,
    sees_server: bool,
) -> Result<Vec<Item>, String> {
    let link = router.link(shard).map_err(|error| error.to_string())?;
    let mut request = tonic::Request::new(v1::AttentionRequest {
        namespace: namespace.to_text().into_owned(),
        here_only: true,
        namespace_only: !sees_server,
    });
    let name = shard.as_str().parse();
    let name = name.map_err(|_| "its name cannot be sent in a header".to_owned())?;
    request
        .metadata_mut()
        .insert(ganger_proto::metadata::SHARD, name);
    let reply = InsightClient::new(link).attention(request).await;
    let reply = reply.map_err(|status| status.message().to_owned())?;
    let items = reply.into_inner().items;
    Ok(items.into_iter().map(Item::from).collect())
}
