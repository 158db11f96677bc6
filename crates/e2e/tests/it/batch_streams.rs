//! Streams that submit batches to a cluster, over gRPC without a client library: they go on while their shard moves between
//! nodes, and when its owner dies if each batch has an idempotency key.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_proto::v1;
use ganger_proto::v1::enqueue_answer::Outcome;
use ganger_proto::v1::jobs_client::JobsClient;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use crate::nodes::{Nodes, ask};
use crate::worker_streams::{metric, move_around};

/// Jobs in a batch.
const JOBS: u64 = 3;
/// Batches of a stream without an answer.
const UNANSWERED_MAX: u64 = 20;
/// Pause of a stream after each batch.
const PAUSE: Duration = Duration::from_millis(3);

/// Sends batches on one stream until told to end. Returns the ids of the jobs, all of which are new. `key` begins the
/// idempotency key of each batch; without it they have none.
#[tokio::main(flavor = "current_thread")]
async fn submit(
    node: SocketAddr,
    key: Option<&str>,
    answered: &AtomicUsize,
    is_over: &AtomicBool,
) -> Result<Vec<String>> {
    let mut client = JobsClient::connect(format!("http://{node}")).await?;
    let (say, said) = mpsc::channel(100);
    let stream = client.enqueue_stream(ReceiverStream::new(said)).await?;
    let (mut answers, mut say) = (stream.into_inner(), Some(say));
    let (mut sent, mut ids) = (0, Vec::new());
    loop {
        let received = u64::try_from(ids.len())? / JOBS;
        let may_send = sent < received + UNANSWERED_MAX;
        if is_over.load(Ordering::Relaxed) {
            say = None;
        }
        let answer = tokio::select! {
            answer = answers.message() => answer,
            () = sleep(PAUSE), if say.is_some() && may_send => {
                sent += 1;
                let batch = batch(sent, key);
                say.as_ref().context("it is open")?.send(batch).await?;
                continue;
            }
        };
        let answer =
            answer.with_context(|| format!("the stream of {key:?} after {received} answers"))?;
        let Some(answer) = answer else {
            ensure!(
                say.is_none() && sent == received,
                "{received} of {sent} are answered"
            );
            return Ok(ids);
        };
        ensure!(answer.number == received + 1, "{answer:?} after {received}");
        let Some(Outcome::Accepted(reply)) = answer.outcome else {
            return Err(anyhow!("refused: {answer:?}"));
        };
        ids.extend(reply.jobs.into_iter().map(|job| job.id));
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn batch(number: u64, key: Option<&str>) -> v1::EnqueueBatch {
    let job = v1::NewJob {
        queue: "q".to_owned(),
        kind: "k".to_owned(),
        ..v1::NewJob::default()
    };
    let request = v1::EnqueueRequest {
        namespace: "default".to_owned(),
        jobs: (0..JOBS).map(|_| job.clone()).collect(),
        idempotency_key: key.map(|key| format!("{key}-{number}")).unwrap_or_default(),
        ..v1::EnqueueRequest::default()
    };
    v1::EnqueueBatch {
        number,
        request: Some(request),
    }
}

#[test]
fn streams_of_batches_go_on_while_their_shard_moves_and_with_keys_when_its_owner_dies() -> Result<()>
{
    const NAME: &str = "streams_of_batches_go_on_while_their_shard_moves";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b", "c"])? else {
        return Ok(());
    };
    let (answered, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Streams without keys end before the owner is killed.
    let is_moved = AtomicBool::new(false);
    let node = nodes.setup("c").address;
    let ids = thread::scope(|scope| -> Result<_> {
        let stream = |key: Option<&'static str>| {
            let (answered, is_over) = (&answered, if key.is_some() { &is_over } else { &is_moved });
            scope.spawn(move || submit(node, key, answered, is_over))
        };
        let streams = [
            stream(None),
            stream(None),
            stream(Some("x")),
            stream(Some("y")),
        ];
        let moved = move_around(&mut nodes, &answered, || {
            is_moved.store(true, Ordering::Relaxed);
        });
        for flag in [&is_over, &is_moved] {
            flag.store(true, Ordering::Relaxed);
        }
        let ids = streams.map(|stream| stream.join().expect("no panic"));
        let ids: Vec<_> = ids.into_iter().collect::<Result<_>>()?;
        moved.map(|()| ids)
    })?;
    let ids: Vec<String> = ids.into_iter().flatten().collect();
    let moved = metric(&nodes, "c", "ganger_answers_moved_total")?;
    eprintln!("{} jobs; streams moved {moved} times", ids.len());
    let once: BTreeSet<_> = ids.iter().collect();
    ensure!(once.len() == ids.len(), "two batches have the same jobs");
    let listed = ask(nodes.setup("b"), "/api/v1/queues/q")?.json();
    ensure!(
        listed["counts"]["ready"] == ids.len(),
        "{} jobs were acknowledged: {listed}",
        ids.len()
    );
    // Five moves, at least four of which had four streams to move, and a death with two.
    ensure!(moved >= 4 * 4 + 2, "streams moved {moved} times");
    nodes.stop().map_err(|error| anyhow!("{error:?}"))
}
