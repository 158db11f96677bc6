//! The commands, one file each.

pub(crate) mod alerts;
pub(crate) mod attention;
pub(crate) mod audit_log;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod check;
#[cfg(feature = "postgres")]
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod events;
pub(crate) mod failures;
pub(crate) mod graphs;
#[cfg(any(feature = "redis", feature = "quantumleap"))]
pub(crate) mod import;
pub(crate) mod job;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod namespace;
mod new_job;
#[cfg(feature = "quantumleap")]
pub(crate) mod ngsi;
pub(crate) mod nodes;
pub(crate) mod operation;
pub(crate) mod outbox;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod server_info;
pub(crate) mod stats;
pub(crate) mod submit;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod version;
pub(crate) mod waiting;
pub(crate) mod whoami;
pub(crate) mod worker;
pub(crate) mod workers;

use std::pin::Pin;

use tokio::runtime::Runtime;

use crate::args::Command;
use crate::context::Context;
use crate::exit::Outcome;

/// Runs the command of this call of the program, to its end.
pub(crate) fn run(context: &Context, command: Command) -> Outcome {
    match command {
        Command::Server(args) => server::run(*args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Token(command) => token::run(context, command),
        #[cfg(feature = "postgres")]
        Command::Cluster(command) => cluster::run(context, &command),
        #[cfg(feature = "quantumleap")]
        Command::NgsiInsert(args) => ngsi::insert(&args),
        command => {
            if matches!(command, Command::Worker(_)) {
                // Done before any thread exists: programs that run as root could read the environment of this
                // process.
                ganger_worker::hide_environment();
            }
            let runtime = Runtime::new()?;
            // A trait object, since each flavour of the runtime would get its own copy of all commands.
            let outcome: Pin<Box<dyn Future<Output = Outcome> + '_>> =
                Box::pin(serve(context, command));
            let outcome = runtime.block_on(outcome);
            // A read of standard input may still block: it is not waited for.
            runtime.shutdown_background();
            outcome
        }
    }
}

async fn serve(context: &Context, command: Command) -> Outcome {
    match command {
        Command::Server(_) | Command::Completions(_) | Command::Man(_) | Command::Token(_) => {
            unreachable!("they run without a runtime")
        }
        #[cfg(feature = "postgres")]
        Command::Cluster(_) => unreachable!("it runs without a runtime"),
        #[cfg(feature = "quantumleap")]
        Command::NgsiInsert(_) => unreachable!("it runs without a runtime"),
        Command::Worker(args) => worker::run(context, *args).await,
        Command::Submit(args) => submit::run(context, args).await,
        Command::Run(args) => run::run(context, *args).await,
        Command::Job(command) => job::run(context, command).await,
        Command::Queue(command) => queue::run(context, command).await,
        Command::Failures(command) => failures::run(context, command).await,
        Command::Graphs(args) => graphs::run(context, &args).await,
        Command::Schedule(command) => schedule::run(context, command).await,
        Command::Operation(command) => operation::run(context, command).await,
        Command::Namespace(command) => namespace::run(context, command).await,
        Command::Attention(args) => attention::run(context, &args).await,
        Command::Series(args) => series::series(context, args).await,
        Command::Latency(args) => series::latency(context, args).await,
        Command::Kinds(args) => series::kinds(context, args).await,
        Command::Names(args) => names::names(context, &args).await,
        Command::Labels(args) => names::labels(context, &args).await,
        Command::Tags(args) => names::tags(context, &args).await,
        Command::WhoAmI(args) => whoami::run(context, &args).await,
        Command::Workers(args) => workers::run(context, &args).await,
        Command::Outbox(args) => outbox::run(context, &args).await,
        Command::Stats(args) => stats::run(context, args).await,
        Command::Events(args) => events::run(context, args).await,
        Command::ServerInfo(args) => server_info::run(context, &args).await,
        Command::Nodes(args) => nodes::nodes(context, args).await,
        Command::Shards(args) => nodes::shards(context, args).await,
        Command::AuditLog(args) => audit_log::run(context, args).await,
        Command::Alerts(command) => alerts::run(context, command).await,
        Command::Top(args) => top::run(context, args).await,
        Command::Check(args) => check::run(context, args).await,
        Command::Backup(args) => backup::run(context, &args),
        #[cfg(any(feature = "redis", feature = "quantumleap"))]
        Command::Import(args) => import::run(context, args).await,
        Command::Bench(args) => bench::run(context, *args).await,
        Command::Version(args) => version::run(context, &args).await,
    }
}
