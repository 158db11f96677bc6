//! Compares tables with each other, and stored counts with recounts.

use ganger_store::Loaded;
use rusqlite::Connection;

use super::AuditReport;
use super::rows::Tally;
use crate::fault::Fault;
use crate::meta::Header;

/// Queries that find orphaned rows: table, query, description.
const ORPHAN_QUERIES: [(&str, &str, &str); 7] = [
    (
        "leases",
        "SELECT key FROM leases WHERE key NOT IN (SELECT key FROM jobs)",
        "a lease without its live job",
    ),
    (
        "jobs",
        "SELECT key FROM jobs WHERE key IN (SELECT key FROM finished)",
        "the job is live and finished at once",
    ),
    (
        "jobs",
        "SELECT key FROM jobs WHERE key NOT IN (SELECT key FROM payloads)",
        "a live job without its payload",
    ),
    (
        "payloads",
        "SELECT key FROM payloads p WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.key = p.key)
            AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.key = p.key)",
        "a payload without its job",
    ),
    (
        "inputs",
        "SELECT DISTINCT job FROM inputs i WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.key = i.job)
            AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.key = i.job)",
        "inputs without their job",
    ),
    (
        "inputs",
        "SELECT DISTINCT i.job FROM inputs i JOIN jobs j ON j.key = i.job
            WHERE i.upstream >= 0
            AND NOT EXISTS (SELECT 1 FROM jobs u WHERE u.key = i.upstream)
            AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.key = i.upstream)",
        "it waits for, or has the result of, a job that is not there",
    ),
    (
        "logs",
        "SELECT DISTINCT job FROM logs l WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.key = l.job)
            AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.key = l.job)",
        "a log without its job",
    ),
];

pub(super) fn compare(
    connection: &Connection,
    report: &mut AuditReport,
    tally: &Tally,
) -> Result<(), Fault> {
    for (table, sql, what) in ORPHAN_QUERIES {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            report.add(table, row.get::<_, i64>(0)?, what);
        }
    }
    compare_header(connection, report);
    compare_index(connection, report, tally)?;
    compare_counts(report, tally);
    tally.external.compare(report);
    tally.shards.compare(connection, report)
}

fn compare_header(connection: &Connection, report: &mut AuditReport) {
    let header = match Header::read_from(connection) {
        Ok(header) => header,
        Err(fault) => {
            report.add_fault(&fault);
            return;
        }
    };
    report.sequence = header.sequence;
    let counts = [
        ("jobs", header.counts.jobs, report.live_jobs),
        ("finished", header.counts.finished, report.finished_jobs),
        ("leases", header.counts.leases, report.leases),
    ];
    for (table, expected, found) in counts {
        if expected != found {
            let what = format!("{found} rows were found where the last commit left {expected}");
            report.add(table, "", what);
        }
    }
}

/// Checks that the index has no more entries than the jobs need. That each needed entry exists was checked before.
fn compare_index(
    connection: &Connection,
    report: &mut AuditReport,
    tally: &Tally,
) -> Result<(), Fault> {
    let count: i64 = connection.query_row("SELECT count(*) FROM marks", [], |row| row.get(0))?;
    if u64::try_from(count) != Ok(tally.marks) {
        let what = format!(
            "{count} entries were found where the jobs have {}",
            tally.marks
        );
        report.add("marks", "", what);
    }
    Ok(())
}

fn compare_counts(report: &mut AuditReport, tally: &Tally) {
    let (mut ended, mut tags, mut groups) = (
        tally.ended.clone(),
        tally.tags.clone(),
        tally.groups.clone(),
    );
    for row in &tally.stored {
        match row {
            Loaded::Queue(queue) => {
                let key = (queue.namespace.clone(), queue.queue.clone());
                let found = ended.remove(&key).unwrap_or_default();
                let stored = [queue.succeeded, queue.failed, queue.cancelled];
                if stored != found {
                    let what = format!(
                        "it counts {stored:?} finished jobs (succeeded, failed, cancelled), there are {found:?}"
                    );
                    report.add("queues", &queue.queue, what);
                }
            }
            Loaded::TagCount(namespace, tag, stored) => {
                let found = tags.remove(&(namespace.clone(), tag.clone())).unwrap_or(0);
                compare_count(report, "tag_counts", tag, *stored, found);
            }
            Loaded::GroupCount(namespace, group, stored) => {
                let found = groups
                    .remove(&(namespace.clone(), group.clone()))
                    .unwrap_or(0);
                compare_count(report, "group_counts", group, *stored, found);
            }
            _ => {}
        }
    }
    for ((_, queue), found) in ended {
        report.add(
            "queues",
            queue,
            format!("its row is missing, {found:?} jobs have ended in it"),
        );
    }
    for ((_, tag), found) in tags {
        compare_count(report, "tag_counts", &tag, 0, found);
    }
    for ((_, group), found) in groups {
        compare_count(report, "group_counts", &group, 0, found);
    }
}

fn compare_count(
    report: &mut AuditReport,
    table: &str,
    row: &dyn std::fmt::Display,
    stored: u64,
    found: u64,
) {
    if stored != found {
        report.add(
            table,
            row,
            format!("it counts {stored} jobs, there are {found}"),
        );
    }
}
