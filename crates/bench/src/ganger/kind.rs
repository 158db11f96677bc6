//! What `ganger bench` can measure, and through which APIs.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::grpc::{Streams, Unary};
use super::http::HttpPeer;
use super::redis_port::RedisPort;
use super::target::Target;
use crate::{Error, Messages, Named, Peer, Shape};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Enqueue, lease, complete, all at once, beside a bare log.
    Lives,
    /// Enqueueing alone, in batches of 100 over 8 connections.
    Enqueue,
    /// Taking and completing 200,000 jobs that wait, in batches of 100 over 8 connections.
    Take,
    /// Two producers and four consumers, in batches of 100.
    Mix,
    /// From enqueue to start with an idle worker, at --rates.
    Latency,
    /// As mix, on an empty queue and above --waiting jobs.
    Deep,
    /// Several shards, in one process and as servers of their own: lives, graphs over 8 of them, messages, cancelling.
    Shards,
    /// From `kill -9` until ready, with --waiting live jobs.
    Restart,
    /// Memory of an idle server, and of each of --waiting jobs.
    Memory,
    /// A load that `cargo xtask bench-peers` measures of other systems too.
    Named(Named),
}

/// Connections of the loads that ask for the highest rate.
const CONNECTIONS: usize = 8;

/// Jobs that wait before `take`.
pub(super) const TAKEN: u64 = 200_000;

/// Jobs in one enqueue, delivery and report of the loads without a name of their own.
const BATCH: usize = 100;

/// Those that are measured of ganger only.
const OWN: [Kind; 9] = [
    Kind::Lives,
    Kind::Enqueue,
    Kind::Take,
    Kind::Mix,
    Kind::Latency,
    Kind::Deep,
    Kind::Shards,
    Kind::Restart,
    Kind::Memory,
];

impl Kind {
    /// All of them, in the order of the help.
    const ALL: [Self; OWN.len() + Named::ALL.len()] = {
        let mut all = [Self::Lives; OWN.len() + Named::ALL.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = if place < OWN.len() {
                OWN[place]
            } else {
                Self::Named(Named::ALL[place - OWN.len()])
            };
            place += 1;
        }
        all
    };

    /// The name in options.
    pub fn name(self) -> String {
        match self {
            Self::Lives => "lives".to_owned(),
            Self::Enqueue => "enqueue".to_owned(),
            Self::Take => "take".to_owned(),
            Self::Mix => "mix".to_owned(),
            Self::Latency => "latency".to_owned(),
            Self::Deep => "deep".to_owned(),
            Self::Shards => "shards".to_owned(),
            Self::Restart => "restart".to_owned(),
            Self::Memory => "memory".to_owned(),
            Self::Named(named) => named.name().to_lowercase(),
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Lives => "Enqueue, lease, complete, all at once, beside a bare log",
            Self::Enqueue => "Enqueueing alone, in batches of 100 over 8 connections",
            Self::Take => {
                "Taking and completing 200,000 jobs that wait, in batches of 100 over 8 connections"
            }
            Self::Mix => "Two producers and four consumers, in batches of 100",
            Self::Latency => "From enqueue to start with an idle worker, at --rates",
            Self::Deep => {
                "As mix, on an empty queue and above 1,000,000 jobs that wait (--waiting)"
            }
            Self::Restart => {
                "From kill -9 until ready, with 1,000,000 live jobs (--waiting); of a server of its own"
            }
            Self::Memory => {
                "Memory of an idle server, and of each of 1,000,000 jobs without payload (--waiting); of a server of its own"
            }
            Self::Shards => {
                "Several shards, in one process and as servers of their own: lives, graphs over 8 of them, messages, cancelling"
            }
            Self::Named(named) => named.about(),
        }
    }

    /// Whether it starts servers of its own, and needs no other.
    pub fn starts_servers(self) -> bool {
        matches!(self, Self::Shards | Self::Restart | Self::Memory)
    }

    /// The connections of a load that has neither a name of its own nor options for them.
    pub(super) fn shape(self, api: Api) -> Shape {
        match self {
            Self::Enqueue => {
                // A connection that carries one call at a time has one batch on the way.
                let unanswered = if api == Api::Streams { 16 } else { 1 };
                Shape::new(CONNECTIONS, Messages::new(BATCH, unanswered), 0, 1)
            }
            Self::Take => Shape::new(0, Messages::new(BATCH, 1), CONNECTIONS, BATCH),
            Self::Latency => {
                // Calls that wait need connections of their own; streams do not.
                let connections = if api == Api::Streams { 1 } else { 16 };
                Shape::new(connections, Messages::new(1, 64), connections, 1)
            }
            Self::Named(named) => named.shape(),
            _ => Shape::new(2, Messages::new(BATCH, 1), 4, BATCH),
        }
    }
}

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.about()))
    }
}

/// The API through which a server is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// gRPC streams: batches go over `EnqueueStream`, workers have `Work`.
    #[value(alias = "grpc")]
    Streams,
    /// Unary gRPC calls: `Enqueue`, `Lease`, `Complete`.
    Unary,
    /// HTTP/1.1: everything is a call on a connection that stays open.
    Http,
    /// Raw lists over the Redis port.
    Redis,
}

impl Api {
    /// The name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Unary => "unary gRPC",
            Self::Http => "HTTP",
            Self::Redis => "Redis port",
        }
    }

    /// The name in JSON and in names of queues.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Unary => "unary",
            Self::Http => "http",
            Self::Redis => "redis",
        }
    }

    /// The way to a server.
    pub(super) fn peer(self, target: &Target) -> Result<Box<dyn Peer + Send + '_>, Error> {
        Ok(match self {
            Self::Streams => Box::new(Streams::new(target)),
            Self::Unary => Box::new(Unary(target)),
            Self::Http => Box::new(HttpPeer(target)),
            Self::Redis => Box::new(RedisPort::new(target)?),
        })
    }

    /// The queue of a load, which no other load uses.
    pub(super) fn queue(self, load: &str) -> String {
        format!("bench-{load}-{}-{}", self.key(), std::process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_apis_are_found_by_old_and_new_names() {
        let kind = |name| Kind::from_str(name, true);
        assert_eq!(kind("lives"), Ok(Kind::Lives));
        assert_eq!(kind("shards"), Ok(Kind::Shards));
        assert_eq!(kind("E4x64"), Ok(Kind::Named(Named::E4x64)));
        assert_eq!(kind("paced"), Ok(Kind::Named(Named::Paced)));
        assert!(kind("e2").is_err());
        assert_eq!(Api::from_str("grpc", false), Ok(Api::Streams));
        assert_eq!(Api::from_str("unary", false), Ok(Api::Unary));
    }
}
