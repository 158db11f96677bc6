//! `ganger import`: imports jobs and queues from a Redis.
//!
//! The source is only read. A record is sent to the server in the form in which the source keeps it; the server
//! checks it, and imports it once, however often it is sent.
//!
//! Keys of a product whose feature this build lacks are reported and fail the import, so that they are not believed
//! imported.

mod address;
mod batch;
mod qless;
#[cfg(feature = "quantumleap")]
mod quantumleap;
mod report;
mod source;
mod value;
mod work_queue;

use std::collections::BTreeSet;

use clap::Args;
use ganger_client::Bytes;

use self::address::Address;
use self::batch::Target;
use self::report::RecordKind;
use self::source::Source;
use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};

/// Number of key names requested at once.
const SCAN_KEYS: usize = 500;

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  ganger import redis://127.0.0.1:6379/0
  ganger import --dry-run redis://:password@redis.example:6379/3";

/// Imports from a Redis: jobs, queues, recurring jobs, failures and statistics of qless; queues, items and leases of
/// redis-work-queue; tasks of QuantumLeap in RQ. The source is only read. Run it again after an interruption: each
/// record is imported once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Address of the source: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE].
    #[arg(value_name = "URL", value_parser = Address::read)]
    source: Address,

    /// Namespace for the records. If absent, that of --namespace, or else of the database with the same number on
    /// ganger's Redis port: `default` for 0, `db1` for 1, and so on.
    #[arg(long, value_name = "NAME")]
    into: Option<String>,

    /// Import only this kind of data.
    #[arg(long, value_enum, value_name = "WHAT")]
    only: Option<SourceKind>,

    /// Only read and report, without a server.
    #[arg(long)]
    dry_run: bool,
}

/// A kind of data to import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum SourceKind {
    /// Jobs and queues that qless keeps.
    #[cfg_attr(not(feature = "qless"), value(skip))]
    Qless,
    /// Work queues of the library redis-work-queue.
    #[cfg_attr(not(feature = "redis"), value(skip))]
    WorkQueue,
    /// Tasks of QuantumLeap, which keeps them in RQ.
    #[cfg_attr(not(feature = "quantumleap"), value(skip))]
    Quantumleap,
}

impl SourceKind {
    /// Returns the name, the Cargo feature that it needs, and whether this build has that feature.
    fn feature(self) -> (&'static str, &'static str, bool) {
        match self {
            Self::Qless => ("qless", "qless", cfg!(feature = "qless")),
            Self::WorkQueue => ("redis-work-queue", "redis", cfg!(feature = "redis")),
            Self::Quantumleap => ("QuantumLeap", "quantumleap", cfg!(feature = "quantumleap")),
        }
    }

    /// Whether this build can import it.
    fn is_built(self) -> bool {
        self.feature().2
    }
}

/// Whether a key is one of RQ, which keeps the tasks of QuantumLeap.
fn is_of_rq(key: &[u8]) -> bool {
    key.starts_with(b"rq:")
}

pub(crate) async fn run(context: &Context, args: ImportArgs) -> Outcome {
    let namespace = args.namespace(&context.global.namespace);
    let mut source = Source::connect(&args.source).await?;
    let client = if args.dry_run {
        None
    } else {
        Some(context.client().await?)
    };
    let mut target = Target::new(client, namespace);
    let changes = source.changes().await?;
    import_all(&args, &mut source, &mut target).await?;
    let report = target.finish().await?;
    if source.changes().await? != changes {
        remark(
            "the source was written to during the import: records that changed after they were read are imported in their old state. Stop its workers and producers before you import",
        );
    }
    report.show(context, &args.source.to_string(), args.dry_run)?;
    Ok(if report.has_refused() {
        Exit::Failed
    } else {
        Exit::Done
    })
}

impl ImportArgs {
    fn namespace(&self, global: &str) -> String {
        match (&self.into, global, self.source.database) {
            (Some(name), ..) => name.clone(),
            (None, "default", 1..) => format!("db{}", self.source.database),
            (None, global, _) => global.to_owned(),
        }
    }

    fn wants(&self, what: SourceKind) -> bool {
        what.is_built() && self.only.is_none_or(|only| only == what)
    }

