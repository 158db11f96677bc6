//! The run of `ganger bench`.

use std::path::PathBuf;
use std::time::Duration;

use ganger_client::Options;

use super::kind::{Api, Kind, TAKEN};
use super::report::{LatencyRow, LifeRow, Report, Row};
use super::target::Target;
use super::{shards, waiting};
use crate::bare::log;
use crate::measure::{self, AHEAD, Outcome, Setting, enqueue, flow, latency, lives, take};
use crate::{Error, Load, Measured, Peer};

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
    /// Jobs that wait, at least 1: each for a restart, the first for deep queues and memory.
    pub waiting: Vec<u64>,
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
        self.measure_waiting(&loads, &remark).await?;
        let by_api = |kind: &Kind| *kind != Kind::Lives && !kind.starts_servers();
        for kind in loads.into_iter().filter(by_api) {
            for api in self.plan.apis.clone() {
                remark(format!("measuring {}: {}", api.name(), kind.name()));
                self.measure(kind, api).await?;
            }
        }
        Ok(self.report)
    }

    /// Measures what has servers with many waiting jobs of its own.
    async fn measure_waiting(
        &mut self,
        loads: &[Kind],
        remark: impl Fn(String),
    ) -> Result<(), Error> {
        if loads.contains(&Kind::Restart) {
            for &jobs in &self.plan.waiting {
                remark(format!("measuring a restart with {jobs} jobs"));
                let restart = waiting::restart(&self.target, jobs, self.plan.payload).await?;
                self.report.restarts.push(restart);
            }
        }
        if loads.contains(&Kind::Memory) {
            remark("measuring memory".to_owned());
            let memory = waiting::memory(&self.target, self.waiting()).await?;
            self.report.memory = Some(memory);
        }
        Ok(())
    }

    /// Jobs that wait in deep queues.
    fn waiting(&self) -> u64 {
        self.plan.waiting.first().copied().unwrap_or(1)
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
                    let peer = api.peer(&self.target)?;
                    let measured = lives::measure(peer.as_ref(), &load, connections, time).await?;
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
        let peer = api.peer(&self.target)?;
        let peer = peer.as_ref();
        match kind {
            Kind::Lives | Kind::Shards | Kind::Restart | Kind::Memory => {}
            Kind::Latency => self.report.latency.extend(self.latency(api, peer).await?),
            Kind::Named(named) => {
                let setting = Setting {
                    queue: api.queue(&kind.name()),
                    payload_bytes: self.plan.payload,
                    time: self.plan.time,
                    waiting: self.waiting(),
                };
                for outcome in measure::named(peer, named, &named.shape(), &setting).await? {
                    self.report.named.push((api, outcome));
                }
            }
            Kind::Enqueue | Kind::Take | Kind::Mix | Kind::Deep => {
                for (load, measured) in self.unnamed(kind, api, peer).await? {
                    self.report.rows.push(Row {
                        load,
                        api,
                        measured,
                    });
                }
            }
        }
        Ok(())
    }

    async fn latency(&self, api: Api, peer: &dyn Peer) -> Result<Vec<LatencyRow>, Error> {
        let Plan { payload, time, .. } = self.plan;
        let mut rows = Vec::new();
        for &rate in &self.plan.rates {
            let load = Load::new(api.queue(&format!("latency-{rate}")), payload, 1, None);
            let shape = Kind::Latency.shape(api);
            let (_, latency) = latency::measure(peer, &load, &shape, rate, payload, time).await?;
            rows.push(LatencyRow { api, rate, latency });
        }
        Ok(rows)
    }

    async fn unnamed(
        &self,
        kind: Kind,
        api: Api,
        peer: &dyn Peer,
    ) -> Result<Vec<(&'static str, Measured)>, Error> {
        let Plan { payload, time, .. } = self.plan;
        let shape = kind.shape(api);
        let load = |name: &str, ahead| Load::new(api.queue(name), payload, shape.take, ahead);
        Ok(match kind {
            Kind::Enqueue => {
                let load = load("enqueue", None);
                vec![(
                    "enqueue",
                    enqueue::measure(peer, &load, &shape, time).await?,
                )]
            }
            Kind::Take => {
                let load = load("take", None);
                let measured = take::measure(peer, &load, &shape, TAKEN, TAKE_MAX).await?;
                vec![("take", measured)]
            }
            Kind::Mix => {
                let load = load("mix", Some(AHEAD));
                vec![("mix", flow::measure(peer, &load, &shape, time).await?)]
            }
            _ => {
                let empty = load("mix-empty", Some(AHEAD));
                let empty = flow::measure(peer, &empty, &shape, time).await?;
                let deep = load("deep", Some(AHEAD));
                let deep = flow::deep(peer, &deep, &shape, self.waiting(), time).await?;
                vec![("mix_empty", empty), ("mix_deep", deep)]
            }
        })
    }
}

/// `take` goes on until its queue is empty, but not longer than this.
const TAKE_MAX: Duration = Duration::from_secs(600);

/// What was measured of a named load, and through which API.
pub(super) type NamedRow = (Api, Outcome);
