//! The dashboard over a shard with a store in memory: pages, deeds, sessions and streams, as a browser sees them.

mod hostile;
mod kit;
mod requests;
mod sessions;
