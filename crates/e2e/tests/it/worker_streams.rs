//! The streams of workers at a cluster, over gRPC without a client library: they go on while their shard moves between
//! nodes, and when its owner dies.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::command::wait_for;
use ganger_e2e::http::Client;
use ganger_e2e::server::TIMEOUT;
use ganger_proto::v1;
use ganger_proto::v1::leases_client::LeasesClient;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::interval;
use tokio_stream::wrappers::ReceiverStream;

use crate::nodes::{Nodes, ask, drain};

/// Credits that a worker has when it holds nothing.
const CREDITS: u32 = 20;
/// Interval at which a worker looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which a worker says that it lives.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(10);
/// Number of jobs completed between two moves.
const JOBS_BETWEEN: usize = 60;

/// What the workers have done, and whether they are to end.
#[derive(Default)]
struct Done {
    completed: AtomicUsize,
    is_over: AtomicBool,
}

/// What one worker has seen.
#[derive(Debug, Default)]
struct Seen {
    welcomes: usize,
    /// Jobs whose completions were accepted for the first time.
    completed: Vec<String>,
    /// Completions that were accepted before, and answers that say something else.
    repeats: usize,
    refused: Vec<String>,
}

/// Works on one stream until told to end. An end of the stream before that is an error.
#[tokio::main(flavor = "current_thread")]
async fn work(node: SocketAddr, name: &str, session: &str, done: &Done) -> Result<Seen> {
    let mut client = LeasesClient::connect(format!("http://{node}")).await?;
    let (say, said) = mpsc::channel(1_000);
    let hello = v1::Hello {
        namespace: "default".to_owned(),
        worker: name.to_owned(),
        queues: vec![v1::TakeFrom {
            queue: "q".to_owned(),
            weight: 0,
        }],
        lease_ms: Some(3_000),
        session: session.to_owned(),
        ..v1::Hello::default()
    };
    let first = v1::WorkerMessage {
        hello: Some(hello),
        credits_added: CREDITS,
        ..v1::WorkerMessage::default()
    };
    say.send(first).await?;
    let mut messages = client.work(ReceiverStream::new(said)).await?.into_inner();
    let (mut look, mut sign) = (interval(LOOK_EVERY), interval(SIGN_OF_LIFE_EVERY));
    let (mut seen, mut reported) = (Seen::default(), Vec::new());
    loop {
        let message = tokio::select! {
            message = messages.message() => message.with_context(|| format!("the stream of {name}"))?,
            _ = look.tick() => {
                if done.is_over.load(Ordering::Relaxed) {
                    return Ok(seen);
                }
                continue;
            }
            _ = sign.tick() => {
                say.send(v1::WorkerMessage::default()).await?;
                continue;
            }
        };
        let message = message.with_context(|| format!("the stream of {name} has ended"))?;
        seen.welcomes += usize::from(message.welcome.is_some());
        ensure!(!message.drain, "{name} was told that its node stops");
        for number in &message.completed {
            let at = usize::try_from(*number)? - 1;
            let job: &String = &reported[at];
            seen.completed.push(job.clone());
            done.completed.fetch_add(1, Ordering::Relaxed);
        }
        for answer in message.answers {
            match answer.outcome {
                Some(v1::report_answer::Outcome::Reported(_)) => {
                    let at = usize::try_from(answer.number)? - 1;
                    seen.repeats += 1;
                    seen.completed.push(reported[at].clone());
                    done.completed.fetch_add(1, Ordering::Relaxed);
                }
                other => seen.refused.push(format!("{other:?}")),
            }
        }
        if message.deliveries.is_empty() {
            continue;
        }
        let credits_added = u32::try_from(message.deliveries.len())?;
        let mut reports = Vec::new();
        for delivery in message.deliveries {
            reported.push(delivery.job.clone());
            let held = Some(v1::Held {
                job: delivery.job,
                token: delivery.token,
            });
            let done = v1::Completion {
                held,
                ..v1::Completion::default()
            };
            reports.push(v1::Report {
                number: u64::try_from(reported.len())?,
                what: Some(v1::report::What::Complete(done)),
            });
        }
        let answer = v1::WorkerMessage {
            credits_added,
            reports,
            ..v1::WorkerMessage::default()
        };
        say.send(answer).await?;
    }
}

/// Enqueues jobs until told to end; returns their number.
fn produce(node: SocketAddr, done: &Done) -> usize {
    let mut client = Client::new(node, TIMEOUT);
    let mut jobs = 0;
    while !done.is_over.load(Ordering::Relaxed) {
        let job = json!({"id": format!("j{jobs}"), "queue": "q", "kind": "k"});
        // A request whose shard has no owner for long is sent again: the id makes it one job.
        while !done.is_over.load(Ordering::Relaxed) {
            match client.request("POST", "/api/v1/jobs", &job) {
                Ok(answer) if answer.status < 300 => break,
                Ok(answer) if answer.status >= 500 => {}
                other => panic!("{other:?}"),
            }
        }
        jobs += 1;
        thread::sleep(Duration::from_millis(3));
    }
    jobs
}

