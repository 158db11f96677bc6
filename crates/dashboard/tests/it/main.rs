//! The dashboard over a shard with a store in memory: pages, actions, sessions and streams, as a browser sees them.

mod actions;
mod events;
mod graphs;
mod hostile;
mod kit;
mod live;
mod namespaces;
mod pages;
mod requests;
mod schedules;
mod sessions;
mod workers;
