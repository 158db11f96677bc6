//! The Rust SDK of ganger: typed calls, safe retries, lease renewal.
//!
//! ```no_run
//! # async fn example() -> Result<(), ganger_client::Error> {
//! use ganger_client::{Client, NewJob, Options, Dependency};
//! use std::time::Duration;
//!
//! let client = Client::connect(Options::new("localhost:3733")).await?;
//! let one = client.enqueue(NewJob::new("greet").payload("\"world\"")).await?;
//! let job = client.wait(&one.id, Duration::from_secs(60)).await?;
//! println!("{one} is {}", job.state);
//!
//! let graph = client
//!     .submit_graph(vec![
//!         NewJob::new("fetch").name("page").value("\"http://example.org\""),
//!         NewJob::new("count").result_of(Dependency::Name("page".into())),
//!     ], None)
//!     .await?;
//! println!("the count is {}", graph.jobs[1]);
//! # Ok(())
//! # }
//! ```
//!
//! # The calls, by area
//!
//! | area | methods of [`Client`] |
//! | --- | --- |
//! | enqueue | `enqueue`, `enqueue_all(Submission)`, `bulk` (streams very many), `submit_graph` |
//! | read | `job`, `list`, `wait`, `attempts`, `why`, `graph`, `result`, `payload`, `inputs`, `log`, `log_tail`, `follow_log` |
//! | graphs | `graphs`, `graph_summary`, `graph_layout` |
//! | change | `cancel`, `cancel_graph`, `retry`, `time_out`, `delete`, `alter`, `add_dependencies`, `remove_dependencies` |
//! | take | `lease`, `report` (many at once), `deregister`, `work` (the stream) |
//! | queues | `queues`, `list_queues`, `queue`, `queue_with_effective`, `queue_why`, `configure_queue`, `configure_queue_if`, `pause_queue`, `resume_queue`, `forget_queue`, `namespaces`, `configure_namespace` |
//! | operations | `start_operation`, `operation`, `operations`, `stop_operation`, `cancel_effects` |
//! | schedules | `put_schedule`, `schedules`, `list_schedules`, `schedule`, `remove_schedule`, `pause_schedule`, `resume_schedule`, `run_schedule`, `next_times`, `preview_schedule` |
//! | insight | `failure_groups`, `list_failure_groups`, `statistics`, `workers`, `list_workers`, `release_worker`, `tags`, `tracked`, `events` |
//! | series and names | `series`, `latency`, `kinds`, `names`, `labels` |
//! | server | `info`, `server`, `audit_log`, `audit`, `import` |
//!
//! Signatures: names go in as `&str`, times as `Duration`/`SystemTime`, structs by value:
//!
//! ```text
//! enqueue(NewJob) -> Enqueued                       enqueue_all(Submission) -> Accepted
//! submit_graph(Vec<NewJob>, Option<String>) -> Accepted
//! bulk(FnMut(u64, Result<Accepted, Error>)) -> Bulk { send(Vec<NewJob>) -> u64, finish() -> () }
//! attempts(&str) -> Attempts
//! job(&str) -> Job           list(JobFilter) -> Page          wait(&str, Duration) -> Job
//! why(&str) -> Explanation   graph(&str, depth: u32, limit: u32) -> GraphView
//! graphs(after: &str, limit: u32) -> Graphs   graph_summary(&str) -> GraphSummary   graph_layout(&str, LayoutOptions) -> GraphLayout
//! result(&str) -> (JobState, Option<Bytes>)  payload(&str) -> Bytes
//! inputs(&str, from: u32, limit: u32, with_results: bool) -> (Vec<InputView>, Option<u32>)
//! log_tail(&str, bytes: u32) -> LogPage
//! log(&str, LogPosition, bytes_max: u32) -> LogPage    follow_log(&str, LogPosition) -> LogStream { next() -> Option<Result<LogPage>> }
//! cancel(&[&str], reason: &str) -> ChangeResult          cancel_graph(&str, reason: &str) -> ChangeResult
//! retry(&[&str], queue: Option<&str>) -> ChangeResult   time_out(&[&str]) -> ChangeResult   delete(&[&str]) -> ChangeResult
//! retry_with_dependents(&[&str], queue: Option<&str>) -> ChangeResult   retry_graph(&str, queue: Option<&str>) -> ChangeResult
//! matching(&BulkAction, JobFilter, dry_run: bool) -> BulkResult
//! start_operation(NewOperation) -> Operation   operation(&str) -> Operation   stop_operation(&str) -> Operation
//! operations(after: Option<&str>, limit: u32) -> (Vec<Operation>, Option<String>)   cancel_effects(&str) -> CancelEffects
//! alter(&str, Alteration) -> (JobState, Vec<String>)
//! add_dependencies(&str, on: &[&str], FailurePolicy) -> ChangeResult
//! remove_dependencies(&str, on: Option<&[&str]>) -> ChangeResult
//! lease(LeaseRequest) -> Vec<Delivery>   report(Vec<(LeaseRef, Report)>) -> Vec<ReportResult>   deregister(&str) -> ()
//! queues() -> Vec<QueueView>     queue(&str) -> QueueView     configure_queue(&str, QueueSettings) -> QueueView
//! queue_why(&str) -> QueueWhy    configure_queue_if(&str, QueueSettings, version: &str) -> QueueView
//! pause_queue(&str) -> ()        resume_queue(&str) -> ()     forget_queue(&str) -> ()
//! namespaces() -> Vec<NamespaceView>   configure_namespace(&str, NamespaceSettings) -> NamespaceView
//! put_schedule(NewSchedule) -> Schedule  schedules() -> Vec<Schedule>  schedule(&str) -> Schedule  remove_schedule(&str) -> ()
//! run_schedule(&str) -> Schedule   pause_schedule(&str) -> Schedule   resume_schedule(&str) -> Schedule
//! next_times(&str, count: u32) -> Vec<SystemTime>   preview_schedule(NewSchedule, count: u32) -> Vec<SystemTime>
//! failure_groups() -> Vec<(String, u64)>   statistics(queue: &str, day: Option<SystemTime>) -> Statistics
//! attention() -> Vec<AttentionItem>   rates(queues: &[String]) -> (QueueRates, Vec<QueueRates>)
//! alerts() -> Vec<Alert>         test_alert(&str) -> String   // the job of the message, in the namespace `ganger`
//! series(SeriesFilter, SeriesOptions) -> Series   latency(SeriesFilter, quantiles: &[f64]) -> Latency
//! kinds(SeriesFilter, after: &str, limit: u32) -> Kinds   names(NamesOf, prefix: &str, limit: u32) -> Names
//! labels(key: Option<&str>, prefix: &str, after: &str, limit: u32) -> Labels
//! past_events(&EventFilter, before: Option<u64>, limit: u32) -> PastEvents
//! workers() -> Vec<Worker>  release_worker(&str) -> u64  tags(skip: u32, limit: u32) -> Vec<(String, u64)>  tracked() -> Vec<TrackedJob>
//! events(EventFilter) -> EventStream { next() -> Option<Result<Event>>, position() -> Option<u64> }
//! list_queues() -> Listed<QueueView>   list_schedules() -> Listed<Schedule>   // also of all shards: at_all_shards()
//! list_workers() -> Listed<Worker>     list_failure_groups() -> Listed<FailureGroup>
//! info() -> ServerInfo          whoami() -> WhoAmI            audit() -> Vec<String>
//! server() -> Server            audit_log(AuditFilter) -> AuditLog
//! import(namespace: &str, Vec<ImportRecord>) -> Vec<ImportOutcome>   // of another server, each once
//! peers() -> (String, Vec<PeerView>)   outbox(peer: &str, after: u64, limit: u32) -> Vec<WaitingMessage>   reconcile(&str) -> ()
//! watch_graph(&str) -> GraphWatch { next() -> Option<Result<GraphProgress>> }   // counts by state until all have ended
//! ```
//!
//! All except `work` and `bulk` are `async` and return `Result<_, Error>`.
//!
//! # Shards
//!
//! Every server of a topology accepts every call. A call about a job with a global id `shard/id` is forwarded to the
//! server of that shard; [`Client::at_shard`] selects a shard for all calls, [`Client::at_all_shards`] all shards for
//! lists. Jobs of a submission may be on different
//! shards ([`NewJob::shard`]) and depend on each other; a call about jobs of several shards makes one request for each.
//!
//! # Workers
//!
//! [`Client::work`] opens a [`WorkStream`], which reconnects, renews held leases after a third of their length, and
//! repeats unanswered reports. One task reads its [`WorkEvent`]s; any number of tasks report through
//! [`WorkStream::reporter`].
//!
//! # Retries
//!
//! A failed call is repeated only if that is safe: reads; submissions, which get an idempotency key; reports, which
//! have their lease token; lease requests, which have a request id; and calls that the server refused or never
//! received. Pauses are jittered, and [`Retry::total_max`] limits all tries of a call together.

#![forbid(unsafe_code)]

mod addresses;
mod calls;
mod client;
mod convert;
mod error;
mod follow;
mod model;
mod options;
mod pause;
mod work;

pub use bytes::Bytes;
pub use calls::{AlteredFields, Bulk, NewOperation, OperationAction, Submission};
pub use client::Client;
pub use error::{Error, code};
pub use follow::{EventStream, GraphProgress, GraphWatch, LogStream};
pub use ganger_tls::Trust;
pub use ganger_types::ShardId;
pub use ganger_types::span::{SpanError, read_span, show_span};
pub use model::*;

/// The parts of imported records.
pub mod import {
    pub use ganger_types::import::{
        ImportOutcome, QlessJobSource, QlessSource, QlessStatisticsSource, WorkItem,
    };
    pub use ganger_types::qless::{QlessSet, QlessTime};
}
pub use options::{Options, Retry};
pub use work::{LostLease, Reporter, WorkEvent, WorkOptions, WorkStream};
