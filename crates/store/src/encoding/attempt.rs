//! Failures, progress, reports, and ends of attempts.

use ganger_types::history::AttemptEnd;
use ganger_types::job::{LastReport, ReportKind};
use ganger_types::{Due, Failure, Outcome, Progress};

use super::field::{choice, fields};

fields!(Failure {
    group,
    message,
    at,
    worker
});

fields!(Progress {
    millionths,
    message
});

fields!(LastReport { token, kind });

choice!(ReportKind, "has an unknown kind of report" {
    1 Complete {}
    2 Fail {}
    3 Release {}
});

choice!(AttemptEnd, "has an unknown end of an attempt" {
    1 Succeeded {}
    2 Failed { group, message, permanent }
    3 Expired {}
    4 TimedOut {}
    5 Released { counted, reason }
    6 Cancelled {}
});

// The numbers are those of the final states.
choice!(Outcome, "has an unknown outcome" {
    5 Succeeded {}
    6 Failed {}
    7 Cancelled {}
});

choice!(Due, "has an unknown kind of due time" {
    1 Elapsed(at)
    2 Wall(at)
});
