//! The services, a file each. Every method: convert, call the shard, convert.

mod admin;
mod enqueue_stream;
mod follow;
mod graph;
mod graphs;
mod insight;
mod jobs;
mod leases;
mod list;
mod operations;
mod queues;
mod schedules;
mod submit;

use std::pin::Pin;

use futures::{Stream, StreamExt};
use ganger_access::BytesInProcess;
use ganger_shard::StoredJob;
use ganger_types::query::Query;
use ganger_types::{Command, JobId, Namespace, Rejection, Reply};
use tonic::Status;

use crate::ServiceContext;
use crate::problem::Problem;

/// A stream of replies.
pub(crate) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Returns the number by which a stream tells the transport how many bytes it keeps; a new one if nobody asks for it.
fn in_process<T>(request: &tonic::Request<T>) -> BytesInProcess {
    request
        .extensions()
        .get::<BytesInProcess>()
        .cloned()
        .unwrap_or_default()
}

impl ServiceContext {
    /// Sends a command to the shard and waits for its reply.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, Problem> {
        Ok(self.handle.call(command).await?)
    }

    /// Sends a query to the shard and waits for its reply.
    pub(crate) async fn ask(&self, query: Query) -> Result<Reply, Problem> {
        self.call(Command::Query(Box::new(query))).await
    }

    /// A stream that ends when the server stops, with an error that asks its reader to come again.
    pub(crate) fn until_stopping<T: Send + 'static>(
        &self,
        stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Streamed<T> {
        let stopping = self.options.stopping.clone();
        let last = stopping.clone();
        let last = async move { last.is_cancelled().then(|| Err(Problem::stopping().into())) };
        Box::pin(
            stream
                .take_until(stopping.cancelled_owned())
                .chain(futures::stream::once(last).filter_map(std::future::ready)),
        )
    }

    /// A job that must exist.
    pub(crate) async fn find(
        &self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<StoredJob, Problem> {
        match self.handle.job(namespace, id).await? {
            Some(found) => Ok(found),
            None => Err(self.missing(namespace, id).await),
        }
    }

    /// The refusal for a job that no row tells of: the engine knows whether it is part of a submission that is not
    /// decided.
    pub(crate) async fn missing(&self, namespace: &Namespace, id: &JobId) -> Problem {
        match self.ask(Query::Why(namespace.clone(), id.clone())).await {
            Ok(_) => Rejection::JobNotFound { job: id.clone() }.into(),
            Err(problem) => problem,
        }
    }
}

/// Takes the expected reply apart, or says that it is not the expected one.
macro_rules! reply_as {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            _ => Err($crate::problem::Problem::unexpected()),
        }
    };
}
pub(crate) use reply_as;
