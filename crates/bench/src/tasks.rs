//! The tasks of a load: a loop for each kind of connection, the same for every system.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::pace::{Next, Pace};
use crate::supply::Supply;
use crate::{Error, Link, Load, Messages, Peer, Role};

type Task = BoxFuture<'static, Result<(), Error>>;

/// The tasks of a load that run, each with its result or error.
#[derive(Default)]
pub(crate) struct Tasks(JoinSet<Result<(), Error>>);

impl Tasks {
    fn start(&mut self, peer: &dyn Peer, task: Task) {
        if peer.blocks() {
            let runtime = Handle::current();
            self.0.spawn_blocking(move || runtime.block_on(task));
        } else {
            self.0.spawn(task);
        }
    }

    /// Opens a connection that sends messages, and starts it.
    pub(crate) async fn produce(
        &mut self,
        peer: &dyn Peer,
        load: &Arc<Load>,
        messages: Messages,
        supply: Supply,
    ) -> Result<(), Error> {
        let links = peer.connect(load, Role::Produce(messages)).await?;
        let link = links.into_iter().next();
        let (_, link) = link.ok_or_else(|| Error::failed("a producer without a connection"))?;
        let load = Arc::clone(load);
        self.start(peer, produce(link, supply, messages, load).boxed());
        Ok(())
    }

    /// Opens so many connections that take and complete, and starts them. The pace is told which jobs start.
    pub(crate) async fn consume(
        &mut self,
        peer: &dyn Peer,
        load: &Arc<Load>,
        role: Role,
        count: usize,
        pace: Option<&Arc<Pace>>,
    ) -> Result<(), Error> {
        for _ in 0..count {
            for (_, link) in peer.connect(load, role).await? {
                let task = consume(link, Arc::clone(load), pace.cloned());
                self.start(peer, task.boxed());
            }
        }
        Ok(())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all have ended; fails if one did.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.join_next().await {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// The failure of a task that has ended, if one has.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        while let Some(ended) = self.0.try_join_next() {
            ended.map_err(|error| Error::failed(error.to_string()))??;
        }
        Ok(())
    }

    /// Ends all tasks. Those that block their thread must have been stopped through their load.
    pub(crate) async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

/// Starts a connection whose links enqueue, take and complete: those that send end with the load.
pub(crate) async fn live(
    peer: &dyn Peer,
    load: &Arc<Load>,
    messages: Messages,
    [producers, consumers]: [&mut Tasks; 2],
) -> Result<(), Error> {
    for (role, link) in peer.connect(load, Role::Live(messages)).await? {
        let load = Arc::clone(load);
        match role {
            Role::Produce(messages) => {
                let supply = Supply::Room(Arc::clone(&load), messages.jobs);
                producers.start(peer, produce(link, supply, messages, load).boxed());
            }
            Role::Consume | Role::Idle => {
                consumers.start(peer, consume(link, load, None).boxed());
            }
            Role::Live(messages) => {
                producers.start(peer, alternate(link, load, messages.jobs).boxed());
            }
        }
    }
    Ok(())
}

/// Keeps as many messages unanswered as the producer may have, until its supply ends and all are answered.
async fn produce(
    mut link: Box<dyn Link>,
    mut supply: Supply,
    messages: Messages,
    load: Arc<Load>,
) -> Result<(), Error> {
    let mut unanswered = 0;
    loop {
        let mut next = Next::Message;
        while unanswered < messages.unanswered {
            next = supply.next();
            if next != Next::Message {
                break;
            }
            if let Some(payload) = supply.payload() {
                link.prepare(payload)?;
            }
            link.send()?;
            unanswered += 1;
        }
        let until = match next {
            Next::Nothing if unanswered == 0 => return Ok(()),
            Next::NotYet(None) if unanswered == 0 => {
                supply.until_next().await;
                continue;
            }
            Next::NotYet(until) => until,
            Next::Nothing | Next::Message => None,
        };
        let answered = link.acknowledged(until).await?;
        unanswered -= answered.min(unanswered);
        supply.acknowledged(answered);
        load.note_enqueued(answered * messages.jobs);
    }
}

/// Takes and completes until the load is stopped.
async fn consume(
    mut link: Box<dyn Link>,
    load: Arc<Load>,
    pace: Option<Arc<Pace>>,
) -> Result<(), Error> {
    let mut watch = |payload: &[u8]| {
        if let Some(pace) = &pace {
            pace.started(payload);
        }
    };
    while !load.is_stopped() {
        load.note_completed(link.turn(&mut watch).await?);
    }
    Ok(())
}

/// Enqueues, takes and completes by turns, until the load is over.
async fn alternate(mut link: Box<dyn Link>, load: Arc<Load>, jobs: usize) -> Result<(), Error> {
    while !load.is_over() {
        link.send()?;
        let answered = link.acknowledged(None).await?;
        load.note_enqueued(answered * jobs);
        // All connections take from one queue: another one may have taken a part of these jobs, then this one takes
        // theirs.
        load.note_completed(link.turn(&mut |_| ()).await?);
    }
    Ok(())
}
