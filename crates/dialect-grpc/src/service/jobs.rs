//! Reading and changing jobs.

use ganger_document::view::attempt::Attempts;
use ganger_proto::convert;
use ganger_proto::v1;
use ganger_proto::v1::jobs_server::Jobs;
use ganger_shard::{BulkAction, BulkBounds, StoredJob};
use ganger_types::command::{
    AddDependencies, Cancel, Delete, RemoveDependencies, Retry, Selection, TimeOut,
};
use ganger_types::query::Query;
use ganger_types::{Command, Graph, InputState, JobId, Namespace, Reply, ShardId, limits};
use tonic::{Request, Response, Status, Streaming};

use super::{Streamed, in_process, reply_as};
use crate::ServiceContext;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;

/// Inputs on a page unless asked otherwise, and at most.
const INPUTS_DEFAULT: u32 = 100;
const INPUTS_PAGE_MAX: u32 = 1_000;
/// Bytes of input values in one reply; the first one always fits.
const INPUT_BYTES_MAX: usize = 2 << 20;
/// Bytes of a log in one reply, unless asked otherwise and at most.
const LOG_BYTES_DEFAULT: u32 = 256 << 10;
const LOG_BYTES_MAX: u32 = 1 << 20;
/// Jobs that a bulk action looks at in one call, unless asked otherwise and at most.
const MATCHING_DEFAULT: u32 = 10_000;
const MATCHING_MAX: u32 = 100_000;

fn named(here: &ShardId, request: &v1::GetRequest) -> Result<(Namespace, JobId), Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    Ok((
        namespace,
        decode::job_id(here, At::top("job"), &request.job)?,
    ))
}

fn many(here: &ShardId, request: &v1::JobsRequest) -> Result<(Namespace, Vec<JobId>), Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    Ok((
        namespace,
        decode::job_ids(here, At::top("jobs"), &request.jobs)?,
    ))
}

/// A log request, checked: job, place, bytes.
pub(crate) struct LogAsked {
    pub(crate) namespace: Namespace,
    pub(crate) id: JobId,
    pub(crate) place: (u32, u64),
    pub(crate) bytes_max: usize,
    /// Bytes before the end of the attempt's log at which to begin, instead of the place; `None`: the place says it.
    tail_bytes: Option<u64>,
}

fn log_asked(here: &ShardId, request: &v1::LogRequest) -> Result<LogAsked, Problem> {
    let bytes_max = decode::bounded(
        At::top("bytes_max"),
        request.bytes_max,
        LOG_BYTES_DEFAULT,
        LOG_BYTES_MAX,
    )?;
    if request.tail_bytes.is_some() && request.offset > 0 {
        let reason = "is the end of the log: leave out offset";
        return Err(Problem::invalid(At::top("tail_bytes"), reason));
    }
    Ok(LogAsked {
        namespace: decode::namespace(&request.namespace)?,
        id: decode::job_id(here, At::top("job"), &request.job)?,
        place: (request.attempt, request.offset),
        tail_bytes: request.tail_bytes,
        bytes_max: usize::try_from(bytes_max).expect("a megabyte fits"),
    })
}

impl ServiceContext {
    /// A command that answers how many it changed.
    async fn change(&self, command: Command) -> Result<Response<v1::Changed>, Status> {
        let reply = self.call(command).await?;
        let changed = match reply {
            Reply::Changed { count, skipped } => encode::changed(self.handle.id(), count, &skipped),
            Reply::Retried {
                count,
                skipped,
                dependents,
                passed_on,
            } => v1::Changed {
                passed_on: encode::shards(&passed_on),
                dependents: dependents
                    .iter()
                    .map(|id| encode::global(self.handle.id(), id))
                    .collect(),
                ..encode::changed(self.handle.id(), count, &skipped)
            },
            Reply::Done => v1::Changed {
                count: 1,
                ..v1::Changed::default()
            },
            _ => return Err(Problem::unexpected().into()),
        };
        Ok(Response::new(changed))
    }

