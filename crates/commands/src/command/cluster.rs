//! `ganger cluster`: prepares a PostgreSQL for shards, and shows what is in it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ganger_store_embedded::{Export, Import};
use ganger_store_postgres::{
    Admin, Database, Directory, NextFormat, PasswordSource, Settings, ShardEntry, ShardStatus,
    accept_rewind, durability, finalize, set_draining,
};
use ganger_types::ShardId;
use serde_json::json;

use super::outbox::read_shard;
use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::escape;
use crate::show::table::{Rows, facts};

/// The environment variable with the password of the database's role.
const PASSWORD_VARIABLE: &str = "GANGER_STORE_PASSWORD";

/// Prepares a PostgreSQL for the shards of `ganger server --store`, and shows its state.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make the roles, the tables and the shards of a new cluster. What is there already is kept.
    Init(InitArgs),
    /// Add the tables, columns and functions that this program needs. Nodes with earlier programs go on.
    Migrate(StoreArgs),
    /// Give the cluster the next format of its tables, once all its nodes know it. Nodes do it by themselves after ten
    /// minutes. Programs that do not know it are refused from then on.
    Finalize(StoreArgs),
    /// Add a shard to a cluster. Several nodes serve it at once, a server alone from its next start on.
    AddShard(StoreArgs),
    /// Take the store of a server on one machine into the empty shard of the same id. Stop that server before, and do
    /// not start it again afterwards.
    Import(ImportArgs),
    /// Write a shard into the file of a store for a server on one machine. Nobody can use the shard in the cluster
    /// afterwards.
    Export(ExportArgs),
    /// Make a node hand its shards over to the other nodes; it gets none until it starts again.
    Drain(DrainArgs),
    /// Open shards again that were closed because they have lost commits, for example after their database was restored
    /// from a backup. What the lost commits did is gone, and work of that time may run twice.
    AcceptRewind(AcceptRewindArgs),
    /// Show the shards of a cluster, who owns them, and what an acknowledged job survives.
    Status(StoreArgs),
}

/// The database of a cluster.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Address of the database, without a password: postgres://USER@HOST:PORT/DATABASE.
    ///
    /// The password comes from `GANGER_STORE_PASSWORD` or --store-password-file.
    #[arg(long, value_name = "URL", env = "GANGER_STORE")]
    store: String,

    /// File with the password of that role.
    #[arg(long, value_name = "FILE", env = "GANGER_STORE_PASSWORD_FILE")]
    store_password_file: Option<PathBuf>,
}

/// Arguments of `ganger cluster import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// File of the store. It stays as it is; a copy beside it needs as much room for the time of the import.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Arguments of `ganger cluster export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Id of the shard.
    #[arg(value_parser = read_shard)]
    shard: ShardId,

    /// File of the new store.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Arguments of `ganger cluster accept-rewind` and `ganger shards accept-rewind`.
#[derive(Args, Debug)]
pub(crate) struct AcceptRewindArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Shards to open, each with the number of its last commit, as `ganger cluster status` shows it: the state to
    /// continue with. For example 1=123456 2=98765.
    #[arg(
        value_name = "SHARD=COMMITS",
        value_parser = read_accepted,
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    shards: Vec<Accepted>,

    /// Number of the last commit, for one shard that is named without it.
    #[arg(long, value_name = "COMMITS", conflicts_with = "all")]
    at: Option<u64>,

    /// Open every shard that was closed because it has lost commits, with the state that the database has now.
    #[arg(long)]
    all: bool,
}

/// A shard whose state is accepted.
#[derive(Clone, Debug)]
struct Accepted {
    shard: ShardId,
    /// Number of its last commit; `None` if another argument has it.
    at: Option<u64>,
}

/// Reads `SHARD` or `SHARD=COMMITS`.
fn read_accepted(text: &str) -> Result<Accepted, String> {
    let Some((shard, at)) = text.split_once('=') else {
        let shard = read_shard(text)?;
        return Ok(Accepted { shard, at: None });
    };
    let at = at.parse::<u64>();
    let at = at.map_err(|_| "write a number of commits behind =, such as 1=123456".to_owned())?;
    Ok(Accepted {
        shard: read_shard(shard)?,
        at: Some(at),
    })
}

