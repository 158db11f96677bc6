//! Commands and queries of the engine about jobs of external systems.

mod host;
mod import;
mod list;
mod qless;