    /// Acts on the jobs that fulfil a filter.
    async fn matching(
        &self,
        action: BulkAction,
        request: v1::MatchingRequest,
    ) -> Result<Response<v1::Matched>, Status> {
        let namespace = decode::namespace(&request.namespace)?;
        let limit = decode::bounded(
            At::top("limit"),
            request.limit,
            MATCHING_DEFAULT,
            MATCHING_MAX,
        )?;
        let looked_max = usize::try_from(limit).unwrap_or(usize::MAX);
        let filter = request.filter.unwrap_or_default();
        let query = decode::matching_query(namespace, filter)?;
        let bounds = BulkBounds {
            visited_max: looked_max,
            changed_max: Some(request.at_most)
                .filter(|most| *most > 0)
                .unwrap_or(u64::MAX),
        };
        let done = self
            .handle
            .bulk(&action, query, bounds, request.dry_run, None)
            .await
            .map_err(Problem::from)?;
        Ok(Response::new(if request.dry_run {
            encode::would_match(&self.handle, action.is_foreseeable(), done)
        } else {
            encode::matched(self.handle.id(), done)
        }))
    }

    /// The part of a log that a request asks for, and the job.
    async fn log_wanted(&self, request: &v1::LogRequest) -> Result<(LogAsked, StoredJob), Problem> {
        let mut asked = log_asked(self.handle.id(), request)?;
        let stored = self.find(&asked.namespace, &asked.id).await?;
        if let Some(tail) = asked.tail_bytes {
            let attempt = match asked.place.0 {
                0 => stored.record.attempt.max(1),
                attempt => attempt,
            };
            let total = self.handle.log_bytes(stored.record.key, attempt).await?;
            asked.place = (attempt, total.saturating_sub(tail));
        }
        Ok((asked, stored))
    }

    async fn show_inputs(&self, request: &v1::InputsRequest) -> Result<v1::InputsReply, Problem> {
        let namespace = decode::namespace(&request.namespace)?;
        let id = decode::job_id(self.handle.id(), At::top("job"), &request.job)?;
        let limit = decode::bounded(
            At::top("limit"),
            request.limit,
            INPUTS_DEFAULT,
            INPUTS_PAGE_MAX,
        )?;
        let limit = usize::try_from(limit).expect("a page is small");
        let key = self.find(&namespace, &id).await?.record.key;
        let mut rows = self.handle.inputs(key, request.from, limit + 1).await?;
        let mut next = (rows.len() > limit).then(|| rows[limit].slot);
        rows.truncate(limit);
        let mut inputs = Vec::with_capacity(rows.len());
        let mut bytes = 0;
        for row in rows {
            let mut view = encode::input(&row);
            if let (InputState::Delivered { dependency, .. }, true) =
                (&row.state, request.with_results)
            {
                view.value = self.handle.result(*dependency).await?;
            }
            bytes += view.value.as_ref().map_or(0, bytes::Bytes::len);
            if bytes > INPUT_BYTES_MAX && !inputs.is_empty() {
                next = Some(row.slot);
                break;
            }
            inputs.push(view);
        }
        Ok(v1::InputsReply { inputs, next })
    }
}

#[tonic::async_trait]
impl Jobs for ServiceContext {
    async fn enqueue(
        &self,
        request: Request<v1::EnqueueRequest>,
    ) -> Result<Response<v1::EnqueueReply>, Status> {
        Ok(Response::new(self.submit(request.into_inner()).await?))
    }

    type EnqueueStreamStream = Streamed<v1::EnqueueAnswer>;

    async fn enqueue_stream(
        &self,
        request: Request<Streaming<v1::EnqueueBatch>>,
    ) -> Result<Response<Self::EnqueueStreamStream>, Status> {
        let in_process = in_process(&request);
        Ok(Response::new(
            self.submit_stream(request.into_inner(), in_process),
        ))
    }

    type SubmitGraphStream = Streamed<v1::GraphAccepted>;

