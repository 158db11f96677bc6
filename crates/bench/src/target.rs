//! The server under load: one started in a new directory, or a running one.

use std::fs;
use std::path::PathBuf;

use ganger_client::{Client, Options};

use crate::http::Http;
use crate::server::{Server, free_address};
use crate::{Error, Plan, Used, cpu_of};

/// The server under load. A started server is killed, and its directory removed, when this is dropped.
pub(crate) struct Target {
    /// Path of the program to start as a server.
    pub(crate) program: PathBuf,
    pub(crate) options: Options,
    /// Directory for stores and the bare log.
    pub(crate) dir: PathBuf,
    /// The started server; `None` if the server ran before.
    pub(crate) own: Option<Server>,
    pid: Option<u32>,
}

impl Target {
    /// Returns the server of a plan: the running one that it names, or a new one.
    pub(crate) async fn start(plan: &Plan) -> Result<Self, Error> {
        let dir = plan
            .dir
            .join(format!("ganger-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| Error::file(&dir, error))?;
        let mut target = Self {
            program: plan.program.clone(),
            options: Options::default(),
            dir,
            own: None,
            pid: plan.server_pid,
        };
        if let Some(options) = &plan.attach {
            target.options = options.clone();
            return Ok(target);
        }
        let db = target.dir.join("bench.db");
        let quiet = ["--log", "warn"].map(str::to_owned).to_vec();
        let server = Server::start(&target.program, free_address()?, db, quiet)?;
        target.pid = Some(server.process());
        target.options = server.options.clone();
        target.own.insert(server).until_ready().await?;
        Ok(target)
    }

    /// Returns a client with a separate connection.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        Client::new(self.options.clone()).map_err(Into::into)
    }

    /// Opens an HTTP connection to the server under load.
    pub(crate) async fn http(&self) -> Result<Http, Error> {
        let mut headers = format!("Ganger-Namespace: {}\r\n", self.options.namespace);
        if let Some(token) = &self.options.token {
            headers = format!("{headers}Authorization: Bearer {token}\r\n");
        }
        Http::connect(&self.options.url, &headers).await
    }

    /// Returns the resources that the server has used so far.
    pub(crate) async fn used(&self) -> Used {
        Used {
            cpu: self.pid.and_then(|pid| cpu_of(pid).ok()),
            commits: self.commits().await,
        }
    }

    /// Reads the number of commits from the server's metrics; `None` if they cannot be read, for lack of a right or
    /// behind TLS.
    async fn commits(&self) -> Option<f64> {
        let mut http = self.http().await.ok()?;
        let metrics = http.get("/metrics").await.ok()?;
        // There is one line for each shard.
        let lines = str::from_utf8(metrics).ok()?.lines();
        lines
            .filter(|line| line.starts_with("ganger_commits_total{"))
            .map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok())
            .sum()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The server must end before its directory is removed.
        self.own = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
