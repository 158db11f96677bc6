//! The API calls of the tests, as JSON over HTTP, and the outcomes of their answers.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::history::{FinalJob, Lease, Outcome};
use crate::http::{Client, RequestError, Response};

/// A client of the HTTP API.
#[derive(Debug)]
pub struct Api {
    client: Client,
    /// The shard of all calls; `None`: that of the server.
    shard: Option<String>,
}

impl Api {
    /// Creates a client of the API over an HTTP client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            shard: None,
        }
    }

    /// Sends every request to this shard.
    #[must_use]
    pub fn of_shard(mut self, shard: &str) -> Self {
        self.shard = Some(shard.to_owned());
        self
    }

    /// Sends any request and returns its answer.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Response, RequestError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let shard = self.shard.as_ref();
        let shard = shard.map_or(String::new(), |shard| format!("{mark}shard={shard}"));
        self.client
            .request(method, &format!("/api/v1/{path}{shard}"), body)
    }

    /// Sends a request that must succeed; returns the body.
    pub fn expect(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        match self.call(method, path, body) {
            Ok(response) if (200..300).contains(&response.status) => Ok(response.json()),
            Ok(response) => bail!("{method} {path} was answered with {}", response.to_text()),
            Err(error) => bail!("{method} {path} was not answered: {error:?}"),
        }
    }

    /// Enqueues a job, given as JSON.
    pub fn enqueue(&mut self, job: &Value) -> Outcome {
        let answer = self.call("POST", "jobs", job);
        outcome_of(answer)
    }

    /// Submits a graph: all of its jobs or none.
    pub fn submit(&mut self, jobs: &[Value]) -> Outcome {
        let answer = self.call("POST", "graphs", &json!({ "jobs": jobs }));
        outcome_of(answer)
    }

    /// [`Api::submit`] with an idempotency key.
    pub fn submit_with_key(&mut self, jobs: &[Value], key: &str) -> Outcome {
        let graph = json!({ "jobs": jobs, "idempotency_key": key });
        let answer = self.call("POST", "graphs", &graph);
        outcome_of(answer)
    }

    /// Leases up to `max` jobs of a queue, waiting up to `wait`.
    pub fn lease(
        &mut self,
        queue: &str,
        worker: &str,
        max: u32,
        lease_for: Duration,
        wait: Duration,
    ) -> Outcome {
        let body = json!({
            "queues": [{ "queue": queue }],
            "worker": worker,
            "max": max,
            "lease_for": duration_text(lease_for),
            "wait": duration_text(wait),
        });
        match self.call("POST", "leases", &body) {
            Ok(response) if response.status == 200 => leases_of(&response.json()),
            other => outcome_of(other),
        }
    }

    /// Renews a lease for its own length.
    pub fn renew(&mut self, lease: &Lease) -> Outcome {
        self.report("renew", lease, &Value::Null)
    }

    /// Completes a job with a result, which is stored as a JSON string.
    pub fn complete(&mut self, lease: &Lease, result: &str) -> Outcome {
        self.report("complete", lease, &json!({ "result": result }))
    }

    /// Fails an attempt; the job is retried after `retry_after`.
    pub fn fail(&mut self, lease: &Lease, retry_after: Duration) -> Outcome {
        self.report(
            "fail",
            lease,
            &json!({ "message": "as planned", "retry_after": duration_text(retry_after) }),
        )
    }

    /// Releases a job without counting the attempt.
    pub fn release(&mut self, lease: &Lease) -> Outcome {
        self.report("release", lease, &json!({ "reason": "as planned" }))
    }

    fn report(&mut self, what: &str, lease: &Lease, more: &Value) -> Outcome {
        let mut body = json!({ "job": lease.job, "token": lease.token });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        let answer = self.call("POST", &format!("leases/{what}"), &body);
        outcome_of(answer)
    }

    /// Reads a job; `None` if it does not exist.
    pub fn find(&mut self, job: &str) -> Result<Option<FinalJob>> {
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
            response.to_text()
        );
        let record = response.json();
        let result = match record["state"].as_str() {
            Some("succeeded") => self.result(job)?,
            _ => None,
        };
        let history = record["history"].as_array().cloned().unwrap_or_default();
        let attempts = history.iter().filter(|entry| entry["what"] == "attempt");
        Ok(Some(FinalJob {
            job: job.to_owned(),
            state: record["state"]
                .as_str()
                .context("the job has no state")?
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
            Ok(response) => bail!(
                "the result of {job} was answered with {}",
                response.to_text()
            ),
            Err(error) => bail!("the result of {job} was not answered: {error:?}"),
        }
    }
}

/// Formats a duration for the server.
fn duration_text(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn number(value: &Value) -> Result<u32> {
    let number = value
        .as_u64()
        .with_context(|| format!("{value} is no number"))?;
    Ok(u32::try_from(number)?)
}

/// Returns the outcome of a request that changes something. It is unknown if the shard was unavailable.
fn outcome_of(answer: Result<Response, RequestError>) -> Outcome {
    match answer {
        Ok(response) if (200..300).contains(&response.status) => Outcome::Done {
            is_repeat: response.json()["repeated"] == true,
        },
        Ok(response) => match response.code().as_str() {
            "unavailable" | "outcome_unknown" | "internal" | "" => Outcome::Unknown,
            // The owner of the shard was not reached: nothing happened.
            "shard_unreachable" => Outcome::NotSent,
            code => Outcome::Refused(code.to_owned()),
        },
        Err(RequestError::NotSent(_)) => Outcome::NotSent,
        Err(RequestError::NoResponse(_)) => Outcome::Unknown,
    }
}

/// Returns the values of a leased job's inputs.
fn inputs_of(job: &Value) -> Vec<String> {
    let inputs = job["inputs"].as_array();
    let values = inputs.into_iter().flatten().map(|input| &input["value"]);
    let texts = values.map(|value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    });
    texts.collect()
}

fn leases_of(body: &Value) -> Outcome {
    let jobs = body["jobs"].as_array().cloned().unwrap_or_default();
    let leases = jobs.iter().map(|job| {
        Some(Lease {
            job: job["id"].as_str()?.to_owned(),
            attempt: number(&job["attempt"]).ok()?,
            token: job["token"].as_str()?.to_owned(),
            inputs: inputs_of(job),
        })
    });
    leases
        .collect::<Option<Vec<_>>>()
        .map_or(Outcome::Unknown, Outcome::Leased)
}
