//! A private PostgreSQL with a cluster in it, and servers over it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use ganger_postgres_instance::{Instance, unavailable_reason};

use crate::command::run_successfully;
use crate::server::Setup;
use crate::skip::note_skip;

/// The database of the cluster.
pub const DATABASE: &str = "ganger";
/// Password of the role of the nodes.
pub(crate) const PASSWORD: &str = "a secret of nodes";

/// A private PostgreSQL with a cluster in it.
pub struct TestCluster {
    /// The server of the database.
    pub postgres: Instance,
    directory: tempfile::TempDir,
}

impl TestCluster {
    /// Starts a PostgreSQL and makes a cluster with so many shards there; `None`, and a note, where there is no
    /// PostgreSQL.
    pub fn new(test: &str, shards: u32) -> Result<Option<Self>> {
        Self::with_settings(test, shards, "")
    }

    /// [`TestCluster::new`] with further lines for `postgresql.conf`.
    pub fn with_settings(test: &str, shards: u32, settings: &str) -> Result<Option<Self>> {
        let Some(cluster) = Self::without_tables(test, settings)? else {
            return Ok(None);
        };
        cluster.init(shards)?;
        Ok(Some(cluster))
    }

    /// Starts a PostgreSQL with an empty database.
    pub fn without_tables(test: &str, settings: &str) -> Result<Option<Self>> {
        if let Some(reason) = unavailable_reason() {
            note_skip(test, &reason);
            return Ok(None);
        }
        let postgres = Instance::start_with(settings)?;
        postgres.create_database(DATABASE)?;
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("password"), PASSWORD)?;
        Ok(Some(Self {
            postgres,
            directory,
        }))
    }

    /// Makes the tables, as an operator does it.
    pub fn init(&self, shards: u32) -> Result<String> {
        let (store, shards) = (self.admin_address(), shards.to_string());
        let password = self.password_file();
        run_successfully(
            &[
                "cluster",
                "init",
                "--store",
                &store,
                "--cluster",
                "test",
                "--shards",
                &shards,
                "--node-password-file",
                &password,
            ],
            &[],
        )
    }

    /// Path of the file with the password of the nodes.
    pub fn password_file(&self) -> String {
        self.directory.path().join("password").display().to_string()
    }

    /// Address for the superuser, by the socket.
    pub fn admin_address(&self) -> String {
        let directory = self.postgres.socket_directory().display().to_string();
        let host = directory.replace('/', "%2F");
        format!(
            "postgres://postgres@{host}:{}/{DATABASE}",
            self.postgres.port()
        )
    }

    /// Address for the nodes.
    pub fn address(&self) -> String {
        let port = self.postgres.port();
        format!("postgres://ganger_node@127.0.0.1:{port}/{DATABASE}")
    }

    /// The setup of a node of this name, whose directory is its own.
    pub fn node(&self, directory: &Path, name: &str) -> Result<Setup> {
        let mut setup = Setup::in_directory(directory)?;
        let arguments = ["--store", &self.address(), "--node", name];
        setup.arguments = arguments.map(str::to_owned).to_vec();
        setup.variables = vec![("GANGER_STORE_PASSWORD".to_owned(), PASSWORD.to_owned())];
        Ok(setup)
    }

    /// The setup of one of several nodes, which serve the shards by turns. Others take its shards over after `lease`
    /// without a beat.
    pub fn member(&self, directory: &Path, name: &str, lease: &str) -> Result<Setup> {
        let mut setup = self.node(directory, name)?;
        let arguments = ["--cluster", "test", "--ownership-lease", lease];
        setup.arguments.extend(arguments.map(str::to_owned));
        Ok(setup)
    }

    /// Runs statements as superuser in the cluster's database.
    pub fn sql(&self, statements: &str) -> Result<String> {
        Ok(self.postgres.sql(DATABASE, statements)?)
    }
}
