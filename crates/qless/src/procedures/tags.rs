//! Tags of a job: adds them to the tag index, removes them, and keeps their counters.

use bytes::Bytes;
use ganger_types::qless::{QlessTag, QlessTime};

use crate::call::Call;
use crate::json::tag_text;
use crate::state::Qless;

/// Adds a job to the index of each of these tags, and counts each tag up. A repeated tag counts twice.
pub(crate) fn add_all(state: &mut Qless, jid: &Bytes, tags: &[QlessTag], at: QlessTime) {
    for tag in tags {
        let tag = tag_text(tag);
        state.set_tag_time(jid, &tag, Some(at));
        state.count_tag(&tag, 1);
    }
}

/// Removes a job from the index of each of its tags, and counts each tag down.
pub(crate) fn remove_all(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    let tags = state.job(jid).map(|job| job.tags.clone());
    for tag in tags.unwrap_or_default() {
        remove_one(state, call, jid, &tag_text(&tag));
    }
}

/// Removes a job from the index of one tag, and counts the tag down. In the third generation a tag without jobs loses
/// its counter, whatever its value.
pub(crate) fn remove_one(state: &mut Qless, call: &Call<'_>, jid: &Bytes, tag: &Bytes) {
    state.set_tag_time(jid, tag, None);
    state.count_tag(tag, -1);
    if call.has_throttles() && state.tagged(tag).is_empty() {
        state.set_tag_count(tag, 0);
    }
}
