//! Asks the server for what the screen needs: once an interval, and never twice at the same time.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use ganger_client::{
    Client, Error, Event, EventFilter, EventStream, Job, JobFilter, JobOrder, LogPosition, ShardId,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::action::{Action, Clients};
use crate::data::{
    EventRow, FailureRow, JobDetail, QueueRow, Rates, Rights, Shard, Snapshot, Update, WorkerRow,
};
use crate::screen::{Screen, Which};

/// Jobs of a list.
const JOBS_MAX: u32 = 200;
/// Graphs of a list.
const GRAPHS_MAX: u32 = 200;
/// Queues of a shard whose rates are asked.
const RATES_MAX: usize = 200;
/// Time for which rights and the list of shards are good.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// Longest time for one question; then the server counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a log that are read in one interval, and lines that are kept.
const LOG_BYTES: u32 = 256 << 10;
const LOG_LINES_MAX: usize = 2_000;
const LINE_CHARACTERS_MAX: usize = 2_000;
/// Events that are kept, and listed of one second.
const EVENTS_MAX: usize = 500;
const EVENTS_LISTED: u64 = 50;

/// Where the data come from.
#[derive(Clone)]
pub struct Source {
    /// Client of the server.
    pub client: Client,
    /// Namespace of the client.
    pub namespace: String,
    /// The only shard to show; `None`: all that the server knows.
    pub shard: Option<ShardId>,
}

/// What the screen needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Want {
    pub(crate) screen: Screen,
    /// Whether failures and workers are shown beside the queues.
    pub(crate) is_wide: bool,
    /// The time between two questions.
    pub(crate) every: Duration,
    /// Raised to ask at once.
    pub(crate) turn: u64,
}

/// The one task that asks the server.
pub(crate) struct Feed {
    source: Source,
    clients: Clients,
    shards: Vec<(String, Client)>,
    rights: Rights,
    known_at: Option<Instant>,
    log: Log,
    events: Events,
}

