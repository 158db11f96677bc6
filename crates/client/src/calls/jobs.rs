//! Reading and changing jobs.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ganger_proto::v1;

use crate::Client;
use crate::client::Repeat;
use crate::convert::{state, wire_policy};
use crate::error::Error;
use crate::model::{
    Alteration, BulkAction, BulkResult, ChangeResult, Explanation, FailurePolicy, GraphView,
    InputView, Job, JobFilter, JobState, LogPage, LogPosition, Page,
};
use ganger_proto::convert;

/// The server is asked to wait no longer than this at a time, so that a dead connection is noticed.
const WAIT_SLICE: Duration = Duration::from_secs(30);

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

macro_rules! call {
    ($client:expr, $repeat:ident, $wire:ident . $method:ident ( $request:expr )) => {{
        let (client, request) = (&$client, $request);
        let call = || {
            let request = request.clone();
            async move { client.$wire().$method(request).await }
        };
        client
            .call(
                $crate::client::Repeat::$repeat,
                std::time::Duration::ZERO,
                call,
            )
            .await
    }};
}
pub(crate) use call;

impl Client {
    fn get_request(&self, job: &str) -> v1::GetRequest {
        v1::GetRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
        }
    }

    fn jobs_request(&self, jobs: Vec<String>) -> v1::JobsRequest {
        v1::JobsRequest {
            namespace: self.namespace(),
            jobs,
        }
    }

    /// Shows a job.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn job(&self, job: &str) -> Result<Job, Error> {
        let wire = call!(
            self.for_job(job),
            Safe,
            jobs_wire.get(self.get_request(job))
        )?;
        Ok(convert::job(wire)?)
    }

    /// Lists jobs, a page at a time.
    ///
    /// # Errors
    /// If the filter is refused, or the server cannot be reached.
    pub async fn list(&self, filter: JobFilter) -> Result<Page, Error> {
        crate::convert::page(call!(
            self,
            Safe,
            jobs_wire.list(filter.into_wire(self.namespace()))
        )?)
    }

    /// Counts the jobs that a filter finds, its order, page and brevity aside.
    ///
    /// # Errors
    /// If the filter is refused, or the server cannot be reached.
    pub async fn count(&self, filter: JobFilter) -> Result<u64, Error> {
        let request = filter.into_wire(self.namespace());
        Ok(call!(self, Safe, jobs_wire.count(request))?.count)
    }

    /// Shows a job once it has ended, or as it is after `wait_for`.
    ///
    /// # Errors
    /// `job_not_found`, or if the server stays away for longer than [`crate::Retry::total_max`].
    pub async fn wait(&self, job: &str, wait_for: Duration) -> Result<Job, Error> {
        let client = &self.for_job(job);
        let until = Instant::now() + wait_for;
        loop {
            let slice = until
                .saturating_duration_since(Instant::now())
                .min(WAIT_SLICE);
            let request = v1::WaitRequest {
                namespace: self.namespace(),
                job: job.to_owned(),
                wait_ms: convert::ms(slice),
            };
            let call = || {
                let request = request.clone();
                async move { client.jobs_wire().wait(request).await }
            };
            let shown = convert::job(client.call(Repeat::Safe, slice, call).await?)?;
            if shown.state.is_terminal() || Instant::now() >= until {
                return Ok(shown);
            }
        }
    }

    /// Tells why a job is not running.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn why(&self, job: &str) -> Result<Explanation, Error> {
        Ok(convert::explanation(call!(
            self.for_job(job),
            Safe,
            jobs_wire.why(self.get_request(job))
        )?)?)
    }

    /// Shows the jobs around a job: `depth` steps away (0: all), at most `limit` (0: 1000).
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn graph(&self, job: &str, depth: u32, limit: u32) -> Result<GraphView, Error> {
        let request = v1::GraphRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            depth,
            limit,
        };
        Ok(convert::graph(call!(
            self.for_job(job),
            Safe,
            jobs_wire.graph(request)
        )?)?)
    }

    /// Where a job stands, and its result if it has one.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn result(&self, job: &str) -> Result<(JobState, Option<Bytes>), Error> {
        let reply = call!(
            self.for_job(job),
            Safe,
            jobs_wire.result(self.get_request(job))
        )?;
        Ok((state(reply.state)?, reply.result))
    }

    /// A job's payload.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn payload(&self, job: &str) -> Result<Bytes, Error> {
        Ok(call!(
            self.for_job(job),
            Safe,
            jobs_wire.payload(self.get_request(job))
        )?
        .payload)
    }

    /// A job's inputs and dependencies from slot `from` on, at most `limit` (0: 100), and where to go on.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn inputs(
        &self,
        job: &str,
        from: u32,
        limit: u32,
        with_results: bool,
    ) -> Result<(Vec<InputView>, Option<u32>), Error> {
        let request = v1::InputsRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            from,
            limit,
            with_results,
        };
        let reply = call!(self.for_job(job), Safe, jobs_wire.inputs(request))?;
        let inputs = reply.inputs.into_iter().map(TryInto::try_into);
        Ok((inputs.collect::<Result<_, Error>>()?, reply.next))
    }

    /// A piece of a job's log from a place on, of about `bytes_max` bytes (0: 256 KiB).
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn log(
        &self,
        job: &str,
        from: LogPosition,
        bytes_max: u32,
    ) -> Result<LogPage, Error> {
        let request = v1::LogRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            attempt: from.attempt,
            offset: from.offset,
            bytes_max,
        };
        Ok(call!(self.for_job(job), Safe, jobs_wire.read_log(request))?.into())
    }

    /// Cancels jobs; those that have ended stay as they are.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn cancel(&self, jobs: &[&str], reason: &str) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            all.add(client.cancel_wire(jobs, String::new(), reason).await?);
        }
        Ok(all)
    }

    /// Calls all members of a graph off.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn cancel_graph(&self, graph: &str, reason: &str) -> Result<ChangeResult, Error> {
        self.for_job(graph)
            .cancel_wire(Vec::new(), graph.to_owned(), reason)
            .await
    }

    async fn cancel_wire(
        &self,
        jobs: Vec<String>,
        graph: String,
        reason: &str,
    ) -> Result<ChangeResult, Error> {
        let request = v1::CancelRequest {
            namespace: self.namespace(),
            jobs,
            graph,
            reason: reason.to_owned(),
        };
        Ok(call!(self, Safe, jobs_wire.cancel(request))?.into())
    }

    /// Puts finished jobs back on their queue, or on another, with a new series of attempts.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn retry(&self, jobs: &[&str], queue: Option<&str>) -> Result<ChangeResult, Error> {
        self.retry_jobs(jobs, queue, false).await
    }

    /// As [`Self::retry`], together with the jobs that ended because these did: dependents that failed with them,
    /// at any distance, and jobs that were cancelled because nobody needed them any more. Jobs of other shards come
    /// back once those have been reached ([`ChangeResult::passed_on`]).
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn retry_with_dependents(
        &self,
        jobs: &[&str],
        queue: Option<&str>,
    ) -> Result<ChangeResult, Error> {
        self.retry_jobs(jobs, queue, true).await
    }

    async fn retry_jobs(
        &self,
        jobs: &[&str],
        queue: Option<&str>,
        dependents: bool,
    ) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            let request = v1::RetryRequest {
                namespace: self.namespace(),
                jobs,
                queue: queue.map(str::to_owned),
                dependents,
                graph: String::new(),
            };
            all.add(call!(client, IfNothingChanged, jobs_wire.retry(request))?.into());
        }
        Ok(all)
    }

    /// Puts the members of a graph back that failed or were cancelled: at once on the shard that its name tells, on the
    /// others once those have been reached ([`ChangeResult::passed_on`]).
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn retry_graph(
        &self,
        graph: &str,
        queue: Option<&str>,
    ) -> Result<ChangeResult, Error> {
        let request = v1::RetryRequest {
            namespace: self.namespace(),
            jobs: Vec::new(),
            queue: queue.map(str::to_owned),
            dependents: false,
            graph: graph.to_owned(),
        };
        let client = self.for_job(graph);
        Ok(call!(client, IfNothingChanged, jobs_wire.retry(request))?.into())
    }

    /// Acts on the jobs that fulfil `filter`, which needs a condition, or only counts them. One call looks at 10,000
    /// jobs at most; go on with [`BulkResult::next`] as the filter's cursor.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn matching(
        &self,
        action: &BulkAction,
        filter: JobFilter,
        dry_run: bool,
    ) -> Result<BulkResult, Error> {
        let mut request = v1::MatchingRequest {
            namespace: self.namespace(),
            filter: Some(filter.into_wire(self.namespace())),
            dry_run,
            ..v1::MatchingRequest::default()
        };
        let reply = match action {
            BulkAction::Cancel { reason } => {
                request.reason.clone_from(reason);
                call!(self, Safe, jobs_wire.cancel_matching(request))?
            }
            BulkAction::Retry { queue, dependents } => {
                request.queue.clone_from(queue);
                request.dependents = *dependents;
                call!(self, IfNothingChanged, jobs_wire.retry_matching(request))?
            }
            BulkAction::Delete => {
                call!(self, IfNothingChanged, jobs_wire.delete_matching(request))?
            }
        };
        Ok(reply.into())
    }

    /// Ends running attempts by hand, without waiting for their leases.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn time_out(&self, jobs: &[&str]) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            let request = self.jobs_request(jobs);
            all.add(call!(client, IfNothingChanged, jobs_wire.time_out(request))?.into());
        }
        Ok(all)
    }

    /// Removes jobs altogether; what runs loses its lease.
    ///
    /// # Errors
    /// If it is refused, or the server cannot be reached.
    pub async fn delete(&self, jobs: &[&str]) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            let request = self.jobs_request(jobs);
            all.add(call!(client, IfNothingChanged, jobs_wire.delete(request))?.into());
        }
        Ok(all)
    }

    /// Changes a job. Gives where it stands, and its tags.
    ///
    /// # Errors
    /// `job_not_found`, `wrong_state`, or if the server cannot be reached.
    pub async fn alter(
        &self,
        job: &str,
        change: Alteration,
    ) -> Result<(JobState, Vec<String>), Error> {
        let request = change.into_wire(self.namespace(), job.to_owned());
        let reply = call!(
            self.for_job(job),
            IfNothingChanged,
            jobs_wire.alter(request)
        )?;
        Ok((state(reply.state)?, reply.tags))
    }

    /// Makes a blocked job wait for more jobs.
    ///
    /// # Errors
    /// `job_not_found`, `wrong_state`, or if the server cannot be reached.
    pub async fn add_dependencies(
        &self,
        job: &str,
        on: &[&str],
        policy: FailurePolicy,
    ) -> Result<ChangeResult, Error> {
        let request = v1::AddDependenciesRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            on: owned(on),
            policy: wire_policy(policy),
        };
        Ok(call!(
            self.for_job(job),
            IfNothingChanged,
            jobs_wire.add_dependencies(request)
        )?
        .into())
    }

    /// Makes a blocked job wait for fewer jobs; `None`: for nobody any more.
    ///
    /// # Errors
    /// `job_not_found`, `dependency_carries_data`, or if the server cannot be reached.
    pub async fn remove_dependencies(
        &self,
        job: &str,
        on: Option<&[&str]>,
    ) -> Result<ChangeResult, Error> {
        let request = v1::RemoveDependenciesRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            on: on.map(owned).unwrap_or_default(),
            all: on.is_none(),
        };
        Ok(call!(
            self.for_job(job),
            IfNothingChanged,
            jobs_wire.remove_dependencies(request)
        )?
        .into())
    }
}
