//! What `ganger bench` measures, and the run of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ganger_client::Options;

use crate::report::{LatencyRow, LifeRow, Report, Row};
use crate::streams::Streams;
use crate::target::Target;
use crate::{BATCH, CONNECTIONS, Calls, Driver, Error, Load};
use crate::{enqueue, flow, latency, lives, log, shards};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// As mix, on an empty queue and above a million jobs that wait.
    Deep,
    /// Several shards, in one process and as servers of their own: lives, graphs over 8 of them, messages, cancelling.
    Shards,
}

/// The API through which a server is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// gRPC: enqueues are calls, workers have streams.
    Grpc,
    /// HTTP/1.1: everything is a call on a connection that stays open.
    Http,
}

impl Api {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::Http => "HTTP",
        }
    }

    /// The name in JSON and in names of queues.
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

    /// The queue of a load, which no other load uses.
    fn queue(self, load: &str) -> String {
        format!("bench-{load}-{}-{}", self.key(), std::process::id())
    }
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to measure, in this order; full lives and shards come first.
    pub loads: Vec<Kind>,
    /// The ways to reach the server, each measured.
    pub apis: Vec<Api>,
    /// Numbers of connections for full lives, at least 1.
    pub connections: Vec<usize>,
    /// Jobs in one enqueue, delivery and report of full lives, 1 to 4096.
    pub batches: Vec<usize>,
    /// Jobs per second while the time from enqueue to start is measured, at least 1.
    pub rates: Vec<u32>,
    /// How long each measurement takes.
    pub time: Duration,
    /// Bytes of each job's payload.
    pub payload: usize,
    /// The directory for the store and the bare log: the disk to measure.
    pub dir: PathBuf,
    /// The ganger binary that is started as a server.
    pub program: PathBuf,
    /// How to reach a server that runs already; absent to start one.
    pub attach: Option<Options>,
    /// The process of that server; absent if its CPU time is not to be measured.
    pub server_pid: Option<u32>,
}

/// A plan whose server is ready. A server that was started for it ends when this is dropped.
pub struct Bench {
    plan: Plan,
    target: Target,
    report: Report,
}

impl Bench {
    /// Starts the server, unless the plan names one that runs.
    pub async fn start(plan: Plan) -> Result<Self, Error> {
        let target = Target::start(&plan).await?;
        let report = Report::new(&plan, &target);
        Ok(Self {
            plan,
            target,
            report,
        })
    }

    /// One line on what is measured, for the top of the output.
    pub fn heading(&self) -> String {
        self.report.heading()
    }

    /// Measures everything; says before each measurement which one it is.
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

    /// Measures each API beside the others and the bare log, in the same ten seconds.
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
