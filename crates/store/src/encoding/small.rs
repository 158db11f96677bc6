//! Records of a few fields: unique keys, counters, statistics, raw keys and elements of lists.

use ganger_types::change::UniqueRecord;
use ganger_types::{ElementRecord, KeyRecord, Meta, Sample, StatisticsRecord};

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

record!("raw key", version 1, KeyRecord { number, namespace, name, expires_at, value });

record!("element of a list", version 1, ElementRecord { list, place, value });
