//! The calls that tests make, as JSON over HTTP, and what their answers mean to a history.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::history::{Answered, Found, Held};
use crate::http::{Client, NoAnswer, Response};

/// A client that speaks of jobs.
#[derive(Debug)]
pub struct Api {
    client: Client,
}

impl Api {
    /// Makes the API calls over this connection.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends any request and returns its answer.
    pub fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Response, NoAnswer> {
        self.client
            .request(method, &format!("/api/v1/{path}"), body)
    }

    /// Any request that must be answered with success.
    pub fn expect(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        match self.call(method, path, body) {
            Ok(response) if (200..300).contains(&response.status) => Ok(response.json()),
            Ok(response) => bail!("{method} {path} was answered with {}", response.shown()),
            Err(error) => bail!("{method} {path} was not answered: {error:?}"),
        }
    }

    /// Enqueues one job, given as JSON.
    pub fn enqueue(&mut self, job: &Value) -> Answered {
        let answer = self.call("POST", "jobs", job);
        done(answer)
    }

    /// Submits a graph: all or none.
    pub fn submit(&mut self, jobs: &[Value]) -> Answered {
        let answer = self.call("POST", "graphs", &json!({ "jobs": jobs }));
        done(answer)
    }

    /// Takes up to `max` jobs of a queue, waiting up to `wait`.
    pub fn lease(
        &mut self,
        queue: &str,
        worker: &str,
        max: u32,
        lease_for: Duration,
        wait: Duration,
    ) -> Answered {
        let body = json!({
            "queues": [{ "queue": queue }],
            "worker": worker,
            "max": max,
            "lease_for": span(lease_for),
            "wait": span(wait),
        });
        match self.call("POST", "leases", &body) {
            Ok(response) if response.status == 200 => leased(&response.json()),
            other => done(other),
        }
    }

    /// Extends the lease of an attempt.
    pub fn renew(&mut self, held: &Held) -> Answered {
        self.report("renew", held, &Value::Null)
    }

    /// Ends an attempt well; the result is kept as a JSON string.
    pub fn complete(&mut self, held: &Held, result: &str) -> Answered {
        self.report("complete", held, &json!({ "result": result }))
    }

    /// Ends an attempt badly; the job is tried again after `retry_after`.
    pub fn fail(&mut self, held: &Held, retry_after: Duration) -> Answered {
        self.report(
            "fail",
            held,
            &json!({ "message": "as planned", "retry_after": span(retry_after) }),
        )
    }

    /// Gives a job back, uncounted.
    pub fn release(&mut self, held: &Held) -> Answered {
        self.report("release", held, &json!({ "reason": "as planned" }))
    }

    fn report(&mut self, what: &str, held: &Held, more: &Value) -> Answered {
        let mut body = json!({ "job": held.job, "token": held.token });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        let answer = self.call("POST", &format!("leases/{what}"), &body);
        done(answer)
    }

    /// A job as it is now; `None` if there is none.
    pub fn find(&mut self, job: &str) -> Result<Option<Found>> {
        let response = match self.call("GET", &format!("jobs/{job}"), &Value::Null) {
            Ok(response) => response,
            Err(error) => bail!("job {job} was not answered: {error:?}"),
        };
        if response.status == 404 && response.code() == "job_not_found" {
            return Ok(None);
        }
        ensure!(
            response.status == 200,
            "job {job} was answered with {}",
            response.shown()
        );
        let record = response.json();
        let result = match record["state"].as_str() {
            Some("succeeded") => self.result(job)?,
            _ => None,
        };
        let history = record["history"].as_array().cloned().unwrap_or_default();
        let attempts = history.iter().filter(|entry| entry["what"] == "attempt");
        Ok(Some(Found {
            job: job.to_owned(),
            state: record["state"]
                .as_str()
                .context("a job without a state")?
                .to_owned(),
            attempt: number(&record["attempt"])?,
            result,
            attempts: attempts
                .map(|entry| number(&entry["attempt"]))
                .collect::<Result<_>>()?,
        }))
    }

    fn result(&mut self, job: &str) -> Result<Option<String>> {
        match self.call("GET", &format!("jobs/{job}/result"), &Value::Null) {
            Ok(response) if response.status == 200 => {
                Ok(response.json().as_str().map(str::to_owned))
            }
            Ok(response) if response.code() == "result_not_found" => Ok(None),
            Ok(response) => bail!("the result of {job} was answered with {}", response.shown()),
            Err(error) => bail!("the result of {job} was not answered: {error:?}"),
        }
    }
}

/// A duration as the server reads it.
fn span(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn number(value: &Value) -> Result<u32> {
    let number = value
        .as_u64()
        .with_context(|| format!("{value} is no number"))?;
    Ok(u32::try_from(number)?)
}

/// What an answer says of a request that changes something. A shard that is not available may or may not have done it.
fn done(answer: Result<Response, NoAnswer>) -> Answered {
    match answer {
        Ok(response) if (200..300).contains(&response.status) => Answered::Done {
            is_repeat: response.json()["repeated"] == true,
        },
        Ok(response) => match response.code().as_str() {
            "unavailable" | "internal" | "" => Answered::Unknown,
            code => Answered::Refused(code.to_owned()),
        },
        Err(NoAnswer::Refused(_)) => Answered::NotSent,
        Err(NoAnswer::Unknown(_)) => Answered::Unknown,
    }
}

fn leased(body: &Value) -> Answered {
    let jobs = body["jobs"].as_array().cloned().unwrap_or_default();
    let held = jobs.iter().map(|job| {
        Some(Held {
            job: job["id"].as_str()?.to_owned(),
            attempt: number(&job["attempt"]).ok()?,
            token: job["token"].as_str()?.to_owned(),
        })
    });
    held.collect::<Option<Vec<_>>>()
        .map_or(Answered::Unknown, Answered::Leased)
}
