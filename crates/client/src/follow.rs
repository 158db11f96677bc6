//! Streams to follow: events, a job's log, a graph's progress. Each goes on by itself after a broken
//! connection, from where it was.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

use ganger_proto::convert;
use ganger_proto::v1;

use crate::Client;
use crate::error::Error;
use crate::model::{
    Event, EventFilter, Happening, JobFilter, JobState, LogPage, LogPosition, QueueCounts,
};
use crate::pause::Pauses;

/// Silence after which a stream counts as broken. The server gives a sign of life every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The next message, or why there is none.
async fn next_of<T>(stream: &mut tonic::Streaming<T>) -> Result<Option<T>, Error> {
    match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
        Ok(message) => message.map_err(|status| Error::from_status(&status)),
        Err(_) => Err(Error::timed_out("the server was silent for too long")),
    }
}

/// Waits before another try, or gives the error back when it is time to give up.
async fn pause_after(error: Error, pauses: &mut Pauses) -> Result<(), Error> {
    match pauses.next(error.retry_after()) {
        Some(pause) if error.is_retryable() => {
            tokio::time::sleep(pause).await;
            Ok(())
        }
        _ => Err(error),
    }
}

/// Events as they become durable.
pub struct EventStream {
    client: Client,
    filter: EventFilter,
    stream: Option<tonic::Streaming<v1::EventBatch>>,
    ready: VecDeque<Event>,
    ended: bool,
}

impl Client {
    /// Follows events. The server is reached at once, so that nothing after this call is missed.
    ///
    /// # Errors
    /// If the position is too old, or the server cannot be reached.
    pub async fn events(&self, filter: EventFilter) -> Result<EventStream, Error> {
        let mut events = EventStream {
            client: self.clone(),
            filter,
            stream: None,
            ready: VecDeque::new(),
            ended: false,
        };
        events.open(&mut Pauses::new(self.options.retry)).await?;
        Ok(events)
    }

    /// Follows a job's log from a place on, until the job has ended.
    pub fn follow_log(&self, job: &str, from: LogPosition) -> LogStream {
        LogStream {
            client: self.for_job(job),
            job: job.to_owned(),
            place: from,
            stream: None,
            ended: false,
        }
    }

    /// Follows a graph until all its members have ended.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn watch_graph(&self, graph: &str) -> Result<GraphWatch, Error> {
        GraphWatch::new(self.clone(), graph.to_owned()).await
    }
}

impl EventStream {
    /// The position reached; give it as [`EventFilter::after`] to go on later.
    pub fn position(&self) -> Option<u64> {
        self.filter.after
    }

