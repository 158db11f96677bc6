//! Calls to a shard, in this process or elsewhere, for submissions and messages.

use bytes::Bytes;
use ganger_proto::v1;
use ganger_proto::v1::peers_client::PeersClient;
use ganger_shard::{CallError, Handle};
use ganger_store::encoding;
use ganger_types::command::{Decide, Enqueue, Receive, Reserve};
use ganger_types::query::Query;
use ganger_types::{
    Command, Graph, IdTag, IdempotencyKey, JobId, JobKey, JobRef, Namespace, Part, PartRecord,
    Rejection, Reply, ShardId, Timestamp, Wait,
};

use crate::status::{from_change, from_status};
use crate::submit::Submitted;
use crate::{Link, RouteError};

/// Maximum bytes of one chunk of a part on the wire.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum bytes of a peer's reply.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A shard, in this process or behind a connection.
#[derive(Clone)]
pub(crate) enum ShardClient {
    Here(Handle),
    There(ShardId, PeersClient<Link>),
}

pub(crate) fn client(link: Link) -> PeersClient<Link> {
    PeersClient::new(link)
        .max_decoding_message_size(ANSWER_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX)
}

pub(crate) fn unexpected(shard: &ShardId) -> RouteError {
    RouteError::Unreachable {
        shard: shard.clone(),
        reason: "its reply does not match the request".to_owned(),
    }
}

impl ShardClient {
    pub(crate) fn shard(&self) -> &ShardId {
        match self {
            Self::Here(handle) => handle.id(),
            Self::There(shard, _) => shard,
        }
    }

