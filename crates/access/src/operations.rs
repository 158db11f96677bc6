//! The one table of operations: every operation of every dialect, and what it takes to ask for it.
//!
//! Each operation needs a row here: without one nobody may use it, and a test of the server fails.

use crate::role::Verb;

/// Where a right must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nowhere: anyone may ask, without showing anything.
    Open,
    /// Anyone who is known.
    Known,
    /// In the namespace that the request names.
    Namespace,
    /// In at least one namespace; the answer is about those only.
    Some,
    /// In all namespaces: the operation shows or changes what belongs to no single one.
    Server,
    /// Other shards, and who may do everything.
    Peer,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// As the dialect calls it: an operation id of HTTP, `package.Service/Method` of gRPC, or a whole
    /// service as `package.Service/*`.
    pub name: &'static str,
    /// What it does.
    pub verb: Verb,
    /// Where the right must be held.
    pub scope: Scope,
}

const fn row(name: &'static str, verb: Verb, scope: Scope) -> Operation {
    Operation { name, verb, scope }
}

const fn inside(name: &'static str, verb: Verb) -> Operation {
    row(name, verb, Scope::Namespace)
}

/// The row of an operation.
pub fn find(name: &str) -> Option<&'static Operation> {
    let exact = OPERATIONS.iter().find(|row| row.name == name);
    exact.or_else(|| {
        let (service, _) = name.split_once('/')?;
        OPERATIONS.iter().find(|row| {
            row.name
                .strip_suffix("/*")
                .is_some_and(|known| known == service)
        })
    })
}