    /// The next event; waits for it. After an error there is no more.
    ///
    /// # Errors
    /// If events were missed for good, or the server stays away.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        let mut pauses = Pauses::new(self.client.options.retry);
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.fill(&mut pauses).await {
                self.ended = true;
                return Some(Err(error));
            }
        }
    }

    async fn fill(&mut self, pauses: &mut Pauses) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else {
            return self.open(pauses).await;
        };
        match next_of(stream).await {
            Ok(Some(batch)) => self.take(batch),
            Ok(None) => {
                self.stream = None;
                pause_after(Error::unreachable("the server ended the stream"), pauses).await
            }
            Err(error) => {
                self.stream = None;
                pause_after(error, pauses).await
            }
        }
    }

    fn take(&mut self, batch: v1::EventBatch) -> Result<(), Error> {
        for event in batch.events {
            self.ready.push_back(convert::event(event)?);
        }
        self.filter.after = batch.position.or(self.filter.after);
        Ok(())
    }

    /// The first batch is the server's word that the subscription stands, with the position reached.
    async fn open(&mut self, pauses: &mut Pauses) -> Result<(), Error> {
        loop {
            let request = self.filter.to_wire(&self.client.options.namespace);
            let mut wire = self.client.insight_wire();
            let opened = self
                .client
                .in_time(Duration::ZERO, wire.events(request))
                .await;
            let error = match opened {
                Ok(reply) => {
                    let mut stream = reply.into_inner();
                    match next_of(&mut stream).await {
                        Ok(Some(batch)) => {
                            self.stream = Some(stream);
                            return self.take(batch);
                        }
                        Ok(None) => Error::unreachable("the server ended the stream"),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            pause_after(error, pauses).await?;
        }
    }
}

/// A job's log as it grows.
pub struct LogStream {
    client: Client,
    job: String,
    place: LogPosition,
    stream: Option<tonic::Streaming<v1::LogReply>>,
    ended: bool,
}

impl LogStream {
    /// The next piece; `None` after the job's end. After an error there is no more.
    ///
    /// # Errors
    /// `job_not_found`, or if the server stays away.
    pub async fn next(&mut self) -> Option<Result<LogPage, Error>> {
        let mut pauses = Pauses::new(self.client.options.retry);
        while !self.ended {
            let error = match self.step().await {
                Ok(page) if page.end || !page.chunks.is_empty() => return Some(Ok(page)),
                Ok(_) => continue,
                Err(error) => error,
            };
            self.stream = None;
            if let Err(error) = pause_after(error, &mut pauses).await {
                self.ended = true;
                return Some(Err(error));
            }
        }
        None
    }

    async fn step(&mut self) -> Result<LogPage, Error> {
        if self.stream.is_none() {
            let request = v1::LogRequest {
                namespace: self.client.namespace(),
                job: self.job.clone(),
                attempt: self.place.attempt,
                offset: self.place.offset,
                bytes_max: 0,
            };
            let mut wire = self.client.jobs_wire();
            let reply = self
                .client
                .in_time(Duration::ZERO, wire.follow_log(request))
                .await?;
            self.stream = Some(reply.into_inner());
        }
        let stream = self.stream.as_mut().expect("it was just opened");
        let page = next_of(stream)
            .await?
            .ok_or_else(|| Error::unreachable("the server ended the stream"))?;
        let page = LogPage::from(page);
        self.place = page.next;
        self.ended = page.end;
        Ok(page)
    }
}

/// How far a graph is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphProgress {
    /// Number of jobs in the graph.
    pub total: u64,
    /// Number of jobs of the graph in each state.
    pub counts: QueueCounts,
    /// The member that moved, and where to; `None` for the first word.
    pub moved: Option<(String, JobState)>,
}

impl GraphProgress {
    /// Members that have ended.
    pub fn ended(&self) -> u64 {
        self.counts.succeeded + self.counts.failed + self.counts.cancelled
    }
}

/// A graph on its way: the present state first, then every move of a member.
pub struct GraphWatch {
    client: Client,
    graph: String,
    events: EventStream,
    states: HashMap<u64, JobState>,
    progress: GraphProgress,
    has_told: bool,
    ended: bool,
}

impl GraphWatch {
    async fn new(client: Client, graph: String) -> Result<Self, Error> {
        let events = client.events(moves()).await?;
        let mut watch = Self {
            client,
            graph,
            events,
            states: HashMap::new(),
            progress: GraphProgress::default(),
            has_told: false,
            ended: false,
        };
        watch.count().await?;
        Ok(watch)
    }

    /// How far it is now; then waits for the next move. `None` once all have ended.
    ///
    /// # Errors
    /// If the server stays away.
    pub async fn next(&mut self) -> Option<Result<GraphProgress, Error>> {
        if !self.has_told {
            self.has_told = true;
            self.ended = self.progress.ended() == self.progress.total;
            return Some(Ok(self.progress.clone()));
        }
        while !self.ended {
            match self.step().await {
                Ok(false) => {}
                Ok(true) => {
                    self.ended = self.progress.ended() == self.progress.total;
                    return Some(Ok(self.progress.clone()));
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Takes one event; true if a member moved.
    async fn step(&mut self) -> Result<bool, Error> {
        match self.events.next().await {
            Some(Ok(event)) => Ok(self.take(event)),
            Some(Err(error)) if error.code() == "position_too_old" => {
                self.events = self.client.events(moves()).await?;
                self.count().await?;
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Err(Error::unreachable("the events ended")),
        }
    }

    fn take(&mut self, event: Event) -> bool {
        let Happening::JobMoved(moved) = event.happening else {
            return false;
        };
        let Some(state) = self.states.get_mut(&moved.number) else {
            return false;
        };
        *count_of(&mut self.progress.counts, *state) -= 1;
        *count_of(&mut self.progress.counts, moved.to) += 1;
        *state = moved.to;
        self.progress.moved = Some((moved.job, moved.to));
        true
    }

    /// Reads the present state of all members.
    async fn count(&mut self) -> Result<(), Error> {
        self.states.clear();
        self.progress = GraphProgress::default();
        let mut filter = JobFilter {
            graph: Some(self.graph.clone()),
            limit: 1_000,
            brief: true,
            ..JobFilter::default()
        };
        loop {
            let page = self.client.list(filter.clone()).await?;
            for job in page.jobs {
                *count_of(&mut self.progress.counts, job.state) += 1;
                // Pages are read one after another: a member may be on two of them.
                if let Some(earlier) = self.states.insert(job.number, job.state) {
                    *count_of(&mut self.progress.counts, earlier) -= 1;
                }
            }
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        self.progress.total = u64::try_from(self.states.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

fn moves() -> EventFilter {
    EventFilter {
        moves_only: true,
        ..EventFilter::default()
    }
}

fn count_of(counts: &mut QueueCounts, state: JobState) -> &mut u64 {
    match state {
        JobState::Blocked => &mut counts.blocked,
        JobState::Scheduled => &mut counts.scheduled,
        JobState::Ready => &mut counts.ready,
        JobState::Running => &mut counts.running,
        JobState::Succeeded => &mut counts.succeeded,
        JobState::Failed => &mut counts.failed,
        JobState::Cancelled => &mut counts.cancelled,
    }
}
