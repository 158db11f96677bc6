//! Properties of commands: the namespace, the size of the carried values, and the class, which decides whether a full
//! device refuses the command and whether it carries its caller's time.
//!
//! Each match names every command, so that a new command does not compile before its properties are decided.

use bytes::Bytes;

use super::{Command, NewInput, NewJob};
use crate::external::import::ImportRecord;
use crate::name::Namespace;
use crate::peer::{Message, MessageResult, OutboxRecord};
use crate::query::Query;

/// The class of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The command only reads.
    Read,
    /// The command changes settings only: it moves no job and carries no caller's time.
    Setting,
    /// The command adds work, which a full device refuses (`rel D9`).
    NewWork,
    /// The command moves, ends, changes or removes what exists.
    Progress,
}

impl Command {
    /// Whether the command changes settings only. It moves no job, so it needs no caller's time.
    pub fn is_setting(&self) -> bool {
        self.class() == Class::Setting
    }

    /// Whether the command adds work, which a full device refuses (`rel D9`).
    pub fn is_new_work(&self) -> bool {
        self.class() == Class::NewWork
    }

    /// Whether the command only reads.
    pub fn is_read(&self) -> bool {
        self.class() == Class::Read
    }

    fn class(&self) -> Class {
        let new_work_if = |is_new| {
            if is_new {
                Class::NewWork
            } else {
                Class::Progress
            }
        };
        match self {
            Self::Query(_) => Class::Read,
            Self::ConfigureQueue(_) | Self::ForgetQueue(_) | Self::ConfigureNamespace(_) => {
                Class::Setting
            }
            Self::Enqueue(_) | Self::PutSchedule(_) | Self::Prepare(_) | Self::Import(_) => {
                Class::NewWork
            }
            Self::External(call) if call.is_read() => Class::Read,
            Self::External(call) => new_work_if(call.is_new_work()),
            Self::Lease(_)
            | Self::Renew(_)
            | Self::Complete(_)
            | Self::Fail(_)
            | Self::Release(_)
            | Self::AppendLog(_)
            | Self::Cancel(_)
            | Self::Retry(_)
            | Self::TimeOut(_)
            | Self::Delete(_)
            | Self::Retire(_)
            | Self::Alter(_)
            | Self::AddDependencies(_)
            | Self::RemoveDependencies(_)
            | Self::RemoveSchedule(_)
            | Self::RunSchedule(_)
            | Self::PauseSchedule(_)
            | Self::DeregisterWorker(_)
            | Self::StartOperation(_)
            | Self::WorkOperation(_)
            | Self::StopOperation(_)
            | Self::KeepAudit(_)
            | Self::Reserve(_)
            | Self::Decide(_)
            | Self::Receive(_)
            | Self::Confirm(_)
            | Self::Reconcile(_) => Class::Progress,
        }
    }

    /// Size of the payloads, results, logs and values that the command carries, in bytes. It counts against the limit
    /// of requests in flight.
    pub fn bytes(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        match self {
            Self::Enqueue(cmd) => cmd.jobs.iter().map(NewJob::bytes).sum(),
            Self::Prepare(part) => part.jobs.iter().map(NewJob::bytes).sum(),
            Self::Receive(cmd) => cmd.messages.iter().map(bytes_of_message).sum(),
            Self::Complete(cmd) => {
                let next = cmd.next.as_ref().map_or(0, |next| length(&next.payload));
                length(&cmd.result) + next
            }
            Self::Renew(cmd) => length(&cmd.payload),
            Self::Alter(cmd) => length(&cmd.payload),
            Self::AppendLog(cmd) => cmd.bytes.len(),
            Self::PutSchedule(cmd) => cmd.schedule.payload.len(),
            Self::External(call) => call.bytes(),
            Self::Import(cmd) => cmd.records.iter().map(ImportRecord::bytes).sum(),
            Self::Lease(_)
            | Self::Fail(_)
            | Self::Release(_)
            | Self::Cancel(_)
            | Self::Retry(_)
            | Self::TimeOut(_)
            | Self::Delete(_)
            | Self::Retire(_)
            | Self::AddDependencies(_)
            | Self::RemoveDependencies(_)
            | Self::ConfigureQueue(_)
            | Self::ForgetQueue(_)
            | Self::ConfigureNamespace(_)
            | Self::RemoveSchedule(_)
            | Self::RunSchedule(_)
            | Self::PauseSchedule(_)
            | Self::DeregisterWorker(_)
            | Self::StartOperation(_)
            | Self::WorkOperation(_)
            | Self::StopOperation(_)
            | Self::KeepAudit(_)
            | Self::Reserve(_)
            | Self::Decide(_)
            | Self::Confirm(_)
            | Self::Reconcile(_)
            | Self::Query(_) => 0,
        }
    }