/// Returns a number of a node's metrics.
pub(crate) fn metric(nodes: &Nodes, node: &str, name: &str) -> Result<u64> {
    let text = ask(nodes.setup(node), "/metrics")?.to_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.with_context(|| format!("{name} is there"))?;
    Ok(number.trim().parse()?)
}

/// Moves the shard from node to node, to the node of the clients and away from it, and kills its owner at the end. `done`
/// counts what the clients have done.
pub(crate) fn move_around(
    nodes: &mut Nodes,
    done: &AtomicUsize,
    before_death: impl FnOnce(),
) -> Result<()> {
    let wait_for_jobs = || {
        let enough = done.load(Ordering::Relaxed) + JOBS_BETWEEN;
        let has = || done.load(Ordering::Relaxed) >= enough;
        wait_for("more jobs", || Ok(has().then_some(())))
    };
    for owner in ["c", "b", "a", "c", "a"] {
        drain(nodes, owner, &["--undo"])?;
        for other in ["a", "b", "c"] {
            if other != owner {
                drain(nodes, other, &[])?;
            }
        }
        eprintln!("to {owner}: {} jobs so far", done.load(Ordering::Relaxed));
        wait_for("the move", || {
            Ok((nodes.owner("c", "1")?.as_deref() == Some(owner)).then_some(()))
        })?;
        wait_for_jobs()?;
    }
    for node in ["b", "c"] {
        drain(nodes, node, &["--undo"])?;
    }
    before_death();
    wait_for_jobs()?;
    nodes.server("a").kill()?;
    wait_for_jobs()?;
    let server = nodes.setup("a").start()?;
    *nodes.server("a") = server;
    Ok(())
}

#[test]
fn the_streams_of_workers_go_on_while_their_shard_moves_and_when_its_owner_dies() -> Result<()> {
    const NAME: &str = "the_streams_of_workers_go_on_while_their_shard_moves";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b", "c"])? else {
        return Ok(());
    };
    let (done, node) = (Done::default(), nodes.setup("c").address);
    let (seen, enqueued) = thread::scope(|scope| -> Result<_> {
        let producer = scope.spawn(|| produce(node, &done));
        let workers = [("w1", "session"), ("w2", ""), ("w3", "")];
        let workers = workers.map(|(name, session)| {
            let done = &done;
            scope.spawn(move || work(node, name, session, done))
        });
        let moved = move_around(&mut nodes, &done.completed, || ());
        done.is_over.store(true, Ordering::Relaxed);
        let enqueued = producer.join().expect("no panic");
        let seen = workers.map(|worker| worker.join().expect("no panic"));
        let seen: Vec<_> = seen.into_iter().collect::<Result<_>>()?;
        moved.map(|()| (seen, enqueued))
    })?;
    let completed: Vec<_> = seen
        .iter()
        .flat_map(|seen| seen.completed.clone())
        .collect();
    let moved = metric(&nodes, "c", "ganger_worker_streams_moved_total")?;
    let repeats: usize = seen.iter().map(|seen| seen.repeats).sum();
    eprintln!(
        "{enqueued} jobs, {} completed, {repeats} of them reported twice; streams moved {moved} times",
        completed.len()
    );
    for seen in &seen {
        ensure!(seen.welcomes == 1, "a stream has one welcome: {seen:?}");
        ensure!(seen.refused.is_empty(), "{:?}", seen.refused);
    }
    let once: BTreeSet<_> = completed.iter().collect();
    ensure!(once.len() == completed.len(), "a job was completed twice");
    // Five moves, at least four of which had a stream to move, and a death, three streams each.
    ensure!(moved >= 3 * 5, "streams moved {moved} times");
    let listed = ask(nodes.setup("b"), "/api/v1/queues/q")?.json();
    ensure!(
        listed["counts"]["failed"].as_u64().unwrap_or(0) == 0,
        "{listed}"
    );
    nodes.stop().map_err(|error| anyhow!("{error:?}"))
}

/// What a stream that cannot begin is told: at once, and not as the first message.
#[test]
fn a_stream_that_is_refused_ends_at_once_and_says_why() -> Result<()> {
    const NAME: &str = "a_stream_that_is_refused_ends_at_once";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    for node in ["a", "b"] {
        let refused = refused_hello(nodes.setup(node).address)?;
        ensure!(
            refused.code() == tonic::Code::InvalidArgument,
            "{refused:?}"
        );
        ensure!(refused.message().contains("queues"), "{refused:?}");
    }
    nodes.stop()
}

/// Opens a stream that takes from no queue; returns what it is refused with.
#[tokio::main(flavor = "current_thread")]
async fn refused_hello(node: SocketAddr) -> Result<tonic::Status> {
    let mut client = LeasesClient::connect(format!("http://{node}")).await?;
    let hello = v1::WorkerMessage {
        hello: Some(v1::Hello::default()),
        ..v1::WorkerMessage::default()
    };
    let opened = client.work(tokio_stream::once(hello)).await;
    opened.err().context("a worker without queues is refused")
}
