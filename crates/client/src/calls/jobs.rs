//! Calls that read and change jobs.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ganger_proto::v1;

use crate::Client;
use crate::client::Repeat;
use crate::convert::{state, wire_policy};
use crate::error::Error;
use crate::model::{
    Alteration, Attempts, BulkAction, BulkResult, CancelEffects, ChangeResult, Explanation,
    FailurePolicy, GraphView, InputView, Job, JobCount, JobFilter, JobState, LogPage, LogPosition,
    Page,
};
use ganger_proto::convert;

/// Longest wait of one request, so that a dead connection is noticed.
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

    /// Returns a job.
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

    /// Returns the attempts of a job: when, on which worker, how long, how they ended, and how much they logged.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn attempts(&self, job: &str) -> Result<Attempts, Error> {
        let request = self.get_request(job);
        Ok(call!(self.for_job(job), Safe, jobs_wire.attempts(request))?.into())
    }

    /// Returns one page of the jobs that match the filter: of the shard of this client, or of all shards
    /// ([`Client::at_all_shards`]).
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

    /// Returns the number of jobs that match the filter; its order, cursor, limit and `brief` are ignored. With a budget,
    /// or of all shards ([`Client::at_all_shards`]), the number may be too small; it says so.
    ///
    /// # Errors
    /// If the filter is refused, or the server cannot be reached.
    pub async fn count(&self, filter: JobFilter) -> Result<JobCount, Error> {
        let request = filter.into_wire(self.namespace());
        Ok(crate::convert::count(call!(
            self,
            Safe,
            jobs_wire.count(request)
        )?))
    }

    /// Waits until a job has ended, at most for `wait_for`; returns the job as it is then.
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

    /// Explains why a job is not running.
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

    /// Returns the jobs that are connected with a job by at most `depth` dependencies (any number if 0); at most
    /// `limit` jobs (1,000 if 0).
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

    /// Returns the state of a job, and its result; `None` if it has none.
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

    /// Returns the payload of a job.
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

    /// Returns inputs and dependencies of a job from slot `from` on, at most `limit` (100 if 0), and the first slot of
    /// the next page; `None` if this is the last page.
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

    /// Returns a page of a job's log from the position `from` on, of about `bytes_max` bytes (256 KiB if 0).
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
            tail_bytes: None,
        };
        Ok(call!(self.for_job(job), Safe, jobs_wire.read_log(request))?.into())
    }

    /// Returns the end of the log of a job's last attempt: at most about `bytes` bytes, at most 1 MiB. The page may begin
    /// within a line.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn log_tail(&self, job: &str, bytes: u32) -> Result<LogPage, Error> {
        let request = v1::LogRequest {
            namespace: self.namespace(),
            job: job.to_owned(),
            bytes_max: bytes,
            tail_bytes: Some(bytes.into()),
            ..v1::LogRequest::default()
        };
        Ok(call!(self.for_job(job), Safe, jobs_wire.read_log(request))?.into())
    }

    /// Cancels jobs; finished jobs are skipped.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn cancel(&self, jobs: &[&str], reason: &str) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            all.add(client.cancel_wire(jobs, String::new(), reason).await?);
        }
        Ok(all)
    }

    /// Cancels all jobs of a graph that have not ended.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn cancel_graph(&self, graph: &str, reason: &str) -> Result<ChangeResult, Error> {
        self.for_job(graph)
            .cancel_wire(Vec::new(), graph.to_owned(), reason)
            .await
    }

    /// Returns what the cancellation of a job would lead to, without changing anything.
    ///
    /// # Errors
    /// `job_not_found`, or if the server cannot be reached.
    pub async fn cancel_effects(&self, job: &str) -> Result<CancelEffects, Error> {
        Ok(convert::cancel_effects(call!(
            self.for_job(job),
            Safe,
            jobs_wire.cancel_effects(self.get_request(job))
        )?)?)
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

    /// Puts finished jobs back into their queue, or into `queue`, with a new series of attempts.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn retry(&self, jobs: &[&str], queue: Option<&str>) -> Result<ChangeResult, Error> {
        self.retry_jobs(jobs, queue, false).await
    }

    /// As [`Self::retry`], and also retries the jobs that ended because of these: dependents at any distance that
    /// failed with them, and jobs that were cancelled because no job needed them any more. Jobs on other shards are
    /// retried once those shards have been reached ([`ChangeResult::passed_on`]).
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
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

    /// Retries the failed and cancelled jobs of a graph: at once on the shard of its id, on other shards once those
    /// have been reached ([`ChangeResult::passed_on`]).
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
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

    /// Changes the jobs that match `filter`, which needs at least one condition; a dry run only counts them. One call
    /// examines at most 10,000 jobs; continue with [`BulkResult::next`] as the cursor of the filter.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
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

    /// Ends running attempts now, without waiting for their leases to expire.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn time_out(&self, jobs: &[&str]) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            let request = self.jobs_request(jobs);
            all.add(call!(client, IfNothingChanged, jobs_wire.time_out(request))?.into());
        }
        Ok(all)
    }

    /// Removes jobs completely; running jobs lose their lease.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub async fn delete(&self, jobs: &[&str]) -> Result<ChangeResult, Error> {
        let mut all = ChangeResult::default();
        for (client, jobs) in self.by_shard(jobs) {
            let request = self.jobs_request(jobs);
            all.add(call!(client, IfNothingChanged, jobs_wire.delete(request))?.into());
        }
        Ok(all)
    }

    /// Changes a job; returns its state and its tags afterwards.
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

    /// Adds dependencies to a blocked job.
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

    /// Removes dependencies of a blocked job; all of them if `on` is `None`.
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
