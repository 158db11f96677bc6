//! The state as text, for tests that compare two engines (`rel A3`, `A4`).

use std::fmt::Debug;

use ganger_types::Elapsed;

use crate::engine::Engine;

impl Engine {
    /// The durable state, one sorted line per item, for tests and audits. It omits what a restart renews: expiry of
    /// leases, next tokens, and which workers have asked. The cost is proportional to the whole state.
    pub fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |what: &str, thing: &dyn Debug| lines.push(format!("{what} {thing:?}"));
        for job in self.jobs.iter() {
            line("job", &self.record(job.key));
            line(
                "missing",
                &(
                    job.key,
                    job.details.as_deref().map_or(0, |details| details.missing),
                ),
            );
            if let Some(lease) = job.lease() {
                let mut lease = lease.clone();
                lease.expires_at = Elapsed(0);
                lease.timeout_at = None;
                line("lease", &lease);
            }
        }
        for edge in self.edges.all().filter(|(job, ..)| self.is_live(*job)) {
            line("edge", &edge);
        }
        for queue in self.queues.iter() {
            let space = &self.spaces[queue.space];
            if space
                .queues
                .get(&queue.name)
                .is_some_and(|index| std::ptr::eq(&raw const self.queues[*index], queue))
            {
                line(
                    "queue",
                    &(queue.record(&space.name), queue.counts, &queue.ready),
                );
            }
        }
        for space in self.spaces.iter() {
            for schedule in space.schedules.values() {
                line("schedule", schedule);
            }
            for record in space.unique.values() {
                line("unique", record);
            }
            for record in &space.idempotency_records {
                line("idempotency", &(&space.name, record));
            }
            // A namespace that was only looked up has no row.
            if space.live > 0 || space.settings != ganger_types::NamespaceSettings::default() {
                line("settings", &(&space.name, &space.settings, space.live));
            }
            for tag in &space.tag_counts {
                line("tag", &(&space.name, tag));
            }
            for group in &space.group_counts {
                line("group", &(&space.name, group));
            }
            for id in &space.tracked {
                line("tracked", &(&space.name, id));
            }
        }
        for record in self.statistics.iter() {
            line("statistics", record);
        }
        for record in self.operations.iter() {
            line("operation", record);
        }
        for record in &self.audit_log.records {
            line("audit", record);
        }
        for peer in self.peers.known.values() {
            line("peer", &(&peer.record, &peer.outbox));
        }
        for (place, edge) in &self.peers.up {
            line("remote edge", &(place, edge));
        }
        for (dependency, waiting) in &self.peers.down {
            line("dependents", &(dependency, waiting));
        }
        for part in self.peers.parts.values() {
            line("part", part);
        }
        for row in self.external.rows() {
            line("external", &row);
        }
        lines.sort();
        lines
    }
}
