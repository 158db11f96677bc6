//! The command line: global options and the list of commands.

use clap::{Parser, Subcommand};

#[cfg(feature = "postgres")]
use crate::command::cluster;
#[cfg(any(feature = "redis", feature = "quantumleap"))]
use crate::command::import;
#[cfg(feature = "quantumleap")]
use crate::command::ngsi;
use crate::command::{
    alerts, attention, audit_log, backup, bench, check, completions, events, failures, graphs, job,
    man, names, namespace, nodes, operation, outbox, queue, run, schedule, series, server,
    server_info, stats, submit, token, top, version, whoami, worker, workers,
};
use crate::context::Global;
use crate::exit::EXIT_CODES_HELP;

/// A durable job queue and task-graph server: jobs are acknowledged when they are on disk, leased,
/// retried, chained, and run by programs in any language.
#[derive(Debug, Parser)]
#[command(name = "ganger", version, after_help = EXIT_CODES_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommand to run, with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a ganger server.
    Server(Box<server::ServerArgs>),
    #[cfg_attr(
        feature = "quantumleap",
        doc = "Run a worker: take jobs and run a program for each; or, with --ngsi, insert notifications into PostgreSQL."
    )]
    #[cfg_attr(
        not(feature = "quantumleap"),
        doc = "Run a worker: take jobs and run a program for each."
    )]
    Worker(Box<worker::WorkerArgs>),
    /// Submit jobs or a graph from a file or standard input.
    Submit(submit::SubmitArgs),
    /// Run one job: enqueue it, wait, show its log and its result.
    Run(Box<run::RunArgs>),
    /// Show and change jobs.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Show and change queues.
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Show and change namespaces.
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// Show failed jobs by cause, and retry them.
    #[command(subcommand)]
    Failures(failures::FailuresCommand),
    /// Show and change recurring jobs.
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Show and stop operations on many jobs.
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Show what needs attention, the worst first.
    Attention(attention::AttentionArgs),
    /// Show the workers and what they run; release the jobs of a dead one.
    Workers(workers::WorkersArgs),
    /// List graphs, or show how far one is and what holds it up.
    Graphs(graphs::GraphsArgs),
    /// Show the messages that wait for other shards.
    Outbox(outbox::OutboxArgs),
    /// Show the server, its queues, and the statistics of a day.
    Stats(stats::StatsArgs),
    /// Show counters and gauges of queues and kinds, step by step.
    Series(series::SeriesArgs),
    /// Show how long jobs waited and attempts ran: quantiles.
    Latency(series::LatencyArgs),
    /// Show what happened to the jobs of each kind.
    Kinds(series::KindsArgs),
    /// List names that are in use and begin alike.
    Names(names::NamesArgs),
    /// List the keys of labels, or the values of one, with their numbers of jobs.
    Labels(names::LabelsArgs),
    /// List the most used tags, with their numbers of jobs.
    Tags(names::TagsArgs),
    /// Show the server: its shards, how busy they are, their space, and its settings.
    ServerInfo(server_info::ServerInfoArgs),
    /// Show the nodes of a cluster, and the shards that each owns.
    Nodes(nodes::NodesArgs),
    /// Show the shards of a cluster, and the nodes that own them.
    Shards(nodes::ShardsArgs),
    /// Show who the server takes the caller for, and what it may do.
    #[command(name = "whoami")]
    WhoAmI(whoami::WhoAmIArgs),
    /// Show who did what: the newest records of the audit log.
    AuditLog(audit_log::AuditLogArgs),
    /// Show events as they happen.
    Events(events::EventsArgs),
    /// Show queues, jobs, workers and what needs attention, live in the terminal.
    Top(top::TopArgs),
    /// Show the alerts of a server, and test their webhooks.
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
    /// Audit a store at rest, or a running server.
    Check(check::CheckArgs),
    /// Copy a store, even while its server runs.
    Backup(backup::BackupArgs),
    /// Import jobs and queues from Redis: qless, redis-work-queue, QuantumLeap.
    #[cfg(any(feature = "redis", feature = "quantumleap"))]
    Import(import::ImportArgs),
    /// Measure a server, and a bare log on the same disk.
    Bench(Box<bench::BenchArgs>),
    /// Prepare a PostgreSQL for shards, and show who owns them.
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Make, list and revoke tokens in the access file of a server.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print completions for a shell.
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write one for each command.
    Man(man::ManArgs),
    /// Show the versions of this program and of the server.
    Version(version::VersionArgs),
    /// Insert the tasks that a worker sends on standard input. Started by the worker.
    #[cfg(feature = "quantumleap")]
    #[command(hide = true)]
    NgsiInsert(ngsi::InsertArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn no_command_has_two_options_of_one_name() {
        Cli::command().debug_assert();
    }
}
