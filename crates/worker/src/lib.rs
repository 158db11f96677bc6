//! The worker: leases jobs, runs a program for each, and reports the outcome.
//!
//! A program reads a JSON list of its arguments on standard input and writes one JSON value, its result, to standard
//! output. Its standard error is the job's log, and `{"progress": 0.4, "message": "..."}` on descriptor 3 reports
//! progress. Exit 0 is success, 100 a permanent failure, anything else a failure that may be retried. Whatever the
//! program does, the worker survives, reports exactly one outcome, and leaves no process and no file of it behind.
//!
//! # The parts
//!
//! [`run()`] holds the stream to the server and as many *slots* as programs may run at a time. A slot is a thread
//! with a *supervisor*: a small process that starts the slot's programs and reaps all their descendants. The thread
//! polls the program's pipes and decides when it must be stopped; a task beside it forwards log and progress and
//! delivers the outcome. The frame around the slots is [`run_pool()`]: credits, deliveries, lost leases, reports and
//! the stop. It knows nothing about programs, so other workers use it with their own [`Executor`].
//!
//! # For binaries that host a worker
//!
//! [`run()`] makes the process unreadable to others of the same user (`PR_SET_DUMPABLE`), so it leaves no core file
//! and only root can trace it; and it makes the process the reaper of its descendants. When a supervisor ends, every
//! child of the process that is in a session of its own and not a supervisor is killed: start such children elsewhere.
//!
//! The supervisor is the same binary, started again. So `main` begins with:
//!
//! ```no_run
//! // First of all in `main`:
//! ganger_worker::become_supervisor_if_asked();
//! ```

mod arguments;
mod attempt_task;
mod ending;
mod environment;
mod error;
mod handler;
mod hide;
mod launch;
mod listen;
mod metrics;
mod mount;
mod one_shot;
mod output_capture;
mod persistent;
mod pool;
mod prefetch;
mod process;
mod process_lifecycle;
mod program;
mod random;
mod run;
mod scratch;
mod settings;
mod signals;
mod slot;
mod source;
mod stop;
mod supervise;
mod text;
mod units;

pub use ending::group;
pub use error::Error;
pub use handler::{Handler, Handlers, Mode};
pub use hide::hide_environment;
pub use listen::show_metrics;
pub use metrics::Metrics;
pub use pool::{Executor, Pool, Shutdown, run_pool};
pub use run::{Summary, run, run_with};
pub use settings::{Settings, make_name};
pub use signals::shutdown_on_signals;
pub use source::{Deliveries, Reports};
pub use supervise::supervisor_main;

/// Runs a supervisor and then exits, if a worker has started this process as one. Otherwise does nothing.
///
/// Must be the first call of `main`, before any thread exists.
pub fn become_supervisor_if_asked() {
    if supervise::is_asked_for() {
        supervisor_main();
        std::process::exit(0);
    }
}
