//! Batches: many jobs and their answers, streamed as NDJSON in limited memory.
//!
//! Each line is a job that is accepted or refused by itself, and answered by a line in the same order. An invalid
//! line is answered with its error, and the stream continues. Lines are applied as they arrive, some hundred in one
//! commit. While the shard is overloaded, the stream waits.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt as _};
use ganger_access::BytesInProcess;
use ganger_document::request::job::JobIn;
use ganger_engine::ShardedSubmission;
use ganger_shard::CallError;
use ganger_types::command::{Enqueue, NewJob};
use ganger_types::reply::Enqueued;
use ganger_types::{Command, JobId, Reply};
use http::{HeaderValue, header};
use serde::Serialize;

use crate::body::next_data;
use crate::json::require_type;
use crate::lines::{Line, Lines};
use crate::problem::{Problem, ProblemView};
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::submission;
use crate::stream::{self, Pieces, ReaderGone};

/// Maximum number of jobs in one command.
const GROUP_JOBS_MAX: usize = 256;
/// Maximum size of the lines in one command, in bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Number of commands in flight: one is applied while another is flushed.
const GROUPS_AT_ONCE: usize = 4;
/// Maximum time that a group waits for an overloaded shard.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which lines are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    All,
    Errors,
}

/// The answer to one line.
#[derive(Serialize)]
struct LineView<'a> {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    existed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ProblemView<'a>>,
}

/// The last line of the answer.
#[derive(Default, Serialize)]
struct Summary {
    lines: u64,
    accepted: u64,
    refused: u64,
    /// Whether the whole body was read.
    complete: bool,
}

/// Number of a line, and its submission or its error.
type Entry = (u64, Result<ShardedSubmission, Problem>);

/// Lines that are applied in one command.
#[derive(Default)]
struct Group {
    entries: Vec<Entry>,
    /// Bytes of their lines.
    bytes: usize,
}

/// The answers to a group, in the order of its lines.
struct GroupAnswers {
    lines: Vec<(u64, Result<EnqueuedJob, Problem>)>,
    /// Bytes of the group's lines.
    bytes: usize,
}

/// An enqueued job; the id of a job of another shard contains the shard.
struct EnqueuedJob {
    id: JobId,
    existed: bool,
}

impl From<Enqueued> for EnqueuedJob {
    fn from(job: Enqueued) -> Self {
        let Enqueued { id, existed, .. } = job;
        Self { id, existed }
    }
}

pub(crate) async fn enqueue(
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    require_type(
        request.headers(),
        &["application/x-ndjson", "application/jsonl"],
    )?;
    let answers = context
        .arguments
        .word(
            "answers",
            &[("all", Answers::All), ("errors", Answers::Errors)],
        )?
        .unwrap_or(Answers::All);
    let (pieces, body) = stream::open(&context)?;
    let in_process = request.extensions().get::<BytesInProcess>().cloned();
    let in_process = in_process.unwrap_or_default();
    in_process.set(0);
    let batch = Batch {
        lines: Lines::new(context.api.settings().line_bytes_max),
        number: 0,
        in_process,
        bytes_in_groups: 0,
        context,
        answers,
        pieces,
        summary: Summary::default(),
    };
    tokio::spawn(batch.run(request.into_body()));
    let ndjson = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, ndjson)], body).into_response())
}

struct Batch {
    context: RequestContext,
    answers: Answers,
    pieces: Pieces,
    lines: Lines,
    /// Number of lines read so far.
    number: u64,
    /// Tells the transport how many bytes are kept here: those of groups in flight, and of an incomplete line.
    in_process: BytesInProcess,
    bytes_in_groups: usize,
    summary: Summary,
}

