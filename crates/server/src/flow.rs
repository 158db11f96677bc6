//! What flows through a request, within the budget of memory: its body ([`Intake`]) and its answer ([`Answer`]).

mod answer;
mod framing;
mod intake;
mod readers;

pub(crate) use answer::{Kept, counted};
pub(crate) use intake::{Intake, Kind};
pub(crate) use readers::Readers;

/// Bytes that a request holds while it is in progress, whatever it asks for: its head, its stream, its task, and an answer
/// of a usual size.
pub(crate) const REQUEST_BYTES: usize = 16 << 10;
