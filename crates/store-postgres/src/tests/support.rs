//! A private server with the roles of a cluster, and shards in it.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

use ganger_postgres_instance::{Instance, unavailable_reason};
use ganger_store::suite::sample::{MORNING, job};
use ganger_store_postgres::{Admin, Database, PostgresStore, Settings};
use ganger_types::{Change, Commit, Epoch, Meta, ShardId};

/// Password of the role of the nodes.
pub(crate) const PASSWORD: &str = "node secret";
/// The database with the shards.
pub(crate) const DATABASE: &str = "ganger";

/// Notes that a test does not run here; CI lists what is in the file that `GANGER_SKIPS` names.
pub(crate) fn skipped(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(path) = env::var_os("GANGER_SKIPS")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        // Losing the note must not fail a test that has nothing to say.
        let _ = writeln!(file, "{line}");
    }
}

/// A private server with the roles of a cluster.
pub(crate) struct Ground {
    pub(crate) instance: Instance,
    pub(crate) admin: Admin,
    shards: u32,
}

impl Ground {
    /// Starts a server; `None` where there cannot be one.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, "")
    }

    /// [`Ground::start`] with further lines for `postgresql.conf`.
    pub(crate) fn start_with(test: &str, settings: &str) -> Option<Self> {
        if let Some(reason) = unavailable_reason() {
            skipped(test, &reason);
            return None;
        }
        let instance = Instance::start_with(settings).expect("PostgreSQL starts");
        instance.create_database(DATABASE).expect("it is new");
        let mut admin = Admin::connect(&admin_settings(&instance)).expect("it is there");
        admin.init(Some(PASSWORD)).expect("a superuser may");
        Some(Self {
            instance,
            admin,
            shards: 0,
        })
    }

    /// The address for the role of the nodes, at this port.
    pub(crate) fn url(port: u16) -> String {
        let password = PASSWORD.replace(' ', "%20");
        format!("postgres://ganger_node:{password}@127.0.0.1:{port}/{DATABASE}")
    }

    /// Settings for the role of the nodes.
    pub(crate) fn settings(&self) -> Settings {
        Settings::from_url(&Self::url(self.instance.port())).expect("it is whole")
    }

    /// Adds a shard; returns its number.
    pub(crate) fn add_shard(&mut self) -> u32 {
        let number = self.shards;
        self.shards += 1;
        let added = self.admin.add_shard(number, &ShardId::default());
        added.expect("the number is new");
        // In a cluster each shard has an id of its own; here all have the same.
        self.sql("DELETE FROM ganger.shard");
        number
    }

    /// A store of a shard, which is not opened.
    pub(crate) fn store(&self, number: u32) -> PostgresStore {
        store(self.settings(), number)
    }

    /// Runs statements as superuser in the database with the shards.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let done = self.instance.sql(DATABASE, statements);
        done.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }
}

/// Settings of the superuser, by the socket.
pub(crate) fn admin_settings(instance: &Instance) -> Settings {
    let directory = instance.socket_directory().display().to_string();
    let host = directory.replace('/', "%2F");
    let url = format!("postgres://postgres@{host}:{}/{DATABASE}", instance.port());
    Settings::from_url(&url).expect("it is whole")
}

/// A store of a shard, which is not opened.
pub(crate) fn store(settings: Settings, number: u32) -> PostgresStore {
    let database = Database::new(settings).expect("the settings are possible");
    PostgresStore::new(&database, number, &ShardId::default(), "test")
}

/// A commit of job number `sequence`.
pub(crate) fn commit(epoch: Epoch, sequence: u64) -> Arc<Commit> {
    with_changes(
        epoch,
        sequence,
        vec![Change::PutJob(Box::new(job(sequence)))],
    )
}

/// A commit of these changes.
pub(crate) fn with_changes(epoch: Epoch, sequence: u64, changes: Vec<Change>) -> Arc<Commit> {
    Arc::new(Commit {
        epoch,
        sequence,
        meta: Meta {
            wall: MORNING,
            ..Meta::default()
        },
        changes,
    })
}