    /// The namespace whose clock applies to the command; `None` if it is the server's clock in any case.
    pub fn namespace(&self) -> Option<&Namespace> {
        Some(match self {
            Self::Enqueue(cmd) => &cmd.namespace,
            Self::Lease(cmd) => &cmd.namespace,
            Self::Renew(cmd) => &cmd.held.namespace,
            Self::Complete(cmd) => &cmd.held.namespace,
            Self::Fail(cmd) => &cmd.held.namespace,
            Self::Release(cmd) => &cmd.held.namespace,
            Self::AppendLog(cmd) => &cmd.held.namespace,
            Self::Cancel(cmd) => &cmd.namespace,
            Self::Retry(cmd) => &cmd.namespace,
            Self::TimeOut(cmd) => &cmd.namespace,
            Self::Delete(cmd) => &cmd.namespace,
            Self::Alter(cmd) => &cmd.namespace,
            Self::AddDependencies(cmd) => &cmd.namespace,
            Self::RemoveDependencies(cmd) => &cmd.namespace,
            Self::ConfigureQueue(cmd) => &cmd.namespace,
            Self::ForgetQueue(cmd) => &cmd.namespace,
            Self::ConfigureNamespace(cmd) => &cmd.namespace,
            Self::PutSchedule(cmd) => &cmd.schedule.namespace,
            Self::RemoveSchedule(cmd) => &cmd.namespace,
            Self::RunSchedule(cmd) => &cmd.namespace,
            Self::PauseSchedule(cmd) => &cmd.namespace,
            Self::DeregisterWorker(cmd) => &cmd.namespace,
            Self::Query(query) => return query.namespace(),
            // Messages of other shards concern the whole shard, and those shards know no callers' clocks. External
            // systems use the server's clock in every namespace, or the call contains the caller's time.
            // Operations run only in namespaces on the server's clock, and can be stopped after that has changed.
            Self::External(_)
            | Self::Import(_)
            | Self::Retire(_)
            | Self::StartOperation(_)
            | Self::WorkOperation(_)
            | Self::StopOperation(_)
            | Self::KeepAudit(_)
            | Self::Reserve(_)
            | Self::Prepare(_)
            | Self::Decide(_)
            | Self::Receive(_)
            | Self::Confirm(_)
            | Self::Reconcile(_) => return None,
        })
    }
}

impl NewJob {
    /// Size of the payload and of the inputs given as values, in bytes.
    fn bytes(&self) -> usize {
        let of_input = |input: &NewInput| match input {
            NewInput::Value(bytes) => bytes.len(),
            NewInput::Result(_) => 0,
        };
        self.payload.len() + self.inputs.iter().map(of_input).sum::<usize>()
    }
}

fn bytes_of_message(record: &OutboxRecord) -> usize {
    match &record.message {
        Message::Ended {
            result: MessageResult::Bytes(bytes),
            ..
        } => bytes.len(),
        _ => 0,
    }
}

impl Query {
    /// The namespace of the query; `None` if it is about the whole shard.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Self::Queues(namespace, ..)
            | Self::Queue(namespace, _)
            | Self::Counts(namespace, _)
            | Self::NextJobs(namespace, ..)
            | Self::QueueWhy(namespace, _)
            | Self::Names(namespace, ..)
            | Self::Workers(namespace, ..)
            | Self::FailureGroups(namespace)
            | Self::TopTags(namespace, ..)
            | Self::Tracked(namespace)
            | Self::Schedules(namespace)
            | Self::Schedule(namespace, _)
            | Self::ScheduleTimes(namespace, _, _)
            | Self::Statistics(namespace, ..)
            | Self::SubmissionAnswer(namespace, _)
            | Self::ExternalJob(namespace, _)
            | Self::ExistingIds(namespace, _)
            | Self::CancelEffects(namespace, _)
            | Self::Operation(namespace, _)
            | Self::Operations(namespace, ..)
            | Self::Why(namespace, _) => Some(namespace),
            Self::ExternalJobs(query) => Some(&query.namespace),
            Self::Namespaces
            | Self::RunningOperations
            | Self::AuditLog(_)
            | Self::Peers
            | Self::Outbox(..)
            | Self::Waits(_)
            | Self::Undecided
            | Self::Audit => None,
        }
    }
}
