//! The measurements of `ganger bench`, and their execution.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ganger_client::Options;

use crate::report::{LatencyRow, LifeRow, Report, Row};
use crate::streams::Streams;
use crate::target::Target;
use crate::{BATCH, CONNECTIONS, Calls, Driver, Error, Load};
use crate::{enqueue, flow, latency, lives, log, shards};

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Enqueueing, leasing and completing at the same time, beside a bare log.
    Lives,
    /// Enqueueing alone, in batches of 100 over 8 connections.
    Enqueue,
    /// Leasing and completing 200,000 ready jobs, in batches of 100 over 8 connections.
    Take,
    /// Two producers and four consumers, in batches of 100.
    Mix,
    /// Time from enqueue to start with an idle worker, at --rates.
    Latency,
    /// As mix, in an empty queue and in one with a million ready jobs.
    Deep,
    /// Several shards, in one process and on separate servers: lives, graphs over 8 shards, messages, cancellation.
    Shards,
}

/// The API under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// gRPC: enqueues are calls, workers have streams.
    Grpc,
    /// HTTP/1.1: everything is a request over a connection that stays open.
    Http,
}

impl Api {
    /// Returns the name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::Http => "HTTP",
        }
    }

    /// Returns the name in JSON and in names of queues.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    fn driver<'a>(self, target: &'a Target) -> Box<dyn Driver + Send + 'a> {
        match self {
            Self::Grpc => Box::new(Streams(target)),
            Self::Http => Box::new(Calls(target)),
        }
    }

    /// Returns the name of a load's queue, which no other load uses.
    fn queue(self, load: &str) -> String {
        format!("bench-{load}-{}-{}", self.key(), std::process::id())
    }
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kinds of measurements, in order; full lives and shards are measured first.
    pub loads: Vec<Kind>,
    /// APIs, each of which is measured.
    pub apis: Vec<Api>,
    /// Numbers of connections for full lives, at least 1.
    pub connections: Vec<usize>,
    /// Jobs in one enqueue, delivery and report of full lives, 1 to 4096.
    pub batches: Vec<usize>,
    /// Jobs per second while the time from enqueue to start is measured, at least 1.
    pub rates: Vec<u32>,
    /// Duration of each measurement.
    pub time: Duration,
    /// Bytes of each job's payload.
    pub payload: usize,
    /// Directory for the store and the bare log, on the disk to measure.
    pub dir: PathBuf,
    /// Path of the ganger binary to start as a server.
    pub program: PathBuf,
    /// Options to reach a running server; `None` to start one.
    pub attach: Option<Options>,
    /// Process id of that server, to measure its CPU time; `None` not to.
    pub server_pid: Option<u32>,
}

/// A plan with its server, which is stopped when this is dropped unless it ran before.
pub struct Bench {
    plan: Plan,
    target: Target,
    report: Report,
}

impl Bench {
    /// Starts the server, unless the plan names a running one.
    pub async fn start(plan: Plan) -> Result<Self, Error> {
        let target = Target::start(&plan).await?;
        let report = Report::new(&plan, &target);
        Ok(Self {
            plan,
            target,
            report,
        })
    }

    /// Returns a line about what is measured, for the start of the output.
    pub fn heading(&self) -> String {
        self.report.heading()
    }

    /// Runs all measurements, and announces each through `remark`.
    pub async fn run(mut self, remark: impl Fn(String)) -> Result<Report, Error> {
        let loads = std::mem::take(&mut self.plan.loads);
        if loads.contains(&Kind::Lives) {
            self.measure_lives(&remark).await?;
        }
        if loads.contains(&Kind::Shards) {
            let Plan { payload, time, .. } = self.plan;
            self.report.shards = shards::measure(&self.target, payload, time, &remark).await?;
        }
        let by_face = |kind: &Kind| !matches!(kind, Kind::Lives | Kind::Shards);
        for kind in loads.into_iter().filter(by_face) {
            for api in self.plan.apis.clone() {
                remark(format!("measuring {}: {kind:?}", api.name()).to_lowercase());
                self.measure(kind, api).await?;
            }
        }
        Ok(self.report)
    }

    /// Measures full lives: each API and the bare log shortly after each other, for a fair comparison.
    async fn measure_lives(&mut self, remark: impl Fn(String)) -> Result<(), Error> {
        let Plan { payload, time, .. } = self.plan;
        for &batch in &self.plan.batches {
            for &connections in &self.plan.connections {
                remark(format!(
                    "measuring lives: {connections} connections, batches of {batch}"
                ));
                let bare = log::measure(&self.target.dir, batch, payload, time)?;
                for &api in &self.plan.apis {
                    let queue = api.queue(&format!("lives-{connections}-{batch}"));
                    let load = lives::load(queue, connections, batch, payload);
                    let driver = api.driver(&self.target);
                    let measured =
                        lives::measure(driver.as_ref(), &load, connections, time).await?;
                    self.report.lives.push(LifeRow {
                        api,
                        connections,
                        batch,
                        measured,
                        bare,
                    });
                }
            }
        }
        Ok(())
    }

    async fn measure(&mut self, kind: Kind, api: Api) -> Result<(), Error> {
        let Plan { payload, time, .. } = self.plan;
        let driver = api.driver(&self.target);
        let driver = driver.as_ref();
        let mut rows = Vec::new();
        match kind {
            Kind::Lives | Kind::Shards => {}
            Kind::Enqueue => {
                let load = Load::new(api.queue("enqueue"), BATCH, payload, 0);
                let measured = enqueue::measure(driver, &load, CONNECTIONS, time).await?;
                rows.push(("enqueue", measured));
            }
            Kind::Take => {
                let load = Load::new(api.queue("take"), BATCH, payload, 0);
                rows.push(("take", flow::take(driver, &load).await?));
            }
            Kind::Mix => {
                let load = flow::load(api.queue("mix"), payload);
                rows.push(("mix", flow::mix(driver, &load, time).await?));
            }
            Kind::Deep => {
                let load = flow::load(api.queue("mix"), payload);
                rows.push(("mix_empty", flow::mix(driver, &load, time).await?));
                let load = flow::load(api.queue("deep"), payload);
                let filler = Streams(&self.target);
                let deep = flow::deep(driver, &filler, &load, time).await?;
                rows.push(("mix_deep", deep));
            }
            Kind::Latency => {
                for &rate in &self.plan.rates {
                    let queue = api.queue(&format!("latency-{rate}"));
                    let latency = latency::measure(driver, queue, rate, payload, time).await?;
                    self.report.latency.push(LatencyRow { api, rate, latency });
                }
            }
        }
        let row = |(load, measured)| Row {
            load,
            api,
            measured,
        };
        self.report.rows.extend(rows.into_iter().map(row));
        Ok(())
    }
}
