//! What a command reports on standard error while it waits for jobs that do not run: the first reason of `why`.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use ganger_client::{Client, Job, JobFilter, JobState, ShardId};
use serde_json::json;

use crate::command::job::why::{FirstReason, first_reason};
use crate::context::{Context, remark};
use crate::exit::Failure;
use crate::show::escape;

/// Time before the first check; most jobs run within it.
const FIRST_CHECK_AFTER: Duration = Duration::from_secs(1);

/// Longest pause between checks; it doubles while the reason stays the same.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(15);

/// The jobs that a command waits for.
pub(crate) enum WaitTarget {
    /// One job, as `shard/id`.
    Job(String),
    /// The members of a graph on these shards.
    Graph {
        graph: String,
        shards: BTreeSet<String>,
    },
}

/// Writes lines to standard error, above any progress bars.
pub(crate) type LineWriter = Box<dyn Fn(&str) + Send>;

/// Reports why jobs do not run.
pub(crate) struct Reporter {
    /// Client without retries: an unreachable server is a reason too.
    client: Client,
    address: String,
    is_json: bool,
    say: LineWriter,
}

impl Reporter {
    /// Prints plain lines without a terminal display.
    pub(crate) fn new(context: &Context) -> Result<Self, Failure> {
        Ok(Self {
            client: context.client_without_retries()?,
            address: context.global.server.clone(),
            is_json: context.is_json(),
            say: Box::new(|line| remark(line)),
        })
    }

    /// Sets how lines are printed.
    pub(crate) fn saying(mut self, say: LineWriter) -> Self {
        self.say = say;
        self
    }

    /// Waits for the future, and reports meanwhile why the jobs do not run.
    pub(crate) fn during<'a, T>(
        &'a self,
        awaited: &'a WaitTarget,
        wait: impl Future<Output = T> + 'a,
    ) -> Pin<Box<dyn Future<Output = T> + 'a>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                ended = wait => ended,
                never = self.report(awaited) => match never {},
            }
        })
    }

    async fn report(&self, awaited: &WaitTarget) -> Infallible {
        let mut pause = FIRST_CHECK_AFTER;
        let mut reported = None;
        loop {
            tokio::time::sleep(pause).await;
            let found = self.look(awaited).await;
            let key = found.as_ref().map(|waiting| waiting.reason.key.clone());
            if key == reported {
                pause = (pause * 2).min(CHECK_INTERVAL_MAX);
                continue;
            }
            pause = FIRST_CHECK_AFTER;
            reported = key;
            if let Some(waiting) = found {
                self.print(&waiting);
            }
        }
    }

    /// Returns the waiting job and the reason; `None` if it runs or has ended.
    async fn look(&self, awaited: &WaitTarget) -> Option<Waiting> {
        match self.try_look(awaited).await {
            Ok(found) => found,
            Err(error) if error.is_unreachable() => Some(Waiting {
                job: None,
                reason: FirstReason {
                    key: error.code().to_owned(),
                    code: error.code().to_owned(),
                    text: format!(
                        "The server at {} cannot be reached; trying again.",
                        self.address
                    ),
                    step: None,
                },
            }),
            // The wait itself gets the same error, or an answer.
            Err(_) => None,
        }
    }

    async fn try_look(
        &self,
        awaited: &WaitTarget,
    ) -> Result<Option<Waiting>, ganger_client::Error> {
        let job = match awaited {
            WaitTarget::Job(id) => Some(self.client.job(id).await?),
            WaitTarget::Graph { graph, shards } => self.member_that_waits(graph, shards).await?,
        };
        let Some(job) = job.filter(waits) else {
            return Ok(None);
        };
        let id = job.r#ref.clone();
        let why = self.client.why(&id).await?;
        let reason = first_reason(&why, &job, SystemTime::now());
        // The job may have moved between the two requests.
        Ok(reason.map(|reason| Waiting {
            job: Some((id, why.state)),
            reason,
        }))
    }

    /// Returns the oldest member that may run next, if none runs.
    async fn member_that_waits(
        &self,
        graph: &str,
        shards: &BTreeSet<String>,
    ) -> Result<Option<Job>, ganger_client::Error> {
        if self
            .member(graph, shards, JobState::Running)
            .await?
            .is_some()
        {
            return Ok(None);
        }
        for state in [JobState::Ready, JobState::Scheduled, JobState::Blocked] {
            if let Some(job) = self.member(graph, shards, state).await? {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    async fn member(
        &self,
        graph: &str,
        shards: &BTreeSet<String>,
        state: JobState,
    ) -> Result<Option<Job>, ganger_client::Error> {
        for shard in shards {
            let Some(shard) = ShardId::new(shard) else {
                continue;
            };
            let filter = JobFilter {
                graph: Some(graph.to_owned()),
                states: vec![state],
                limit: 1,
                brief: true,
                ..JobFilter::default()
            };
            let page = self.client.at_shard(&shard).list(filter).await?;
            if let Some(job) = page.jobs.into_iter().next() {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    fn print(&self, waiting: &Waiting) {
        let reason = &waiting.reason;
        if self.is_json {
            let (job, state) = match &waiting.job {
                Some((job, state)) => (Some(job), Some(state.as_str())),
                None => (None, None),
            };
            let line = json!({
                "waits": { "job": job, "state": state, "code": reason.code, "text": reason.text }
            });
            (self.say)(&line.to_string());
            return;
        }
        match &waiting.job {
            Some((job, state)) => (self.say)(&format!(
                "{} is {state}. {}",
                escape::line(job),
                reason.text
            )),
            None => (self.say)(&reason.text),
        }
        if let Some(step) = &reason.step {
            (self.say)(&format!("  -> {step}"));
        }
    }
}

fn waits(job: &Job) -> bool {
    matches!(
        job.state,
        JobState::Blocked | JobState::Scheduled | JobState::Ready
    )
}

/// A job that does not run, and the reason; no job if the server cannot be reached.
struct Waiting {
    job: Option<(String, JobState)>,
    reason: FirstReason,
}
