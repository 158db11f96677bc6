//! `ganger submit`: a document from a file or standard input, or a stream of very many jobs.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ganger_client::{Accepted, Client, JobState, NewJob, Submission};
use serde_json::json;

use crate::command::progress::{self, WaitEnd};
use crate::command::waiting::Reporter;
use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::document::{self, Document, Lines};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{counted, escape, json as views};

/// Number of jobs in one batch of a stream: enough to share a flush, few enough to be refused alone.
const STREAM_BATCH_JOBS: usize = 1_000;

/// Maximum bytes of payload in one batch of a stream, well below the limit of a message.
const STREAM_BATCH_BYTES: usize = 1 << 20;

/// Submits jobs or a graph.
///
/// The document is an array of task specs (`{"task_id": ..., "method": ..., "args": ...}`), an object with
/// "jobs", or one job (`{"kind": ..., "payload": ...}`). Comments and trailing commas are accepted. Prints
/// how the document calls each job and its final id, in the order of the document.
#[derive(Args, Debug)]
pub(crate) struct SubmitArgs {
    /// File of the document; - or absent for standard input.
    file: Option<PathBuf>,

    /// Wait until all jobs have ended; the exit code tells whether all succeeded.
    #[arg(long)]
    wait: bool,

    /// Like --wait, with a progress bar.
    #[arg(long)]
    progress: bool,

    /// Stop waiting after this time.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    timeout: Option<Duration>,

    /// A repeat under the same key within a day returns the first one's ids.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Read a stream of jobs, one JSON job per line; each batch is accepted or refused as a whole.
    #[arg(long, conflicts_with_all = ["wait", "progress", "timeout", "idempotency_key"])]
    stream: bool,
}

pub(crate) async fn run(context: &Context, args: SubmitArgs) -> Outcome {
    let input = open(args.file.as_deref())?;
    if args.stream {
        return stream(context, input).await;
    }
    let mut text = Vec::new();
    let read = { input }.read_to_end(&mut text);
    read.map_err(|error| match args.file.as_deref() {
        Some(path) => Failure::file(path, &error),
        None => Failure::from(error),
    })?;
    let document = document::read(&text)?;
    drop(text);
    let client = context.client().await?;
    let Document {
        jobs,
        names,
        is_single,
        idempotency_key,
        ..
    } = document;
    let key = args.idempotency_key.or(idempotency_key);
    let accepted = if is_single {
        client
            .enqueue_all(Submission {
                jobs,
                idempotency_key: key,
                graph: false,
            })
            .await?
    } else {
        client.submit_graph(jobs, key).await?
    };
    print(context, &accepted, &names)?;
    if args.wait || args.progress {
        let bars = args.progress || io::stderr().is_terminal();
        let bars = bars && !context.is_json();
        return wait(context, &accepted, &names, args.timeout, bars).await;
    }
    Ok(Exit::Done)
}

fn open(file: Option<&Path>) -> Result<Box<dyn BufRead>, Failure> {
    match file {
        Some(path) if path != Path::new("-") => {
            let file = File::open(path).map_err(|error| Failure::file(path, &error))?;
            Ok(Box::new(BufReader::new(file)))
        }
        _ => {
            if io::stdin().is_terminal() {
                remark("reading the document from the terminal; end it with Ctrl-D");
            }
            Ok(Box::new(BufReader::new(io::stdin())))
        }
    }
}

fn print(context: &Context, accepted: &Accepted, names: &[Option<String>]) -> Result<(), Failure> {
    if context.is_json() {
        return context.json(&views::accepted(accepted, names));
    }
    for (place, job) in accepted.jobs.iter().enumerate() {
        let note = if job.existed && !accepted.repeat {
            "  (existed already)"
        } else {
            ""
        };
        match names.get(place).and_then(Option::as_deref) {
            Some(name) => context.line(format!("{} -> {job}{note}", escape::line(name)))?,
            None => context.line(format!("{job}{note}"))?,
        }
    }
    if accepted.repeat {
        remark(
            "this was submitted before with the same key; these are the ids of the first submission",
        );
    }
    Ok(())
}

async fn wait(
    context: &Context,
    accepted: &Accepted,
    names: &[Option<String>],
    timeout: Option<Duration>,
    bars: bool,
) -> Outcome {
    let client = &context.client_for_long_waits()?;
    let display = bars.then(|| progress::Bars::new(accepted, names));
    let reporter = Reporter::new(context)?;
    let ended = progress::wait(client, accepted, timeout, display, reporter).await?;
    let WaitEnd::All(states) = ended else {
        let waited = timeout.map(crate::show::time::span).unwrap_or_default();
        remark(format!(
            "not all jobs have ended after {waited}; the remaining jobs continue"
        ));
        return Ok(Exit::StillRunning);
    };
    let mut bad = 0;
    for (place, (job, state)) in accepted.jobs.iter().zip(states).enumerate() {
        if state == JobState::Succeeded {
            continue;
        }
        bad += 1;
        // A cascade may fail a hundred thousand jobs, of which the first few are enough.
        if bad <= 10 && !context.is_json() {
            let name = names
                .get(place)
                .and_then(Option::as_deref)
                .unwrap_or_default();
            remark(format!(
                "{} {job} {state}{}",
                escape::line(name),
                reason(client, &job.to_string()).await
            ));
        }
    }
    if context.is_json() {
        let total = accepted.jobs.len();
        context.json(&json!({ "ended": total, "succeeded": total - bad }))?;
    } else if bad > 0 {
        let more = counted(u64::try_from(bad).unwrap_or(u64::MAX), "job");
        remark(format!(
            "{more} did not succeed; `ganger job get ID` and `ganger job logs ID` tell more"
        ));
    }
    Ok(if bad == 0 { Exit::Done } else { Exit::Failed })
}