impl Feed {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            clients: Clients::new(source.client.clone(), Vec::new()),
            source,
            shards: Vec::new(),
            rights: Rights::default(),
            known_at: None,
            log: Log::default(),
            events: Events::default(),
        }
    }

    /// Asks for what `want` changes to, and does actions, until the screen is gone.
    ///
    /// # Errors
    /// An error that no waiting mends, such as a token that is no longer known.
    pub(crate) async fn run(
        mut self,
        mut want: watch::Receiver<Want>,
        mut actions: mpsc::Receiver<Action>,
        out: mpsc::Sender<Update>,
    ) -> Result<(), Error> {
        loop {
            let wanted = want.borrow_and_update().clone();
            let began = Instant::now();
            let update = match self.ask_in_time(&wanted).await {
                Ok(snapshot) => Update::Data(Box::new(snapshot)),
                Err(Missed::ForGood(error)) => return Err(error),
                Err(Missed::Once(reason)) => Update::Missed(reason),
            };
            if out.send(update).await.is_err() {
                return Ok(());
            }
            let next = began + wanted.every;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => break,
                    changed = want.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return Ok(()),
                    },
                    action = actions.recv() => {
                        let Some(action) = action else { return Ok(()) };
                        let said = self.act(&action).await;
                        if out.send(Update::Said(said)).await.is_err() {
                            return Ok(());
                        }
                        break;
                    }
                    event = self.events.next(), if wanted.screen == Screen::Events => {
                        self.events.take(event);
                    }
                }
            }
        }
    }

    async fn act(&mut self, action: &Action) -> String {
        match tokio::time::timeout(ANSWER_TIMEOUT * 6, action.run(&self.clients)).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => format!("Not done: {} ({}).", error.message(), error.code()),
            Err(_) => "The server has not answered: look whether it was done.".to_owned(),
        }
    }

    async fn ask_in_time(&mut self, want: &Want) -> Result<Snapshot, Missed> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.ask(want)).await {
            Ok(Ok(snapshot)) => Ok(snapshot),
            Ok(Err(error)) if is_for_good(&error) => Err(Missed::ForGood(error)),
            Ok(Err(error)) => Err(Missed::Once(error.message().to_owned())),
            Err(_) => Err(Missed::Once("the server does not answer".to_owned())),
        }
    }

    /// Asks for everything that a screen needs.
    ///
    /// # Errors
    /// If no shard answers.
    pub(crate) async fn ask(&mut self, want: &Want) -> Result<Snapshot, Error> {
        self.get_to_know().await?;
        let infos = join_all(self.shards.iter().map(|(_, client)| client.info()));
        let attention = self.source.client.attention();
        let (infos, attention) = futures::future::join(infos, attention).await;
        let mut snapshot = Snapshot {
            namespace: self.source.namespace.clone(),
            rights: self.rights,
            attention: attention?,
            ..Snapshot::default()
        };
        if let Some(shard) = &self.source.shard {
            let is_of = |name: &String| name == shard.as_str();
            snapshot
                .attention
                .retain(|item| item.shard.as_ref().is_none_or(is_of));
        }
        let mut reached = Vec::new();
        for ((shard, client), info) in self.shards.iter().zip(infos) {
            let info = match info {
                Ok(info) => Some(info),
                Err(error) if is_for_good(&error) || self.shards.len() == 1 => return Err(error),
                Err(_) => None,
            };
            if info.is_some() {
                reached.push((shard.clone(), client.clone()));
            }
            snapshot.shards.push(Shard {
                shard: shard.clone(),
                health: info
                    .as_ref()
                    .map_or("unreachable", |info| info.health.as_str())
                    .to_owned(),
                live_jobs: info.as_ref().map(|info| info.live_jobs),
                info,
                peers: Vec::new(),
            });
        }
        self.add_queues(want, &reached, &mut snapshot).await?;
        self.add_rest(want, &reached, &mut snapshot).await?;
        Ok(snapshot)
    }

    /// Asks for the shards and the rights, if that was long ago.
    async fn get_to_know(&mut self) -> Result<(), Error> {
        if self.known_at.is_some_and(|at| at.elapsed() < KNOWN_FOR) {
            return Ok(());
        }
        let base = &self.source.client;
        let who = base.whoami().await?;
        let may = |verb: &str| who.may.iter().any(|known| known == verb);
        self.rights = Rights {
            cancel: may("cancel"),
            operate: may("operate"),
        };
        let names = match &self.source.shard {
            Some(shard) => vec![shard.to_string()],
            None => {
                let info = base.info().await?;
                let others = info.shards.into_iter().filter(|shard| *shard != info.shard);
                std::iter::once(info.shard.clone()).chain(others).collect()
            }
        };
        let with_client = |name: String| {
            let client = ShardId::new(&name).map(|shard| base.at_shard(&shard));
            (name, client.unwrap_or_else(|| base.clone()))
        };
        self.shards = names.into_iter().map(with_client).collect();
        self.clients = Clients::new(base.clone(), self.shards.clone());
        self.known_at = Some(Instant::now());
        Ok(())
    }

    async fn add_queues(
        &self,
        want: &Want,
        reached: &[(String, Client)],
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        let shows_queues = want.screen == Screen::Queues;
        let answers = join_all(reached.iter().map(|(_, client)| async move {
            let views = if shows_queues {
                client.queues().await?
            } else {
                Vec::new()
            };
            let mut busiest: Vec<_> = views.iter().collect();
            busiest.sort_by_key(|view| std::cmp::Reverse(view.counts.ready + view.counts.running));
            let names = busiest.into_iter().take(RATES_MAX);
            let names: Vec<String> = names.map(|view| view.queue.clone()).collect();
            let rates = client.rates(&names).await?;
            Ok::<_, Error>((views, names, rates))
        }));
        for ((shard, _), answer) in reached.iter().zip(answers.await) {
            let (views, names, (total, each)) = answer?;
            snapshot.total.add(&total.into());
            let mut each: Vec<(String, Rates)> = names
                .into_iter()
                .zip(each.into_iter().map(Rates::from))
                .collect();
            let attention = &snapshot.attention;
            let rows = views.into_iter().map(|view| {
                let place = each.iter().position(|(name, _)| *name == view.queue);
                let has_no_worker = attention.iter().any(|item| {
                    item.code == "no_worker"
                        && item.queue.as_deref() == Some(&*view.queue)
                        && item.shard.as_deref() == Some(&**shard)
                });
                QueueRow {
                    shard: shard.clone(),
                    rates: place.map(|place| each.swap_remove(place).1),
                    has_no_worker,
                    view,
                }
            });
            let rows: Vec<QueueRow> = rows.collect();
            snapshot.queues.extend(rows);
        }
        Ok(())
    }

    async fn add_rest(
        &mut self,
        want: &Want,
        reached: &[(String, Client)],
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        let is_beside = want.screen == Screen::Queues && want.is_wide;
        if want.screen == Screen::Failures || is_beside {
            snapshot.failures = failures(reached).await?;
        }
        if want.screen == Screen::Workers || is_beside {
            snapshot.workers = workers(reached).await?;
        }
        match &want.screen {
            Screen::Jobs(which) => {
                let (jobs, has_more) = jobs(reached, which, JOBS_MAX).await?;
                snapshot.jobs = jobs;
                snapshot.has_more_jobs = has_more;
            }
            Screen::Graphs => {
                // The server that is asked merges the graphs of all shards.
                let page = self.source.client.graphs("", GRAPHS_MAX).await?;
                snapshot.has_more_graphs = page.next.is_some() || !page.complete;
                snapshot.graphs = page.graphs;
                if let Some(shard) = &self.source.shard {
                    let is_there = |name: &String| name == shard.as_str();
                    let graphs = &mut snapshot.graphs;
                    graphs.retain(|graph| graph.shards.iter().any(is_there));
                }
            }
            Screen::Shards => {
                for (shard, (_, client)) in snapshot.shards.iter_mut().zip(&self.shards) {
                    // It takes the right to see the whole server, and the rest of the screen does not.
                    shard.peers = client
                        .peers()
                        .await
                        .map(|(_, peers)| peers)
                        .unwrap_or_default();
                }
            }
            Screen::Job(job) => {
                let found = self.source.client.job(job).await?;
                let why = self.source.client.why(job).await?;
                self.log.read(&self.source.client, &found).await?;
                snapshot.job = Some(Box::new(JobDetail {
                    job: found,
                    why,
                    log: self.log.lines(),
                    has_more_log: self.log.has_more,
                }));
            }
            Screen::Events => {
                self.events.open(&self.source.client, reached).await?;
                snapshot.events = self.events.rows.iter().cloned().collect();
            }
            Screen::Queues | Screen::Failures | Screen::Workers => {}
        }
        if want.screen != Screen::Events {
            self.events = Events::default();
        }
        Ok(())
    }
}

