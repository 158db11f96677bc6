//! From the shard's words to replies. Bytes that are not UTF-8 in names become U+FFFD.

mod insight;
mod job;
mod lease;
mod settings;

use ganger_proto::v1;
use ganger_types::{JobId, JobState, LabelKey, LabelValue, ShardId, Tag};

pub(crate) use ganger_proto::convert::ms;
pub(crate) use insight::{event, has_left, statistics, worker};
pub(crate) use job::{changed, enqueued, input, job, log_page, matched, shards};
pub(crate) use lease::{answer, delivery};
pub(crate) use settings::{namespace, queue, schedule};

/// A job as it is called everywhere: `shard/id`.
pub(crate) fn global(shard: &ShardId, id: &JobId) -> String {
    format!("{shard}/{}", id.to_text())
}

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

pub(crate) fn state(state: JobState) -> i32 {
    i32::from(state.number())
}

pub(crate) fn labels(pairs: &[(LabelKey, LabelValue)]) -> Vec<v1::Label> {
    let label = |(key, value): &(LabelKey, LabelValue)| v1::Label {
        key: key.to_text().into_owned(),
        value: value.to_text().into_owned(),
    };
    pairs.iter().map(label).collect()
}

pub(crate) fn tags(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_text().into_owned()).collect()
}

/// The text of a name that may be absent; empty is absent.
macro_rules! text {
    ($name:expr) => {
        $name
            .as_ref()
            .map(|name| name.to_text().into_owned())
            .unwrap_or_default()
    };
}
pub(crate) use text;
