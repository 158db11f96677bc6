//! Schedules and their rules.

use ganger_types::{CatchUp, Overlap, ScheduleRecord, ScheduleSpec};

use super::field::{choice, fields, record};

record!("schedule", version 1, ScheduleRecord {
    namespace,
    id,
    spec,
    catch_up,
    overlap,
    paused,
    queue,
    kind,
    payload,
    priority,
    retry,
    timeout,
    tags,
    labels,
    created_at,
    next_at,
    runs,
    last_job,
});

choice!(ScheduleSpec, "has an unknown kind of schedule" {
    1 Interval { every, first_at }
    2 Cron { expression, time_zone }
});

choice!(CatchUp, "has an unknown rule for catching up" {
    1 None {}
    2 Last {}
    3 All { max }
});

choice!(Overlap, "has an unknown rule for overlap" {
    1 Allow {}
    2 Skip {}
    3 Replace {}
});
