//! Request bodies ([`RequestBody`]) and response bodies ([`ResponseBody`]) within the memory budget.

mod framing;
mod rate;
mod readers;
mod request_body;
mod response_body;

pub(crate) use readers::UnreadResponses;
pub(crate) use request_body::{BodyKind, RequestBody};
pub(crate) use response_body::{ResponseHolds, counted};

/// Bytes that every request holds while it is in progress: its head, its stream, its task, and a response of usual
/// size.
pub(crate) const REQUEST_BYTES: usize = 16 << 10;
