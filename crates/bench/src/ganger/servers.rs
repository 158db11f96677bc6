//! Servers of a measurement: several processes that know of each other, or one with several shards.

use std::path::PathBuf;
use std::time::Duration;

use ganger_client::{Client, ShardId};

use super::grpc::Place;
use super::server::{Server, free_address};
use super::target::Target;
use crate::Error;

/// Calls of a measurement live through a restart of the server.
const RETRY_FOR: Duration = Duration::from_secs(60);

fn start(
    target: &Target,
    addr: String,
    db: PathBuf,
    arguments: &[String],
) -> Result<Server, Error> {
    // That others are away is what some of the measurements are about.
    let quiet = ["--log", "error"].map(str::to_owned);
    let arguments = [&quiet, arguments].concat();
    let mut server = Server::start(&target.program, addr, db, arguments)?;
    server.options.retry.total_max = RETRY_FOR;
    Ok(server)
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
        let db = target.dir.join(format!("{name}-{shards}.db"));
        let arguments = ["--shards".to_owned(), shards.to_string()];
        let server = start(target, free_address()?.to_string(), db, &arguments)?;
        server.until_ready().await?;
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
            .map(|_| Ok(free_address()?.to_string()))
            .collect::<Result<_, Error>>()?;
        let list = addresses.iter().zip(1..);
        let list: Vec<String> = list.map(|(addr, id)| format!("{id}={addr}")).collect();
        let topology = format!("static:{}", list.join(","));
        let mut servers = Vec::new();
        for (addr, id) in addresses.into_iter().zip(1..) {
            let arguments = ["--shard", &format!("{id}"), "--topology", &topology];
            let arguments = arguments.map(str::to_owned);
            let db = target.dir.join(format!("{name}-{id}.db"));
            servers.push(start(target, addr, db, &arguments)?);
        }
        for server in &servers {
            server.until_ready().await?;
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

    /// The same place for connections without the SDK.
    pub(crate) fn place(&self, place: usize) -> Place {
        let server = &self.servers[place.min(self.servers.len() - 1)];
        Place {
            options: server.options.clone(),
            shard: Some(self.shards[place].to_string()),
        }
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
        server.start_again()?;
        server.until_ready().await?;
        Ok(())
    }
}
