//! Links of calls: each call carries one message, and as many are under way as may be unanswered.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{sleep_until, timeout_at};

use crate::link::{Watch, single};
use crate::{Error, Link, Links, Load, Messages, Role};

/// An API whose requests are calls.
pub(super) trait CallApi: Sync {
    /// What one call needs for itself: a connection, or a share of one.
    type Caller: Caller;

    /// Opens what so many calls at once need.
    fn callers<'a>(
        &'a self,
        load: &'a Load,
        role: Role,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Self::Caller>, Error>>;
}

/// Makes one call after the other.
pub(super) trait Caller: Send + Sized + 'static {
    /// Sets the enqueue: so many jobs with this payload.
    fn prepare(&mut self, payload: &[u8], jobs: usize);

    /// Enqueues; returns when all jobs are durable.
    fn enqueue(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes jobs, waiting if the caller was made for that, and passes their payloads on.
    fn take(&mut self, watch: Watch<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Completes what was taken; the number of those jobs.
    fn complete(&mut self) -> impl Future<Output = Result<usize, Error>> + Send;
}

/// Opens a connection of an API of calls.
pub(super) async fn connect<A: CallApi>(
    api: &A,
    load: &Arc<Load>,
    role: Role,
) -> Result<Links, Error> {
    let messages = match role {
        Role::Produce(messages) | Role::Live(messages) => messages,
        Role::Consume | Role::Idle => Messages::new(1, 1),
    };
    let mut idle = api.callers(load, role, messages.unanswered).await?;
    for caller in &mut idle {
        caller.prepare(load.payload(), messages.jobs);
    }
    let calls = Calls {
        idle,
        enqueues: FuturesUnordered::new(),
        jobs: messages.jobs,
        payload: None,
    };
    Ok(single(role, calls))
}

/// A connection that makes calls.
struct Calls<C> {
    idle: Vec<C>,
    /// The calls under way, each with the caller that it gives back.
    enqueues: FuturesUnordered<BoxFuture<'static, Result<C, Error>>>,
    jobs: usize,
    /// The payload of the next call, if each has its own.
    payload: Option<Vec<u8>>,
}

impl<C: Caller> Calls<C> {
    /// Waits for a call to end, and counts those that have ended too.
    async fn ended(&mut self) -> Result<usize, Error> {
        let mut count = 0;
        let mut ended = self.enqueues.next().await;
        while let Some(caller) = ended {
            self.idle.push(caller?);
            count += 1;
            ended = self.enqueues.next().now_or_never().flatten();
        }
        Ok(count)
    }
}

impl<C: Caller> Link for Calls<C> {
    fn prepare(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.payload = Some(payload.to_vec());
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        let caller = self.idle.pop();
        let mut caller = caller.ok_or_else(|| Error::failed("more calls than callers"))?;
        if let Some(payload) = &self.payload {
            caller.prepare(payload, self.jobs);
        }
        let call = async move {
            caller.enqueue().await?;
            Ok(caller)
        };
        self.enqueues.push(call.boxed());
        Ok(())
    }

    fn acknowledged(&mut self, until: Option<Instant>) -> BoxFuture<'_, Result<usize, Error>> {
        async move {
            let Some(until) = until.map(Into::into) else {
                return self.ended().await;
            };
            if self.enqueues.is_empty() {
                sleep_until(until).await;
                return Ok(0);
            }
            let ended = timeout_at(until, self.ended()).await;
            ended.unwrap_or(Ok(0))
        }
        .boxed()
    }

    fn turn<'a>(&'a mut self, watch: Watch<'a>) -> BoxFuture<'a, Result<usize, Error>> {
        async move {
            let caller = self.idle.first_mut();
            let caller = caller.ok_or_else(|| Error::failed("a consumer without a connection"))?;
            caller.take(watch).await?;
            caller.complete().await
        }
        .boxed()
    }
}
