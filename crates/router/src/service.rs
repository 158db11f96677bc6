//! The service that peers call.

use bytes::{Bytes, BytesMut};
use ganger_access::Identity;
use ganger_proto::v1;
use ganger_proto::v1::peers_server::{Peers, PeersServer};
use ganger_shard::Handle;
use ganger_store::encoding;
use ganger_types::command::{Decide, Enqueue, Receive};
use ganger_types::limits::GRAPH_BYTES_MAX;
use ganger_types::name::NameError;
use ganger_types::{
    Graph, IdempotencyKey, JobId, Namespace, OutboxRecord, Part, ShardId, Timestamp,
};
use tonic::{Request, Response, Status, Streaming};

use crate::graphs;
use crate::reach::{ShardClient, from_wait, to_wait};
use crate::status::{not_here, to_status};
use crate::{RouteError, Router};

/// Maximum bytes of a batch: its results, and room for the rest.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of a part: the limit of a submission, and room for what that limit does not count.
const PART_BYTES_MAX: usize = GRAPH_BYTES_MAX + (256 << 20);

impl Router {
    /// Returns the service that peers call. The authorization in front of it has verified that the caller is a peer,
    /// and has put its [`Identity`] into the request's extensions.
    pub fn service(&self) -> PeersServer<impl Peers + Clone + use<>> {
        PeersServer::new(self.clone())
            .max_decoding_message_size(BATCH_BYTES_MAX)
            .max_encoding_message_size(BATCH_BYTES_MAX)
    }

    /// Returns the shard that a peer asks for: only shards of this process, so that no request loops.
    fn asked(&self, shard: &str) -> Result<ShardClient, Status> {
        Ok(ShardClient::Here(self.asked_handle(shard)?))
    }

    fn asked_handle(&self, shard: &str) -> Result<Handle, Status> {
        let shard = shard_id(shard)?;
        self.handle(&shard).ok_or_else(|| {
            if self.topology().owners().is_some() && self.knows(&shard) {
                return not_here();
            }
            let here = self.here();
            to_status(&RouteError::Unknown {
                shard,
                known: here.iter().map(|handle| handle.id().clone()).collect(),
            })
        })
    }
}

fn shard_id(text: &str) -> Result<ShardId, Status> {
    ShardId::new(text).ok_or_else(|| Status::invalid_argument(format!("{text:?} is not a shard")))
}

/// Checks that the caller is the shard that sends the message (`rel X7`).
fn check_sender(peer: Option<&Identity>, from: &ShardId) -> Result<(), Status> {
    let peer = peer.unwrap_or(&Identity::Anonymous);
    if peer.speaks_for(from.as_str()) {
        return Ok(());
    }
    Err(Status::permission_denied(format!(
        "{peer} may not speak for shard {from}"
    )))
}

/// Appends a chunk of a part or of a submission.
fn collect(bytes: &mut BytesMut, piece: &[u8]) -> Result<(), Status> {
    if bytes.len() + piece.len() > PART_BYTES_MAX {
        return Err(wrong(format!(
            "the submission is longer than {PART_BYTES_MAX} bytes"
        )));
    }
    bytes.extend_from_slice(piece);
    Ok(())
}

fn wrong(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes it by value"
)]
fn refused(error: RouteError) -> Status {
    to_status(&error)
}

#[tonic::async_trait]
impl Peers for Router {
    async fn reserve(
        &self,
        request: Request<v1::ReserveNumbers>,
    ) -> Result<Response<v1::NumbersReserved>, Status> {
        let request = request.into_inner();
        let reach = self.asked(&request.shard)?;
        let (first, id_tag) = reach.reserve(request.jobs).await.map_err(refused)?;
        Ok(Response::new(v1::NumbersReserved {
            first: first.0,
            id_tag: id_tag.0,
        }))
    }

    async fn prepare(
        &self,
        request: Request<Streaming<v1::PartPiece>>,
    ) -> Result<Response<v1::PartPrepared>, Status> {
        let mut chunks = request.into_inner();
        let mut shard = None;
        let mut bytes = BytesMut::new();
        while let Some(piece) = chunks.message().await? {
            shard.get_or_insert(piece.shard);
            collect(&mut bytes, &piece.bytes)?;
        }
        let reach = self.asked(&shard.unwrap_or_default())?;
        let part: Part = encoding::decode(&bytes).map_err(wrong)?;
        drop(bytes);
        reach.prepare(part).await.map_err(refused)?;
        Ok(Response::new(v1::PartPrepared {}))
    }

    async fn find_given(
        &self,
        request: Request<v1::FindGivenRequest>,
    ) -> Result<Response<v1::GivenFound>, Status> {
        let request = request.into_inner();
        let reach = self.asked(&request.shard)?;
        let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
        let jobs = request.jobs.into_iter();
        let jobs = jobs.map(|job| Ok((JobId::new(job.id)?, job.print)));
        let jobs = jobs.collect::<Result<Vec<_>, NameError>>().map_err(wrong)?;
        let is_there = reach.find_given(&namespace, jobs).await.map_err(refused)?;
        Ok(Response::new(v1::GivenFound { is_there }))
    }

