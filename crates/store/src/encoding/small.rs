//! Small records: unique keys, counters, statistics.

use ganger_types::change::UniqueRecord;
use ganger_types::{Meta, Sample, StatisticsRecord};

use super::field::{fields, record};

record!("unique key", version 1, UniqueRecord { namespace, key, job, id, until });

record!("counters", version 1, Meta { next_key, next_order, next_event, elapsed, wall });

record!("statistics", version 1, StatisticsRecord {
    namespace,
    queue,
    day,
    failed,
    failures,
    retries,
    waiting,
    running,
});

fields!(Sample {
    count,
    mean,
    vk,
    histogram
});
