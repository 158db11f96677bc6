//! Exit codes that scripts may rely on, and errors that say what to do next.

use std::fmt;
use std::io;

use ganger_client::{Error, code};

use crate::document::Problem;

/// The exit code. Scripts rely on these numbers, so they never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success; a job that was waited for succeeded.
    Done,
    /// The operation failed: a job that was waited for failed or was cancelled, an audit found something.
    Failed,
    /// The command line, or the document, cannot be understood. Nothing was sent.
    Usage,
    /// The job, queue or schedule does not exist.
    NotFound,
    /// The server cannot be reached, or did not respond in time.
    Unreachable,
    /// The server refused: missing right, a rule of the queue, or overload.
    Refused,
    /// The wait ended before the job did.
    StillRunning,
    /// An exit code of `ganger server`, which has its own.
    Server(u8),
}

impl Exit {
    /// Exit status as a number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Unreachable => 4,
            Self::Refused => 5,
            Self::StillRunning => 6,
            Self::Server(number) => number,
        }
    }
}

/// Text at the end of every help.
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes:
  0  done; a job that was waited for succeeded
  1  failed: a job that was waited for failed or was cancelled, an audit found something, or an import could not take
     everything
  2  the command line or the document cannot be understood
  3  the job, queue or schedule is not there
  4  the server cannot be reached
  5  the server refused
  6  the wait ended before the job did

Environment:
  GANGER_URL         address of the server, as --server
  GANGER_NAMESPACE   as --namespace
  GANGER_TOKEN       token to show to the server; or GANGER_TOKEN_FILE: a file that holds it
  GANGER_CA          as --ca; GANGER_CLIENT_CERT, GANGER_CLIENT_KEY likewise
  NO_COLOR           no colours";

/// The failure of a command: the reason and the next step.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable code of the failure, for `--json`.
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) next_step: Option<String>,
    /// Whether to print nothing, because the reader of the output has gone.
    pub(crate) is_quiet: bool,
}

/// Result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    /// Creates the failure of an operation, with this message.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "failed", message)
    }

    /// Creates the failure of a wrong command line, with this message.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: message.into(),
            next_step: None,
            is_quiet: false,
        }
    }

    /// Adds the next step.
    pub(crate) fn then(mut self, next_step: impl Into<String>) -> Self {
        self.next_step = Some(next_step.into());
        self
    }

    /// Creates the failure of an operation on a file.
    pub(crate) fn file(path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(Exit::Usage, "file", format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = exit_of(&error);
        let failure = Self::new(exit, error.code(), error.message());
        match next_step(&error) {
            Some(step) => failure.then(step),
            None => failure,
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::new(Exit::Usage, "bad_document", problem.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if is_quiet { Exit::Done } else { Exit::Failed };
        Self {
            is_quiet,
            ..Self::new(exit, "io", error.to_string())
        }
    }
}

fn exit_of(error: &Error) -> Exit {
    match error.code() {
        "job_not_found"
        | "queue_not_found"
        | "schedule_not_found"
        | "graph_not_found"
        | "operation_not_found" => Exit::NotFound,
        code::BAD_URL | code::BAD_TOKEN | code::BAD_TRUST => Exit::Usage,
        code::TIMED_OUT | code::BAD_REPLY | code::CLOSED | "outcome_unknown" | "job_prepared" => {
            Exit::Unreachable
        }
        _ if error.is_unreachable() => Exit::Unreachable,
        _ => Exit::Refused,
    }
}

fn next_step(error: &Error) -> Option<String> {
    let step = match error.code() {
        code::UNREACHABLE => {
            "is the server running, and is this its address? start one with `ganger server`, \
             or name another with --server HOST:PORT or GANGER_URL"
        }
        code::TIMED_OUT => {
            "the server accepted the connection but did not answer in time: try again, or look at `ganger stats`"
        }
        "outcome_unknown" => {
            "give the same job ids or the same --idempotency-key and repeat it: no job is made twice; without them, look \
             with `ganger job list` first"
        }
        "job_prepared" => {
            "its submission is being decided by another shard: try again, `ganger outbox` shows which shards are away"
        }
        code::BAD_REPLY => "compare `ganger version` here and on the server",
        "permission_denied" => {
            "the server's operator may grant it: `ganger token list` shows what each token may do"
        }
        code::BAD_TRUST => "docs/security.md shows how certificates are made and used",
        "unauthorized" => {
            "the server requires a token: set GANGER_TOKEN, or GANGER_TOKEN_FILE to the path of a file with it"
        }
        "job_not_found" => {
            "`ganger job list` shows the jobs; finished ones are kept for a day after success and for a \
             week after failure unless set otherwise; is the --namespace right?"
        }
        "operation_not_found" => "`ganger operation list` shows the operations",
        "queue_not_found" => "`ganger queue list` shows the queues",
        "schedule_not_found" => "`ganger schedule list` shows the schedules",
        "overloaded" | "queue_full" | "store_full" => "try again later; nothing was changed",
        _ => return None,
    };
    Some(step.to_owned())
}
