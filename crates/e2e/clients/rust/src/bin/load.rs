//! A load of redis-work-queue for Rust: `load PORT WORKERS ITEMS` adds items in pipelines of 100, lets the workers complete
//! them all, and prints the time of both in seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_work_queue::{Item, KeyPrefix, WorkQueue};

const PIPELINED: usize = 100;

#[tokio::main]
async fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [port, workers, items] = numbers[..] else {
        panic!("usage: load PORT WORKERS ITEMS");
    };
    let client =
        redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a well formed address");

    let begun = Instant::now();
    add(&client, items).await;
    let added = begun.elapsed();

    let begun = Instant::now();
    let left = Arc::new(AtomicUsize::new(items));
    let running: Vec<_> = (0..workers)
        .map(|_| tokio::spawn(work(client.clone(), Arc::clone(&left))))
        .collect();
    for worker in running {
        worker.await.expect("a worker does not panic");
    }
    println!("{} {}", added.as_secs_f64(), begun.elapsed().as_secs_f64());
}

fn queue() -> WorkQueue {
    WorkQueue::new(KeyPrefix::new("load".to_owned()))
}

async fn add(client: &redis::Client, items: usize) {
    let mut db = client.get_multiplexed_async_connection().await.unwrap();
    let queue = queue();
    let mut left = items;
    while left > 0 {
        let count = left.min(PIPELINED);
        let mut pipeline = redis::pipe();
        for _ in 0..count {
            let item = Item::new(vec![b'x'; 200].into_boxed_slice());
            queue.add_unique_item_to_pipeline(&mut pipeline, &item);
        }
        let () = pipeline.query_async(&mut db).await.unwrap();
        left -= count;
    }
}

async fn work(client: redis::Client, left: Arc<AtomicUsize>) {
    let mut db = client.get_multiplexed_async_connection().await.unwrap();
    let queue = queue();
    while left.load(Ordering::Relaxed) > 0 {
        let limit = Some(Duration::ZERO);
        let leased = queue.lease(&mut db, limit, Duration::from_secs(60)).await;
        if let Some(item) = leased.unwrap() {
            assert!(queue.complete(&mut db, &item).await.unwrap());
            left.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