/// Returns the failure of a job as the end of a line.
async fn reason(client: &Client, job: &str) -> String {
    match client.job(job).await {
        Ok(job) => job
            .failure
            .map(|failure| format!(": {}", escape::last_line(&failure.message, 200)))
            .unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Enqueues jobs line by line. Memory is bounded by the unanswered batches.
async fn stream(context: &Context, input: Box<dyn BufRead>) -> Outcome {
    let client = context.client().await?;
    let mut batches = Batches::new(input);
    let mut accepted: u64 = 0;
    let mut refused: Vec<(u64, ganger_client::Error)> = Vec::new();
    let mut sent_up_to: Vec<(u64, usize)> = Vec::new();
    let mut unreadable = None;
    let mut bulk = client.bulk(|number, answer| match answer {
        Ok(it) => accepted += u64::try_from(it.jobs.len()).unwrap_or(0),
        Err(error) => refused.push((number, error)),
    });
    while unreadable.is_none() {
        let batch = batches.next()?;
        unreadable = batch.unreadable;
        if batch.jobs.is_empty() {
            break;
        }
        let number = bulk.send(batch.jobs).await?;
        sent_up_to.push((number, batch.last_line));
    }
    bulk.finish().await?;
    if context.is_json() {
        context.json(&json!({ "accepted": accepted, "batches_refused": refused.len() }))?;
    } else {
        context.line(format!("{} accepted", counted(accepted, "job")))?;
    }
    for (number, error) in refused.iter().take(10) {
        let lines = lines_of(&sent_up_to, *number);
        remark(format!(
            "the batch of lines {lines} was refused: {error} [{}]",
            error.code()
        ));
    }
    match (unreadable, refused.is_empty()) {
        (Some(failure), _) => {
            Err(failure.then("the lines before it were enqueued; correct it and submit the rest"))
        }
        (None, false) => Ok(Exit::Refused),
        (None, true) => Ok(Exit::Done),
    }
}

/// Returns the line numbers of a batch.
fn lines_of(sent_up_to: &[(u64, usize)], number: u64) -> String {
    let place = sent_up_to.iter().position(|(known, _)| *known == number);
    let Some(place) = place else {
        return "?".to_owned();
    };
    let first = place
        .checked_sub(1)
        .map_or(1, |before| sent_up_to[before].1 + 1);
    format!("{first} to {}", sent_up_to[place].1)
}

/// Jobs that are sent together, and the following line if it cannot be read.
#[derive(Default)]
struct Batch {
    jobs: Vec<NewJob>,
    /// Line number of its last job, from 1.
    last_line: usize,
    unreadable: Option<Failure>,
}

/// A stream of jobs in batches.
struct Batches {
    lines: Lines<Box<dyn BufRead>>,
    /// A job that was read and belongs to the next batch, with its line number.
    next_job: Option<(NewJob, usize)>,
}

impl Batches {
    fn new(input: Box<dyn BufRead>) -> Self {
        Self {
            lines: Lines::new(input),
            next_job: None,
        }
    }

    /// Returns the next batch; empty at the end. Within a batch each name is unique, so a job whose name occurred
    /// already begins the next one.
    fn next(&mut self) -> Result<Batch, Failure> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut names = HashSet::new();
        while batch.jobs.len() < STREAM_BATCH_JOBS && bytes < STREAM_BATCH_BYTES {
            let (job, line) = match self.next_job.take() {
                Some(next_job) => next_job,
                None => match self.lines.next()? {
                    None => break,
                    Some(Ok(job)) => (job, self.lines.number()),
                    Some(Err(problem)) => {
                        batch.unreadable = Some(problem.into());
                        break;
                    }
                },
            };
            if !job.name.is_empty() && !names.insert(job.name.clone()) {
                self.next_job = Some((job, line));
                break;
            }
            bytes += job.payload.len() + 64;
            batch.jobs.push(job);
            batch.last_line = line;
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: &'static str) -> Vec<(Vec<String>, usize)> {
        let mut batches = Batches::new(Box::new(text.as_bytes()));
        let mut all = Vec::new();
        loop {
            let batch = batches.next().expect("readable");
            if batch.jobs.is_empty() {
                return all;
            }
            let names = batch.jobs.into_iter().map(|job| job.name);
            all.push((names.collect(), batch.last_line));
        }
    }

    #[test]
    fn a_stream_keeps_names_and_no_batch_has_one_twice() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let text = "{\"kind\":\"k\",\"name\":\"a\"}\n{\"kind\":\"k\"}\n\n{\"kind\":\"k\"}\n\
                    {\"kind\":\"k\",\"name\":\"a\"}\n{\"kind\":\"k\",\"name\":\"b\"}\n{\"kind\":\"k\",\"name\":\"a\"}\n";
        let wanted: Vec<(Vec<String>, usize)> = vec![
            (names(&["a", "", ""]), 4),
            (names(&["a", "b"]), 6),
            (names(&["a"]), 7),
        ];
        assert_eq!(batches(text), wanted);
    }
}
