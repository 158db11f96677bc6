//! Servers with many waiting jobs: how long a restart takes after `kill -9`, and how much memory a job takes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::grpc::{Place, Streams};
use super::server::{Server, free_address};
use super::target::Target;
use crate::http::Http;
use crate::measure::flow;
use crate::{Error, memory_of};

const QUEUE: &str = "bench";

/// How often a starting server is asked whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A server that has not become ready after so long has failed.
const READY_WITHIN: Duration = Duration::from_secs(600);

/// What a server has in its buffers is written and given back within this time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// A restart with so many live jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    pub(super) jobs: u64,
    /// From the start of the process until the server is ready.
    pub(super) took: Duration,
    /// Bytes of memory of the server when it was ready.
    pub(super) memory: f64,
}

/// The memory of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Bytes of memory of a server without jobs.
    pub(super) idle: f64,
    /// Bytes that each waiting job adds, without its payload.
    pub(super) each_job: f64,
    /// The jobs that waited.
    pub(super) jobs: u64,
}

async fn start(target: &Target, name: &str) -> Result<Server, Error> {
    let db = target.dir.join(format!("{name}.db"));
    let quiet = ["--log", "warn"].map(str::to_owned).to_vec();
    let server = Server::start(&target.program, free_address()?.to_string(), db, quiet)?;
    until_ready(&server).await?;
    Ok(server)
}

/// Waits until the server says that it is ready. The client of the SDK would pause between its attempts.
async fn until_ready(server: &Server) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        if let Ok(mut http) = Http::connect(&server.options.url, "").await
            && http.get("/readyz").await.is_ok()
        {
            return Ok(());
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(Error::failed(format!(
                "a server is not ready after {READY_WITHIN:?}"
            )));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn fill(server: &Server, payload_bytes: usize, jobs: u64) -> Result<(), Error> {
    let peer = Streams::at(Place {
        options: server.options.clone(),
        shard: None,
    });
    flow::fill(&peer, QUEUE, payload_bytes, jobs).await
}

/// Kills a server with so many live jobs and starts it again.
pub(super) async fn restart(
    target: &Target,
    jobs: u64,
    payload_bytes: usize,
) -> Result<Restart, Error> {
    let mut server = start(target, &format!("restart-{jobs}")).await?;
    fill(&server, payload_bytes, jobs).await?;
    server.kill()?;
    let begun = Instant::now();
    server.start_again()?;
    until_ready(&server).await?;
    Ok(Restart {
        jobs,
        took: begun.elapsed(),
        memory: memory_of(server.process())?,
    })
}

/// Measures a server without jobs, and how it grows with so many. A fifth as many come first, since a server that has
/// done its first work has buffers that do not grow with jobs.
pub(super) async fn memory(target: &Target, jobs: u64) -> Result<Memory, Error> {
    let server = start(target, "memory").await?;
    let settled = async || -> Result<f64, Error> {
        sleep(SETTLED_AFTER).await;
        Ok(memory_of(server.process())?)
    };
    let idle = settled().await?;
    fill(&server, 0, jobs.div_ceil(5)).await?;
    let before = settled().await?;
    fill(&server, 0, jobs).await?;
    let after = settled().await?;
    let count = u32::try_from(jobs).unwrap_or(u32::MAX);
    Ok(Memory {
        idle,
        each_job: (after - before) / f64::from(count),
        jobs,
    })
}
