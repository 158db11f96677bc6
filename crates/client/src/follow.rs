//! Streams to follow: events, the log of a job, the progress of a graph. Each resumes by itself where it was after a
//! broken connection.

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

/// Silence after which a stream counts as broken; the server sends a heartbeat every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Waits for the next message; `None` at the end of the stream.
async fn next_of<T>(stream: &mut tonic::Streaming<T>) -> Result<Option<T>, Error> {
    match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
        Ok(message) => message.map_err(|status| Error::from_status(&status)),
        Err(_) => Err(Error::timed_out("the server was silent for too long")),
    }
}

/// Waits before the next try; returns the error if it is not retryable or the retries are used up.
async fn pause_after(error: Error, pauses: &mut Pauses) -> Result<(), Error> {
    match pauses.next(error.retry_after()) {
        Some(pause) if error.is_retryable() => {
            tokio::time::sleep(pause).await;
            Ok(())
        }
        _ => Err(error),
    }
}

/// A stream of events, sent as they become durable.
pub struct EventStream {
    client: Client,
    filter: EventFilter,
    stream: Option<tonic::Streaming<v1::EventBatch>>,
    ready: VecDeque<Event>,
    ended: bool,
}

impl Client {
    /// Follows events. Waits for the subscription, so that no event after this call is missed.
    ///
    /// # Errors
    /// If the events after [`EventFilter::after`] are no longer kept, or the server cannot be reached.
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

    /// Follows the log of a job from a position until the job has ended.
    pub fn follow_log(&self, job: &str, from: LogPosition) -> LogStream {
        LogStream {
            client: self.for_job(job),
            job: job.to_owned(),
            place: from,
            stream: None,
            ended: false,
        }
    }

    /// Follows the progress of a graph until all its jobs have ended.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn watch_graph(&self, graph: &str) -> Result<GraphWatch, Error> {
        GraphWatch::new(self.clone(), graph.to_owned()).await
    }
}

impl EventStream {
    /// Returns the position of the last event; pass it as [`EventFilter::after`] to resume later.
    pub fn position(&self) -> Option<u64> {
        self.filter.after
    }

    /// Waits for the next event. An error is the last item.
    ///
    /// # Errors
    /// If events were lost, or the server stays unreachable.
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

    /// Subscribes. The first batch confirms the subscription and has the current position.
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

/// The log of a job, sent as it grows.
pub struct LogStream {
    client: Client,
    job: String,
    place: LogPosition,
    stream: Option<tonic::Streaming<v1::LogReply>>,
    ended: bool,
}

impl LogStream {
    /// Waits for the next page; `None` after the job's end. An error is the last item.
    ///
    /// # Errors
    /// `job_not_found`, or if the server stays unreachable.
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
                ..v1::LogRequest::default()
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

/// The progress of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphProgress {
    /// Number of jobs in the graph.
    pub total: u64,
    /// Number of jobs of the graph in each state.
    pub counts: QueueCounts,
    /// The job that changed its state, and its new state; `None` for the first item.
    pub moved: Option<(String, JobState)>,
}

impl GraphProgress {
    /// Returns the number of jobs that have ended.
    pub fn ended(&self) -> u64 {
        self.counts.succeeded + self.counts.failed + self.counts.cancelled
    }
}

/// A stream of a graph's progress: its current state first, then every change of a job's state.
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

    /// Returns the current progress at first, then waits for the next change of a job; `None` once all jobs have ended.
    ///
    /// # Errors
    /// If the server stays unreachable.
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

    /// Waits for one event; returns whether it changed the state of a job of the graph.
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

    /// Counts the jobs of the graph by their current state.
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
                // Jobs move while the pages are read, so a job may be on two of them.
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
