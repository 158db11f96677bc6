//! The driver over HTTP: enqueues, leases and completes a batch of jobs with one request each.

use std::fmt::Write as _;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use crate::http::Http;
use crate::target::Target;
use crate::{Error, Link, Load, Peer, Used};

const JSON: &str = "application/json";

/// A connection, and the jobs that it has leased.
struct HttpLink {
    http: Http,
    queue: String,
    /// Path, content type and body of an enqueue request.
    enqueue: (&'static str, &'static str, String),
    lease: String,
    batch: usize,
    /// Reports of the leased jobs: the elements of a JSON list, without its brackets.
    reports: String,
    leased: usize,
}

#[derive(Deserialize)]
struct LeaseAnswer<'a> {
    #[serde(borrow)]
    jobs: Vec<DeliveredJob<'a>>,
}

/// A delivery. Ids and tokens made by the server need no escaping, so they can be borrowed.
#[derive(Deserialize)]
struct DeliveredJob<'a> {
    id: &'a str,
    token: &'a str,
    #[serde(default)]
    payload: Option<&'a serde_json::value::RawValue>,
}

/// The part that is read of the last line of the answer to a batch.
#[derive(Deserialize)]
struct BatchAnswer {
    accepted: usize,
}

#[derive(Deserialize)]
struct ReportAnswer {
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

impl HttpLink {
    /// Opens a connection whose lease requests wait up to `wait` for jobs.
    async fn connect(target: &Target, load: &Load, wait: Duration) -> Result<Self, Error> {
        let (queue, batch, wait) = (&load.queue, load.batch, wait.as_secs());
        let lease = format!(
            "{{\"worker\":\"bench\",\"queues\":[{{\"queue\":\"{queue}\"}}],\"max\":{batch},\"wait\":\"{wait}s\"}}"
        );
        let mut link = Self {
            http: target.http().await?,
            queue: queue.clone(),
            enqueue: Default::default(),
            lease,
            batch,
            reports: String::new(),
            leased: 0,
        };
        link.prepare(load.payload());
        Ok(link)
    }

    async fn send(&mut self) -> Result<(), Error> {
        let (path, content_type, body) = &self.enqueue;
        let answer = self.http.post(path, content_type, body.as_bytes()).await?;
        if self.batch == 1 {
            return Ok(());
        }
        let last = answer.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let accepted: BatchAnswer = read(last.unwrap_or_default())?;
        if accepted.accepted != self.batch {
            return Err(Error::failed(format!(
                "{} of {} jobs of a batch were accepted",
                accepted.accepted, self.batch
            )));
        }
        Ok(())
    }

    async fn lease(&mut self, see: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), Error> {
        let answer = self
            .http
            .post("/api/v1/leases", JSON, self.lease.as_bytes())
            .await?;
        let deliveries: LeaseAnswer<'_> = read(answer)?;
        self.leased = deliveries.jobs.len();
        self.reports.clear();
        for job in deliveries.jobs {
            see(job.payload.map_or(b"", |payload| payload.get().as_bytes()));
            if !self.reports.is_empty() {
                self.reports.push(',');
            }
            let (id, token) = (job.id, job.token);
            // Writing to a string cannot fail.
            let _ = write!(
                self.reports,
                "{{\"job\":\"{id}\",\"token\":\"{token}\",\"result\":null}}"
            );
        }
        Ok(())
    }

    async fn report(&mut self) -> Result<usize, Error> {
        let leased = std::mem::take(&mut self.leased);
        let body = match leased {
            0 => return Ok(0),
            1 => self.reports.clone(),
            _ => format!("[{}]", self.reports),
        };
        let answer = self
            .http
            .post("/api/v1/leases/complete", JSON, body.as_bytes())
            .await?;
        if leased > 1 {
            let reported: Vec<ReportAnswer> = read(answer)?;
            let refused = reported.iter().filter(|one| one.error.is_some()).count();
            if refused > 0 {
                return Err(Error::failed(format!("{refused} completions were refused")));
            }
        }
        Ok(leased)
    }
}

impl Link for HttpLink {
    fn prepare(&mut self, payload: &[u8]) {
        let (queue, payload) = (&self.queue, String::from_utf8_lossy(payload));
        let job = format!("{{\"kind\":\"bench\",\"queue\":\"{queue}\",\"payload\":{payload}}}\n");
        self.enqueue = if self.batch == 1 {
            ("/api/v1/jobs", JSON, job)
        } else {
            let path = "/api/v1/jobs/batch?answers=errors";
            (path, "application/x-ndjson", job.repeat(self.batch))
        };
    }

    fn enqueue(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        self.send().boxed()
    }

    fn take<'a>(
        &'a mut self,
        see: &'a mut (dyn FnMut(&[u8]) + Send),
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.lease(see).boxed()
    }

    fn complete(&mut self) -> BoxFuture<'_, Result<usize, Error>> {
        self.report().boxed()
    }
}

impl Peer for &Target {
    fn connect<'a>(
        &'a self,
        load: &'a Load,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, Error>> {
        async move {
            let link: Box<dyn Link> = Box::new(HttpLink::connect(self, load, wait).await?);
            Ok(link)
        }
        .boxed()
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        Target::used(self).boxed()
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(bytes);
        Error::failed(format!("an answer cannot be parsed: {error}: {text}"))
    })
}
