//! Operations of workers.

use http::Method;

use super::{Operation, operation};
use crate::decode::lease::LeaseIn;
use crate::decode::report::{CompleteIn, FailIn, LogIn, ReleaseIn, RenewIn};
use crate::encode::delivery::DeliveriesView;
use crate::resource::leases;
use crate::resource::leases::ReportedView;

pub(super) fn about_leases() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/leases",
            "lease",
            "Takes jobs under leases; waits for them if asked to.",
            leases::lease,
        )
        .body::<LeaseIn>()
        .reply::<DeliveriesView>(),
        operation(
            M::POST,
            "/api/v1/leases/renew",
            "renew",
            "Extends a lease, or each of a list.",
            leases::renew,
        )
        .body::<RenewIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/complete",
            "complete",
            "Reports success, or each of a list.",
            leases::complete,
        )
        .body::<CompleteIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/fail",
            "fail",
            "Reports a failure, or each of a list.",
            leases::fail,
        )
        .body::<FailIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/release",
            "release",
            "Gives a job back, or each of a list.",
            leases::release,
        )
        .body::<ReleaseIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/log",
            "appendLog",
            "Appends to the log of an attempt, or each of a list.",
            leases::log,
        )
        .body::<LogIn>()
        .reply::<ReportedView>(),
    ]
}
