//! Servers of a measurement: several processes that know of each other, or one with several shards.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use ganger_client::{Client, Options, Retry, ShardId};

use crate::target::{Target, free_address, spawn_server, until_ready};
use crate::{Error, cpu_of};

/// Calls of a measurement live through a restart of the server.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// One process. Ends, with its store, when it is dropped.
struct Server {
    program: PathBuf,
    options: Options,
    db: PathBuf,
    arguments: Vec<String>,
    child: Child,
    /// CPU seconds of its earlier lives.
    spent: f64,
}

impl Server {
    fn start(
        program: &Path,
        addr: String,
        db: PathBuf,
        arguments: Vec<String>,
    ) -> Result<Self, Error> {
        let child = spawn(program, &addr, &db, &arguments)?;
        let retry = Retry {
            total_max: RETRY_FOR,
            ..Retry::default()
        };
        Ok(Self {
            program: program.to_owned(),
            options: Options {
                retry,
                ..Options::new(addr)
            },
            db,
            arguments,
            child,
            spent: 0.0,
        })
    }

    fn cpu(&self) -> f64 {
        self.spent + cpu_of(self.child.id()).unwrap_or(0.0)
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.spent = self.cpu();
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, addr: &str, db: &Path, arguments: &[String]) -> Result<Child, Error> {
    // That others are away is what some of the measurements are about.
    let quiet = ["--log", "error"].into_iter();
    let arguments: Vec<&str> = quiet.chain(arguments.iter().map(String::as_str)).collect();
    spawn_server(program, addr, db, &arguments)
}

/// All of them, and which shards they have.
pub(crate) struct Servers {
    servers: Vec<Server>,
    shards: Vec<ShardId>,
}

fn shard(number: usize) -> ShardId {
    ShardId::new(&number.to_string()).expect("numbers are plain names")
}

impl Servers {
    /// One process with so many shards. The name is for its stores, which are fresh.
    pub(crate) async fn in_one(target: &Target, name: &str, shards: usize) -> Result<Self, Error> {
        let db = target.dir().join(format!("{name}-{shards}.db"));
        let arguments = vec!["--shards".to_owned(), shards.to_string()];
        let server = Server::start(target.program(), free_address()?, db, arguments)?;
        until_ready(&server.options).await?;
        Ok(Self {
            servers: vec![server],
            shards: (1..=shards).map(shard).collect(),
        })
    }

    /// So many processes with a shard each, that know of each other. The name is for their stores, likewise.
    pub(crate) async fn of_their_own(
        target: &Target,
        name: &str,
        count: usize,
    ) -> Result<Self, Error> {
        let addresses: Vec<String> = (0..count)
            .map(|_| free_address())
            .collect::<Result<_, _>>()?;
        let list = addresses.iter().zip(1..);
        let list: Vec<String> = list.map(|(addr, id)| format!("{id}={addr}")).collect();
        let topology = format!("static:{}", list.join(","));
        let mut servers = Vec::new();
        for (addr, id) in addresses.into_iter().zip(1..) {
            let arguments = ["--shard", &format!("{id}"), "--topology", &topology];
            let arguments = arguments.map(str::to_owned).into();
            let db = target.dir().join(format!("{name}-{id}.db"));
            servers.push(Server::start(target.program(), addr, db, arguments)?);
        }
        for server in &servers {
            until_ready(&server.options).await?;
        }
        Ok(Self {
            servers,
            shards: (1..=count).map(shard).collect(),
        })
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// A connection to a shard by its place, from 0; to its own server if it has one.
    pub(crate) fn client(&self, place: usize) -> Result<Client, Error> {
        let server = &self.servers[place.min(self.servers.len() - 1)];
        let client = Client::new(server.options.clone())?;
        Ok(client.at_shard(&self.shards[place]))
    }

    /// CPU seconds of all of them, those that were killed too.
    pub(crate) fn cpu(&self) -> f64 {
        self.servers.iter().map(Server::cpu).sum()
    }

    pub(crate) fn kill(&mut self, place: usize) -> Result<(), Error> {
        self.servers[place].kill()
    }

    pub(crate) async fn start_again(&mut self, place: usize) -> Result<(), Error> {
        let server = &mut self.servers[place];
        let addr = server.options.url.clone();
        server.child = spawn(&server.program, &addr, &server.db, &server.arguments)?;
        until_ready(&server.options).await?;
        Ok(())
    }
}