impl Batch {
    /// Reads, applies and answers lines concurrently. Ends early if the client disconnects.
    async fn run(mut self, mut body: Body) {
        // Groups in flight have their own copy of the context, so that `self` is free to read and answer.
        let context = self.context.clone();
        let mut groups: FuturesOrdered<BoxFuture<'_, GroupAnswers>> = FuturesOrdered::new();
        let mut broken = None;
        let mut has_ended = false;
        while !has_ended || !groups.is_empty() {
            let has_room = !has_ended && groups.len() < GROUPS_AT_ONCE;
            tokio::select! {
                data = next_data(&mut body), if has_room => match data {
                    Ok(Some(data)) => self.lines.push(&data),
                    Ok(None) => has_ended = true,
                    Err(problem) => (has_ended, broken) = (true, Some(problem)),
                },
                Some(applied) = groups.next(), if !groups.is_empty() => {
                    if self.answer(applied).await.is_err() {
                        return;
                    }
                }
            }
            let is_last = has_ended && broken.is_none();
            while let Some(group) = self.next_group(is_last) {
                // There are more groups than planned only if one piece of the body contains many lines.
                while groups.len() >= GROUPS_AT_ONCE {
                    let Some(applied) = groups.next().await else {
                        break;
                    };
                    if self.answer(applied).await.is_err() {
                        return;
                    }
                }
                self.bytes_in_groups += group.bytes;
                groups.push_back(apply(&context, group).boxed());
            }
            self.count_bytes();
        }
        self.finish(broken).await;
    }

    fn count_bytes(&self) {
        self.in_process
            .set(self.bytes_in_groups + self.lines.buffered());
    }

    /// The lines that have arrived, up to the limits of a command.
    fn next_group(&mut self, is_last: bool) -> Option<Group> {
        let mut group = Group::default();
        while group.entries.len() < GROUP_JOBS_MAX && group.bytes < GROUP_BYTES_MAX {
            let line = match self.lines.next() {
                None if is_last => self.lines.end(),
                line => line,
            };
            let Some(line) = line else { break };
            self.number += 1;
            match line {
                Line::Text(text) if text.trim_ascii().is_empty() => {}
                Line::Text(text) => {
                    group.bytes += text.len();
                    group.entries.push((self.number, self.read(&text)));
                }
                Line::TooLong => {
                    let limit = self.context.api.settings().line_bytes_max;
                    let detail =
                        format!("the line is longer than {limit} bytes: send a smaller payload");
                    let problem = Problem::new("body_too_large", detail);
                    group.entries.push((self.number, Err(problem)));
                }
            }
        }
        (!group.entries.is_empty()).then_some(group)
    }

    fn read(&self, text: &[u8]) -> Result<ShardedSubmission, Problem> {
        Ok(ShardedSubmission {
            namespace: self.context.namespace.clone(),
            idempotency_key: None,
            jobs: vec![
                ganger_document::json::read::<JobIn>(text)?.convert_alone(&self.context.api)?,
            ],
        })
    }

    async fn answer(&mut self, applied: GroupAnswers) -> Result<(), ReaderGone> {
        let mut text = Vec::new();
        self.bytes_in_groups -= applied.bytes;
        for (line, result) in &applied.lines {
            self.summary.lines += 1;
            let view = match result {
                Ok(job) => {
                    self.summary.accepted += 1;
                    if self.answers == Answers::Errors {
                        continue;
                    }
                    let id = ganger_document::names::show(job.id.as_bytes()).into_owned();
                    LineView {
                        line: *line,
                        id: Some(id),
                        existed: Some(job.existed),
                        error: None,
                    }
                }
                Err(problem) => {
                    self.summary.refused += 1;
                    LineView {
                        line: *line,
                        id: None,
                        existed: None,
                        error: Some(problem.view()),
                    }
                }
            };
            push_line(&mut text, &view);
        }
        self.pieces.send(text).await
    }

    async fn finish(mut self, broken: Option<Problem>) {
        let mut text = Vec::new();
        if let Some(problem) = &broken {
            let error = Some(problem.view());
            push_line(
                &mut text,
                &LineView {
                    line: self.number + 1,
                    id: None,
                    existed: None,
                    error,
                },
            );
        }
        self.summary.complete = broken.is_none();
        push_line(&mut text, &self.summary);
        // If this fails, the client has disconnected.
        let _ = self.pieces.send(text).await;
    }
}

