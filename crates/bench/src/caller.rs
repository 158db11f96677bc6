//! Jobs over HTTP: enqueue many, lease many, complete many, each in one call.

use std::fmt::Write as _;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;

use crate::http::Http;
use crate::target::Target;
use crate::{Error, Link, Load, Peer, Used};

const JSON: &str = "application/json";

/// One connection and the leases it holds.
struct Caller {
    http: Http,
    queue: String,
    /// The enqueue, whole: its path, type and body.
    enqueue: (&'static str, &'static str, String),
    lease: String,
    batch: usize,
    /// Reports on the jobs held, as a list without its brackets.
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

impl Caller {
    /// A connection whose takes wait up to `wait` for jobs.
    async fn connect(target: &Target, load: &Load, wait: Duration) -> Result<Self, Error> {
        let (queue, batch, wait) = (&load.queue, load.batch, wait.as_secs());
        let lease = format!(
            "{{\"worker\":\"bench\",\"queues\":[{{\"queue\":\"{queue}\"}}],\"max\":{batch},\"wait\":\"{wait}s\"}}"
        );
        let mut caller = Self {
            http: target.http().await?,
            queue: queue.clone(),
            enqueue: Default::default(),
            lease,
            batch,
            reports: String::new(),
            held: 0,
        };
        caller.prepare(load.payload());
        Ok(caller)
    }

    async fn send(&mut self) -> Result<(), Error> {
        let (path, content_type, body) = &self.enqueue;
        let answer = self.http.post(path, content_type, body.as_bytes()).await?;
        if self.batch == 1 {
            return Ok(());
        }
        let last = answer.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let accepted: Accepted = read(last.unwrap_or_default())?;
        if accepted.accepted != self.batch {
            return Err(Error::failed(format!(
                "{} of {} jobs of a batch were taken",
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
        let deliveries: Deliveries<'_> = read(answer)?;
        self.held = deliveries.jobs.len();
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
        let held = std::mem::take(&mut self.held);
        let body = match held {
            0 => return Ok(0),
            1 => self.reports.clone(),
            _ => format!("[{}]", self.reports),
        };
        let answer = self
            .http
            .post("/api/v1/leases/complete", JSON, body.as_bytes())
            .await?;
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

impl Link for Caller {
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
            let link: Box<dyn Link> = Box::new(Caller::connect(self, load, wait).await?);
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
        let said = String::from_utf8_lossy(bytes);
        Error::failed(format!("an answer cannot be read: {error}: {said}"))
    })
}