    async fn submit_graph(
        &self,
        request: Request<Streaming<v1::GraphPart>>,
    ) -> Result<Response<Self::SubmitGraphStream>, Status> {
        Ok(Response::new(
            self.submit_graph_parts(request.into_inner()).await?,
        ))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::Job>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let stored = self.find(&namespace, &id).await?;
        Ok(Response::new(convert::job_message(
            self.handle.id(),
            stored,
            false,
        )))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListReply>, Status> {
        Ok(Response::new(self.list_page(request.into_inner()).await?))
    }

    async fn count(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::CountReply>, Status> {
        let query = decode::job_query(request.into_inner())?;
        let count = self.handle.count_within(query).await;
        let count = count.map_err(Problem::from)?;
        Ok(Response::new(v1::CountReply {
            count: count.jobs,
            exact: !count.looked.is_cut,
            unreachable: Vec::new(),
        }))
    }

    async fn wait(&self, request: Request<v1::WaitRequest>) -> Result<Response<v1::Job>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let id = decode::job_id(self.handle.id(), At::top("job"), &request.job)?;
        let wait_for = decode::wait_for(At::top("wait_ms"), request.wait_ms)?;
        let found = tokio::select! {
            found = self.handle.wait(&namespace, &id, wait_for) => found,
            () = self.options.stopping.cancelled() => self.handle.job(&namespace, &id).await,
        };
        let Some(stored) = found.map_err(Problem::from)? else {
            return Err(self.missing(&namespace, &id).await.into());
        };
        Ok(Response::new(convert::job_message(
            self.handle.id(),
            stored,
            false,
        )))
    }

    async fn why(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::Explanation>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let reply = self.ask(Query::Why(namespace, id)).await?;
        let why = reply_as!(reply, Reply::Why(why) => why)?;
        Ok(Response::new(
            ganger_document::view::reason::Explanation::new(self.handle.id(), *why).into(),
        ))
    }

    async fn graph(
        &self,
        request: Request<v1::GraphRequest>,
    ) -> Result<Response<v1::GraphView>, Status> {
        Ok(Response::new(self.around(request.get_ref()).await?))
    }

    async fn result(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::ResultReply>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let stored = self.find(&namespace, &id).await?;
        let result = self.handle.result_of(&stored.record).await;
        let result = result.map_err(Problem::from)?;
        let state = convert::job_message(self.handle.id(), stored, true).state;
        Ok(Response::new(v1::ResultReply { result, state }))
    }

    async fn payload(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::PayloadReply>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let job = self.find(&namespace, &id).await?.record;
        let payload = self
            .handle
            .payload_of(&job)
            .await
            .map_err(Problem::from)?
            .unwrap_or_default();
        Ok(Response::new(v1::PayloadReply { payload }))
    }

    async fn inputs(
        &self,
        request: Request<v1::InputsRequest>,
    ) -> Result<Response<v1::InputsReply>, Status> {
        Ok(Response::new(self.show_inputs(request.get_ref()).await?))
    }

    async fn attempts(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::AttemptsReply>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let job = self.find(&namespace, &id).await?;
        let mut attempts = Attempts::new(&job, self.handle.wall_time());
        for attempt in &mut attempts.attempts {
            let bytes = self.handle.log_bytes(job.record.key, attempt.attempt).await;
            attempt.log_bytes = bytes.map_err(Problem::from)?;
        }
        Ok(Response::new(attempts.into()))
    }

    async fn read_log(
        &self,
        request: Request<v1::LogRequest>,
    ) -> Result<Response<v1::LogReply>, Status> {
        let (asked, stored) = self.log_wanted(request.get_ref()).await?;
        Ok(Response::new(
            self.log_piece(&stored, asked.place, asked.bytes_max)
                .await?,
        ))
    }

    type FollowLogStream = Streamed<v1::LogReply>;

    async fn follow_log(
        &self,
        request: Request<v1::LogRequest>,
    ) -> Result<Response<Self::FollowLogStream>, Status> {
        let (asked, _) = self.log_wanted(request.get_ref()).await?;
        let place = self.stream_permit()?;
        Ok(Response::new(self.clone().log_stream(asked, place)))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let graph = decode::unless_empty(At::top("graph"), &request.graph, Graph::new)?;
        let jobs = match graph {
            Some(graph) if request.jobs.is_empty() => Selection::Graph(graph),
            Some(_) => {
                return Err(
                    Problem::invalid("graph", "give either jobs or a graph, not both").into(),
                );
            }
            None => Selection::Jobs(decode::job_ids(
                self.handle.id(),
                At::top("jobs"),
                &request.jobs,
            )?),
        };
        let command = Cancel {
            namespace,
            jobs,
            reason: decode::cut(request.reason),
        };
        self.change(Command::Cancel(Box::new(command))).await
    }

    async fn retry(
        &self,
        request: Request<v1::RetryRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let queue = request
            .queue
            .map(|text| decode::queue(At::top("queue"), &text))
            .transpose()?;
        if let Some(graph) = decode::unless_empty(At::top("graph"), &request.graph, Graph::new)? {
            if !request.jobs.is_empty() {
                let reason = "give either jobs or a graph, not both";
                return Err(Problem::invalid("graph", reason).into());
            }
            let done = self.handle.retry_graph(namespace, graph, queue, None).await;
            let done = done.map_err(Problem::from)?;
            let changed = encode::changed(self.handle.id(), done.changed, &done.skipped_jobs);
            return Ok(Response::new(v1::Changed {
                passed_on: encode::shards(&done.passed_on),
                ..changed
            }));
        }
        let command = Retry {
            namespace,
            jobs: decode::job_ids(self.handle.id(), At::top("jobs"), &request.jobs)?,
            queue,
            dependents: request.dependents,
            graph: None,
        };
        self.change(Command::Retry(Box::new(command))).await
    }

    async fn cancel_effects(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::CancelEffectsReply>, Status> {
        let (namespace, id) = named(self.handle.id(), request.get_ref())?;
        let query = Query::CancelEffects(namespace, id);
        let reply = self.call(Command::Query(Box::new(query))).await?;
        let effects = reply_as!(reply, Reply::CancelEffects(effects) => effects)?;
        Ok(Response::new(encode::cancel_effects(
            self.handle.id(),
            &effects,
        )))
    }

    async fn cancel_matching(
        &self,
        request: Request<v1::MatchingRequest>,
    ) -> Result<Response<v1::Matched>, Status> {
        let reason = decode::cut(request.get_ref().reason.clone());
        self.matching(BulkAction::Cancel { reason }, request.into_inner())
            .await
    }

    async fn retry_matching(
        &self,
        request: Request<v1::MatchingRequest>,
    ) -> Result<Response<v1::Matched>, Status> {
        let request = request.into_inner();
        let queue = request.queue.as_deref();
        let queue = queue.map(|text| decode::queue(At::top("queue"), text));
        let action = BulkAction::Retry {
            queue: queue.transpose()?,
            dependents: request.dependents,
            graph: None,
        };
        self.matching(action, request).await
    }

    async fn delete_matching(
        &self,
        request: Request<v1::MatchingRequest>,
    ) -> Result<Response<v1::Matched>, Status> {
        self.matching(BulkAction::Delete, request.into_inner())
            .await
    }

    async fn time_out(
        &self,
        request: Request<v1::JobsRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let (namespace, jobs) = many(self.handle.id(), request.get_ref())?;
        self.change(Command::TimeOut(TimeOut { namespace, jobs }))
            .await
    }

    async fn delete(
        &self,
        request: Request<v1::JobsRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let (namespace, jobs) = many(self.handle.id(), request.get_ref())?;
        self.change(Command::Delete(Delete { namespace, jobs }))
            .await
    }

    async fn alter(
        &self,
        request: Request<v1::AlterRequest>,
    ) -> Result<Response<v1::AlterReply>, Status> {
        let command = decode::alter(self.handle.id(), request.into_inner())?;
        let reply = self.call(Command::Alter(Box::new(command))).await?;
        let (tags, state) = reply_as!(reply, Reply::Altered { tags, state } => (tags, state))?;
        Ok(Response::new(v1::AlterReply {
            tags: encode::tags(&tags),
            state: encode::state(state),
        }))
    }

    async fn add_dependencies(
        &self,
        request: Request<v1::AddDependenciesRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let request = request.get_ref();
        decode::at_most(At::top("on"), request.on.len(), limits::INPUTS_MAX)?;
        let command = AddDependencies {
            namespace: decode::namespace(&request.namespace)?,
            job: decode::job_id(self.handle.id(), At::top("job"), &request.job)?,
            on: decode::job_ids(self.handle.id(), At::top("on"), &request.on)?,
            policy: convert::failure_policy(At::top("policy"), request.policy)
                .map_err(Problem::from)?,
        };
        self.change(Command::AddDependencies(command)).await
    }

    async fn remove_dependencies(
        &self,
        request: Request<v1::RemoveDependenciesRequest>,
    ) -> Result<Response<v1::Changed>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        if request.all && !request.on.is_empty() {
            return Err(Problem::invalid("on", "give either jobs or `all`, not both").into());
        }
        let on = if request.all {
            None
        } else {
            Some(decode::job_ids(
                self.handle.id(),
                At::top("on"),
                &request.on,
            )?)
        };
        let command = RemoveDependencies {
            namespace,
            job: decode::job_id(self.handle.id(), At::top("job"), &request.job)?,
            on,
        };
        self.change(Command::RemoveDependencies(command)).await
    }
}
