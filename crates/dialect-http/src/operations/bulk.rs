//! Operations on all jobs that match a filter, done in the background.

use ganger_access::Right;
use ganger_document::request::operation::OperationIn;
use ganger_document::view::operation::{Operation as OperationView, Operations};
use http::Method;

use super::{Operation, operation};
use crate::resource::operations;

pub(super) fn about_operations() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/operations",
            "startOperation",
            Right::CANCEL,
            "Starts an action on all jobs that match a filter; it goes on in the background. Actions other than cancel take the role operator.",
            operations::start,
        )
        .query(operations::START_PARAMETERS)
        .body::<OperationIn>()
        .reply::<OperationView>(),
        operation(
            M::GET,
            "/api/v1/operations",
            "listOperations",
            Right::OBSERVE,
            "Lists the operations that run, and those that ended within 7 days, newest first.",
            operations::list,
        )
        .query(operations::PARAMETERS)
        .reply::<Operations>(),
        operation(
            M::GET,
            "/api/v1/operations/{operation}",
            "getOperation",
            Right::OBSERVE,
            "Shows an operation and how far it is.",
            operations::show,
        )
        .reply::<OperationView>(),
        operation(
            M::POST,
            "/api/v1/operations/{operation}/stop",
            "stopOperation",
            Right::CANCEL,
            "Stops an operation; what it has done stays. Operations other than cancellations take the role operator.",
            operations::stop,
        )
        .reply::<OperationView>(),
    ]
}
