//! `ganger top`: what the server does and what needs attention, live in the terminal.

use std::env;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use ganger_client::ShardId;
use ganger_top::state::{EVERY_MAX, EVERY_MIN};
use ganger_top::{Failed, Screen, Settings, Size, Source, Theme};

use crate::context::Context;
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};

/// Size of a frame for scripts, unless `COLUMNS` and `LINES` say otherwise.
const SIZE: Size = Size {
    columns: 120,
    lines: 24,
};

/// Shows queues, jobs, failures, workers and what needs attention, and keeps them fresh.
///
/// Keys: 1 to 7 choose a screen, Enter opens a row, `?` shows all keys, q leaves. Without a terminal, or with --once, it
/// prints one plain frame and ends. It needs no more than the role reader.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct TopArgs {
    /// Begin with the jobs of this queue.
    #[arg(long, short, value_name = "QUEUE")]
    queue: Option<String>,

    /// Begin with this screen.
    #[arg(long, value_name = "SCREEN", conflicts_with = "queue")]
    screen: Option<ScreenArg>,

    /// Show this shard only, or all that the server knows.
    #[arg(long, value_name = "SHARD|all", default_value = "all")]
    shard: String,

    /// Pause between two questions to the server, 0.5s to 30s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = read_span)]
    every: Duration,

    /// Print one frame as plain text, and end.
    #[arg(long)]
    once: bool,

    /// Draw with ASCII characters only.
    #[arg(long)]
    ascii: bool,

    /// Use no colours, only bold and reverse.
    #[arg(long)]
    no_color: bool,

    /// Offer nothing that changes anything.
    #[arg(long)]
    read_only: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScreenArg {
    Queues,
    Jobs,
    Failures,
    Workers,
    Graphs,
    Events,
    Shards,
}

impl ScreenArg {
    /// The key that leads to the screen.
    fn digit(self) -> char {
        match self {
            Self::Queues => '1',
            Self::Jobs => '2',
            Self::Failures => '3',
            Self::Workers => '4',
            Self::Graphs => '5',
            Self::Events => '6',
            Self::Shards => '7',
        }
    }
}

pub(crate) async fn run(context: &Context, args: TopArgs) -> Outcome {
    let settings = settings(&args)?;
    let shard = match args.shard.as_str() {
        "all" => None,
        name => Some(ShardId::new(name).ok_or_else(|| {
            Failure::usage(format!(
                "--shard: {name:?} is not the name of a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -"
            ))
        })?),
    };
    // The first answer shows whether address and token are right, before the terminal is taken over.
    context.client().await?;
    let source = Source {
        client: context.client_without_retries()?,
        namespace: context.global.namespace.clone(),
        shard,
    };
    if context.is_json() {
        let data = ganger_top::document(source, &settings).await;
        context.json(&data.map_err(|error| context.explain(error))?)?;
        return Ok(Exit::Done);
    }
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if args.once || !has_terminal {
        let frame = ganger_top::frame(source, &settings, size()).await;
        context.line(frame.map_err(|error| context.explain(error))?)?;
        return Ok(Exit::Done);
    }
    match ganger_top::run(source, settings).await {
        Ok(end) => {
            for id in end.kept {
                context.line(id)?;
            }
            Ok(Exit::Done)
        }
        Err(Failed::Server(error)) => Err(context.explain(error)),
        Err(Failed::Terminal(error)) => Err(Failure::failed(format!(
            "the terminal cannot be used: {error}"
        ))
        .then("--once prints a frame without controlling the terminal")),
    }
}

fn settings(args: &TopArgs) -> Result<Settings, Failure> {
    if !(EVERY_MIN..=EVERY_MAX).contains(&args.every) {
        return Err(Failure::usage(format!(
            "--every: {:?} is outside of 0.5s to 30s",
            args.every
        )));
    }
    let digit = match (&args.queue, args.screen) {
        (Some(_), _) => '2',
        (None, screen) => screen.map_or('1', ScreenArg::digit),
    };
    Ok(Settings {
        theme: Theme {
            has_color: !args.no_color && has_color(),
            is_ascii: args.ascii || !is_utf8(),
        },
        screen: Screen::of_digit(digit, args.queue.clone()).unwrap_or_default(),
        every: args.every,
        is_read_only: args.read_only,
    })
}

fn has_color() -> bool {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    !is_dumb && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the locale is one of UTF-8. Without any setting it is taken for one.
fn is_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.into_iter().filter_map(env::var_os);
    let first = set.into_iter().find(|value| !value.is_empty());
    first.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The size of a plain frame.
fn size() -> Size {
    let number = |name: &str, least: u16| {
        let value = env::var(name).ok()?.parse::<u16>().ok()?;
        (least..=1_000).contains(&value).then_some(value)
    };
    Size {
        columns: number("COLUMNS", 60).unwrap_or(SIZE.columns),
        lines: number("LINES", 15).unwrap_or(SIZE.lines),
    }
}
