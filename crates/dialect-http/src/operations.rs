//! Every operation of the API in one table: the routes and `/openapi.json` are both made from it.

mod insight;
mod job;
mod jobs;
mod leases;
mod peers;
mod queues;
mod schedules;
mod server;

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use ganger_access::Right;
use ganger_document::request::enq::TaskIn;
use http::Method;
use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use crate::api::Api;
use crate::request_extensions::Known;

/// Schemas of an OpenAPI document, by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Adds a type's schemas to the document's, and refers to it.
pub(crate) type Described = fn(&mut Schemas) -> RefOr<Schema>;

/// What is sent or answered.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    /// Media type of the content.
    pub(crate) media_type: &'static str,
    /// Its schema, if it has one.
    pub(crate) schema: Option<Described>,
    /// Whether it may be left out.
    pub(crate) is_optional: bool,
}

/// One operation of the HTTP API.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    /// What a caller needs.
    pub(crate) right: Right,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) body: Option<Content>,
    pub(crate) reply: Option<Content>,
    pub(crate) route: MethodRouter<Api>,
}

/// The schema of a type. Cold: it runs once, for the published document, and is made for every type.
#[cold]
fn describe<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let name: Cow<'static, str> = T::name();
    schemas.push((name.clone().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(name).into()
}

fn json<T: ToSchema>() -> Content {
    Content {
        media_type: "application/json",
        schema: Some(describe::<T>),
        is_optional: false,
    }
}

fn plain(media_type: &'static str) -> Content {
    Content {
        media_type,
        schema: None,
        is_optional: false,
    }
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
    Operation {
        method,
        path,
        id,
        right,
        summary,
        query: &[],
        body: None,
        reply: None,
        route,
    }
}

impl Operation {
    fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some(json::<T>());
        self
    }

    fn maybe<T: ToSchema>(mut self) -> Self {
        self.body = Some(Content {
            is_optional: true,
            ..json::<T>()
        });
        self
    }

    fn body_as(mut self, content: Content) -> Self {
        self.body = Some(content);
        self
    }

    fn reply<T: ToSchema>(mut self) -> Self {
        self.reply = Some(json::<T>());
        self
    }

    fn reply_as(mut self, content: Content) -> Self {
        self.reply = Some(content);
        self
    }

    /// The operation as rights and the audit log know it.
    pub(crate) fn access(&self) -> ganger_access::Operation {
        ganger_access::Operation::new(self.id, self.right)
    }

    /// The names of the query parameters that it takes.
    pub(crate) fn known(&self) -> Known {
        let own = self.query.iter().map(|parameter| parameter.0);
        Known(own.chain(["namespace", "shard"]).collect())
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

/// Every operation there is.
pub(crate) fn all() -> Vec<Operation> {
    let mut all = jobs::about_jobs();
    all.extend(jobs::about_graphs());
    all.extend(job::about_one_job());
    all.extend(leases::about_leases());
    all.extend(queues::about_queues());
    all.extend(schedules::about_schedules());
    all.extend(insight::about_the_rest());
    all.extend(peers::about_peers());
    all.extend(server::about_the_server());
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
    all.filter(|operation| fits(operation.path))
        .map(|operation| operation.method)
        .collect()
}

/// Every operation with the right that it takes.
pub fn rights() -> Vec<ganger_access::Operation> {
    all().iter().map(Operation::access).collect()
}

/// The operation with this id, as rights know it.
///
/// # Panics
/// If there is none.
pub(crate) fn access(id: &str) -> ganger_access::Operation {
    static RIGHTS: LazyLock<Vec<ganger_access::Operation>> = LazyLock::new(rights);
    let found = RIGHTS.iter().find(|operation| operation.name == id);
    *found.expect("the table has the operations that its pages refer to")
}

/// enq's form of a submission, for the document.
pub(crate) fn enq_form() -> Described {
    describe::<TaskIn>
}

/// The problem document, likewise.
pub(crate) fn problem_form() -> Described {
    describe::<crate::problem::ProblemView<'static>>
}
