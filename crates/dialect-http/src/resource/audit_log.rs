//! The newest records of the audit log.

use axum::response::Response;
use ganger_document::view::audit::{AuditLog, AuditRecord};
use ganger_types::audit::AuditQuery;
use ganger_types::limits::PAGE_AUDIT_MAX;
use ganger_types::query::Query;
use ganger_types::{Command, Reply};

use crate::arguments::{Arguments, refused};
use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;

/// Records on a page unless asked otherwise.
const PAGE_DEFAULT: u64 = 100;

/// The query parameters of the audit log.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[
    ("who", "only records whose caller contains this text"),
    ("what", "only records of this operation, such as cancelJob"),
    (
        "outcome",
        "only records that ended so: done, refused or denied",
    ),
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "on a page, 1 to 1000; 100 if absent"),
];

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let query = Query::AuditLog(query(&context.arguments)?);
    // The log belongs to no namespace, so it needs no caller's time.
    let reply = context.shard().call(Command::Query(Box::new(query)));
    let Reply::AuditLog(records, next) = reply.await? else {
        return Err(unexpected_reply());
    };
    Ok(json::ok(&AuditLog {
        records: records.into_iter().map(AuditRecord::from).collect(),
        next: next.map(|number| number.to_string()),
    }))
}

fn query(arguments: &Arguments) -> Result<AuditQuery, Problem> {
    let outcome = arguments.word(
        "outcome",
        &[
            ("done", "done"),
            ("refused", "refused"),
            ("denied", "denied"),
        ],
    )?;
    let before = arguments.text("after")?.map(|text| {
        let wrong = || format!("{text:?} is not the `next` of a page: send that unchanged");
        text.parse().map_err(|_| refused("after", &wrong()))
    });
    let most = u64::try_from(PAGE_AUDIT_MAX).unwrap_or(u64::MAX);
    let limit = arguments.number("limit", 1, most)?.unwrap_or(PAGE_DEFAULT);
    Ok(AuditQuery {
        before: before.transpose()?,
        who: arguments.text("who")?.map(str::to_owned),
        what: arguments.text("what")?.map(str::to_owned),
        outcome: outcome.map(str::to_owned),
        limit: usize::try_from(limit).unwrap_or(PAGE_AUDIT_MAX),
    })
}
