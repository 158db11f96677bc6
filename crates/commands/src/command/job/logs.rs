//! `ganger job logs`: what a job's runs wrote to standard error.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use ganger_client::{LogChunk, LogPage, LogPosition};
use serde_json::json;

use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{escape, time};

/// Number of bytes fetched at once.
const PAGE_BYTES: u32 = 256 << 10;

/// Shows a job's log, all attempts in order.
#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// Id of the job.
    pub(super) job: String,

    /// Continue until the job has ended.
    #[arg(short, long)]
    follow: bool,

    /// Only the log of this attempt.
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

pub(crate) async fn run(context: &Context, args: &LogsArgs) -> Outcome {
    let client = context.client().await?;
    let mut printer = Printer::new(context, args.attempt);
    let start = LogPosition {
        attempt: args.attempt.unwrap_or(0),
        offset: 0,
    };
    if args.follow {
        let mut pieces = context
            .client_for_long_waits()?
            .follow_log(&args.job, start);
        while let Some(page) = pieces.next().await {
            if printer.print(&page?)? {
                break;
            }
        }
        return Ok(Exit::Done);
    }
    let mut place = start;
    loop {
        let page = client.log(&args.job, place, PAGE_BYTES).await?;
        let is_over = printer.print(&page)? || page.end || page.chunks.is_empty();
        if is_over || page.next == place {
            break;
        }
        place = page.next;
    }
    if !printer.has_printed && !context.is_json() {
        remark("the log is empty");
    }
    Ok(Exit::Done)
}

struct Printer<'a> {
    context: &'a Context,
    only: Option<u32>,
    attempt: u32,
    for_people: bool,
    has_printed: bool,
}

impl<'a> Printer<'a> {
    fn new(context: &'a Context, only: Option<u32>) -> Self {
        let for_people = io::stdout().is_terminal();
        Self {
            context,
            only,
            attempt: 0,
            for_people,
            has_printed: false,
        }
    }

    /// Prints a chunk; returns true once no more is wanted.
    fn print(&mut self, page: &LogPage) -> Result<bool, Failure> {
        for chunk in &page.chunks {
            if self.only.is_some_and(|only| chunk.attempt > only) {
                return Ok(true);
            }
            self.chunk(chunk)?;
        }
        Ok(false)
    }

    fn chunk(&mut self, chunk: &LogChunk) -> Result<(), Failure> {
        self.has_printed = true;
        if self.context.is_json() {
            return self.context.json(&json!({
                "attempt": chunk.attempt,
                "offset": chunk.offset,
                "at": time::exact(chunk.at),
                "text": String::from_utf8_lossy(&chunk.bytes),
            }));
        }
        if chunk.attempt != self.attempt {
            // The first attempt needs no heading, and programs that read the log want none.
            if self.for_people && self.attempt > 0 {
                let heading = format!("--- attempt {} ---", chunk.attempt);
                self.context.line(self.context.palette().dim(&heading))?;
            }
            self.attempt = chunk.attempt;
        }
        let mut out = io::stdout().lock();
        if self.for_people {
            out.write_all(escape::bytes(&chunk.bytes).as_bytes())?;
        } else {
            out.write_all(&chunk.bytes)?;
        }
        out.flush()?;
        Ok(())
    }
}
