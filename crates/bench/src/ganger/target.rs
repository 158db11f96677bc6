//! The server under load: one of our own in a fresh directory, or one that runs.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use ganger_client::Options;

use super::kind::Api;
use super::plan::Plan;
use super::server::{Server, free_address};
use crate::http::Http;
use crate::{Error, Used};

/// The server under load. Our own ends, and its directory goes, when this is dropped.
pub(crate) struct Target {
    /// The program that is started as a server.
    pub(crate) program: PathBuf,
    pub(crate) options: Options,
    /// The directory for stores and the bare log.
    pub(crate) dir: PathBuf,
    /// The server that was started for this; absent if it ran already.
    pub(crate) own: Option<Server>,
    /// Where its Redis port is; absent if it was not asked for one.
    pub(crate) redis_address: Option<SocketAddr>,
    pid: Option<u32>,
}

impl Target {
    /// The server of a plan: the one that runs at its address, or one of our own.
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
            redis_address: None,
            pid: plan.server_pid,
        };
        if let Some(options) = &plan.attach {
            target.options = options.clone();
            return Ok(target);
        }
        let db = target.dir.join("bench.db");
        let mut arguments = ["--log", "warn"].map(str::to_owned).to_vec();
        if plan.apis.contains(&Api::Redis) {
            let address = free_address()?;
            arguments.extend(["--resp".to_owned(), address.to_string()]);
            target.redis_address = Some(address);
        }
        let address = free_address()?.to_string();
        let server = Server::start(&target.program, address, db, arguments)?;
        target.pid = Some(server.process());
        target.options = server.options.clone();
        target.own.insert(server).until_ready().await?;
        Ok(target)
    }

    /// Opens an HTTP connection to the server under load.
    pub(crate) async fn http(&self) -> Result<Http, Error> {
        let mut headers = format!("Ganger-Namespace: {}\r\n", self.options.namespace);
        if let Some(token) = &self.options.token {
            headers = format!("{headers}Authorization: Bearer {token}\r\n");
        }
        Http::connect(&self.options.url, &headers).await
    }

    /// What it has used so far.
    pub(crate) async fn used(&self) -> Used {
        Used {
            flushes: self.flushes().await,
            ..self.pid.map(Used::of_family).unwrap_or_default()
        }
    }

    /// From its own metrics. Nothing if they cannot be read: for lack of a right, or behind TLS.
    async fn flushes(&self) -> Option<f64> {
        let mut http = self.http().await.ok()?;
        let metrics = http.get("/metrics").await.ok()?;
        // A line a shard.
        let lines = str::from_utf8(metrics).ok()?.lines();
        let flushes = |line: &str| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok();
        let lines = lines.filter(|line| line.starts_with("ganger_store_flushes_total{"));
        // Older servers do not count them.
        lines
            .map(flushes)
            .reduce(|one, other| Some(one? + other?))?
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It ends before its directory goes.
        self.own = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
