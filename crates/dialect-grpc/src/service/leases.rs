//! Taking jobs and reporting, call by call.

use std::pin::Pin;

use futures::Stream;
use ganger_proto::v1;
use ganger_proto::v1::leases_server::Leases;
use ganger_proto::v1::report::What;
use ganger_types::command::DeregisterWorker;
use ganger_types::{Command, Reply, Worker, limits};
use tonic::{Request, Response, Status, Streaming};

use super::in_process;
use crate::ServiceContext;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;
use crate::sender::Sender;
use crate::work;

impl ServiceContext {
    /// Applies reports in one turn of the shard; each is answered by itself. A badly formed one is
    /// refused in its place and keeps nothing else back.
    pub(crate) async fn report_all(
        &self,
        namespace: &str,
        items: impl ExactSizeIterator<Item = What>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let namespace = decode::namespace(namespace)?;
        let at = At::top("items");
        if items.len() == 0 {
            return Err(Problem::missing(at, "send at least one report").into());
        }
        decode::at_most(at, items.len(), limits::BULK_JOBS_MAX)?;
        let mut commands = Vec::with_capacity(items.len());
        let mut refused = Vec::with_capacity(items.len());
        for (index, item) in items.enumerate() {
            match decode::report(self.handle.id(), at.entry(index), &namespace, item) {
                Ok(command) => {
                    commands.push(command);
                    refused.push(None);
                }
                Err(problem) => refused.push(Some(problem)),
            }
        }
        let mut replies = self.apply(commands).await?.into_iter();
        let answers = refused.into_iter().map(|refused| {
            let reply = match refused {
                Some(problem) => Err(problem),
                None => replies.next().unwrap_or_else(|| Err(Problem::unexpected())),
            };
            encode::answer(0, reply)
        });
        Ok(Response::new(v1::ReportReply {
            answers: answers.collect(),
        }))
    }

    /// Ends the leases of a worker; returns their number, 0 for a worker that is not known.
    async fn end_worker(&self, request: &v1::DeregisterWorkerRequest) -> Result<u64, Problem> {
        let namespace = decode::namespace(&request.namespace)?;
        let worker = decode::name(At::top("worker"), &request.worker, Worker::new)?;
        let command = DeregisterWorker { namespace, worker };
        match self.call(Command::DeregisterWorker(command)).await? {
            Reply::Changed { count, .. } => Ok(count),
            Reply::Done => Ok(0),
            _ => Err(Problem::unexpected()),
        }
    }

    /// Applies commands in order, in slices that fit a turn.
    async fn apply(&self, commands: Vec<Command>) -> Result<Vec<Result<Reply, Problem>>, Problem> {
        let mut replies = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let slice = commands.by_ref().take(limits::TURN_COMMANDS_MAX).collect();
            let slice = self.handle.call_all(slice).await?;
            replies.extend(slice.into_iter().map(|reply| reply.map_err(Problem::from)));
        }
        Ok(replies)
    }
}

#[tonic::async_trait]
impl Leases for ServiceContext {
    async fn lease(
        &self,
        request: Request<v1::LeaseRequest>,
    ) -> Result<Response<v1::LeaseReply>, Status> {
        let (lease, wait_for) = decode::lease(request.get_ref())?;
        Sender::of(&request).introduce(&self.handle, &lease);
        let deliveries = tokio::select! {
            deliveries = self.handle.lease(lease, wait_for) => deliveries.map_err(Problem::from)?,
            () = self.options.stopping.cancelled(), if !wait_for.is_zero() => Vec::new(),
        };
        let shard = self.handle.id();
        let deliveries = deliveries
            .into_iter()
            .map(|one| encode::delivery(shard, one))
            .collect();
        Ok(Response::new(v1::LeaseReply { deliveries }))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.report_all(
            &request.namespace,
            request.items.into_iter().map(What::Renew),
        )
        .await
    }

    async fn complete(
        &self,
        request: Request<v1::CompleteRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.report_all(
            &request.namespace,
            request.items.into_iter().map(What::Complete),
        )
        .await
    }

    async fn fail(
        &self,
        request: Request<v1::FailRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.report_all(
            &request.namespace,
            request.items.into_iter().map(What::Fail),
        )
        .await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.report_all(
            &request.namespace,
            request.items.into_iter().map(What::Release),
        )
        .await
    }

    async fn append_log(
        &self,
        request: Request<v1::AppendLogRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.report_all(&request.namespace, request.items.into_iter().map(What::Log))
            .await
    }

    async fn deregister_worker(
        &self,
        request: Request<v1::DeregisterWorkerRequest>,
    ) -> Result<Response<v1::Done>, Status> {
        self.end_worker(request.get_ref()).await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn release_worker(
        &self,
        request: Request<v1::DeregisterWorkerRequest>,
    ) -> Result<Response<v1::ReleaseWorkerReply>, Status> {
        let changed = self.end_worker(request.get_ref()).await?;
        Ok(Response::new(v1::ReleaseWorkerReply { changed }))
    }

    type WorkStream = Pin<Box<dyn Stream<Item = Result<v1::ServerMessage, Status>> + Send>>;

    async fn work(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let (in_process, sender) = (in_process(&request), Sender::of(&request));
        let incoming = request.into_inner();
        let outgoing = work::open(self.clone(), incoming, in_process, &sender).await?;
        Ok(Response::new(Box::pin(outgoing)))
    }
}
