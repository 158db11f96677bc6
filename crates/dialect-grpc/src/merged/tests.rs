//! Pages of two shards become pages of both.

use std::collections::BTreeMap;
use std::future::ready;

use ganger_proto::v1;

use super::*;

/// Two shards with jobs, each by the time of its creation; `b` may be away.
struct Shards {
    jobs: BTreeMap<&'static str, Vec<u64>>,
    is_away: bool,
}

fn shard(name: &str) -> ShardId {
    ShardId::new(name).expect("a good name")
}

impl Shards {
    /// A page of one shard, whose cursor is the number of jobs before the page.
    fn page(&self, name: &str, request: &v1::ListRequest) -> v1::ListReply {
        let mut all = self.jobs[name].clone();
        if request.newest_first {
            all.reverse();
        }
        let from = request.cursor.parse().unwrap_or(0);
        let limit = usize::try_from(request.limit).expect("small");
        let end = all.len().min(from + limit);
        let jobs = all[from..end].iter().map(|at| v1::Job {
            shard: name.to_owned(),
            created_at_us: *at,
            ..v1::Job::default()
        });
        v1::ListReply {
            jobs: jobs.collect(),
            next: if end < all.len() {
                end.to_string()
            } else {
                String::new()
            },
            complete: request.budget_ms.map(|_| name == "1"),
            looked_at: request.budget_ms.map(|_| 5),
            looked_back_to_us: request.budget_ms.map(|_| all[end - 1]),
            unreachable: Vec::new(),
        }
    }

    fn ask(&self, requests: Messages) -> Replies {
        let (mut replies, mut unreachable) = (Vec::new(), Vec::new());
        for (shard, request) in requests {
            if self.is_away && shard.as_str() == "b" {
                unreachable.push(shard);
                continue;
            }
            let request = v1::ListRequest::decode(&*request).expect("a request");
            let page = self.page(shard.as_str(), &request);
            replies.push((shard, page.encode_to_vec()));
        }
        (replies, unreachable)
    }

    async fn list(&self, request: &v1::ListRequest) -> Result<v1::ListReply, Problem> {
        let known = vec![shard("1"), shard("b")];
        let ask = |requests| ready(Ok::<_, Problem>(self.ask(requests)));
        let path = "/ganger.v1.Jobs/List";
        let reply = answer(path, &request.encode_to_vec(), known, ask).await?;
        Ok(v1::ListReply::decode(&*reply).expect("a reply"))
    }
}

fn shards() -> Shards {
    Shards {
        jobs: BTreeMap::from([("1", vec![1, 2, 3, 9]), ("b", vec![4, 5, 6])]),
        is_away: false,
    }
}

#[tokio::test]
async fn pages_are_merged_and_each_shard_goes_on_where_it_was_left() {
    let shards = shards();
    for newest_first in [false, true] {
        for limit in 1..=8 {
            let mut request = v1::ListRequest {
                newest_first,
                limit,
                ..v1::ListRequest::default()
            };
            let mut seen = Vec::new();
            loop {
                let page = shards.list(&request).await.expect("merged");
                assert!(page.jobs.len() <= usize::try_from(limit).expect("small"));
                seen.extend(page.jobs.iter().map(|job| job.created_at_us));
                if page.next.is_empty() {
                    break;
                }
                request.cursor = page.next;
            }
            if newest_first {
                seen.reverse();
            }
            assert_eq!(seen, [1, 2, 3, 4, 5, 6, 9], "limit {limit}");
        }
    }
}

#[tokio::test]
async fn a_merged_page_says_how_far_all_shards_were_looked_at() {
    let request = v1::ListRequest {
        limit: 10,
        budget_ms: Some(1),
        ..v1::ListRequest::default()
    };
    let page = shards().list(&request).await.expect("merged");
    assert_eq!((page.complete, page.looked_at), (Some(false), Some(10)));
    assert_eq!(page.looked_back_to_us, Some(9));
}

#[tokio::test]
async fn a_shard_that_is_away_is_named_and_one_must_be_there() {
    let shards = Shards {
        is_away: true,
        ..shards()
    };
    let request = v1::ListRequest::default();
    let page = shards.list(&request).await.expect("merged");
    assert_eq!(
        (page.jobs.len(), &*page.unreachable),
        (4, &["b".to_owned()][..])
    );
    let ask = |_| ready(Ok::<_, Problem>((Vec::new(), vec![shard("1")])));
    let refused = answer("/ganger.v1.Jobs/List", &[], vec![shard("1")], ask).await;
    assert_eq!(
        refused.expect_err("none is there").code,
        "shard_unreachable"
    );
}

#[tokio::test]
async fn what_cannot_be_merged_is_refused() {
    let shards = shards();
    let request = v1::ListRequest {
        cursor: "7".to_owned(),
        ..v1::ListRequest::default()
    };
    let refused = shards.list(&request).await.expect_err("another's cursor");
    assert!(refused.message.starts_with("cursor"), "{refused:?}");
    assert!(PATHS.iter().all(|path| crate::is_read(path)));
    assert!(!is_merged("/ganger.v1.Jobs/Get"));
    let ask = |requests| ready(Ok::<_, Problem>(shards.ask(requests)));
    for (path, request) in [
        ("/ganger.v1.Jobs/List", &b"\xff"[..]),
        ("/ganger.v1.Jobs/Get", b""),
    ] {
        let refused = answer(path, request, vec![shard("1")], ask).await;
        assert_eq!(refused.expect_err("refused").code, "invalid_value");
    }
}

#[tokio::test]
async fn every_list_that_can_be_merged_is() {
    for path in PATHS {
        let ask = |requests: Messages| {
            let replies = requests.into_iter().map(|(shard, _)| (shard, Vec::new()));
            ready(Ok::<_, Problem>((replies.collect(), Vec::new())))
        };
        answer(path, &[], vec![shard("1"), shard("b")], ask)
            .await
            .expect("merged");
    }
}