/// Why there is no answer.
enum Missed {
    /// It may come next time.
    Once(String),
    /// It will never come.
    ForGood(Error),
}

/// Whether no waiting mends an error: the caller is not known, or not allowed.
fn is_for_good(error: &Error) -> bool {
    matches!(
        error.code(),
        "unauthorized" | "permission_denied" | "unimplemented" | "unknown_shard"
    )
}

async fn failures(reached: &[(String, Client)]) -> Result<Vec<FailureRow>, Error> {
    let answers = join_all(reached.iter().map(|(_, client)| client.failure_groups())).await;
    let mut rows: Vec<FailureRow> = Vec::new();
    for answer in answers {
        for (group, jobs) in answer? {
            match rows.iter_mut().find(|row| row.group == group) {
                Some(row) => row.jobs += jobs,
                None => rows.push(FailureRow { group, jobs }),
            }
        }
    }
    Ok(rows)
}

async fn workers(reached: &[(String, Client)]) -> Result<Vec<WorkerRow>, Error> {
    let answers = join_all(reached.iter().map(|(_, client)| client.workers())).await;
    let mut rows = Vec::new();
    for ((shard, _), answer) in reached.iter().zip(answers) {
        rows.extend(answer?.into_iter().map(|worker| WorkerRow {
            shard: shard.clone(),
            worker,
        }));
    }
    Ok(rows)
}

