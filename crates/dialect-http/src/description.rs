//! The description of an operation in the table, without its handler.
//!
//! Authorization, the audit log, the start page and `/openapi.json` need no more than this.

use std::borrow::Cow;

use ganger_access::{Operation, Right};
use http::Method;
use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use crate::request_extensions::QueryParameterNames;

/// Schemas of an OpenAPI document, by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Adds the schemas of a type to a document, and returns a reference to it.
pub(crate) type AddSchema = fn(&mut Schemas) -> RefOr<Schema>;

/// The content of a request or an answer.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    /// Media type of the content.
    pub(crate) media_type: &'static str,
    /// Schema of the content; `None` if it has none.
    pub(crate) schema: Option<AddSchema>,
    /// Whether the content may be omitted.
    pub(crate) is_optional: bool,
}

/// An operation of the HTTP API, as published.
pub(crate) struct Description {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    /// Right that a caller needs.
    pub(crate) right: Right,
    pub(crate) summary: &'static str,
    /// Name and description of each query parameter, except the namespace and the shard.
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) body: Option<Content>,
    pub(crate) reply: Option<Content>,
}

impl Description {
    /// The operation, for authorization and the audit log.
    pub(crate) fn access(&self) -> Operation {
        Operation::new(self.id, self.right)
    }

    /// The names of the operation's query parameters.
    pub(crate) fn known(&self) -> QueryParameterNames {
        let own = self.query.iter().map(|parameter| parameter.0);
        QueryParameterNames(own.chain(["namespace", "shard"]).collect())
    }
}

/// The schema of a type. Marked cold because it is instantiated for every type and runs once.
#[cold]
pub(crate) fn add_schema<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let name: Cow<'static, str> = T::name();
    schemas.push((name.clone().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(name).into()
}