impl AcceptRewindArgs {
    /// Returns the shards that are named, each with the number of its last commit.
    fn named(&self) -> Result<Vec<(ShardId, u64)>, Failure> {
        if let ([Accepted { shard, at: None }], Some(at)) = (&self.shards[..], self.at) {
            return Ok(vec![(shard.clone(), at)]);
        }
        if self.at.is_some() {
            return Err(Failure::usage(
                "--at is for one shard that is named without a number: write SHARD=COMMITS for each shard",
            ));
        }
        let named = self.shards.iter().map(|Accepted { shard, at }| {
            let at = at.ok_or_else(|| {
                Failure::usage(format!(
                    "shard {shard} needs the number of its last commit: write {shard}=COMMITS, with the number that `ganger cluster status` shows"
                ))
            })?;
            Ok((shard.clone(), at))
        });
        named.collect()
    }
}

/// Arguments of `ganger cluster drain`.
#[derive(Args, Debug)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Name of the node, as `ganger nodes` shows it.
    node: String,

    /// Let the node take shards again.
    #[arg(long)]
    undo: bool,
}

/// Arguments of `ganger cluster init`.
#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Name of the cluster.
    #[arg(long, value_name = "NAME", default_value = "ganger")]
    cluster: String,

    /// Number of shards, which get the names 1, 2, 3 and so on.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=255))]
    shards: u32,

    /// File with a new password for the role `ganger_node`, which nodes use.
    #[arg(long, value_name = "FILE")]
    node_password_file: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, command: &ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Init(args) => init(args),
        ClusterCommand::Migrate(args) => migrate(args),
        ClusterCommand::Finalize(args) => finalize_format(args),
        ClusterCommand::AddShard(args) => add_shard(args),
        ClusterCommand::Import(args) => import(args),
        ClusterCommand::Export(args) => export(args),
        ClusterCommand::AcceptRewind(args) => accept(args),
        ClusterCommand::Drain(args) => drain(args),
        ClusterCommand::Status(args) => status(context, args),
    }
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "cluster", error.to_string())
}

impl StoreArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let settings = Settings::from_url(&self.store);
        let mut settings = settings.map_err(|error| Failure::usage(error.to_string()))?;
        if settings.has_password() {
            return Err(Failure::usage(format!(
                "--store has a password, which others can read in the list of processes: put it into {PASSWORD_VARIABLE} or --store-password-file"
            )));
        }
        settings.password = match &self.store_password_file {
            Some(file) => PasswordSource::File(file.clone()),
            None if std::env::var_os(PASSWORD_VARIABLE).is_some() => {
                PasswordSource::Environment(PASSWORD_VARIABLE.to_owned())
            }
            None => PasswordSource::Url,
        };
        Ok(settings)
    }

    fn admin(&self) -> Result<Admin, Failure> {
        Admin::connect(&self.settings()?).map_err(failure)
    }
}

fn init(args: &InitArgs) -> Outcome {
    let password = match &args.node_password_file {
        None => None,
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| {
                Failure::usage(format!("--node-password-file {}: {error}", file.display()))
            })?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    };
    let mut admin = args.store.admin()?;
    admin.init(password.as_deref()).map_err(failure)?;
    admin.take_warning().into_iter().for_each(remark);
    admin.make_cluster(&args.cluster).map_err(failure)?;
    let there = admin.shards().map_err(failure)?;
    for number in 1..=args.shards {
        if !there.contains(&number) {
            make_shard(&mut admin, number)?;
        }
    }
    let (name, count) = (
        &args.cluster,
        args.shards.max(u32::try_from(there.len()).unwrap_or(0)),
    );
    remark(format!(
        "the cluster {name} has {count} shards: start nodes with `ganger server --store postgres://ganger_node@HOST/DATABASE`"
    ));
    Ok(Exit::Done)
}

fn make_shard(admin: &mut Admin, number: u32) -> Result<(), Failure> {
    let shard = ShardId::new(&number.to_string()).expect("a number is the id of a shard");
    admin.add_shard(number, &shard).map_err(failure)
}

fn migrate(args: &StoreArgs) -> Outcome {
    let mut admin = args.admin()?;
    let format = admin.migrate().map_err(failure)?;
    admin.take_warning().into_iter().for_each(remark);
    remark(format!("the cluster has format {format}"));
    Ok(Exit::Done)
}

