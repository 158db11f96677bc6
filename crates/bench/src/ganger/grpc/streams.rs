//! Streams: batches go over `EnqueueStream`, workers have a `Work` stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ganger_proto::v1::{Error as Refusal, Hello};
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout_at;
use tonic::Streaming;

use super::messages::{
    Completion, EnqueueAnswer, EnqueueBatch, EnqueueRequest, Report, ServerMessage, WorkerMessage,
};
use super::{Place, Wire, job, queues, refusal};
use crate::ganger::target::Target;
use crate::link::Watch;
use crate::{Error, Link, Links, Load, Messages, Peer, Role, Used};

/// Longer than a busy machine stalls: a job that is delivered again would be completed twice.
const LEASE_MS: u64 = 60_000;

/// Jobs that an idle worker has room for.
const IDLE_CREDITS: usize = 256;

/// A ganger server that is reached over streams.
pub(in crate::ganger) struct Streams<'a> {
    place: Place,
    /// The server whose use is measured; absent if nobody asks for it.
    target: Option<&'a Target>,
    /// Workers so far, for their names.
    workers: AtomicUsize,
}

impl<'a> Streams<'a> {
    /// The server under load.
    pub(in crate::ganger) fn new(target: &'a Target) -> Self {
        Self {
            target: Some(target),
            ..Self::at(Place::of(target))
        }
    }

    /// Another server, or one of the shards of a server.
    pub(in crate::ganger) fn at(place: Place) -> Self {
        Self {
            place,
            target: None,
            workers: AtomicUsize::new(0),
        }
    }

    async fn producer(
        &self,
        wire: &Wire,
        load: &Load,
        messages: Messages,
    ) -> Result<Box<dyn Link>, Error> {
        let (batches, receiver) = unbounded_channel();
        let answers = wire.stream("/ganger.v1.Jobs/EnqueueStream", receiver);
        let mut producer = Producer {
            namespace: self.place.options.namespace.clone().into(),
            queue: load.queue.clone(),
            jobs: messages.jobs,
            request: Bytes::new(),
            number: 0,
            batches,
            answers: answers.await?,
        };
        producer.prepare(load.payload())?;
        Ok(Box::new(producer))
    }

    async fn consumer(&self, wire: &Wire, load: &Load, role: Role) -> Result<Box<dyn Link>, Error> {
        let credits = match role {
            Role::Idle => IDLE_CREDITS,
            // One by one means one by one.
            _ if load.take == 1 => 1,
            // While a batch is reported the next one is on its way.
            _ => load.take * 2,
        };
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        let hello = Hello {
            namespace: self.place.options.namespace.clone(),
            worker: format!("bench-{number}"),
            queues: queues(load),
            lease_ms: Some(LEASE_MS),
            ..Hello::default()
        };
        let (messages, receiver) = unbounded_channel();
        let first = WorkerMessage {
            hello: Some(hello),
            credits_added: u32::try_from(credits).unwrap_or(1),
            reports: Vec::new(),
        };
        send(&messages, first)?;
        let answers = wire.stream("/ganger.v1.Leases/Work", receiver).await?;
        Ok(Box::new(Consumer {
            messages,
            answers,
            reported: 0,
        }))
    }
}

impl Peer for Streams<'_> {
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>> {
        async move {
            let wire = self.place.connect()?;
            Ok(match role {
                Role::Produce(messages) => {
                    vec![(role, self.producer(&wire, load, messages).await?)]
                }
                Role::Consume | Role::Idle => vec![(role, self.consumer(&wire, load, role).await?)],
                // Both on one connection, at once.
                Role::Live(messages) => vec![
                    (
                        Role::Produce(messages),
                        self.producer(&wire, load, messages).await?,
                    ),
                    (Role::Consume, self.consumer(&wire, load, role).await?),
                ],
            })
        }
        .boxed()
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        match self.target {
            Some(target) => target.used().boxed(),
            None => std::future::ready(Used::default()).boxed(),
        }
    }
}

