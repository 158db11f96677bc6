//! Compares the rows about other shards: messages with the counts of their peer, parts with their jobs, dependents
//! with the jobs that they wait for.

use std::collections::{BTreeMap, BTreeSet};

use ganger_store::Loaded;
use ganger_store::rows::names::SmallTable;
use ganger_store::rows::row::to_sql;
use ganger_types::{Graph, JobKey, Namespace, ShardId};
use rusqlite::Connection;

use super::AuditReport;
use crate::fault::Fault;

/// Identifies a submission over several shards.
type PartKey = (Namespace, Graph);

/// Rows about other shards, collected for comparison.
#[derive(Default)]
pub(super) struct ShardRows {
    /// Number of messages written for each peer, and number of those that the peer has confirmed.
    peers: BTreeMap<ShardId, (u64, u64)>,
    outbox: BTreeMap<ShardId, BTreeSet<u64>>,
    /// Whether each part of a submission is decided.
    parts: BTreeMap<PartKey, bool>,
    part_jobs: BTreeSet<PartKey>,
    dependencies: BTreeSet<JobKey>,
}

impl ShardRows {
    /// Adds a row; returns false if the row is of another kind.
    pub(super) fn add(&mut self, small: SmallTable, row: &Loaded) -> bool {
        match row {
            Loaded::Peer(peer) => {
                let counts = (peer.last_sent, peer.confirmed);
                self.peers.insert(peer.shard.clone(), counts);
            }
            Loaded::Outbox(message) => {
                let numbers = self.outbox.entry(message.to.clone()).or_default();
                numbers.insert(message.number);
            }
            Loaded::Part(part) => {
                let name = (part.namespace.clone(), part.graph.clone());
                if small == SmallTable::PartJobs {
                    self.part_jobs.insert(name);
                } else {
                    self.parts.insert(name, part.is_committed);
                }
            }
            Loaded::Dependent(dependency, _) => {
                self.dependencies.insert(*dependency);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn compare(
        &self,
        connection: &Connection,
        report: &mut AuditReport,
    ) -> Result<(), Fault> {
        self.compare_messages(report);
        self.compare_parts(report);
        let sql = "SELECT EXISTS (SELECT 1 FROM jobs WHERE key = ?1)
            OR EXISTS (SELECT 1 FROM finished WHERE key = ?1)";
        let mut is_there = connection.prepare(sql)?;
        for dependency in &self.dependencies {
            if !is_there.query_row([to_sql(dependency.0)], |row| row.get(0))? {
                let what = "jobs of other shards wait for it, and it is not there";
                report.add("dependents", dependency, what);
            }
        }
        Ok(())
    }

    /// Checks that the outbox holds each message after the last confirmed one up to the last written one exactly
    /// once.
    fn compare_messages(&self, report: &mut AuditReport) {
        for (shard, (given, confirmed)) in &self.peers {
            if confirmed > given {
                let what = format!("it has confirmed {confirmed} messages of {given}");
                report.add("peers", shard, what);
                continue;
            }
            let none = BTreeSet::new();
            let kept = self.outbox.get(shard).unwrap_or(&none);
            // Each number occurs once, so the right count between the right bounds means that all are there.
            let (first, last) = (kept.first().copied(), kept.last().copied());
            let expected = (given > confirmed).then_some((confirmed + 1, *given));
            let count = u64::try_from(kept.len()).unwrap_or(u64::MAX);
            if first.zip(last) != expected || count != given - confirmed {
                let what = format!(
                    "{count} messages to it are kept, numbered from {first:?} to {last:?}, \
                     where {confirmed} of {given} are confirmed"
                );
                report.add("outbox", shard, what);
            }
        }
        for shard in self.outbox.keys() {
            if !self.peers.contains_key(shard) {
                report.add(
                    "outbox",
                    shard,
                    "nothing is known of the shard that these messages are for",
                );
            }
        }
    }

    fn compare_parts(&self, report: &mut AuditReport) {
        for (name, is_committed) in &self.parts {
            let what = match (is_committed, self.part_jobs.contains(name)) {
                (true, true) => "it is decided, and its jobs are still kept apart",
                (false, false) => "it is not decided, and its jobs are missing",
                _ => continue,
            };
            report.add("parts", &name.1, what);
        }
        for name in &self.part_jobs {
            if !self.parts.contains_key(name) {
                report.add("part_jobs", &name.1, "the jobs of a part that is not there");
            }
        }
    }
}
