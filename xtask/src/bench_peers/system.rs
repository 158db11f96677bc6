//! The systems of the comparison: which loads each can do, and how it is started for one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ganger_bench::measure::{self, Setting};
use ganger_bench::{Blocking, BlockingPeer, Messages, Named, Shape};

use super::figures::Figures;
use super::{bare, beanstalkd, postgres, redis};
use crate::process::exists;

/// Bytes of a job's payload.
pub(super) const PAYLOAD_BYTES: usize = 200;

/// Jobs that wait in a deep queue.
const WAITING: u64 = 1_000_000;

/// Rows in one insert of PostgreSQL, where others send batches of 100.
const POSTGRES_BATCH: usize = 1_000;

/// A system that the loads run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// ganger over gRPC streams.
    Streams,
    /// ganger over unary gRPC.
    Unary,
    /// ganger over its HTTP API, with HTTP/1.1.
    Http,
    /// ganger over its Redis port.
    Resp,
    Redis,
    Postgres,
    Beanstalkd,
    /// The bare server with group commit.
    Bare,
}

impl System {
    /// All of them, in the order of the report.
    pub(super) const ALL: [Self; 8] = [
        Self::Streams,
        Self::Unary,
        Self::Http,
        Self::Resp,
        Self::Redis,
        Self::Postgres,
        Self::Beanstalkd,
        Self::Bare,
    ];

    /// The name in options and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Unary => "unary",
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Beanstalkd => "beanstalkd",
            Self::Bare => "bare",
        }
    }

    /// What it is, in a few words.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Streams => "ganger, gRPC streams: `EnqueueStream` and `Work`",
            Self::Unary => "ganger, unary gRPC: `Enqueue`, `Lease`, `Complete`",
            Self::Http => {
                "ganger, HTTP/1.1: calls on connections that stay open, one for each unanswered message"
            }
            Self::Resp => "ganger, raw lists over its Redis port",
            Self::Redis => "Redis with appendfsync always, raw lists",
            Self::Postgres => {
                "PostgreSQL as it is installed, SKIP LOCKED, rows deleted on completion; batches of 1,000 instead of 100; \
                 of single rows, those that wait are one transaction"
            }
            Self::Beanstalkd => "beanstalkd -f0",
            Self::Bare => {
                "bare server with group commit: threads, a preallocated log, a queue in memory; leases are not logged"
            }
        }
    }

    /// The system of this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.name() == name)
    }

    /// The name of its API in `ganger bench`; absent if it is not ganger.
    pub(super) fn api(self) -> Option<&'static str> {
        match self {
            Self::Streams | Self::Unary | Self::Http => Some(self.name()),
            Self::Resp => Some("redis"),
            Self::Redis | Self::Postgres | Self::Beanstalkd | Self::Bare => None,
        }
    }

    /// Whether it is installed.
    pub(super) fn is_there(self) -> bool {
        match self {
            Self::Redis => exists("redis-server"),
            Self::Postgres => postgres::programs().is_some(),
            Self::Beanstalkd => exists("beanstalkd"),
            Self::Streams | Self::Unary | Self::Http | Self::Resp | Self::Bare => true,
        }
    }

    /// The connections of a load; absent if it cannot do the load.
    pub(super) fn shape(self, named: Named) -> Option<Shape> {
        match (self, named) {
            // PostgreSQL's idle consumer must ask again and again: it would measure its own pauses. beanstalkd knows no
            // batches, and a million jobs take it minutes.
            (Self::Postgres, Named::L)
            | (Self::Beanstalkd, Named::E100 | Named::Mixed | Named::D) => None,
            (Self::Postgres, Named::E100) => Some(Shape {
                producers: vec![Messages::new(POSTGRES_BATCH, 2)],
                ..named.shape()
            }),
            _ => Some(named.shape()),
        }
    }

    /// Starts it for one load with its data in the directory, measures, and stops it. Not for ganger.
    pub(super) async fn measure(
        self,
        named: Named,
        time: Duration,
        directory: &Path,
        figures: &mut Figures,
    ) -> Result<()> {
        match self {
            Self::Redis => {
                let server = redis::Server::start(directory)?;
                self.measure_peer(server, named, time, figures).await
            }
            Self::Postgres => {
                let programs = postgres::programs().context("PostgreSQL is missing")?;
                let server = postgres::Server::start(&programs, directory)?;
                self.measure_peer(server, named, time, figures).await
            }
            Self::Beanstalkd => {
                let server = beanstalkd::Server::start(directory)?;
                self.measure_peer(server, named, time, figures).await
            }
            _ => {
                let server = bare::Server::start(directory)?;
                self.measure_peer(server, named, time, figures).await
            }
        }
    }

    async fn measure_peer(
        self,
        server: impl BlockingPeer,
        named: Named,
        time: Duration,
        figures: &mut Figures,
    ) -> Result<()> {
        let Some(shape) = self.shape(named) else {
            return Ok(());
        };
        let peer = Blocking(server);
        let setting = Setting {
            queue: "queue".to_owned(),
            payload_bytes: PAYLOAD_BYTES,
            time,
            waiting: WAITING,
        };
        let outcomes = measure::named(&peer, named, &shape, &setting).await?;
        for outcome in &outcomes {
            figures.add_outcome(self.name(), outcome);
        }
        Ok(())
    }
}