    async fn enqueue(
        &self,
        request: Request<Streaming<v1::SubmissionPiece>>,
    ) -> Result<Response<v1::SubmissionTaken>, Status> {
        let mut chunks = request.into_inner();
        let mut head = None;
        let mut bytes = BytesMut::new();
        while let Some(piece) = chunks.message().await? {
            head.get_or_insert((piece.shard, piece.at));
            collect(&mut bytes, &piece.bytes)?;
        }
        let (shard, at) = head.unwrap_or_default();
        let reach = self.asked(&shard)?;
        let submission: Enqueue = encoding::decode(&bytes).map_err(wrong)?;
        drop(bytes);
        let enqueue_reply = reach.enqueue(submission, at.map(Timestamp)).await;
        let enqueue_reply = enqueue_reply.map_err(refused)?;
        let jobs = enqueue_reply
            .jobs
            .iter()
            .map(|(job, existed)| v1::TakenJob {
                id: Bytes::copy_from_slice(job.id.as_bytes()),
                existed: *existed,
            });
        Ok(Response::new(v1::SubmissionTaken {
            jobs: jobs.collect(),
            graph: enqueue_reply
                .graph
                .map(|graph| Bytes::copy_from_slice(graph.as_bytes())),
            repeat: enqueue_reply.repeat,
        }))
    }

    async fn decide(
        &self,
        request: Request<v1::DecideSubmission>,
    ) -> Result<Response<v1::SubmissionDecided>, Status> {
        let request = request.into_inner();
        let reach = self.asked(&request.shard)?;
        let decide = Decide {
            namespace: Namespace::new(&request.namespace).map_err(wrong)?,
            graph: Graph::new(&request.graph).map_err(wrong)?,
            is_committed: request.is_committed,
        };
        self.decide(&reach, decide).await.map_err(refused)?;
        Ok(Response::new(v1::SubmissionDecided {}))
    }

    async fn find_submission(
        &self,
        request: Request<v1::FindSubmissionRequest>,
    ) -> Result<Response<v1::SubmissionFound>, Status> {
        let request = request.into_inner();
        let reach = self.asked(&request.shard)?;
        let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
        let key = IdempotencyKey::new(&request.key).map_err(wrong)?;
        let part = reach
            .find_submission(&namespace, &key)
            .await
            .map_err(refused)?;
        let part = part.map(|part| encoding::encode(&part).into());
        Ok(Response::new(v1::SubmissionFound { part }))
    }

    async fn find_missing(
        &self,
        request: Request<v1::FindMissingRequest>,
    ) -> Result<Response<v1::MissingJobs>, Status> {
        let request = request.into_inner();
        let reach = self.asked(&request.shard)?;
        let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
        let jobs = request.jobs.iter().map(JobId::new);
        let jobs = jobs.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let missing = reach
            .find_missing(&namespace, &jobs)
            .await
            .map_err(refused)?;
        let jobs = missing.iter().map(|id| id.as_bytes().to_vec().into());
        Ok(Response::new(v1::MissingJobs {
            jobs: jobs.collect(),
        }))
    }

    async fn receive(
        &self,
        request: Request<v1::MessageBatch>,
    ) -> Result<Response<v1::Receipt>, Status> {
        let peer = request.extensions().get::<Identity>().cloned();
        let request = request.into_inner();
        let reach = self.asked(&request.to)?;
        let from = shard_id(&request.from)?;
        check_sender(peer.as_ref(), &from)?;
        self.peer_called(&from);
        let messages = request.messages.iter();
        let messages = messages.map(|bytes| encoding::decode::<OutboxRecord>(bytes));
        let waits = request.waits.into_iter().map(to_wait);
        let waits = waits.collect::<Option<_>>();
        let batch = Receive {
            from,
            stream_epoch: request.stream_epoch,
            last_sent: request.last_sent,
            confirmed: request.confirmed,
            messages: messages.collect::<Result<_, _>>().map_err(wrong)?,
            waits: waits.ok_or_else(|| wrong("a wait has an invalid job name"))?,
        };
        let receipt = reach.receive(batch).await.map_err(refused)?;
        Ok(Response::new(v1::Receipt {
            up_to: receipt.up_to,
            tag: receipt.tag,
            stopped: receipt.stopped,
            stream_epoch: receipt.line,
            unknown: receipt.unknown.iter().map(from_wait).collect(),
        }))
    }

    async fn read_graph(
        &self,
        request: Request<v1::ReadGraphRequest>,
    ) -> Result<Response<v1::GraphPiece>, Status> {
        let request = request.into_inner();
        graphs::serve_page(&self.asked_handle(&request.shard)?, request).await
    }

    async fn read_graph_states(
        &self,
        request: Request<v1::ReadGraphStatesRequest>,
    ) -> Result<Response<v1::MemberStates>, Status> {
        let request = request.into_inner();
        graphs::serve_states(&self.asked_handle(&request.shard)?, request).await
    }

    async fn read_graph_names(
        &self,
        request: Request<v1::ReadGraphNamesRequest>,
    ) -> Result<Response<v1::GraphNames>, Status> {
        let request = request.into_inner();
        graphs::serve_names(&self.asked_handle(&request.shard)?, request).await
    }

    async fn read_graph_totals(
        &self,
        request: Request<v1::ReadGraphTotalsRequest>,
    ) -> Result<Response<v1::GraphTotalsReply>, Status> {
        let request = request.into_inner();
        graphs::serve_totals(&self.asked_handle(&request.shard)?, request).await
    }
}
