//! Servers whose connections are plain blocking sockets.

use std::time::Duration;

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::{Error, Link, Load, Peer};

/// Pause between two attempts to lease from an empty queue.
const TAKE_AGAIN_AFTER: Duration = Duration::from_micros(200);

/// A queue server with blocking connections and a single queue.
pub trait BlockingPeer: Sync {
    /// Opens a connection to the server.
    fn connect(&self) -> Result<Box<dyn BlockingLink>>;
}

/// A connection that blocks its thread.
pub trait BlockingLink: Send {
    /// Enqueues jobs with these payloads; returns when all are durable.
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()>;
    /// Leases at most `jobs` jobs without waiting; returns their payloads.
    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>>;
    /// Leases one job, waiting up to a second if the server can; returns its payload.
    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.take(1)?.pop())
    }
    /// Completes the leased jobs; returns when that is durable.
    fn finish(&mut self) -> Result<()>;
    /// Whether the server lets a consumer wait for jobs.
    fn waits(&self) -> bool {
        true
    }
}

/// Adapts a blocking server to [`Peer`].
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
    /// Payloads of one enqueue.
    payloads: Vec<Vec<u8>>,
    /// Whether a lease request waits for a job.
    waits: bool,
    /// Number of jobs leased and not completed.
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
