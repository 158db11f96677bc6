//! Operations on one job.

use ganger_access::Right;
use ganger_document::view::attempt::Attempts;
use ganger_document::view::graph::Graph;
use ganger_document::view::input::Inputs;
use ganger_document::view::job::Job;
use ganger_document::view::reason::Explanation;
use http::Method;

use super::{ANY, Operation, PAGE, WAIT, operation};
use crate::description::Content;
use crate::resource::act::{ActedView, CancelJobIn, CancelResult, RetryJobIn};
use crate::resource::alter::{AlterIn, AlteredView, DependenciesIn, UndependIn};
use crate::resource::{act, alter, attempts, graphs, jobs, logs};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn about_one_job() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/jobs/{job}",
            "getJob",
            Right::OBSERVE,
            "Shows a job.",
            jobs::show,
        )
        .query(&[WAIT])
        .reply::<Job>(),
        operation(
            M::PATCH,
            "/api/v1/jobs/{job}",
            "alterJob",
            Right::OPERATE,
            "Changes a job.",
            alter::alter,
        )
        .body::<AlterIn>()
        .reply::<AlteredView>(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}",
            "deleteJob",
            Right::OPERATE,
            "Removes a job.",
            act::delete,
        )
        .reply::<ActedView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/result",
            "getResult",
            Right::OBSERVE,
            "Returns the result, byte for byte.",
            jobs::result,
        )
        .query(&[WAIT])
        .reply_as(Content::without_schema(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/payload",
            "getPayload",
            Right::OBSERVE,
            "Returns the payload, byte for byte.",
            jobs::payload,
        )
        .reply_as(Content::without_schema(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/inputs",
            "getInputs",
            Right::OBSERVE,
            "Lists inputs and dependencies.",
            jobs::inputs,
        )
        .query(&[
            ("from", "the first position"),
            ("limit", "on a page, 1 to 1000; 100 if absent"),
        ])
        .reply::<Inputs>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/graph",
            "getGraph",
            Right::OBSERVE,
            "Shows the graph around a job.",
            graphs::show_around,
        )
        .query(PAGE)
        .reply::<Graph>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/why",
            "explainJob",
            Right::OBSERVE,
            "Explains why a job is not running.",
            jobs::why,
        )
        .reply::<Explanation>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/cancel",
            "cancelJob",
            Right::CANCEL,
            "Cancels a job, or with `dry_run` answers what that would lead to.",
            act::cancel,
        )
        .maybe::<CancelJobIn>()
        .reply::<CancelResult>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/retry",
            "retryJob",
            Right::OPERATE,
            "Retries a finished job.",
            act::retry,
        )
        .maybe::<RetryJobIn>()
        .reply::<ActedView>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/timeout",
            "timeOutJob",
            Right::OPERATE,
            "Ends the running attempt by hand.",
            act::time_out,
        )
        .reply::<ActedView>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/dependencies",
            "addDependencies",
            Right::OPERATE,
            "Makes a blocked job wait for more jobs.",
            alter::depend,
        )
        .body::<DependenciesIn>()
        .reply::<AlteredView>(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}/dependencies",
            "removeDependencies",
            Right::OPERATE,
            "Makes a blocked job wait for fewer jobs.",
            alter::undepend,
        )
        .maybe::<UndependIn>()
        .reply::<AlteredView>(),
    ]
}

/// Operations on the attempts of a job and their logs.
pub(super) fn about_attempts() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/jobs/{job}/log",
            "getLog",
            Right::OBSERVE,
            "Returns the log of a job's attempts.",
            logs::show,
        )
        .query(&[
            ("attempt", "only this attempt"),
            (
                "tail",
                "the end of the log of an attempt, the last if none is named, such as 64KiB",
            ),
            ("from", "from this byte of the log of an attempt on"),
            ("length", "at most so many bytes"),
            ("follow", "true: goes on until the job ends"),
            ("format", "text (default) or ndjson"),
        ])
        .reply_as(Content::without_schema("text/plain")),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/attempts",
            "listAttempts",
            Right::OBSERVE,
            "Lists the attempts of a job: when, where, how long, how they ended.",
            attempts::list,
        )
        .reply::<Attempts>(),
    ]
}
