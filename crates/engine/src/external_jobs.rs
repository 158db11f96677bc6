//! Commands and questions about the jobs of external systems: what workers, listings and callers of ours do with them.

mod host;
mod import;
mod list;
mod qless;
