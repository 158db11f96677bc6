//! Measurements of several shards: full lives in one process, graphs over eight servers, messages between two servers,
//! cancellation over four shards.

use std::time::Duration;

use ganger_client::{Client, Dependency, Edge, NewJob};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::grpc::Streams;
use super::report::ShardsRow;
use super::servers::Servers;
use super::target::Target;
use super::worker::complete_all;
use crate::measure::lives::BATCHES_AHEAD;
use crate::tasks::{Tasks, live};
use crate::{Error, Load, Messages};

/// Numbers of shards in one process whose full lives are measured.
const IN_ONE: [usize; 3] = [1, 2, 4];
/// Number of connections for full lives, distributed over the shards.
const CONNECTIONS: usize = 16;
/// Number of jobs in one enqueue, delivery and report.
const BATCH: usize = 64;

/// Number of servers of the graph, whose jobs each depend on two jobs of the previous layer.
const SERVERS: usize = 8;
/// Number of jobs in each layer of the graph.
const WIDTH: usize = 80;
/// Number of layers of the graph.
const LAYERS: usize = 125;
/// Time between two kills of servers.
const NEXT_KILL_AFTER: Duration = Duration::from_millis(500);
/// Time for which a killed server is absent.
const AWAY_FOR: Duration = Duration::from_millis(300);

/// Number of messages that wait for an absent server.
const MESSAGES: usize = 50_000;

/// Number of jobs of the graph that is cancelled.
const MEMBERS: usize = 100_000;
/// Number of shards of that graph.
const CANCEL_SHARDS: usize = 4;

/// Interval between checks whether something is done.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest time of a measurement; a longer one has failed.
const DONE_WITHIN: Duration = Duration::from_secs(300);

/// Jobs that a worker has room for.
const CREDITS: u32 = 200;

const QUEUE: &str = "bench";

/// Runs all measurements; returns a row for each.
pub(crate) async fn measure(
    target: &Target,
    payload_bytes: usize,
    time: Duration,
    remark: impl Fn(String),
) -> Result<Vec<ShardsRow>, Error> {
    let mut rows = Vec::new();
    for shards in IN_ONE {
        remark(format!("measuring lives: {shards} shards in one process"));
        let servers = Servers::in_one(target, "lives", shards).await?;
        rows.push(lives(&servers, payload_bytes, time).await?);
    }
    let same = "graph over 8 servers, no edge crosses";
    let cross = "graph over 8 servers, every edge crosses";
    let kills = "the same while servers are killed and started";
    for (name, what) in [("same", same), ("cross", cross), ("kills", kills)] {
        remark(format!("measuring {what}"));
        let mut servers = Servers::of_their_own(target, name, SERVERS).await?;
        rows.push(graph(&mut servers, what, what == kills, what != same).await?);
    }
    rows.push(edges(&rows));
    remark("measuring messages between two servers".to_owned());
    rows.push(messages(Servers::of_their_own(target, "messages", 2).await?).await?);
    remark("measuring cancelling".to_owned());
    rows.push(cancel(&Servers::in_one(target, "cancel", CANCEL_SHARDS).await?).await?);
    Ok(rows)
}

