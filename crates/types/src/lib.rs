//! Types that all crates of ganger share: ids, records, commands, replies, changes, units, limits.
//!
//! The rules of the queue are in `ganger-engine`, and durability is in the stores.

#![forbid(unsafe_code)]

pub mod audit;
pub mod cancel_effects;
pub mod change;
pub mod command;
pub mod cursor;
pub mod event;
pub mod external;
pub mod history;
pub mod id;
pub mod idempotency;
pub mod job;
pub mod json_error;
pub mod limits;
pub mod name;
pub mod observed;
pub mod operation;
pub mod peer;
pub mod query;
pub mod queue;
pub mod reference;
pub mod rejection;
pub mod reply;
pub mod schedule;
mod short_bytes;
pub mod size;
pub mod span;
pub mod states;
pub mod statistics;
pub mod time;
pub mod why;
pub mod words;

pub use audit::AuditRecord;
pub use bytes::Bytes;
pub use cancel_effects::{AffectedJobs, CancelEffects};
pub use change::{Change, Commit, InputRow, InputState, Meta};
pub use command::Command;
pub use cursor::PageCursor;
pub use event::{Event, Happening};
pub use external::import::{Import, ImportOutcome, ImportRecord, JobSource, WorkItem};
pub use external::keys::{ElementRecord, KeyAnswers, KeyCalls, KeyRecord, KeyWait, Popped};
pub use external::qless::{QlessAnswer, QlessCall, QlessKey, QlessMessage, QlessRow};
pub use external::{
    ExternalCall, ExternalChange, ExternalJob, ExternalMessage, ExternalReply, ExternalRow,
    ExternalRowKey, import, keys, qless,
};
pub use history::{AttemptEnd, HistoryEntry, What};
pub use id::{Epoch, IdTag, JobId, JobKey, LeaseToken, Position, ShardId};
pub use idempotency::{IdempotencyRecord, SubmissionAnswer, SubmittedJobs, SubmittedRun};
pub use job::{
    Backoff, Failure, FailurePolicy, Finished, JobRecord, JobState, LeaseRecord, Outcome, Priority,
    Progress, RetryPolicy, StoredJob,
};
pub use name::{
    Graph, Group, IdempotencyKey, JobName, Kind, LabelKey, LabelValue, NameError, Namespace, Queue,
    RequestId, ScheduleId, Tag, UniqueKey, Worker,
};
pub use operation::{OperationAction, OperationNumber, OperationRecord, OperationState};
pub use peer::{
    CheckedWaits, Dependent, GraphRetry, Message, MessageResult, OutboxRecord, Part, PartAnswer,
    PartRecord, PeerRecord, RetriedGraph, Wait,
};
pub use queue::{
    Clock, DueOrder, Keep, NamespaceRecord, NamespaceSettings, QueueCounts, QueueRecord,
    QueueSettings, Retention,
};
pub use reference::{JobRef, RefError};
pub use rejection::Rejection;
pub use reply::{Answer, Grant, Reply};
pub use schedule::{CatchUp, Overlap, ScheduleRecord, ScheduleSpec};
pub use states::JobStates;
pub use statistics::{Day, Sample, StatisticsRecord};
pub use time::{Due, Elapsed, Now, Timestamp};
pub use words::Words;
