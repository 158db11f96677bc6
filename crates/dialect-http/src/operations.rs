//! The table of all operations, from which the routes, the rights and `/openapi.json` are made.

mod attention;
mod bulk;
mod insight;
mod job;
mod jobs;
mod leases;
#[cfg(test)]
mod openapi_document;
mod peers;
mod queues;
mod schedules;
mod series;
mod server;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use ganger_access::Right;
use http::Method;
use utoipa::ToSchema;

use crate::api::Api;
use crate::description::{Content, Description};

/// An operation of the HTTP API.
pub(crate) struct Operation {
    pub(crate) description: Description,
    pub(crate) route: MethodRouter<Api>,
}

fn json<T: ToSchema>() -> Content {
    Content::of::<T>("application/json")
}

fn operation<H, T>(
    method: Method,
    path: &'static str,
    id: &'static str,
    right: Right,
    summary: &'static str,
    handler: H,
) -> Operation
where
    H: Handler<T, Api>,
    T: 'static,
{
    let filter =
        MethodFilter::try_from(method.clone()).expect("only plain methods stand in the table");
    let route = on(filter, handler);
    let description = Description {
        method,
        path,
        id,
        right,
        summary,
        query: &[],
        body: None,
        reply: None,
    };
    Operation { description, route }
}

impl Operation {
    fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.description.query = query;
        self
    }

    fn body<T: ToSchema>(mut self) -> Self {
        self.description.body = Some(json::<T>());
        self
    }

    fn maybe<T: ToSchema>(mut self) -> Self {
        self.description.body = Some(Content {
            is_optional: true,
            ..json::<T>()
        });
        self
    }

    fn body_as(mut self, content: Content) -> Self {
        self.description.body = Some(content);
        self
    }

    fn reply<T: ToSchema>(mut self) -> Self {
        self.description.reply = Some(json::<T>());
        self
    }

    fn reply_as(mut self, content: Content) -> Self {
        self.description.reply = Some(content);
        self
    }
}

const WAIT: (&str, &str) = ("wait", "how long to wait for the job's end, such as 30s");
const PAGE: &[(&str, &str)] = &[
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "on a page, 1 to 1000; 100 if absent"),
];
const NDJSON: &str = "application/x-ndjson";
const ANY: &str = "*/*";

/// All operations of the API, in the order of the tables.
pub(crate) fn all() -> Vec<Operation> {
    let mut all = jobs::about_jobs();
    all.extend(jobs::about_graphs());
    all.extend(job::about_one_job());
    all.extend(job::about_attempts());
    all.extend(leases::about_leases());
    all.extend(queues::about_queues());
    all.extend(schedules::about_schedules());
    all.extend(attention::about_attention());
    all.extend(bulk::about_operations());
    all.extend(insight::about_the_rest());
    all.extend(insight::about_names());
    all.extend(series::about_series());
    all.extend(peers::about_peers());
    all.extend(server::about_the_server());
    all.extend(server::about_the_cluster());
    all
}

/// The methods that a path has.
pub(crate) fn methods_at(path: &str) -> Vec<Method> {
    let fits = |known: &str| {
        let mut known = known.split('/');
        let mut given = path.split('/');
        loop {
            match (known.next(), given.next()) {
                (None, None) => return true,
                (Some(known), Some(given)) if known == given || known.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    let all = all().into_iter();
    all.filter(|operation| fits(operation.description.path))
        .map(|operation| operation.description.method)
        .collect()
}

/// All operations with the rights that they need.
pub fn rights() -> Vec<ganger_access::Operation> {
    let all = all().into_iter();
    all.map(|operation| operation.description.access())
        .collect()
}