/// Every operation there is.
pub const OPERATIONS: &[Operation] = &[
    // HTTP: the server itself.
    row("home", Verb::Greet, Scope::Open),
    row("live", Verb::Greet, Scope::Open),
    row("ready", Verb::Greet, Scope::Open),
    row("version", Verb::Greet, Scope::Known),
    row("openapi", Verb::Greet, Scope::Known),
    row("metrics", Verb::Observe, Scope::Server),
    row("audit", Verb::Operate, Scope::Server),
    row("listPeers", Verb::Observe, Scope::Server),
    row("listOutbox", Verb::Observe, Scope::Server),
    row("reconcilePeer", Verb::Operate, Scope::Server),
    row("listNamespaces", Verb::Observe, Scope::Some),
    // HTTP: jobs and graphs.
    inside("enqueueJob", Verb::Submit),
    inside("enqueueJobs", Verb::Submit),
    inside("submitGraph", Verb::Submit),
    inside("listJobs", Verb::Observe),
    inside("countJobs", Verb::Observe),
    inside("getJob", Verb::Observe),
    inside("getResult", Verb::Observe),
    inside("getPayload", Verb::Observe),
    inside("getInputs", Verb::Observe),
    inside("getGraph", Verb::Observe),
    inside("explainJob", Verb::Observe),
    inside("getLog", Verb::Observe),
    inside("cancelJob", Verb::Cancel),
    inside("cancelJobs", Verb::Cancel),
    inside("cancelGraph", Verb::Cancel),
    inside("alterJob", Verb::Operate),
    inside("deleteJob", Verb::Operate),
    inside("deleteJobs", Verb::Operate),
    inside("retryJob", Verb::Operate),
    inside("retryGraph", Verb::Operate),
    inside("retryJobs", Verb::Operate),
    inside("retryFailedJobs", Verb::Operate),
    inside("timeOutJob", Verb::Operate),
    inside("addDependencies", Verb::Operate),
    inside("removeDependencies", Verb::Operate),
    // HTTP: workers.
    inside("lease", Verb::Work),
    inside("renew", Verb::Work),
    inside("complete", Verb::Work),
    inside("fail", Verb::Work),
    inside("release", Verb::Work),
    inside("appendLog", Verb::Work),
    inside("deregisterWorker", Verb::Work),
    // HTTP: queues, schedules, numbers, events.
    inside("listQueues", Verb::Observe),
    inside("getQueue", Verb::Observe),
    inside("setQueue", Verb::Operate),
    inside("forgetQueue", Verb::Operate),
    inside("pauseQueue", Verb::Operate),
    inside("resumeQueue", Verb::Operate),
    inside("setNamespace", Verb::Govern),
    inside("listSchedules", Verb::Observe),
    inside("getSchedule", Verb::Observe),
    inside("previewSchedule", Verb::Observe),
    inside("runSchedule", Verb::Operate),
    inside("setSchedule", Verb::Operate),
    inside("deleteSchedule", Verb::Operate),
    inside("listFailures", Verb::Observe),
    inside("listFailedJobs", Verb::Observe),
    inside("listWorkers", Verb::Observe),
    inside("listTags", Verb::Observe),
    inside("listTracked", Verb::Observe),
    inside("getStatistics", Verb::Observe),
    inside("followEvents", Verb::Observe),
    // gRPC: the server itself.
    row("grpc.health.v1.Health/*", Verb::Greet, Scope::Open),
    row(
        "grpc.reflection.v1.ServerReflection/*",
        Verb::Greet,
        Scope::Known,
    ),
    row("ganger.v1.Admin/Info", Verb::Greet, Scope::Known),
    row("ganger.v1.Admin/Audit", Verb::Operate, Scope::Server),
    row("ganger.v1.Admin/ListPeers", Verb::Observe, Scope::Server),
    row("ganger.v1.Admin/ListOutbox", Verb::Observe, Scope::Server),
    row(
        "ganger.v1.Admin/ReconcilePeer",
        Verb::Operate,
        Scope::Server,
    ),
    inside("ganger.v1.Admin/Import", Verb::Govern),
    // gRPC: what servers say to each other.
    row("ganger.v1.Peers/*", Verb::Peer, Scope::Peer),
    row(
        "ganger.v1.Queues/ListNamespaces",
        Verb::Observe,
        Scope::Some,
    ),
    // gRPC: jobs and graphs.
    inside("ganger.v1.Jobs/Enqueue", Verb::Submit),
    inside("ganger.v1.Jobs/EnqueueStream", Verb::Submit),
    inside("ganger.v1.Jobs/SubmitGraph", Verb::Submit),
    inside("ganger.v1.Jobs/Get", Verb::Observe),
    inside("ganger.v1.Jobs/List", Verb::Observe),
    inside("ganger.v1.Jobs/Count", Verb::Observe),
    inside("ganger.v1.Jobs/Wait", Verb::Observe),
    inside("ganger.v1.Jobs/Why", Verb::Observe),
    inside("ganger.v1.Jobs/Graph", Verb::Observe),
    inside("ganger.v1.Jobs/Result", Verb::Observe),
    inside("ganger.v1.Jobs/Payload", Verb::Observe),
    inside("ganger.v1.Jobs/Inputs", Verb::Observe),
    inside("ganger.v1.Jobs/ReadLog", Verb::Observe),
    inside("ganger.v1.Jobs/FollowLog", Verb::Observe),
    inside("ganger.v1.Jobs/Cancel", Verb::Cancel),
    inside("ganger.v1.Jobs/Retry", Verb::Operate),
    inside("ganger.v1.Jobs/CancelMatching", Verb::Cancel),
    inside("ganger.v1.Jobs/RetryMatching", Verb::Operate),
    inside("ganger.v1.Jobs/DeleteMatching", Verb::Operate),
    inside("ganger.v1.Jobs/TimeOut", Verb::Operate),
    inside("ganger.v1.Jobs/Delete", Verb::Operate),
    inside("ganger.v1.Jobs/Alter", Verb::Operate),
    inside("ganger.v1.Jobs/AddDependencies", Verb::Operate),
    inside("ganger.v1.Jobs/RemoveDependencies", Verb::Operate),
    // gRPC: workers.
    inside("ganger.v1.Leases/Lease", Verb::Work),
    inside("ganger.v1.Leases/Renew", Verb::Work),
    inside("ganger.v1.Leases/Complete", Verb::Work),
    inside("ganger.v1.Leases/Fail", Verb::Work),
    inside("ganger.v1.Leases/Release", Verb::Work),
    inside("ganger.v1.Leases/AppendLog", Verb::Work),
    inside("ganger.v1.Leases/DeregisterWorker", Verb::Work),
    inside("ganger.v1.Leases/Work", Verb::Work),
    // gRPC: queues, schedules, numbers, events.
    inside("ganger.v1.Queues/List", Verb::Observe),
    inside("ganger.v1.Queues/Get", Verb::Observe),
    inside("ganger.v1.Queues/Configure", Verb::Operate),
    inside("ganger.v1.Queues/Pause", Verb::Operate),
    inside("ganger.v1.Queues/Resume", Verb::Operate),
    inside("ganger.v1.Queues/Forget", Verb::Operate),
    inside("ganger.v1.Queues/ConfigureNamespace", Verb::Govern),
    inside("ganger.v1.Schedules/Put", Verb::Operate),
    inside("ganger.v1.Schedules/List", Verb::Observe),
    inside("ganger.v1.Schedules/Get", Verb::Observe),
    inside("ganger.v1.Schedules/Remove", Verb::Operate),
    inside("ganger.v1.Schedules/Run", Verb::Operate),
    inside("ganger.v1.Schedules/Next", Verb::Observe),
    inside("ganger.v1.Insight/FailureGroups", Verb::Observe),
    inside("ganger.v1.Insight/Statistics", Verb::Observe),
    inside("ganger.v1.Insight/Workers", Verb::Observe),
    inside("ganger.v1.Insight/Tags", Verb::Observe),
    inside("ganger.v1.Insight/Tracked", Verb::Observe),
    inside("ganger.v1.Insight/Events", Verb::Observe),
    // Redis's protocol. A command takes one of several: those who clean up after workers are workers themselves.
    row("resp.connect", Verb::Greet, Scope::Known),
    row("resp.listConnections", Verb::Observe, Scope::Server),
    row("resp.endConnection", Verb::Operate, Scope::Server),
    inside("resp.read", Verb::Observe),
    inside("resp.add", Verb::Submit),
    inside("resp.work", Verb::Work),
    inside("resp.repair", Verb::Operate),
    inside("resp.clear", Verb::Operate),
    // QuantumLeap's interface.
    row("quantumleap.health", Verb::Greet, Scope::Open),
    row("quantumleap.version", Verb::Greet, Scope::Known),
    inside("quantumleap.notify", Verb::Submit),
    inside("quantumleap.list", Verb::Observe),
    inside("quantumleap.count", Verb::Observe),
    inside("quantumleap.delete", Verb::Operate),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_operation_stands_twice() {
        let mut names: Vec<_> = OPERATIONS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len());
    }

    #[test]
    fn a_service_as_a_whole_stands_for_its_methods_only() {
        assert!(find("grpc.health.v1.Health/Check").is_some());
        assert!(find("grpc.health.v1.Healthy/Check").is_none());
        assert!(find("ganger.v1.Jobs/Nothing").is_none());
    }
}