fn push_line(text: &mut Vec<u8>, document: &impl Serialize) {
    serde_json::to_writer(&mut *text, document).expect("our documents are plain data");
    text.push(b'\n');
}

/// Applies the valid lines of a group; the answers are in the order of the lines.
async fn apply(context: &RequestContext, group: Group) -> GroupAnswers {
    let Group { entries, bytes } = group;
    let mut answers = Vec::with_capacity(entries.len());
    let mut numbers = Vec::with_capacity(entries.len());
    let mut jobs = Vec::with_capacity(entries.len());
    for (line, entry) in entries {
        match entry {
            Ok(spread) if is_simple(context, &spread) => {
                numbers.push(line);
                jobs.extend(spread.into_one(false).jobs);
            }
            Ok(spread) => answers.push((line, send_elsewhere(context, spread).await)),
            Err(problem) => answers.push((line, Err(problem))),
        }
    }
    answers.extend(numbers.into_iter().zip(apply_jobs(context, jobs).await));
    answers.sort_by_key(|(line, _)| *line);
    GroupAnswers {
        lines: answers,
        bytes,
    }
}

/// Whether a job concerns this shard only.
fn is_simple(context: &RequestContext, spread: &ShardedSubmission) -> bool {
    spread.only_shard() == Some(context.shard().id()) && !spread.refers_elsewhere()
}

/// Submits a single job that concerns other shards.
async fn send_elsewhere(
    context: &RequestContext,
    spread: ShardedSubmission,
) -> Result<EnqueuedJob, Problem> {
    let mut submitted = submission::submit(context, spread, false, Problem::from).await?;
    let (job, existed) = submitted.jobs.pop().ok_or_else(unexpected_reply)?;
    let id = if job.shard == *context.shard().id() {
        job.id
    } else {
        job.to_name()
    };
    Ok(EnqueuedJob { id, existed })
}

/// Enqueues all jobs in one command. If that is refused, which changes nothing, enqueues each by itself.
async fn apply_jobs(
    context: &RequestContext,
    jobs: Vec<NewJob>,
) -> Vec<Result<EnqueuedJob, Problem>> {
    match send(context, jobs.clone()).await {
        Ok(enqueued) => enqueued.into_iter().map(|job| Ok(job.into())).collect(),
        Err(CallError::Rejected(_)) if jobs.len() > 1 => {
            let mut waiting: FuturesOrdered<_> = jobs
                .into_iter()
                .map(|job| send(context, vec![job]))
                .collect();
            let mut answers = Vec::with_capacity(waiting.len());
            while let Some(answer) = waiting.next().await {
                let one = answer.map_err(Problem::from);
                answers.push(one.and_then(|mut jobs| {
                    jobs.pop()
                        .map(EnqueuedJob::from)
                        .ok_or_else(unexpected_reply)
                }));
            }
            answers
        }
        Err(error) => {
            let problem = Problem::from(error);
            jobs.iter().map(|_| Err(problem.clone())).collect()
        }
    }
}

/// Sends one command, and waits while the shard is overloaded, which slows the client down.
async fn send(context: &RequestContext, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, CallError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let enqueue = Enqueue {
            namespace: context.namespace.clone(),
            jobs: jobs.clone(),
            idempotency_key: None,
            graph: false,
        };
        match context.call(Command::Enqueue(Box::new(enqueue))).await {
            Ok(Reply::Enqueued { jobs, .. }) => return Ok(jobs),
            Ok(_) => unreachable!("the shard answers a command with its own kind of reply"),
            Err(CallError::Overloaded { retry_after, .. })
                if tokio::time::Instant::now() + retry_after < deadline =>
            {
                tokio::time::sleep(retry_after).await;
            }
            Err(error) => return Err(error),
        }
    }
}
