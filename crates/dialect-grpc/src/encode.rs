//! From the shard's words to replies. Bytes that are not UTF-8 in names become U+FFFD.

mod job;
mod lease;
mod series;

pub(crate) use ganger_proto::convert::{
    global_name as global, label_messages as labels, ms, state_number as state, tag_texts as tags,
    text_or_empty,
};
pub(crate) use job::{
    cancel_effects, changed, enqueue_reply, input, log_page, matched, shards, would_match,
};
pub(crate) use lease::{answer, delivery};
pub(crate) use series::{event_sum, failure_group, kinds, label, latency, series};

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