fn send<M>(messages: &UnboundedSender<M>, message: M) -> Result<(), Error> {
    let sent = messages.send(message);
    sent.map_err(|_| Error::failed("the server ended a stream"))
}

async fn next<M>(answers: &mut Streaming<M>) -> Result<M, Error> {
    let answer = answers.message().await;
    let answer = answer.map_err(|status| refusal(&status))?;
    answer.ok_or_else(|| Error::failed("the server ended a stream"))
}

fn check(refused: Option<Refusal>) -> Result<(), Error> {
    match refused {
        Some(error) => Err(Error::Refused(error.message)),
        None => Ok(()),
    }
}

/// The half of a connection that enqueues.
struct Producer {
    namespace: Bytes,
    queue: String,
    jobs: usize,
    /// The batch of `jobs` jobs, encoded once and sent for each message.
    request: Bytes,
    number: u64,
    batches: UnboundedSender<EnqueueBatch>,
    answers: Streaming<EnqueueAnswer>,
}

impl Producer {
    /// Waits for an answer, and counts those that are there too.
    async fn answered(&mut self) -> Result<usize, Error> {
        check(next(&mut self.answers).await?.refused)?;
        let mut count = 1;
        while let Some(answer) = next(&mut self.answers).now_or_never() {
            check(answer?.refused)?;
            count += 1;
        }
        Ok(count)
    }
}

impl Link for Producer {
    fn prepare(&mut self, payload: &[u8]) -> Result<(), Error> {
        let request = EnqueueRequest {
            namespace: self.namespace.clone(),
            jobs: vec![job(&self.queue, payload); self.jobs],
        };
        self.request = request.encode_to_vec().into();
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        self.number += 1;
        let batch = EnqueueBatch {
            number: self.number,
            request: self.request.clone(),
        };
        send(&self.batches, batch)
    }

    fn acknowledged(&mut self, until: Option<Instant>) -> BoxFuture<'_, Result<usize, Error>> {
        async move {
            match until {
                None => self.answered().await,
                Some(until) => {
                    let answered = timeout_at(until.into(), self.answered()).await;
                    answered.unwrap_or(Ok(0))
                }
            }
        }
        .boxed()
    }

    fn turn<'a>(&'a mut self, _: Watch<'a>) -> BoxFuture<'a, Result<usize, Error>> {
        std::future::ready(Err(Error::failed("a producer takes nothing"))).boxed()
    }
}

/// The half of a connection that takes and completes.
struct Consumer {
    messages: UnboundedSender<WorkerMessage>,
    answers: Streaming<ServerMessage>,
    /// Number of the last report.
    reported: u64,
}

impl Consumer {
    /// Reads a message, completes what it delivers and gives back the credits; the number of jobs it says are completed.
    async fn answer_one(&mut self, watch: Watch<'_>) -> Result<usize, Error> {
        let message = next(&mut self.answers).await?;
        let completed = message.completed.len() + message.answers.len();
        for answer in message.answers {
            check(answer.refused)?;
        }
        if message.deliveries.is_empty() {
            return Ok(completed);
        }
        let mut reports = Vec::with_capacity(message.deliveries.len());
        for job in message.deliveries {
            watch(&job.payload);
            self.reported += 1;
            reports.push(Report {
                number: self.reported,
                complete: Some(Completion::of(job)),
            });
        }
        // The runs have ended, so their places are free, as with `ganger worker`.
        let answer = WorkerMessage {
            hello: None,
            credits_added: u32::try_from(reports.len()).unwrap_or(0),
            reports,
        };
        send(&self.messages, answer)?;
        Ok(completed)
    }
}

impl Link for Consumer {
    fn prepare(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        Err(Error::failed("a consumer enqueues nothing"))
    }

    fn acknowledged(&mut self, _: Option<Instant>) -> BoxFuture<'_, Result<usize, Error>> {
        std::future::ready(Err(Error::failed("a consumer enqueues nothing"))).boxed()
    }

    fn turn<'a>(&'a mut self, watch: Watch<'a>) -> BoxFuture<'a, Result<usize, Error>> {
        self.answer_one(watch).boxed()
    }
}
