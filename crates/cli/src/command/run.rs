//! `ganger run`: one job, its log as it grows, its result.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Bytes, Client, Enqueued, Job, JobState, LogPlace, NewJob, Start, Submission};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::command::job::get::wait_for;
use crate::command::waiting::{Reporter, WaitTarget};
use crate::context::{Context, remark};
use crate::document::read_value;
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{escape, json as views};

/// A log is still followed for so long after its job has ended.
const LOG_REST: Duration = Duration::from_secs(5);

/// Runs one job: its log goes to standard error as it grows, its result to standard output.
///
/// Each argument is a JSON value, or text if it is none: `ganger run -- resize 640 '{"crop": true}' cat.png`
/// gives the program [640, {"crop": true}, "cat.png"].
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Queue that the job enters.
    #[arg(short, long, default_value = "default")]
    queue: String,

    /// Give this as the payload instead of arguments: a JSON value, or text.
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    payload: Option<String>,

    /// Priority of the job: smaller runs first.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = read_priority)]
    priority: i64,

    /// Not before so long from now.
    #[arg(long, value_name = "DURATION", value_parser = read_span, conflicts_with = "run_at")]
    delay: Option<Duration>,

    /// Not before this time: RFC 3339, or +DURATION.
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,

    /// Never start it after this: RFC 3339, or +DURATION.
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,

    /// How long one attempt may run.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    job_timeout: Option<Duration>,

    #[command(flatten)]
    more: super::new_job::JobFlags,

    /// The job's id; made by the server if absent.
    #[arg(long)]
    id: Option<String>,

    /// A repeat under the same key within a day returns the first job.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Do not wait: print the job's id.
    #[arg(short, long)]
    detach: bool,

    /// Give up waiting after so long; the job goes on.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    timeout: Option<Duration>,

    /// Which program runs it.
    kind: String,

    /// Its arguments: JSON values or text.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: RunArgs) -> Outcome {
    let (detach, timeout) = (args.detach, args.timeout);
    let key = args.idempotency_key.clone();
    let job = job(args)?;
    let client = context.client().await?;
    let submission = Submission {
        jobs: vec![job],
        idempotency_key: key,
        graph: false,
    };
    let accepted = client.enqueue_all(submission).await?;
    let Some(enqueued) = accepted.jobs.into_iter().next() else {
        return Err(Failure::failed("the server accepted no job"));
    };
    if enqueued.existed && !context.is_json() {
        remark(format!("{enqueued} was there already"));
    }
    if detach {
        context.either(&views::enqueued(&enqueued, None), enqueued.to_string())?;
        return Ok(Exit::Done);
    }
    follow(
        context,
        &context.client_for_long_waits()?,
        &enqueued,
        timeout,
    )
    .await
}

fn job(args: RunArgs) -> Result<NewJob, Failure> {
    let moment = |text: Option<String>| {
        let read = text.map(|text| read_moment(&text, SystemTime::now()));
        read.transpose().map_err(Failure::usage)
    };
    let mut job = NewJob::new(args.kind)
        .queue(args.queue)
        .priority(args.priority);
    job.id = args.id;
    let run_at = moment(args.run_at)?;
    job.start = match (args.delay, run_at) {
        (Some(delay), _) => Start::After(delay),
        (None, Some(time)) => Start::At(time),
        (None, None) => Start::Now,
    };
    job.deadline = moment(args.deadline)?;
    job.timeout = args.job_timeout;
    args.more.put_on(&mut job);
    if let Some(payload) = &args.payload {
        job.payload = argument(payload);
    }
    for text in &args.arguments {
        job = job.value(argument(text));
    }
    Ok(job)
}

/// Reads a priority; clap's own words for a wrong one do not say what it may be.
pub(crate) fn read_priority(text: &str) -> Result<i64, String> {
    let wrong = |_| "expected a whole number of 64 bits; smaller runs first".to_owned();
    text.parse().map_err(wrong)
}

/// A JSON value as it is written, or text as a JSON string.
pub(crate) fn argument(text: &str) -> Bytes {
    match read_value(text) {
        Ok(value) => Bytes::copy_from_slice(value.0.get().as_bytes()),
        Err(_) => Value::from(text).to_string().into(),
    }
}

/// Shows the log until the job has ended, then the result.
async fn follow(
    context: &Context,
    client: &Client,
    enqueued: &Enqueued,
    timeout: Option<Duration>,
) -> Outcome {
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let log = tokio::spawn(show_log(client.clone(), enqueued.to_string()));
    let awaited = WaitTarget::Job(enqueued.to_string());
    let reporter = Reporter::new(context)?;
    let job = reporter
        .during(&awaited, wait_for(client, &enqueued.to_string(), until))
        .await?;
    if !job.state.is_terminal() {
        log.abort();
        remark(format!(
            "{enqueued} is {} still; it goes on without us",
            job.state
        ));
        return Ok(Exit::StillRunning);
    }
    // The rest of the log is on its way; a failure to show it is no failure of the job.
    if timeout_at(Instant::now() + LOG_REST, log).await.is_err() {
        remark(format!(
            "the log did not end; `ganger job logs {enqueued}` shows it"
        ));
    }
    finish(context, client, enqueued, &job).await
}

/// Writes the log to standard error, escaped if that is a terminal.
async fn show_log(client: Client, job: String) {
    let mut pieces = client.follow_log(&job, LogPlace::default());
    let for_people = io::stderr().is_terminal();
    while let Some(Ok(page)) = pieces.next().await {
        for chunk in page.chunks {
            let written = if for_people {
                io::stderr().write_all(escape::bytes(&chunk.bytes).as_bytes())
            } else {
                io::stderr().write_all(&chunk.bytes)
            };
            if written.is_err() {
                return;
            }
        }
    }
}

async fn finish(context: &Context, client: &Client, enqueued: &Enqueued, job: &Job) -> Outcome {
    let (_, result) = client.result(&enqueued.to_string()).await?;
    if context.is_json() {
        let mut out =
            json!({ "id": enqueued.id, "shard": enqueued.shard, "state": job.state.as_str() });
        if let Some(result) = &result {
            views::put_bytes(&mut out, "result", result);
        }
        if let Some(failure) = &job.failure {
            out["failure"] = json!({ "group": failure.group, "message": failure.message });
        }
        context.json(&out)?;
    } else if let Some(result) = &result {
        write_result(result)?;
    }
    if job.state == JobState::Succeeded {
        return Ok(Exit::Done);
    }
    let reason = job.failure.as_ref().map(|failure| {
        format!(
            " ({}): {}",
            escape::line(&failure.group),
            escape::last_line(&failure.message, 200)
        )
    });
    remark(format!(
        "{enqueued} {}{}",
        job.state,
        reason.unwrap_or_default()
    ));
    Ok(Exit::Failed)
}

/// Writes a result: as it is, or escaped on a terminal. Ends its last line.
pub(crate) fn write_result(result: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if io::stdout().is_terminal() {
        out.write_all(escape::bytes(result).as_bytes())?;
    } else {
        out.write_all(result)?;
    }
    if !result.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_json_or_else_text() {
        for (text, wanted) in [
            ("640", "640"),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("true", "true"),
            ("cat.png", "\"cat.png\""),
            ("", "\"\""),
            ("\"x\"", "\"x\""),
            ("a \"b\"", "\"a \\\"b\\\"\""),
        ] {
            assert_eq!(argument(text), wanted, "{text}");
        }
    }
}