fn counted(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Measures full lives on all shards of one process at the same time.
async fn lives(
    servers: &Servers,
    payload_bytes: usize,
    time: Duration,
) -> Result<ShardsRow, Error> {
    let each = CONNECTIONS / servers.shards();
    let (mut producers, mut consumers) = (Tasks::default(), Tasks::default());
    let mut loads = Vec::new();
    for place in 0..servers.shards() {
        let ahead = each * BATCH * BATCHES_AHEAD;
        let load = Load::new(QUEUE.to_owned(), payload_bytes, BATCH, Some(ahead));
        let shard = Streams::at(servers.place(place));
        let messages = Messages::new(BATCH, 1);
        for _ in 0..each {
            live(&shard, &load, messages, [&mut producers, &mut consumers]).await?;
        }
        loads.push(load);
    }
    // Warm-up.
    sleep(time / 4).await;
    let completed = || loads.iter().map(|load| load.completed()).sum::<u64>();
    let (begun, before, cpu) = (Instant::now(), completed(), servers.cpu());
    sleep(time).await;
    let (took, after) = (begun.elapsed(), completed());
    let cpu = servers.cpu() - cpu;
    producers.check()?;
    producers.stop().await;
    consumers.stop().await;
    Ok(ShardsRow {
        what: format!("{} shards in one process", servers.shards()),
        unit: "lives",
        count: counted(usize::try_from(after - before).unwrap_or(0)),
        seconds: took.as_secs_f64(),
        cpu,
    })
}

/// Returns the index of a job's shard: that of its column, or another one in each layer, so that every edge crosses.
fn place(layer: usize, column: usize, crosses: bool) -> usize {
    let shift = if crosses { layer } else { 0 };
    (column + shift) % SERVERS
}

/// Returns the jobs of the graph in layers. Each takes the results of two jobs of the previous layer: in its own
/// column, and in the column further by the number of servers.
fn layers(crosses: bool) -> Vec<NewJob> {
    let mut jobs = Vec::with_capacity(WIDTH * LAYERS);
    for layer in 0..LAYERS {
        for column in 0..WIDTH {
            let mut job = NewJob::new("bench").queue(QUEUE);
            job.shard = Some((place(layer, column, crosses) + 1).to_string());
            if layer > 0 {
                for above in [column, (column + SERVERS) % WIDTH] {
                    job = job.result_of(member((layer - 1) * WIDTH + above));
                }
            }
            jobs.push(job);
        }
    }
    jobs
}

fn member(place: usize) -> Dependency {
    Dependency::Member(u32::try_from(place).unwrap_or(u32::MAX))
}

/// Starts workers on some shards that complete every job at once.
fn workers(
    servers: &Servers,
    places: impl Iterator<Item = usize>,
) -> Result<JoinSet<Result<(), Error>>, Error> {
    let mut workers = JoinSet::new();
    for place in places {
        workers.spawn(complete_all(servers.client(place)?, place, QUEUE, CREDITS));
    }
    Ok(workers)
}

/// Waits until at most `left` jobs of a shard are live.
async fn until_live(client: &Client, left: u64) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        // The client itself retries while the server is absent.
        let counts = client.queue(QUEUE).await?.counts;
        let live = counts.blocked + counts.scheduled + counts.ready + counts.running;
        if live <= left {
            return Ok(());
        }
        if begun.elapsed() > DONE_WITHIN {
            let words = format!("{live} jobs of a shard are live after {DONE_WITHIN:?}");
            return Err(Error::failed(words));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn until_all_ended(servers: &Servers) -> Result<(), Error> {
    for place in 0..servers.shards() {
        until_live(&servers.client(place)?, 0).await?;
    }
    Ok(())
}

/// Measures a graph from its submission to the end of its last job.
async fn graph(
    servers: &mut Servers,
    what: &str,
    kills: bool,
    crosses: bool,
) -> Result<ShardsRow, Error> {
    let mut workers = workers(servers, 0..SERVERS)?;
    let (begun, cpu) = (Instant::now(), servers.cpu());
    let submitter = servers.client(0)?;
    submitter.submit_graph(layers(crosses), None).await?;
    let last = servers.client(place(LAYERS - 1, 0, crosses))?;
    let mut end = tokio::spawn(async move { until_live(&last, 0).await });
    let mut killed = 0;
    while kills && !end.is_finished() {
        let victim = killed % SERVERS;
        killed += 1;
        servers.kill(victim)?;
        sleep(AWAY_FOR).await;
        servers.start_again(victim).await?;
        tokio::select! {
            _ = &mut end => break,
            () = sleep(NEXT_KILL_AFTER) => {}
        }
    }
    until_all_ended(servers).await?;
    let took = begun.elapsed();
    let cpu = servers.cpu() - cpu;
    workers.shutdown().await;
    let what = if kills {
        format!("{what}, {killed} times")
    } else {
        what.to_owned()
    };
    Ok(ShardsRow {
        what,
        unit: "jobs",
        count: counted(WIDTH * LAYERS),
        seconds: took.as_secs_f64(),
        cpu,
    })
}

/// Computes the additional cost of edges between shards: the difference of two of the graphs.
fn edges(rows: &[ShardsRow]) -> ShardsRow {
    let of = |word: &str| rows.iter().find(|row| row.what.contains(word));
    let (same, cross) = (of("no edge"), of("every edge"));
    let less = |value: fn(&ShardsRow) -> f64| cross.map_or(0.0, value) - same.map_or(0.0, value);
    ShardsRow {
        what: "what its edges cost more if they cross".to_owned(),
        unit: "edges",
        count: counted(2 * WIDTH * (LAYERS - 1)),
        seconds: less(|row| row.seconds),
        cpu: less(|row| row.cpu),
    }
}

/// Measures the delivery of waiting messages to a server, from its restart until it has them on disk.
async fn messages(mut servers: Servers) -> Result<ShardsRow, Error> {
    let mut jobs = Vec::with_capacity(2 * MESSAGES);
    for place in 0..2 * MESSAGES {
        let mut job = NewJob::new("bench").queue(QUEUE);
        let is_dependency = place < MESSAGES;
        job.shard = Some(if is_dependency { "1" } else { "2" }.to_owned());
        if !is_dependency {
            job.after = vec![Edge::on(member(place - MESSAGES))];
        }
        jobs.push(job);
    }
    let one = servers.client(0)?;
    one.submit_graph(jobs, None).await?;
    // The messages of the submission itself are delivered first.
    until_told(&one).await?;
    servers.kill(1)?;
    let mut workers = workers(&servers, 0..1)?;
    until_live(&one, 0).await?;
    workers.shutdown().await;
    let before = confirmed(&one).await?;
    let cpu = servers.cpu();
    servers.start_again(1).await?;
    let begun = Instant::now();
    until_told(&one).await?;
    let took = begun.elapsed();
    Ok(ShardsRow {
        what: "from one server to another that was away".to_owned(),
        unit: "messages",
        count: counted(usize::try_from(confirmed(&one).await? - before).unwrap_or(0)),
        seconds: took.as_secs_f64(),
        cpu: servers.cpu() - cpu,
    })
}

async fn confirmed(client: &Client) -> Result<u64, Error> {
    let (_, peers) = client.peers().await?;
    Ok(peers.iter().map(|peer| peer.confirmed).sum())
}

/// Waits until no message waits for other shards.
async fn until_told(client: &Client) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let (_, peers) = client.peers().await?;
        if peers.iter().all(|peer| peer.waiting == 0) {
            return Ok(());
        }
        if begun.elapsed() > DONE_WITHIN {
            return Err(Error::failed("messages still wait"));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Measures the cancellation of a binary tree over all shards, from the call until no job is live.
async fn cancel(servers: &Servers) -> Result<ShardsRow, Error> {
    let mut jobs = Vec::with_capacity(MEMBERS);
    for place in 0..MEMBERS {
        let mut job = NewJob::new("bench").queue(QUEUE);
        job.shard = Some((place % CANCEL_SHARDS + 1).to_string());
        if place > 0 {
            job = job.result_of(member((place - 1) / 2));
        }
        jobs.push(job);
    }
    let client = servers.client(0)?;
    let accepted = client.submit_graph(jobs, None).await?;
    let graph = accepted
        .graph
        .ok_or_else(|| Error::failed("a graph without a name"))?;
    let (begun, cpu) = (Instant::now(), servers.cpu());
    client.cancel_graph(&graph, "measured").await?;
    until_all_ended(servers).await?;
    Ok(ShardsRow {
        what: "graph over 4 shards in one process, cancelled".to_owned(),
        unit: "jobs",
        count: counted(MEMBERS),
        seconds: begun.elapsed().as_secs_f64(),
        cpu: servers.cpu() - cpu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_edges_of_the_graph_cross_or_none_does() {
        for crosses in [false, true] {
            let jobs = layers(crosses);
            assert_eq!(jobs.len(), 10_000);
            let mut edges = 0;
            for job in &jobs {
                for input in &job.inputs {
                    let ganger_client::Input::Result(edge) = input else {
                        panic!("no values");
                    };
                    let Dependency::Member(dependency) = edge.dependency else {
                        panic!("members only");
                    };
                    let dependency = usize::try_from(dependency).expect("a place");
                    assert_eq!(jobs[dependency].shard != job.shard, crosses);
                    edges += 1;
                }
            }
            assert_eq!(edges, 2 * WIDTH * (LAYERS - 1));
        }
    }
}
