//! A shard that another process may own by now: it answers nothing from memory, and takes what passes the store.

use std::sync::Arc;
use std::time::Duration;

use crate::kit::{TestShard, complete, enqueue, lease, new_job, settings};
use ganger_shard::{CallError, Ownership, Settings};
use ganger_store::MemoryStore;
use ganger_types::query::Query;
use ganger_types::{Command, JobId, Namespace, Reply};

fn is_refused<T: std::fmt::Debug>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Unavailable { .. }))
}

#[tokio::test]
async fn a_shard_whose_ownership_is_in_doubt_refuses_reads_and_takes_commits() {
    let ownership = Arc::new(Ownership::default());
    ownership.set_until(Duration::from_secs(5));
    let settings = Settings {
        ownership: Some(Arc::clone(&ownership)),
        ..settings()
    };
    let bed = TestShard::start_with(settings, MemoryStore::new()).await;
    let shard = &bed.handle;
    let namespace = Namespace::default();
    let question = || Command::Query(Box::new(Query::Namespaces));
    let reply = shard.call(enqueue(vec![new_job("q", "a")])).await;
    let Ok(Reply::Enqueued { jobs, .. }) = reply else {
        panic!("{reply:?}");
    };
    let id = jobs[0].id.clone();
    assert!(shard.call(question()).await.is_ok());
    assert!(shard.job(&namespace, &id).await.is_ok());

    bed.clock.advance(Duration::from_secs(5));
    assert!(is_refused(&shard.call(question()).await));
    assert!(is_refused(&shard.job(&namespace, &id).await));
    let mixed = vec![question(), enqueue(vec![new_job("q", "b")])];
    let mixed = shard.call_all(mixed).await.expect("it is applied");
    assert!(is_refused(&mixed[0]), "{mixed:?}");
    assert!(mixed[1].is_ok(), "{mixed:?}");
    let leased = shard.lease(lease(&["q"], 1), Duration::ZERO).await;
    let leased = leased.expect("it was committed");
    let done = shard.call(complete(&leased[0], Some("1"))).await;
    assert!(done.is_ok(), "{done:?}");
    // A refusal comes from memory, so it may be out of date too.
    let mut absent = leased[0].clone();
    absent.grant.job = JobId::new("absent").expect("it is a name");
    let again = || shard.call(complete(&absent, None));
    assert!(is_refused(&again().await));

    ownership.set_until(Duration::from_secs(60));
    assert!(shard.call(question()).await.is_ok());
    assert!(shard.job(&namespace, &id).await.is_ok());
    assert!(matches!(again().await, Err(CallError::Rejected(_))));
}
