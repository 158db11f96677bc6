//! Tags of a job as a whole: into the index and out of it, and counted.

use bytes::Bytes;
use ganger_types::qless::{QlessTag, QlessTime};

use crate::call::Call;
use crate::json::tag_text;
use crate::state::Qless;

/// Enters a job under each of these tags, and counts each. A tag that is given twice counts twice.
pub(crate) fn enter(state: &mut Qless, jid: &Bytes, tags: &[QlessTag], at: QlessTime) {
    for tag in tags {
        let tag = tag_text(tag);
        state.tag(jid, &tag, Some(at));
        state.count_tag(&tag, 1);
    }
}

/// Takes a job out of the index under each of its tags, and counts each down.
pub(crate) fn leave(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    let tags = state.job(jid).map(|job| job.tags.clone());
    for tag in tags.unwrap_or_default() {
        leave_one(state, call, jid, &tag_text(&tag));
    }
}

/// Takes a job out of the index of one tag, and counts that down. In the third generation a tag that no job has is
/// forgotten, whatever its counter.
pub(crate) fn leave_one(state: &mut Qless, call: &Call<'_>, jid: &Bytes, tag: &Bytes) {
    state.tag(jid, tag, None);
    state.count_tag(tag, -1);
    if call.has_throttles() && state.tagged(tag).is_empty() {
        state.set_tag_count(tag, 0);
    }
}