    /// Reports a key that this build cannot import, unless only another kind was requested.
    fn report_not_built(&self, what: SourceKind, key: &[u8], target: &mut Target) {
        if self.only.is_none() && !what.is_built() {
            target.report.not_built(what, key);
        }
    }
}

/// Keys that the first scan leaves for later.
#[derive(Default)]
struct ScanResult {
    /// Queues of redis-work-queue that have a list.
    queues: BTreeSet<Bytes>,
    /// Whether there are strings whose names have not been examined yet.
    has_strings: bool,
}

async fn import_all(
    args: &ImportArgs,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let mut qless = qless::Qless::default();
    if args.wants(SourceKind::Qless) {
        qless.import_before_jobs(source, target).await?;
    }
    #[cfg(feature = "quantumleap")]
    let mut tasks = quantumleap::Tasks::default();
    #[cfg(feature = "quantumleap")]
    if args.wants(SourceKind::Quantumleap) {
        tasks.import_queues(source, target).await?;
    }
    let mut found = ScanResult::default();
    let mut cursor = Bytes::from_static(b"0");
    loop {
        let (next, keys) = source.scan(&cursor, SCAN_KEYS).await?;
        let kinds = source.kinds(&keys).await?;
        let (mut of_qless, mut of_rq) = (Vec::new(), Vec::new());
        for (key, kind) in keys.into_iter().zip(kinds) {
            if qless::owns(&key) {
                args.report_not_built(SourceKind::Qless, &key, target);
                of_qless.push((key, kind));
            } else if is_of_rq(&key) {
                args.report_not_built(SourceKind::Quantumleap, &key, target);
                of_rq.push((key, kind));
            } else if kind == "string" {
                found.has_strings = true;
            } else if let Some(queue) = work_queue::queue_of(&key).filter(|_| kind == "list") {
                args.report_not_built(SourceKind::WorkQueue, &key, target);
                found.queues.insert(queue);
            } else if kind != "none" && args.only.is_none() {
                target.report.other_key(&key);
            }
        }
        if args.wants(SourceKind::Qless) {
            qless.import_keys(of_qless, source, target).await?;
        }
        #[cfg(feature = "quantumleap")]
        if args.wants(SourceKind::Quantumleap) {
            tasks.import_unlisted(of_rq, source, target).await?;
        }
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    if args.wants(SourceKind::Qless) {
        qless.import_after_jobs(source, target).await?;
    }
    import_strings(args, &found, source, target).await
}

async fn import_strings(
    args: &ImportArgs,
    found: &ScanResult,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let mut items = work_queue::Items::new(&found.queues);
    if args.wants(SourceKind::WorkQueue) {
        for queue in &found.queues {
            target.report.found(RecordKind::WorkQueue);
            items.import_lists(queue, source, target).await?;
            target.flush().await?;
            target.report.imported(RecordKind::WorkQueue);
        }
    }
    if !found.has_strings {
        return Ok(());
    }
    let mut cursor = Bytes::from_static(b"0");
    loop {
        let (next, keys) = source.scan(&cursor, SCAN_KEYS).await?;
        let kinds = source.kinds(&keys).await?;
        let strings = keys.into_iter().zip(kinds);
        let strings =
            strings.filter(|(key, kind)| kind == "string" && !qless::owns(key) && !is_of_rq(key));
        let strings: Vec<_> = strings.map(|(key, _)| key).collect();
        if args.wants(SourceKind::WorkQueue) {
            items
                .import_strings(strings, args.only.is_none(), source, target)
                .await?;
        } else if args.only.is_none() {
            for key in &strings {
                target.report.other_key(key);
            }
        }
        cursor = next;
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// A set of names that needs 16 bytes for each, regardless of its length.
#[derive(Default)]
struct SeenNames {
    hashes: std::collections::HashSet<(u64, u64)>,
    first: std::hash::RandomState,
    second: std::hash::RandomState,
}

impl SeenNames {
    /// Records a name; returns true the first time.
    fn is_new(&mut self, name: &[u8]) -> bool {
        use std::hash::BuildHasher as _;
        let hashes = (self.first.hash_one(name), self.second.hash_one(name));
        self.hashes.insert(hashes)
    }
}
