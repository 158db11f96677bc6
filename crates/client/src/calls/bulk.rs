//! Enqueues any number of jobs over one stream, in bounded memory.

use std::collections::VecDeque;
use std::time::Duration;

use ganger_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::Client;
use crate::error::Error;
use crate::model::{Accepted, NewJob};
use crate::pause::{Pauses, random_key};

/// Maximum number of batches in flight: enough to keep the network and the store busy at the same time.
const BATCHES_MAX: usize = 16;

/// A stream of batches. Each batch is accepted or refused as a whole, and its answer is passed to the closure of
/// [`Client::bulk`], in order. After a broken connection unanswered batches are sent again under their idempotency
/// keys, so nothing is enqueued twice.
pub struct Bulk<F> {
    client: Client,
    on_answer: F,
    next_number: u64,
    unanswered: VecDeque<v1::EnqueueBatch>,
    stream: Option<Stream>,
}

struct Stream {
    batches: mpsc::Sender<v1::EnqueueBatch>,
    answers: tonic::Streaming<v1::EnqueueAnswer>,
}

impl Client {
    /// Opens a stream of batches. `on_answer` is called with the number of each batch and its answer.
    ///
    /// ```no_run
    /// # async fn example(client: ganger_client::Client) -> Result<(), ganger_client::Error> {
    /// use ganger_client::NewJob;
    ///
    /// let mut refused = 0;
    /// let mut bulk = client.bulk(|_, answer| refused += u64::from(answer.is_err()));
    /// for chunk in 0..1_000 {
    ///     bulk.send((0..1_000).map(|n| NewJob::new("add").payload(format!("{chunk}{n:03}"))).collect()).await?;
    /// }
    /// bulk.finish().await?;
    /// assert_eq!(refused, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bulk<F: FnMut(u64, Result<Accepted, Error>)>(&self, on_answer: F) -> Bulk<F> {
        Bulk {
            client: self.clone(),
            on_answer,
            next_number: 0,
            unanswered: VecDeque::new(),
            stream: None,
        }
    }
}

impl<F: FnMut(u64, Result<Accepted, Error>)> Bulk<F> {
    /// Sends a batch and returns its number, from 0. Waits while too many batches are unanswered.
    ///
    /// # Errors
    /// If the server stays away for longer than [`crate::Retry::total_max`].
    pub async fn send(&mut self, jobs: Vec<NewJob>) -> Result<u64, Error> {
        while self.unanswered.len() >= BATCHES_MAX {
            self.take_answer().await?;
        }
        let number = self.next_number;
        self.next_number += 1;
        let request = v1::EnqueueRequest {
            namespace: self.client.namespace(),
            jobs: jobs.into_iter().map(Into::into).collect(),
            idempotency_key: random_key(),
            graph: false,
        };
        let batch = v1::EnqueueBatch {
            number,
            request: Some(request),
        };
        self.unanswered.push_back(batch.clone());
        if let Some(stream) = &self.stream {
            // A stream that has ended is detected and replaced where answers are received.
            let _ = stream.batches.send(batch).await;
        } else {
            self.reconnect().await?;
        }
        Ok(number)
    }

    /// Waits for the answers to all batches.
    ///
    /// # Errors
    /// As [`Bulk::send`].
    pub async fn finish(mut self) -> Result<(), Error> {
        while !self.unanswered.is_empty() {
            self.take_answer().await?;
        }
        Ok(())
    }

    async fn take_answer(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else {
            return self.reconnect().await;
        };
        let next =
            tokio::time::timeout(self.client.options.call_for, stream.answers.message()).await;
        match next {
            Ok(Ok(Some(answer))) => self.receive(answer),
            Ok(Err(status)) => self.on_broken(&Error::from_status(&status)),
            Ok(Ok(None)) => self.on_broken(&Error::unreachable("the server ended the stream")),
            Err(_) => self.on_broken(&Error::timed_out("no answer came in time")),
        }
    }

    fn receive(&mut self, answer: v1::EnqueueAnswer) -> Result<(), Error> {
        use v1::enqueue_answer::Outcome;
        if self.unanswered.front().map(|batch| batch.number) != Some(answer.number) {
            return Err(Error::bad_reply(
                "an answer to another batch than the oldest",
            ));
        }
        let outcome = match answer.outcome {
            Some(Outcome::Accepted(reply)) => Ok(reply.into()),
            Some(Outcome::Refused(error)) => Err(Error::from_item(error)),
            None => return Err(Error::bad_reply("an empty answer to a batch")),
        };
        self.unanswered.pop_front();
        (self.on_answer)(answer.number, outcome);
        Ok(())
    }

    fn on_broken(&mut self, error: &Error) -> Result<(), Error> {
        self.stream = None;
        if error.is_retryable() {
            Ok(())
        } else {
            Err(error.clone())
        }
    }

    /// Opens a new stream and sends all unanswered batches again.
    async fn reconnect(&mut self) -> Result<(), Error> {
        let mut pauses = Pauses::new(self.client.options.retry);
        loop {
            let (batches, receiver) = mpsc::channel(BATCHES_MAX);
            let mut wire = self.client.jobs_wire();
            let call = wire.enqueue_stream(ReceiverStream::new(receiver));
            match self.client.in_time(Duration::ZERO, call).await {
                Ok(reply) => {
                    for batch in &self.unanswered {
                        // Cannot fail: the channel has room for as many batches as may be unanswered.
                        let _ = batches.try_send(batch.clone());
                    }
                    let answers = reply.into_inner();
                    self.stream = Some(Stream { batches, answers });
                    return Ok(());
                }
                Err(error) => match pauses.next(error.retry_after()) {
                    Some(pause) if error.is_retryable() => tokio::time::sleep(pause).await,
                    _ => return Err(error),
                },
            }
        }
    }
}
