//! Long answers that go on at another node of a cluster.
//!
//! Such an answer (a wait, a log, a stream of events) ends early when its shard moves. The node that the caller is
//! connected to says in the header [`CONTINUE`] of the request that it can go on, with an empty value. The answer then
//! ends with a header or trailer of this name, whose value says where: the node sends the request to the next owner
//! again, with this value, and passes the rest on as if nothing had happened.

/// Header of a request, and header or trailer of its answer.
pub const CONTINUE: &str = "ganger-continue";
