//! redis-work-queue for Rust. `lives PORT` runs every operation. `lives PORT PREFIX` completes items until there are none for
//! a while, prints `worked ID` for each, and survives restarts of the server.

use std::time::{Duration, Instant};

use redis::aio::ConnectionManager;
use redis::AsyncCommands as _;
use redis_work_queue::{Item, KeyPrefix, WorkQueue};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().expect("a port");
    // RESP3 for all operations, RESP2 for work.
    match arguments.next() {
        None => {
            all_operations(connect(&format!("redis://127.0.0.1:{port}/?protocol=resp3")).await)
                .await
        }
        Some(prefix) => work(&format!("redis://127.0.0.1:{port}/"), &prefix).await,
    }
}

async fn connect(url: &str) -> ConnectionManager {
    let client = redis::Client::open(url).expect("a well formed address");
    loop {
        if let Ok(db) = client.get_connection_manager().await {
            return db;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn all_operations(mut db: ConnectionManager) {
    let queue = WorkQueue::new(KeyPrefix::new("rust".to_owned()));
    let lease_for = Duration::from_secs(30);
    let now = Some(Duration::ZERO);
    let item = Item::from_string_data("data".to_owned());
    assert!(queue.add_item(&mut db, &item).await.unwrap());
    assert!(!queue.add_item(&mut db, &item).await.unwrap());
    let empty = Item::new(Box::new([]));
    queue.add_unique_item(&mut db, &empty).await.unwrap();
    assert_eq!(queue.queue_len(&mut db).await.unwrap(), 2);

    let first = queue
        .lease(&mut db, None, lease_for)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&first.id, &*first.data), (&item.id, &b"data"[..]));
    let left: i64 = db.ttl(format!("rust:lease:{}", item.id)).await.unwrap();
    assert!((29..=30).contains(&left), "{left}");
    assert_eq!(queue.processing(&mut db).await.unwrap(), 1);
    assert!(queue.complete(&mut db, &first).await.unwrap());
    assert!(!queue.complete(&mut db, &first).await.unwrap());
    let second = queue.lease(&mut db, now, lease_for).await.unwrap().unwrap();
    assert!(second.data.is_empty());
    assert!(queue.complete(&mut db, &second).await.unwrap());

    let begun = Instant::now();
    let limit = Some(Duration::from_secs(1));
    assert!(queue
        .lease(&mut db, limit, lease_for)
        .await
        .unwrap()
        .is_none());
    assert!(begun.elapsed() >= Duration::from_secs(1), "never early");

    // A lease of less than a second is sent as 0, which is refused and leaves the item where a cleaner finds it.
    queue.add_item(&mut db, &item).await.unwrap();
    assert!(queue
        .lease(&mut db, now, Duration::from_millis(500))
        .await
        .is_err());
    assert_eq!(queue.processing(&mut db).await.unwrap(), 1);
    assert!(queue.complete(&mut db, &item).await.unwrap());
    let keys: Vec<String> = db.keys("rust:*").await.unwrap();
    assert!(keys.is_empty(), "{keys:?}");
}

async fn work(url: &str, prefix: &str) {
    let queue = WorkQueue::new(KeyPrefix::new(prefix.to_owned()));
    let mut db = connect(url).await;
    let mut quiet = 0;
    while quiet < 4 {
        match step(&queue, &mut db).await {
            Ok(is_quiet) => quiet = if is_quiet { quiet + 1 } else { 0 },
            Err(_) => db = connect(url).await,
        }
    }
}

/// Completes one item. Returns true if there was none, and no other worker has one.
async fn step(queue: &WorkQueue, db: &mut ConnectionManager) -> redis::RedisResult<bool> {
    let limit = Some(Duration::from_secs(1));
    match queue.lease(db, limit, Duration::from_secs(2)).await? {
        None => Ok(queue.queue_len(db).await? == 0 && queue.processing(db).await? == 0),
        Some(item) => {
            if queue.complete(db, &item).await? {
                println!("worked {}", item.id);
            }
            Ok(false)
        }
    }
}
