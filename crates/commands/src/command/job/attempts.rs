//! `ganger job attempts`: the attempts of a job.

use clap::Args;
use ganger_client::Attempt;

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{bytes, escape, time};

/// Shows the attempts of a job: when, on which worker, how long, how they ended, how much they logged.
#[derive(Args, Debug)]
pub(crate) struct AttemptsArgs {
    /// Id of the job, or shard/id.
    job: String,
}

pub(crate) async fn run(context: &Context, args: &AttemptsArgs) -> Outcome {
    let found = context.client().await?.attempts(&args.job).await?;
    if context.is_json() {
        context.json(&found)?;
        return Ok(Exit::Done);
    }
    if found.attempts.is_empty() {
        remark("no attempt yet: `ganger job why` tells why it does not run");
        return Ok(Exit::Done);
    }
    context.line(table(&found.attempts))?;
    if found.history_dropped > 0 {
        remark(format!(
            "{} entries were dropped from the history; some may be attempts",
            found.history_dropped
        ));
    }
    Ok(Exit::Done)
}

fn table(attempts: &[Attempt]) -> String {
    let mut rows = Rows::new(&[
        ">attempt", "began", ">waited", ">ran", "worker", "end", "group", ">log", "message",
    ]);
    for attempt in attempts {
        rows.push([
            attempt.attempt.to_string(),
            time::absolute(attempt.leased_at),
            time::span(attempt.waited_for),
            time::span(attempt.ran_for),
            escape::short(&attempt.worker, 40),
            escape::line(attempt.end.as_deref().unwrap_or("running")),
            escape::short(attempt.group.as_deref().unwrap_or_default(), 30),
            bytes(attempt.log_bytes),
            escape::last_line(attempt.message.as_deref().unwrap_or_default(), 80),
        ]);
    }
    rows.text()
}