fn finalize_format(args: &StoreArgs) -> Outcome {
    let database = Database::new(args.settings()?).map_err(failure)?;
    Directory::read(&database).map_err(failure)?;
    match finalize(&database).map_err(failure)? {
        NextFormat::Ready(format) => remark(format!("the cluster has format {format} now")),
        NextFormat::Newest(format) => remark(format!(
            "the cluster has format {format}, and none of its nodes knows a newer one: there is nothing to do"
        )),
        NextFormat::Held { format, node } => {
            return Err(failure(format!(
                "the cluster keeps format {format}: node {node} does not know the next one; start it with the program of the other nodes first"
            )));
        }
        NextFormat::NoNodes => {
            return Err(failure(
                "no node lives, so nobody knows which formats the programs of this cluster know: start the nodes first",
            ));
        }
    }
    Ok(Exit::Done)
}

fn add_shard(args: &StoreArgs) -> Outcome {
    let mut admin = args.admin()?;
    let there = admin.shards().map_err(failure)?;
    let number = there.last().map_or(1, |last| last + 1);
    make_shard(&mut admin, number)?;
    remark(format!(
        "shard {number} was added: several nodes serve it at once, a server alone from its next start on"
    ));
    Ok(Exit::Done)
}

fn import(args: &ImportArgs) -> Outcome {
    let mut admin = args.store.admin()?;
    let export = Export::open(&args.file).map_err(failure)?;
    let imported = admin.import(&export).map_err(failure)?;
    let (shard, rows) = (export.shard(), imported.rows);
    remark(format!(
        "shard {shard} has the {rows} rows of {} now: start nodes, and no server on this file any more",
        args.file.display()
    ));
    Ok(Exit::Done)
}

fn export(args: &ExportArgs) -> Outcome {
    let settings = args.store.settings()?;
    let database = Database::new(settings.clone()).map_err(failure)?;
    let shard = &args.shard;
    let directory = Directory::read(&database).map_err(failure)?;
    let number = entry(&directory, shard)?.number;
    let mut import = Import::create(&args.file, shard).map_err(failure)?;
    let mut admin = args.store.admin()?;
    let rows = admin.export(settings, (number, shard), &mut import);
    let rows = rows.map_err(failure)?;
    remark(format!(
        "{} has the {rows} rows of shard {shard} now, which no node can open any more",
        args.file.display()
    ));
    Ok(Exit::Done)
}

/// Returns a shard of the cluster.
fn entry(directory: &Directory, shard: &ShardId) -> Result<ShardEntry, Failure> {
    let found = directory.shards.iter().find(|it| it.id == *shard);
    found.cloned().ok_or_else(|| {
        failure(format!(
            "the cluster has no shard {shard}: `ganger cluster status` lists its shards"
        ))
    })
}

pub(crate) fn accept(args: &AcceptRewindArgs) -> Outcome {
    let database = Database::new(args.store.settings()?).map_err(failure)?;
    let named = args.named()?;
    let directory = Directory::read(&database).map_err(failure)?;
    let shards = if args.all {
        directory.rewound(&database).map_err(failure)?
    } else {
        let named = named
            .iter()
            .map(|(shard, at)| Ok((entry(&directory, shard)?, *at)));
        named.collect::<Result<Vec<_>, Failure>>()?
    };
    if shards.is_empty() {
        remark("no shard is closed because it has lost commits: there is nothing to accept");
        return Ok(Exit::Done);
    }
    let mut failed = 0;
    for (entry, at) in &shards {
        let shard = &entry.id;
        match accept_rewind(&database, entry, *at) {
            Ok(()) => remark(format!(
                "shard {shard} goes on after commit {at}; `ganger outbox --shard {shard}` shows whether its traffic with other shards has stopped"
            )),
            Err(error) if shards.len() == 1 => return Err(failure(error)),
            Err(error) => {
                failed += 1;
                remark(format!("shard {shard} was not opened: {error}"));
            }
        }
    }
    if failed > 0 {
        let all = shards.len();
        return Err(failure(format!(
            "{failed} of {all} shards were not opened: `ganger cluster status` shows the state of each"
        )));
    }
    Ok(Exit::Done)
}

fn drain(args: &DrainArgs) -> Outcome {
    let database = Database::new(args.store.settings()?).map_err(failure)?;
    if !set_draining(&database, &args.node, !args.undo).map_err(failure)? {
        return Err(failure(format!(
            "there is no node {:?}: `ganger nodes` lists them",
            args.node
        )));
    }
    remark(if args.undo {
        format!("node {} takes shards again", args.node)
    } else {
        format!(
            "node {} hands its shards over: `ganger nodes` shows how far it is",
            args.node
        )
    });
    Ok(Exit::Done)
}

