//! Peers whose connections are plain blocking sockets.

use std::time::Duration;

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::{Error, Link, Load, Peer};

/// Between two attempts to take from a queue that was empty.
const TAKE_AGAIN_AFTER: Duration = Duration::from_micros(200);

/// A queue server that is reached by blocking sockets. It has one queue.
pub trait BlockingPeer: Sync {
    /// Opens one connection to the server under load.
    fn connect(&self) -> Result<Box<dyn BlockingLink>>;
}

/// A connection that blocks its thread.
pub trait BlockingLink: Send {
    /// Enqueues; returns when all jobs are durable.
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()>;
    /// Takes up to so many jobs without waiting and returns their payloads.
    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>>;
    /// Takes one job, waiting up to a second if the server can.
    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.take(1)?.pop())
    }
    /// Completes what was taken; returns when that is durable.
    fn finish(&mut self) -> Result<()>;
    /// Whether the server can make a consumer wait.
    fn waits(&self) -> bool {
        true
    }
}

/// A blocking peer as a [`Peer`].
pub struct Blocking<P>(pub P);

impl<P: BlockingPeer> Peer for Blocking<P> {
    fn connect<'a>(
        &'a self,
        load: &'a Load,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Link>, Error>> {
        let link = self.0.connect().map(|link| -> Box<dyn Link> {
            Box::new(Adapter {
                waits: load.batch == 1 && !wait.is_zero() && link.waits(),
                payloads: vec![load.payload().to_vec(); load.batch],
                link,
                taken: 0,
            })
        });
        ready(link.map_err(Error::from)).boxed()
    }

    fn blocks(&self) -> bool {
        true
    }
}

struct Adapter {
    link: Box<dyn BlockingLink>,
    /// What one enqueue sends.
    payloads: Vec<Vec<u8>>,
    /// Whether a take waits for a job.
    waits: bool,
    /// Jobs taken and not completed.
    taken: usize,
}

impl Adapter {
    fn take_now(&mut self) -> Result<Vec<Vec<u8>>> {
        if self.waits {
            return Ok(self.link.take_one_waiting()?.into_iter().collect());
        }
        let payloads = self.link.take(self.payloads.len())?;
        if payloads.is_empty() {
            std::thread::sleep(TAKE_AGAIN_AFTER);
        }
        Ok(payloads)
    }
}

impl Link for Adapter {
    fn prepare(&mut self, payload: &[u8]) {
        self.payloads.fill(payload.to_vec());
    }

    fn enqueue(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        ready(self.link.put(&self.payloads).map_err(Error::from)).boxed()
    }

    fn take<'a>(
        &'a mut self,
        see: &'a mut (dyn FnMut(&[u8]) + Send),
    ) -> BoxFuture<'a, Result<(), Error>> {
        let taken = self.take_now().map(|payloads| {
            self.taken = payloads.len();
            for payload in &payloads {
                see(payload);
            }
        });
        ready(taken.map_err(Error::from)).boxed()
    }

    fn complete(&mut self) -> BoxFuture<'_, Result<usize, Error>> {
        let taken = std::mem::take(&mut self.taken);
        let finished = if taken == 0 {
            Ok(())
        } else {
            self.link.finish()
        };
        ready(finished.map(|()| taken).map_err(Error::from)).boxed()
    }
}