/// The newest jobs that match, and whether there are more.
async fn jobs(
    reached: &[(String, Client)],
    which: &Which,
    limit: u32,
) -> Result<(Vec<Job>, bool), Error> {
    let filter = JobFilter {
        queue: which.queue.clone(),
        group: which.group.clone(),
        graph: which.graph.clone(),
        worker: which.worker.clone(),
        order: JobOrder::Newest,
        brief: true,
        limit,
        ..JobFilter::default()
    };
    let answers = join_all(
        reached
            .iter()
            .map(|(_, client)| client.list(filter.clone())),
    )
    .await;
    let (mut jobs, mut has_more) = (Vec::new(), false);
    for answer in answers {
        let page = answer?;
        has_more |= page.next.is_some();
        jobs.extend(page.jobs);
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(job.created_at));
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    has_more |= jobs.len() > most;
    jobs.truncate(most);
    Ok((jobs, has_more))
}

/// The end of a job's log.
#[derive(Default)]
struct Log {
    job: String,
    next: LogPosition,
    lines: VecDeque<String>,
    /// The last line, which may go on.
    rest: String,
    /// Whether the line that was read last began before the part that was read, so that the rest of it is left out.
    skips_line: bool,
    has_more: bool,
}

impl Log {
    /// Reads the end of the log of another job, or reads on: a bounded number of bytes.
    async fn read(&mut self, client: &Client, job: &Job) -> Result<(), Error> {
        let is_another = self.job != job.r#ref;
        let page = if is_another {
            client.log_tail(&job.r#ref, LOG_BYTES).await?
        } else {
            client.log(&self.job, self.next, LOG_BYTES).await?
        };
        if is_another {
            let begins_within = page.chunks.first().is_some_and(|chunk| chunk.offset > 0);
            *self = Self {
                job: job.r#ref.clone(),
                next: page.next,
                skips_line: begins_within,
                ..Self::default()
            };
        }
        self.has_more = page.next != self.next && !page.chunks.is_empty() && !page.end;
        self.next = page.next;
        for chunk in page.chunks {
            self.add(&String::from_utf8_lossy(&chunk.bytes));
        }
        Ok(())
    }

    fn add(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            if self.skips_line {
                self.skips_line = !piece.ends_with('\n');
                continue;
            }
            let room = LINE_CHARACTERS_MAX.saturating_sub(self.rest.chars().count());
            self.rest
                .extend(piece.chars().filter(|it| *it != '\n').take(room));
            if piece.ends_with('\n') {
                if self.lines.len() == LOG_LINES_MAX {
                    self.lines.pop_front();
                }
                self.lines.push_back(std::mem::take(&mut self.rest));
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let rest = Some(&self.rest).filter(|rest| !rest.is_empty());
        self.lines.iter().chain(rest).cloned().collect()
    }
}

/// The newest events of the first shard that answers.
#[derive(Default)]
struct Events {
    stream: Option<EventStream>,
    rows: VecDeque<EventRow>,
    /// The second of the last event, and how many events it had.
    second: (u64, u64),
}

impl Events {
    /// Begins to follow, if nothing is followed yet.
    async fn open(&mut self, base: &Client, reached: &[(String, Client)]) -> Result<(), Error> {
        if self.stream.is_none() {
            let client = reached.first().map_or(base, |(_, client)| client);
            self.stream = Some(client.events(EventFilter::default()).await?);
        }
        Ok(())
    }

    /// Waits for an event; forever if nothing is followed.
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        match &mut self.stream {
            Some(stream) => stream.next().await,
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, event: Option<Result<Event, Error>>) {
        let Some(Ok(event)) = event else {
            // The stream is opened again with the next question.
            self.stream = None;
            return;
        };
        let since = event.at.duration_since(SystemTime::UNIX_EPOCH);
        let second = since.unwrap_or_default().as_secs();
        if self.second.0 == second {
            self.second.1 += 1;
        } else {
            self.second = (second, 1);
        }
        if self.second.1 > EVENTS_LISTED {
            match self.rows.back_mut() {
                Some(EventRow::More { count, .. }) => *count += 1,
                _ => self.rows.push_back(EventRow::More {
                    at: event.at,
                    count: 1,
                }),
            }
        } else {
            self.rows.push_back(EventRow::One(Box::new(event)));
        }
        while self.rows.len() > EVENTS_MAX {
            self.rows.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_read_from_within_begins_with_a_whole_line() {
        let mut log = Log {
            skips_line: true,
            ..Log::default()
        };
        log.add("end of a li");
        log.add("ne\nfirst\nsec");
        log.add("ond");
        assert_eq!(log.lines(), ["first", "second"]);
    }
}
