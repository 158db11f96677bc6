//! Peers and links: the one interface through which the loads reach every system.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::{Error, Load, Messages, Used};

/// What is told the payload of each job that starts.
pub type Watch<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends such messages.
    Produce(Messages),
    /// It takes and completes jobs.
    Consume,
    /// It takes and completes jobs that come one by one, and is idle between them.
    Idle,
    /// It sends such messages, and takes and completes jobs.
    Live(Messages),
}

/// The links of a connection, each with what it is for.
pub type Links = Vec<(Role, Box<dyn Link>)>;

/// A queue server under load.
pub trait Peer: Sync {
    /// Opens a connection: one link, or two that work at once, each with what it is for.
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>>;

    /// What the server has used so far; the default knows nothing.
    fn used(&self) -> BoxFuture<'_, Used> {
        std::future::ready(Used::default()).boxed()
    }

    /// Whether links block their thread, so that each needs a thread of its own.
    fn blocks(&self) -> bool {
        false
    }
}

/// One connection, or its half that sends or takes.
pub trait Link: Send {
    /// Sets the payload of the messages to come; it is that of the load at first.
    fn prepare(&mut self, payload: &[u8]) -> Result<(), Error>;

    /// Puts a message of the producer's size on its way, at the latest when acknowledgements are awaited.
    fn send(&mut self) -> Result<(), Error>;

    /// Waits until at least one message is durable, or until the time; returns the number of messages that became
    /// durable. Without a message that is unanswered it waits for the time only.
    fn acknowledged(&mut self, until: Option<Instant>) -> BoxFuture<'_, Result<usize, Error>>;

    /// Takes jobs, passes each payload to `watch`, completes them, and returns the number of jobs that are known to be
    /// durably completed since the last turn.
    fn turn<'a>(&'a mut self, watch: Watch<'a>) -> BoxFuture<'a, Result<usize, Error>>;
}

/// What one connection of a peer with a single link gives.
pub(crate) fn single(role: Role, link: impl Link + 'static) -> Links {
    vec![(role, Box::new(link))]
}
