//! The description of an operation in the table, without its handler.
//!
//! Authorization, the audit log, the start page and `/openapi.json` need no more than this.

use ganger_access::{Operation, Right};
use http::Method;
use utoipa::ToSchema;

use crate::request_extensions::{PathNames, QueryParameterNames};

/// Schemas of an OpenAPI document, by name.
#[cfg(test)]
pub(crate) type Schemas = Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>;
/// Adds the schemas of a type to a document, and returns a reference to it.
#[cfg(test)]
pub(crate) type AddSchema = fn(&mut Schemas) -> utoipa::openapi::RefOr<utoipa::openapi::Schema>;

/// Adds the schemas of the type to a document, and returns a reference to it.
#[cfg(test)]
pub(crate) fn add_schema<T: ToSchema>(
    schemas: &mut Schemas,
) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    let name: std::borrow::Cow<'static, str> = T::name();
    schemas.push((name.clone().into_owned(), T::schema()));
    T::schemas(schemas);
    utoipa::openapi::Ref::from_schema_name(name).into()
}

/// The content of a request or an answer.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "read where the document is made: in its test")
)]
pub(crate) struct Content {
    /// Media type of the content.
    pub(crate) media_type: &'static str,
    /// Schema of the content; `None` if it has none.
    #[cfg(test)]
    pub(crate) schema: Option<AddSchema>,
    /// Whether the content may be omitted.
    pub(crate) is_optional: bool,
}

impl Content {
    /// Content of this media type with the schema of the type.
    #[cfg_attr(
        not(test),
        expect(clippy::extra_unused_type_parameters, reason = "as in `Content`")
    )]
    pub(crate) fn of<T: ToSchema>(media_type: &'static str) -> Self {
        Self {
            #[cfg(test)]
            schema: Some(add_schema::<T>),
            ..Self::without_schema(media_type)
        }
    }

    /// Content of this media type that has no schema.
    pub(crate) fn without_schema(media_type: &'static str) -> Self {
        Self {
            media_type,
            #[cfg(test)]
            schema: None,
            is_optional: false,
        }
    }
}

/// An operation of the HTTP API, as published.
pub(crate) struct Description {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    /// Right that a caller needs.
    pub(crate) right: Right,
    /// A sentence for the OpenAPI document.
    #[cfg_attr(not(test), expect(dead_code, reason = "as in `Content`"))]
    pub(crate) summary: &'static str,
    /// Name and description of each query parameter, except the namespace and the shard.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Content of a request; `None` if it has none. Read for the OpenAPI document only.
    pub(crate) body: Option<Content>,
    /// Content of an answer; `None` if it has none. Read for the OpenAPI document only.
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
