//! Whose jobs a command is about.

use crate::command::Command;
use crate::name::Namespace;
use crate::query::Query;

impl Command {
    /// The namespace whose clock it runs by; `None` if that is the server's in any case.
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
            Self::DeregisterWorker(cmd) => &cmd.namespace,
            Self::Query(query) => return query.namespace(),
            // Other shards know nothing of callers' clocks: what they say is of the whole shard. Raw keys live by the
            // server's clock in every namespace, and a call of qless has its caller's time in it.
            Self::Keys(_)
            | Self::Qless(_)
            | Self::Import(_)
            | Self::Retire(_)
            | Self::Reserve(_)
            | Self::Prepare(_)
            | Self::Decide(_)
            | Self::Receive(_)
            | Self::Confirm(_)
            | Self::Reconcile(_) => return None,
        })
    }
}

impl Query {
    /// The namespace that is asked about; `None` if it is the whole shard.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Self::Queues(namespace, ..)
            | Self::Queue(namespace, _)
            | Self::Workers(namespace)
            | Self::FailureGroups(namespace)
            | Self::TopTags(namespace, ..)
            | Self::Tracked(namespace)
            | Self::Schedules(namespace)
            | Self::Schedule(namespace, _)
            | Self::ScheduleTimes(namespace, _, _)
            | Self::Statistics(namespace, ..)
            | Self::SubmissionAnswer(namespace, _)
            | Self::Guest(namespace, _)
            | Self::Given(namespace, _)
            | Self::Why(namespace, _) => Some(namespace),
            Self::Guests(query) => Some(&query.namespace),
            Self::Namespaces
            | Self::Peers
            | Self::Outbox(..)
            | Self::Waits(_)
            | Self::Undecided
            | Self::Audit => None,
        }
    }
}
