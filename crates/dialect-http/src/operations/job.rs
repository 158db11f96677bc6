//! Operations on one job.

use http::Method;

use super::{ANY, Operation, PAGE, WAIT, operation, plain};
use crate::encode::delivery::InputsView;
use crate::encode::job::JobView;
use crate::encode::reason::WhyView;
use crate::resource::act::{ActedView, CancelIn, RetryJobIn};
use crate::resource::alter::{AlterIn, AlteredView, DependenciesIn, UndependIn};
use crate::resource::graphs::GraphView;
use crate::resource::{act, alter, graphs, jobs, logs};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn about_one_job() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/jobs/{job}",
            "getJob",
            "Shows a job.",
            jobs::show,
        )
        .query(&[WAIT])
        .reply::<JobView>(),
        operation(
            M::PATCH,
            "/api/v1/jobs/{job}",
            "alterJob",
            "Changes a job.",
            alter::alter,
        )
        .body::<AlterIn>()
        .reply::<AlteredView>(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}",
            "deleteJob",
            "Removes a job.",
            act::delete,
        )
        .reply::<ActedView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/result",
            "getResult",
            "The result, byte for byte.",
            jobs::result,
        )
        .query(&[WAIT])
        .reply_as(plain(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/payload",
            "getPayload",
            "The payload, byte for byte.",
            jobs::payload,
        )
        .reply_as(plain(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/inputs",
            "getInputs",
            "Lists inputs and dependencies.",
            jobs::inputs,
        )
        .query(&[
            ("from", "the first position"),
            ("limit", "on a page, 1 to 1000; 100 if absent"),
        ])
        .reply::<InputsView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/graph",
            "getGraph",
            "Shows the graph around a job.",
            graphs::show_around,
        )
        .query(PAGE)
        .reply::<GraphView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/why",
            "explainJob",
            "Says why a job is not running.",
            jobs::why,
        )
        .reply::<WhyView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/log",
            "getLog",
            "The log of a job's attempts.",
            logs::show,
        )
        .query(&[
            ("attempt", "only this attempt"),
            ("follow", "true: goes on until the job ends"),
            ("format", "text (default) or ndjson"),
        ])
        .reply_as(plain("text/plain")),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/cancel",
            "cancelJob",
            "Calls a job off.",
            act::cancel,
        )
        .maybe::<CancelIn>()
        .reply::<ActedView>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/retry",
            "retryJob",
            "Puts a finished job back on its queue.",
            act::retry,
        )
        .maybe::<RetryJobIn>()
        .reply::<ActedView>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/timeout",
            "timeOutJob",
            "Ends the running attempt by hand.",
            act::time_out,
        )
        .reply::<ActedView>(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/dependencies",
            "addDependencies",
            "Makes a blocked job wait for more jobs.",
            alter::depend,
        )
        .body::<DependenciesIn>()
        .reply::<AlteredView>(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}/dependencies",
            "removeDependencies",
            "Makes a blocked job wait for fewer jobs.",
            alter::undepend,
        )
        .maybe::<UndependIn>()
        .reply::<AlteredView>(),
    ]
}
