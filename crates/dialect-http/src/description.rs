//! The description of an operation in the table, without its handler.
//!
//! Authorization, the audit log, the start page and `/openapi.json` need no more than this.

use std::borrow::Cow;

use ganger_access::{Operation, Right};
use http::Method;
use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use crate::request_extensions::{PathNames, QueryParameterNames};

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
        let in_path = self.path_names().0;
        let in_path = in_path.iter().map(|(_, name)| *name);
        let all = own.chain(["namespace", "shard"]).chain(in_path);
        QueryParameterNames(all.collect())
    }

    /// The names in the path that a query parameter may give instead. That of a namespace decides about rights before
    /// anything else is read, so it stands in the path only.
    pub(crate) fn path_names(&self) -> PathNames {
        if self.path.starts_with("/api/v1/namespaces/") {
            return PathNames([].into());
        }
        let segments = self.path.split('/').skip(1).enumerate();
        let names = segments.filter_map(|(place, segment)| {
            let name = segment.strip_prefix('{')?.strip_suffix('}')?;
            // The shard of a request is looked for in the query already.
            (name != "shard").then_some((place, name))
        });
        PathNames(names.collect())
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
