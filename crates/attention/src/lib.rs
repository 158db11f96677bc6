//! What needs attention: the one home of the rules behind `GET /attention`, the dashboard's "Needs attention" and
//! `ganger top`.
//!
//! `alert` has the alerts of the configuration, which are judged by the same facts.
//! `look` collects facts from the shards of this process, `rules` makes items of them without looking at anything
//! else, `elsewhere` asks the servers of other shards, and `service` puts all of it together, once a second at most.

#![forbid(unsafe_code)]

pub mod alert;
mod commits;
mod elsewhere;
pub mod facts;
mod look;
pub mod rules;
mod service;

pub use ganger_document::view::attention::{Gravity, Item};
pub use service::{Attention, NotTested, Scope, ServerFacts, Sources};