    pub(crate) async fn reserve(&self, jobs: u32) -> Result<(JobKey, IdTag), RouteError> {
        match self {
            Self::Here(handle) => match handle.call(Command::Reserve(Reserve { jobs })).await? {
                Reply::Reserved { first, id_tag } => Ok((first, id_tag)),
                _ => Err(unexpected(self.shard())),
            },
            Self::There(shard, client) => {
                let request = v1::ReserveNumbers {
                    shard: shard.to_string(),
                    jobs,
                };
                let reply = client.clone().reserve(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let reply = reply.into_inner();
                Ok((JobKey(reply.first), IdTag(reply.id_tag)))
            }
        }
    }

    pub(crate) async fn prepare(&self, part: Part) -> Result<(), RouteError> {
        match self {
            Self::Here(handle) => {
                handle.call(Command::Prepare(Box::new(part))).await?;
            }
            Self::There(shard, client) => {
                let bytes = Bytes::from(encoding::encode(&part));
                drop(part);
                let mut name = Some(shard.to_string());
                let chunks = chunks(&bytes).map(|bytes| v1::PartPiece {
                    shard: name.take().unwrap_or_default(),
                    bytes,
                });
                let chunks = tokio_stream::iter(chunks.collect::<Vec<_>>());
                let reply = client.clone().prepare(chunks).await;
                reply.map_err(|status| from_status(shard, &status))?;
            }
        }
        Ok(())
    }

    pub(crate) async fn decide(&self, decide: Decide) -> Result<(), RouteError> {
        match self {
            Self::Here(handle) => {
                handle.call(Command::Decide(Box::new(decide))).await?;
            }
            Self::There(shard, client) => {
                let request = v1::DecideSubmission {
                    shard: shard.to_string(),
                    namespace: Bytes::copy_from_slice(decide.namespace.as_bytes()),
                    graph: Bytes::copy_from_slice(decide.graph.as_bytes()),
                    is_committed: decide.is_committed,
                };
                let reply = client.clone().decide(request).await;
                reply.map_err(|status| from_change(shard, &status))?;
            }
        }
        Ok(())
    }

    pub(crate) async fn find_submission(
        &self,
        namespace: &Namespace,
        key: &IdempotencyKey,
    ) -> Result<Option<PartRecord>, RouteError> {
        match self {
            Self::Here(handle) => {
                let query = Query::SubmissionAnswer(namespace.clone(), key.clone());
                match handle.call(Command::Query(Box::new(query))).await? {
                    Reply::SubmissionAnswer(part) => Ok(part.map(|part| *part)),
                    _ => Err(unexpected(self.shard())),
                }
            }
            Self::There(shard, client) => {
                let request = v1::FindSubmissionRequest {
                    shard: shard.to_string(),
                    namespace: Bytes::copy_from_slice(namespace.as_bytes()),
                    key: Bytes::copy_from_slice(key.as_bytes()),
                };
                let reply = client.clone().find_submission(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let part = reply.into_inner().part;
                let part = part.map(|bytes| encoding::decode::<PartRecord>(&bytes));
                part.transpose().map_err(|_| unexpected(shard))
            }
        }
    }

    /// Submits jobs that all belong to the shard.
    pub(crate) async fn enqueue(
        &self,
        submission: Enqueue,
        at: Option<Timestamp>,
    ) -> Result<Submitted, RouteError> {
        let (jobs, graph, repeat) = match self {
            Self::Here(handle) => {
                let command = Command::Enqueue(Box::new(submission));
                let reply = match at {
                    Some(at) => handle.call_at(command, at).await?,
                    None => handle.call(command).await?,
                };
                let Reply::Enqueued {
                    jobs,
                    graph,
                    repeat,
                } = reply
                else {
                    return Err(unexpected(self.shard()));
                };
                let jobs: Vec<_> = jobs.into_iter().map(|job| (job.id, job.existed)).collect();
                (jobs, graph, repeat)
            }
            Self::There(shard, client) => {
                let bytes = Bytes::from(encoding::encode(&submission));
                drop(submission);
                let mut head = Some((shard.to_string(), at.map(|at| at.0)));
                let chunks = chunks(&bytes).map(|bytes| {
                    let (shard, at) = head.take().unwrap_or_default();
                    v1::SubmissionPiece { shard, bytes, at }
                });
                let chunks = tokio_stream::iter(chunks.collect::<Vec<_>>());
                let reply = client.clone().enqueue(chunks).await;
                let reply = reply.map_err(|status| from_change(shard, &status))?;
                enqueue_reply(reply.into_inner()).ok_or_else(|| unexpected(shard))?
            }
        };
        let job = |(id, existed)| {
            let shard = self.shard().clone();
            (JobRef { shard, id }, existed)
        };
        Ok(Submitted {
            jobs: jobs.into_iter().map(job).collect(),
            graph,
            repeat,
        })
    }

    /// Returns those of the client-chosen ids that have a job already, with the same fingerprint.
    pub(crate) async fn find_given(
        &self,
        namespace: &Namespace,
        jobs: Vec<(JobId, u64)>,
    ) -> Result<Vec<bool>, RouteError> {
        let asked = jobs.len();
        let found = match self {
            Self::Here(handle) => {
                let query = Query::ExistingIds(namespace.clone(), jobs);
                match handle.call(Command::Query(Box::new(query))).await? {
                    Reply::ExistingIds(found) => found,
                    _ => return Err(unexpected(self.shard())),
                }
            }
            Self::There(shard, client) => {
                let jobs = jobs.iter().map(|(id, print)| v1::GivenId {
                    id: Bytes::copy_from_slice(id.as_bytes()),
                    print: *print,
                });
                let request = v1::FindGivenRequest {
                    shard: shard.to_string(),
                    namespace: Bytes::copy_from_slice(namespace.as_bytes()),
                    jobs: jobs.collect(),
                };
                let reply = client.clone().find_given(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                reply.into_inner().is_there
            }
        };
        if found.len() == asked {
            Ok(found)
        } else {
            Err(unexpected(self.shard()))
        }
    }

    /// Returns those of the jobs that the shard does not know.
    ///
    /// # Errors
    /// Also if a job is in a part whose decision the shard does not know.
    pub(crate) async fn find_missing(
        &self,
        namespace: &Namespace,
        jobs: &[JobId],
    ) -> Result<Vec<JobId>, RouteError> {
        match self {
            Self::Here(handle) => {
                let mut missing = Vec::new();
                for id in jobs {
                    if handle.job(namespace, id).await?.is_some() {
                        continue;
                    }
                    let query = Query::Why(namespace.clone(), id.clone());
                    let why = handle.call(Command::Query(Box::new(query))).await;
                    match why {
                        Err(error @ CallError::Rejected(Rejection::JobPrepared { .. })) => {
                            return Err(error.into());
                        }
                        Err(CallError::Rejected(_)) => missing.push(id.clone()),
                        why => drop(why?),
                    }
                }
                Ok(missing)
            }
            Self::There(shard, client) => {
                let request = v1::FindMissingRequest {
                    shard: shard.to_string(),
                    namespace: Bytes::copy_from_slice(namespace.as_bytes()),
                    jobs: jobs
                        .iter()
                        .map(|id| Bytes::copy_from_slice(id.as_bytes()))
                        .collect(),
                };
                let reply = client.clone().find_missing(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let ids = reply.into_inner().jobs;
                let ids = ids.into_iter().map(JobId::new).collect::<Result<_, _>>();
                ids.map_err(|_| unexpected(shard))
            }
        }
    }

    /// Delivers messages from another shard to this one.
    pub(crate) async fn receive(&self, batch: Receive) -> Result<Receipt, RouteError> {
        match self {
            Self::Here(handle) => match handle.call(Command::Receive(Box::new(batch))).await? {
                Reply::Received {
                    stream_epoch: line,
                    up_to,
                    tag,
                    stopped,
                    unknown,
                } => Ok(Receipt {
                    line,
                    up_to,
                    tag,
                    stopped,
                    unknown,
                }),
                _ => Err(unexpected(self.shard())),
            },
            Self::There(shard, client) => {
                let messages = batch.messages.iter();
                let request = v1::MessageBatch {
                    to: shard.to_string(),
                    from: batch.from.to_string(),
                    stream_epoch: batch.stream_epoch,
                    last_sent: batch.last_sent,
                    confirmed: batch.confirmed,
                    messages: messages
                        .map(|message| Bytes::from(encoding::encode(message)))
                        .collect(),
                    waits: batch.waits.iter().map(from_wait).collect(),
                };
                let reply = client.clone().receive(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let reply = reply.into_inner();
                let unknown = reply.unknown.into_iter().map(to_wait);
                Ok(Receipt {
                    line: reply.stream_epoch,
                    up_to: reply.up_to,
                    tag: reply.tag,
                    stopped: reply.stopped,
                    unknown: unknown
                        .collect::<Option<_>>()
                        .ok_or_else(|| unexpected(shard))?,
                })
            }
        }
    }
}

/// Splits bytes into chunks for the wire; at least one.
fn chunks(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..bytes.len().max(1)).step_by(CHUNK_BYTES);
    starts.map(|at| bytes.slice(at..bytes.len().min(at + CHUNK_BYTES)))
}

/// The jobs, each with whether it existed; the graph; and whether the submission is a repeat. `None` if the reply has
/// invalid names.
type EnqueueReply = (Vec<(JobId, bool)>, Option<Graph>, bool);

fn enqueue_reply(wire: v1::SubmissionTaken) -> Option<EnqueueReply> {
    let jobs = wire.jobs.into_iter();
    let jobs = jobs.map(|job| Some((JobId::new(job.id).ok()?, job.existed)));
    let graph = wire.graph.map(Graph::new).transpose().ok()?;
    Some((jobs.collect::<Option<_>>()?, graph, wire.repeat))
}

/// A shard's confirmation of another shard's messages.
pub(crate) struct Receipt {
    /// The newest stream epoch of the sender that the shard has seen.
    pub(crate) line: u64,
    /// Number up to which all messages of that epoch are durable.
    pub(crate) up_to: u64,
    /// Tag of the last message; 0 if unknown.
    pub(crate) tag: u64,
    /// Reason why no more messages are accepted; `None` if they are.
    pub(crate) stopped: Option<String>,
    /// Waits from the questions that the shard does not know.
    pub(crate) unknown: Vec<Wait>,
}

/// Encodes a wait as a message.
pub(crate) fn from_wait(wait: &Wait) -> v1::WaitingJob {
    v1::WaitingJob {
        namespace: Bytes::copy_from_slice(wait.namespace.as_bytes()),
        dependency: Bytes::copy_from_slice(wait.dependency.as_bytes()),
        dependent: wait.dependent.0,
        slot: wait.slot,
        is_member: wait.is_member,
    }
}

/// Decodes a wait; `None` if its names are invalid.
pub(crate) fn to_wait(wire: v1::WaitingJob) -> Option<Wait> {
    Some(Wait {
        namespace: Namespace::new(wire.namespace).ok()?,
        dependency: JobId::new(wire.dependency).ok()?,
        dependent: JobKey(wire.dependent),
        slot: wire.slot,
        is_member: wire.is_member,
    })
}
