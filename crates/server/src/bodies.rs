//! What flows through a request, within the budget of memory: its body ([`RequestBody`]) and its answer ([`ResponseBody`]).

mod framing;
mod readers;
mod request_body;
mod response_body;

pub(crate) use readers::UnreadResponses;
pub(crate) use request_body::{BodyKind, RequestBody};
pub(crate) use response_body::{ResponseHolds, counted};

/// Bytes that a request holds while it is in progress, whatever it asks for: its head, its stream, its task, and an answer
/// of a usual size.
pub(crate) const REQUEST_BYTES: usize = 16 << 10;
