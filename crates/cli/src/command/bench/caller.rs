//! Jobs through the HTTP face: enqueue many, lease many, complete many, each a call.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::command::bench::http::Http;
use crate::command::bench::target::Target;
use crate::exit::Failure;

const JSON: &str = "application/json";

/// One connection and the leases it holds.
pub(super) struct Caller {
    http: Http,
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
    /// A connection that enqueues so many at a time, and takes so many at a time, waiting for them as told.
    pub(super) async fn connect(
        target: &Target,
        queue: &str,
        batch: usize,
        payload: &[u8],
        wait: &str,
    ) -> Result<Self, Failure> {
        let lease = format!(
            "{{\"worker\":\"bench\",\"queues\":[{{\"queue\":\"{queue}\"}}],\"max\":{batch},\"wait\":\"{wait}\"}}"
        );
        let mut caller = Self {
            http: Http::connect(target.options()).await?,
            enqueue: Default::default(),
            lease,
            batch,
            reports: String::new(),
            held: 0,
        };
        caller.prepare(queue, payload);
        Ok(caller)
    }

    /// Makes the body of the enqueues to come.
    pub(super) fn prepare(&mut self, queue: &str, payload: &[u8]) {
        let payload = String::from_utf8_lossy(payload);
        let job = format!("{{\"kind\":\"bench\",\"queue\":\"{queue}\",\"payload\":{payload}}}\n");
        self.enqueue = if self.batch == 1 {
            ("/api/v1/jobs", JSON, job)
        } else {
            let path = "/api/v1/jobs/batch?answers=errors";
            (path, "application/x-ndjson", job.repeat(self.batch))
        };
    }

    /// Enqueues a batch; it is durable then.
    pub(super) async fn enqueue(&mut self) -> Result<(), Failure> {
        let (path, content_type, body) = &self.enqueue;
        let answer = self.http.post(path, content_type, body.as_bytes()).await?;
        if self.batch == 1 {
            return Ok(());
        }
        let last = answer.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let accepted: Accepted = read(last.unwrap_or_default())?;
        if accepted.accepted != self.batch {
            return Err(Failure::failed(format!(
                "{} of {} jobs of a batch were taken",
                accepted.accepted, self.batch
            )));
        }
        Ok(())
    }

    /// Takes up to a batch; how many.
    pub(super) async fn lease(&mut self) -> Result<usize, Failure> {
        self.lease_with(|_| ()).await
    }

    /// Likewise, showing each payload.
    pub(super) async fn lease_with(&mut self, mut see: impl FnMut(&str)) -> Result<usize, Failure> {
        let answer = self
            .http
            .post("/api/v1/leases", JSON, self.lease.as_bytes())
            .await?;
        let deliveries: Deliveries<'_> = read(answer)?;
        self.held = deliveries.jobs.len();
        self.reports.clear();
        for job in deliveries.jobs {
            see(job.payload.map_or("", |payload| payload.get()));
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
        Ok(self.held)
    }

    /// Completes what was leased last; it is durable then.
    pub(super) async fn complete(&mut self) -> Result<usize, Failure> {
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
                return Err(Failure::failed(format!(
                    "{refused} completions were refused"
                )));
            }
        }
        Ok(held)
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        let said = String::from_utf8_lossy(bytes);
        Failure::failed(format!("an answer cannot be read: {error}: {said}"))
    })
}
