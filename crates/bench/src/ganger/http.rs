//! HTTP/1.1: enqueue many, lease many, complete many, each in one call on a connection that stays open. The server answers
//! pipelined requests one after the other, so unanswered messages have a connection each.

use std::fmt::Write as _;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::calls::{self, CallApi, Caller};
use super::target::Target;
use crate::http::Http;
use crate::link::Watch;
use crate::{Error, Links, Load, Peer, Role, Used};

const JSON: &str = "application/json";

/// How long a lease call waits for jobs, in seconds.
const WAIT_SECONDS: u64 = 1;

/// One connection and the leases it holds.
pub(super) struct Connection {
    http: Http,
    queue: String,
    /// The enqueue and the lease call, encoded.
    enqueue: Vec<u8>,
    jobs: usize,
    lease: Vec<u8>,
    /// Reports on the jobs held, as a list.
    reports: String,
    held: usize,
}

#[derive(Deserialize)]
struct Deliveries<'a> {
    #[serde(borrow)]
    jobs: Vec<Delivered<'a>>,
}

/// Ids and tokens that the server makes need no escaping, so they can be borrowed.
#[derive(Deserialize)]
struct Delivered<'a> {
    id: &'a str,
    token: &'a str,
    #[serde(default)]
    payload: Option<&'a serde_json::value::RawValue>,
}

/// What is read of the last line that answers a batch, and of the answer to a list of reports.
#[derive(Deserialize)]
struct Accepted {
    accepted: usize,
}

#[derive(Deserialize)]
struct Reported {
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

impl Connection {
    async fn connect(target: &Target, load: &Load, role: Role) -> Result<Self, Error> {
        let (queue, take) = (&load.queue, load.take);
        let wait = if matches!(role, Role::Live(_)) {
            0
        } else {
            WAIT_SECONDS
        };
        let lease = format!(
            "{{\"worker\":\"bench\",\"queues\":[{{\"queue\":\"{queue}\"}}],\"max\":{take},\"wait\":\"{wait}s\"}}"
        );
        let http = target.http().await?;
        Ok(Self {
            queue: queue.clone(),
            enqueue: Vec::new(),
            jobs: 0,
            lease: http.request("POST", "/api/v1/leases", JSON, lease.as_bytes()),
            http,
            reports: String::new(),
            held: 0,
        })
    }
}

impl Caller for Connection {
    fn prepare(&mut self, payload: &[u8], jobs: usize) {
        let (queue, payload) = (&self.queue, String::from_utf8_lossy(payload));
        let job = format!("{{\"kind\":\"bench\",\"queue\":\"{queue}\",\"payload\":{payload}}}\n");
        self.jobs = jobs;
        self.enqueue = if jobs == 1 {
            let http = &self.http;
            http.request("POST", "/api/v1/jobs", JSON, job.as_bytes())
        } else {
            let (path, body) = ("/api/v1/jobs/batch?answers=errors", job.repeat(jobs));
            let http = &self.http;
            http.request("POST", path, "application/x-ndjson", body.as_bytes())
        };
    }

    async fn enqueue(&mut self) -> Result<(), Error> {
        let answer = self.http.call(&self.enqueue).await?;
        if self.jobs == 1 {
            return Ok(());
        }
        let last = answer.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let accepted: Accepted = read(last.unwrap_or_default())?;
        if accepted.accepted != self.jobs {
            return Err(Error::failed(format!(
                "{} of {} jobs of a batch were taken",
                accepted.accepted, self.jobs
            )));
        }
        Ok(())
    }

    async fn take(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        let answer = self.http.call(&self.lease).await?;
        let deliveries: Deliveries<'_> = read(answer)?;
        self.held = deliveries.jobs.len();
        self.reports.clear();
        for job in deliveries.jobs {
            watch(job.payload.map_or(b"", |payload| payload.get().as_bytes()));
            self.reports
                .push(if self.reports.is_empty() { '[' } else { ',' });
            let (id, token) = (job.id, job.token);
            // Writing to a string cannot fail.
            let _ = write!(
                self.reports,
                "{{\"job\":\"{id}\",\"token\":\"{token}\",\"result\":null}}"
            );
        }
        self.reports.push(']');
        Ok(())
    }

    async fn complete(&mut self) -> Result<usize, Error> {
        let held = std::mem::take(&mut self.held);
        let body = match held {
            0 => return Ok(0),
            1 => &self.reports[1..self.reports.len() - 1],
            _ => &self.reports,
        };
        let path = "/api/v1/leases/complete";
        let answer = self.http.post(path, JSON, body.as_bytes()).await?;
        if held > 1 {
            let reported: Vec<Reported> = read(answer)?;
            let refused = reported.iter().filter(|one| one.error.is_some()).count();
            if refused > 0 {
                return Err(Error::failed(format!("{refused} completions were refused")));
            }
        }
        Ok(held)
    }
}

/// A ganger server that is reached over HTTP.
pub(super) struct HttpPeer<'a>(pub(super) &'a Target);

impl CallApi for HttpPeer<'_> {
    type Caller = Connection;

    fn callers<'a>(
        &'a self,
        load: &'a Load,
        role: Role,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Connection>, Error>> {
        async move {
            let mut connections = Vec::with_capacity(count);
            for _ in 0..count {
                connections.push(Connection::connect(self.0, load, role).await?);
            }
            Ok(connections)
        }
        .boxed()
    }
}

impl Peer for HttpPeer<'_> {
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>> {
        calls::connect(self, load, role).boxed()
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        self.0.used().boxed()
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let said = String::from_utf8_lossy(bytes);
        Error::failed(format!("an answer cannot be read: {error}: {said}"))
    })
}
