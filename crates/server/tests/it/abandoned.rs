//! Submissions over several shards whose client goes away before they are decided.

use std::time::Duration;

use serde_json::json;

use crate::kit::config;
use crate::shards::{fetch, open, pair};

/// Number of submissions. Each one's client stays a little longer than the one's before.
const SUBMISSIONS: u32 = 40;
/// Additional time for which the next client stays.
const STAYS_LONGER_BY: Duration = Duration::from_micros(250);
const GRAPHS: &str = "POST /api/v1/graphs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_can_be_repeated_after_its_client_went_away() {
    let [one, two] = pair(config()).await;
    for number in 0..SUBMISSIONS {
        let first =
            json!({"id": format!("{number}-first"), "name": "first", "shard": "1", "kind": "k"});
        let second = json!({"id": format!("{number}-second"), "shard": "2", "kind": "k", "after": ["first"]});
        let graph = json!({"jobs": [first, second]}).to_string();
        let stream = open(one.addr(), GRAPHS, "", &graph).await;
        tokio::time::sleep(STAYS_LONGER_BY * number).await;
        drop(stream);
        let answer = fetch(one.addr(), GRAPHS, "", &graph).await;
        assert!(answer.starts_with("HTTP/1.1 20"), "{number}: {answer}");
    }
    one.stop().await;
    two.stop().await;
}
