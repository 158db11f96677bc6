//! Unary calls: `Enqueue`, `Lease` and `Complete`, over one HTTP/2 connection with as many calls under way as may be
//! unanswered.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ganger_proto::v1::LeaseRequest;
use prost::bytes::Bytes;

use super::messages::{
    CompleteRequest, Completion, EnqueueReply, EnqueueRequest, LeaseReply, ReportReply,
};
use super::{Place, Wire, job, queues};
use crate::ganger::calls::{self, CallApi, Caller};
use crate::ganger::target::Target;
use crate::link::Watch;
use crate::{Error, Links, Load, Peer, Role, Used};

/// How long a lease call waits for jobs.
const WAIT_MS: u64 = 1_000;

/// A ganger server that is reached by unary calls.
pub(in crate::ganger) struct Unary<'a>(pub(in crate::ganger) &'a Target);

impl CallApi for Unary<'_> {
    type Caller = Share;

    fn callers<'a>(
        &'a self,
        load: &'a Load,
        role: Role,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Share>, Error>> {
        let place = Place::of(self.0);
        let namespace = &place.options.namespace;
        let lease = LeaseRequest {
            namespace: namespace.clone(),
            queues: queues(load),
            worker: "bench".to_owned(),
            jobs_max: u32::try_from(load.take).unwrap_or(1),
            wait_ms: if matches!(role, Role::Live(_)) {
                0
            } else {
                WAIT_MS
            },
            ..LeaseRequest::default()
        };
        let queue = load.queue.clone();
        let callers = place.connect().map(|wire| {
            let caller = || Share {
                wire: wire.clone(),
                queue: queue.clone(),
                enqueue: EnqueueRequest {
                    namespace: namespace.clone().into(),
                    jobs: Vec::new(),
                },
                lease: lease.clone(),
                completions: Vec::new(),
            };
            std::iter::repeat_with(caller).take(count).collect()
        });
        std::future::ready(callers).boxed()
    }
}

impl Peer for Unary<'_> {
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>> {
        calls::connect(self, load, role).boxed()
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        self.0.used().boxed()
    }
}

/// A share of a connection, for one call at a time.
pub(in crate::ganger) struct Share {
    wire: Wire,
    queue: String,
    enqueue: EnqueueRequest,
    lease: LeaseRequest,
    /// Completions of the jobs that are held.
    completions: Vec<Completion>,
}

impl Caller for Share {
    fn prepare(&mut self, payload: &[u8], jobs: usize) {
        let job: Bytes = job(&self.queue, payload);
        self.enqueue.jobs = vec![job; jobs];
    }

    async fn enqueue(&mut self) -> Result<(), Error> {
        let request = self.enqueue.clone();
        let _: EnqueueReply = self.wire.call("/ganger.v1.Jobs/Enqueue", request).await?;
        Ok(())
    }

    async fn take(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        let request = self.lease.clone();
        let reply: LeaseReply = self.wire.call("/ganger.v1.Leases/Lease", request).await?;
        for job in reply.deliveries {
            watch(&job.payload);
            self.completions.push(Completion::of(job));
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<usize, Error> {
        let items = std::mem::take(&mut self.completions);
        let count = items.len();
        if count == 0 {
            return Ok(0);
        }
        let namespace = self.enqueue.namespace.clone();
        let request = CompleteRequest { namespace, items };
        let method = "/ganger.v1.Leases/Complete";
        let reply: ReportReply = self.wire.call(method, request).await?;
        match reply.answers.into_iter().find_map(|answer| answer.refused) {
            Some(error) => Err(Error::Refused(error.message)),
            None => Ok(count),
        }
    }
}