fn status(context: &Context, args: &StoreArgs) -> Outcome {
    let settings = args.settings()?;
    let mode = durability(&settings).map_err(failure)?.mode;
    let database = Database::new(settings).map_err(failure)?;
    let directory = Directory::read(&database).map_err(failure)?;
    let shards = directory.status(&database).map_err(failure)?;
    let named = shards.iter().filter_map(|shard| {
        let entry = directory
            .shards
            .iter()
            .find(|entry| entry.number == shard.number)?;
        Some((entry, shard))
    });
    if context.is_json() {
        context.json(&json!({
            "cluster": directory.name,
            "identity": directory.identity,
            "format": directory.format,
            "durability": mode.name(),
            "shards": named.map(|(entry, shard)| document(entry, shard)).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    context.line(facts(&[
        ("cluster", escape::line(&directory.name)),
        ("identity", directory.identity.clone()),
        ("format", directory.format.to_string()),
        ("an acknowledged job", mode.to_string()),
    ]))?;
    let mut rows = Rows::new(&[
        "shard",
        "state",
        ">epoch",
        "owner",
        ">commits",
        ">behind in rows",
    ]);
    for (entry, shard) in named {
        rows.push([
            escape::line(entry.id.as_str()),
            escape::line(&shard.state),
            shard.epoch.to_string(),
            escape::line(owner(shard)),
            shard.last.to_string(),
            shard.last.saturating_sub(shard.checkpoint).to_string(),
        ]);
    }
    context.line(rows.text())?;
    Ok(Exit::Done)
}

/// The node that made the last claim, without the random number of its process.
fn owner(shard: &ShardStatus) -> &str {
    let name = shard.owner.split_once(' ');
    name.map_or(shard.owner.as_str(), |(node, _)| node)
}

fn document(entry: &ShardEntry, shard: &ShardStatus) -> serde_json::Value {
    json!({
        "shard": entry.id.as_str(),
        "state": shard.state,
        "epoch": shard.epoch,
        "owner": owner(shard),
        "commits": shard.last,
        "commits_in_rows": shard.checkpoint,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(subcommand)]
        command: ClusterCommand,
    }

    /// Reads a command line of `accept-rewind`; `None` if it is refused.
    fn accepted(arguments: &[&str]) -> Option<AcceptRewindArgs> {
        let before = [
            "ganger",
            "accept-rewind",
            "--store",
            "postgres://n@localhost/g",
        ];
        let read = CommandLine::try_parse_from(before.iter().chain(arguments));
        match read.ok()?.command {
            ClusterCommand::AcceptRewind(args) => Some(args),
            _ => None,
        }
    }

    fn named(arguments: &[&str]) -> Result<Vec<(String, u64)>, String> {
        let args = accepted(arguments).ok_or_else(|| "not read".to_owned())?;
        let named = args.named().map_err(|failure| failure.message)?;
        let named = named.into_iter().map(|(shard, at)| (shard.to_string(), at));
        Ok(named.collect())
    }

    #[test]
    fn a_rewind_is_accepted_for_one_shard_or_for_several_each_with_its_last_commit() {
        let one = Ok(vec![("1".to_owned(), 7)]);
        assert_eq!(named(&["1", "--at", "7"]), one);
        assert_eq!(named(&["1=7"]), one);
        let several = Ok(vec![("1".to_owned(), 7), ("eu-2".to_owned(), 0)]);
        assert_eq!(named(&["1=7", "eu-2=0"]), several);
    }

    /// Nobody accepts a state that he has not seen.
    #[test]
    fn a_shard_without_the_number_of_its_last_commit_is_refused() {
        let text = named(&["1=7", "2"]).expect_err("it has no number");
        assert!(text.contains("2=COMMITS"), "{text}");
        let text = named(&["1", "2", "--at", "7"]).expect_err("whose is it?");
        assert!(text.contains("--at is for one shard"), "{text}");
        let text = named(&["1=7", "--at", "7"]).expect_err("it has two");
        assert!(text.contains("--at is for one shard"), "{text}");
        for wrong in [&["1=x"][..], &["1="], &["=7"], &["1=-7"], &[]] {
            assert!(accepted(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn all_rewound_shards_are_accepted_without_names() {
        assert!(accepted(&["--all"]).is_some_and(|args| args.all));
        assert!(accepted(&["--all", "1=7"]).is_none());
        assert!(accepted(&["--all", "--at", "7"]).is_none());
    }
}
