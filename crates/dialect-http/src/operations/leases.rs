//! Operations of workers.

use ganger_access::Right;
use ganger_document::request::lease::LeaseIn;
use ganger_document::request::report::{CompleteIn, FailIn, LogIn, ReleaseIn, RenewIn};
use ganger_document::view::delivery::DeliveriesView;
use http::Method;

use super::{Operation, operation};
use crate::resource::leases;
use crate::resource::leases::ReportedView;

pub(super) fn about_leases() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/leases",
            "lease",
            Right::WORK,
            "Leases jobs; waits for them if asked to.",
            leases::lease,
        )
        .body::<LeaseIn>()
        .reply::<DeliveriesView>(),
        operation(
            M::POST,
            "/api/v1/leases/renew",
            "renew",
            Right::WORK,
            "Renews a lease, or each of a list.",
            leases::renew,
        )
        .body::<RenewIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/complete",
            "complete",
            Right::WORK,
            "Reports success, or each of a list.",
            leases::complete,
        )
        .body::<CompleteIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/fail",
            "fail",
            Right::WORK,
            "Reports a failure, or each of a list.",
            leases::fail,
        )
        .body::<FailIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/release",
            "release",
            Right::WORK,
            "Gives a job back, or each of a list.",
            leases::release,
        )
        .body::<ReleaseIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/log",
            "appendLog",
            Right::WORK,
            "Appends to the log of an attempt, or each of a list.",
            leases::log,
        )
        .body::<LogIn>()
        .reply::<ReportedView>(),
    ]
}
