//! Peers whose connections are plain blocking sockets.

pub mod redis;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::link::{Watch, single};
use crate::{Error, Link, Links, Load, Messages, Peer, Role, Used};

/// Between two attempts to take from a queue that was empty.
const TAKE_AGAIN_AFTER: Duration = Duration::from_micros(200);

/// A queue server that is reached by blocking sockets.
pub trait BlockingPeer: Sync {
    /// Opens one connection to a queue of the server under load.
    fn connect(&self, queue: &str) -> Result<Box<dyn BlockingLink>>;

    /// What the server has used so far.
    fn used(&self) -> Used;
}

/// A connection that blocks its thread.
pub trait BlockingLink: Send {
    /// Encodes the message that [`send`](Self::send) sends: so many jobs with this payload.
    fn prepare(&mut self, payload: &[u8], jobs: usize) -> Result<()>;

    /// Adds the message to what is sent next.
    fn send(&mut self) -> Result<()>;

    /// Sends what was added, and waits until at least one message is durable, or until the time; returns the number of
    /// messages that became durable.
    fn acknowledged(&mut self, until: Option<Instant>) -> Result<usize>;

    /// Takes up to so many jobs without waiting and passes their payloads on; returns their number.
    fn take(&mut self, jobs: usize, watch: Watch<'_>) -> Result<usize>;

    /// Takes one job, waiting up to a second if the server can.
    fn take_one_waiting(&mut self, watch: Watch<'_>) -> Result<usize> {
        self.take(1, watch)
    }

    /// Completes what was taken; returns when that is durable.
    fn complete(&mut self) -> Result<()>;

    /// Whether the server can make a consumer wait.
    fn waits(&self) -> bool {
        true
    }
}

/// A blocking peer as a [`Peer`].
pub struct Blocking<P>(pub P);

impl<P: BlockingPeer> Blocking<P> {
    fn open(&self, load: &Load, role: Role) -> Result<Adapter> {
        let mut link = self.0.connect(&load.queue)?;
        let messages = match role {
            Role::Produce(messages) | Role::Live(messages) => messages,
            Role::Consume | Role::Idle => Messages::new(1, 1),
        };
        link.prepare(load.payload(), messages.jobs)?;
        Ok(Adapter {
            waits: role == Role::Idle && link.waits(),
            jobs: messages.jobs,
            take: load.take,
            link,
        })
    }
}

impl<P: BlockingPeer> Peer for Blocking<P> {
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>> {
        let link = self.open(load, role).map_err(Error::from);
        ready(link.map(|link| single(role, link))).boxed()
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        ready(self.0.used()).boxed()
    }

    fn blocks(&self) -> bool {
        true
    }
}

struct Adapter {
    link: Box<dyn BlockingLink>,
    /// Jobs in one message.
    jobs: usize,
    /// Jobs in one take.
    take: usize,
    /// Whether a take waits for a job.
    waits: bool,
}

impl Adapter {
    fn take_and_complete(&mut self, watch: Watch<'_>) -> Result<usize> {
        let taken = if self.waits {
            self.link.take_one_waiting(watch)?
        } else {
            self.link.take(self.take, watch)?
        };
        if taken > 0 {
            self.link.complete()?;
        } else if !self.waits {
            std::thread::sleep(TAKE_AGAIN_AFTER);
        }
        Ok(taken)
    }
}

impl Link for Adapter {
    fn prepare(&mut self, payload: &[u8]) -> Result<(), Error> {
        Ok(self.link.prepare(payload, self.jobs)?)
    }

    fn send(&mut self) -> Result<(), Error> {
        Ok(self.link.send()?)
    }

    fn acknowledged(&mut self, until: Option<Instant>) -> BoxFuture<'_, Result<usize, Error>> {
        ready(self.link.acknowledged(until).map_err(Error::from)).boxed()
    }

    fn turn<'a>(&'a mut self, watch: Watch<'a>) -> BoxFuture<'a, Result<usize, Error>> {
        ready(self.take_and_complete(watch).map_err(Error::from)).boxed()
    }
}
