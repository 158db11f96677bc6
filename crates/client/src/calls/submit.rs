//! Calls that enqueue jobs: one, several, or a graph.

use std::time::Duration;

use ganger_proto::v1;

use crate::Client;
use crate::client::Repeat;
use crate::error::Error;
use crate::model::{Accepted, Enqueued, NewJob};
use crate::pause::random_key;

/// Jobs that are enqueued together: all or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// Jobs to enqueue, in the order in which the answer lists them.
    pub jobs: Vec<NewJob>,
    /// Idempotency key: a repeat with the same key within a day returns the first answer. `None` for a random key, so
    /// that a retry after a lost answer enqueues nothing twice.
    pub idempotency_key: Option<String>,
    /// Whether the jobs form a graph with an id of its own.
    pub graph: bool,
}

/// Maximum number of jobs in one message of a graph.
const PART_JOBS_MAX: usize = 1_000;
/// Maximum bytes of payloads and inputs in one message of a graph; a larger job has a message of its own.
const PART_BYTES_MAX: usize = 1 << 20;

impl Client {
    /// Enqueues a job, which is durable when this returns.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued, Error> {
        let submission = Submission {
            jobs: vec![job],
            ..Submission::default()
        };
        let accepted = self.enqueue_all(submission).await?;
        accepted
            .jobs
            .into_iter()
            .next()
            .ok_or_else(|| Error::bad_reply("no job in the answer"))
    }

    /// Enqueues jobs, all or none, in one message. For more than some thousand jobs use [`Client::bulk`] or
    /// [`Client::submit_graph`].
    ///
    /// # Errors
    /// If the server refuses the jobs or cannot be reached.
    pub async fn enqueue_all(&self, submission: Submission) -> Result<Accepted, Error> {
        let client = &self.for_new_jobs(&submission.jobs);
        let request = v1::EnqueueRequest {
            namespace: self.namespace(),
            jobs: submission.jobs.into_iter().map(Into::into).collect(),
            idempotency_key: submission.idempotency_key.unwrap_or_else(random_key),
            graph: submission.graph,
        };
        let call = || {
            let request = request.clone();
            async move { client.jobs_wire().enqueue(request).await }
        };
        let reply = client.call(Repeat::Safe, Duration::ZERO, call).await?;
        Ok(reply.into())
    }

    /// Submits a graph of up to a million jobs, all or none, in messages of bounded size.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn submit_graph(
        &self,
        jobs: Vec<NewJob>,
        idempotency_key: Option<String>,
    ) -> Result<Accepted, Error> {
        let client = &self.for_new_jobs(&jobs);
        let key = idempotency_key.unwrap_or_else(random_key);
        let parts = parts(&self.options.namespace, &key, jobs);
        let call = || {
            let parts = parts.clone();
            async move {
                let stream = client
                    .jobs_wire()
                    .submit_graph(futures::stream::iter(parts))
                    .await?;
                Ok(tonic::Response::new(gather(stream.into_inner()).await?))
            }
        };
        // The server answers only after it has received and checked the whole graph.
        client
            .call(Repeat::Safe, Duration::from_secs(600), call)
            .await
    }
}

async fn gather(
    mut stream: tonic::Streaming<v1::GraphAccepted>,
) -> Result<Accepted, tonic::Status> {
    let mut all = Accepted::default();
    while let Some(part) = stream.message().await? {
        all.jobs.extend(part.jobs.into_iter().map(Enqueued::from));
        all.graph = crate::convert::some(part.graph).or(all.graph);
        all.repeat |= part.repeat;
    }
    Ok(all)
}

/// Splits a graph into messages of bounded size; the first has the namespace and the idempotency key.
fn parts(namespace: &str, key: &str, jobs: Vec<NewJob>) -> Vec<v1::GraphPart> {
    let mut parts = vec![v1::GraphPart {
        namespace: namespace.to_owned(),
        idempotency_key: key.to_owned(),
        jobs: Vec::new(),
    }];
    let mut bytes = 0;
    for job in jobs {
        let size = job_bytes(&job);
        let last = parts.last().expect("there is always one part");
        if last.jobs.len() >= PART_JOBS_MAX
            || (bytes + size > PART_BYTES_MAX && !last.jobs.is_empty())
        {
            parts.push(v1::GraphPart::default());
            bytes = 0;
        }
        bytes += size;
        parts
            .last_mut()
            .expect("there is always one part")
            .jobs
            .push(job.into());
    }
    parts
}

fn job_bytes(job: &NewJob) -> usize {
    let inputs: usize = job
        .inputs
        .iter()
        .map(|input| match input {
            crate::Input::Value(value) => value.len() + 8,
            crate::Input::Result(_) => 64,
        })
        .sum();
    job.payload.len() + inputs + 64 * job.after.len() + 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_cut_by_number_and_by_size() {
        let small = parts("n", "k", vec![NewJob::new("a"); 2_500]);
        assert_eq!(
            small.iter().map(|part| part.jobs.len()).collect::<Vec<_>>(),
            [1000, 1000, 500]
        );
        assert_eq!(
            (
                small[0].idempotency_key.as_str(),
                small[1].idempotency_key.as_str()
            ),
            ("k", "")
        );
        let large = NewJob::new("a").payload(vec![0_u8; 700_000]);
        let large = parts("n", "k", vec![large; 3]);
        assert_eq!(large.len(), 3);
    }
}
