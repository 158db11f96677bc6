//! What the table of operations says of an operation, without its handler.
//!
//! Rights, the audit log, the start page and `/openapi.json` need no more than that.

use std::borrow::Cow;

use ganger_access::{Operation, Right};
use http::Method;
use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use crate::request_extensions::Known;

/// Schemas of an OpenAPI document, by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Adds a type's schemas to the document's, and refers to it.
pub(crate) type AddSchema = fn(&mut Schemas) -> RefOr<Schema>;

/// What is sent or answered.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    /// Media type of the content.
    pub(crate) media_type: &'static str,
    /// Its schema, if it has one.
    pub(crate) schema: Option<AddSchema>,
    /// Whether it may be left out.
    pub(crate) is_optional: bool,
}

/// One operation of the HTTP API, as it is published.
pub(crate) struct Description {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    /// The right that a caller needs.
    pub(crate) right: Right,
    pub(crate) summary: &'static str,
    /// Name and meaning of each query parameter, without the namespace and the shard.
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) body: Option<Content>,
    pub(crate) reply: Option<Content>,
}

impl Description {
    /// The operation as rights and the audit log know it.
    pub(crate) fn access(&self) -> Operation {
        Operation::new(self.id, self.right)
    }

    /// The names of the query parameters that it takes.
    pub(crate) fn known(&self) -> Known {
        let own = self.query.iter().map(|parameter| parameter.0);
        Known(own.chain(["namespace", "shard"]).collect())
    }
}

/// The schema of a type. Cold: it runs once, for the published document, and is made for every type.
#[cold]
pub(crate) fn add_schema<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let name: Cow<'static, str> = T::name();
    schemas.push((name.clone().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(name).into()
}
