//! Makes the OpenAPI document from the table of operations, and compares it with the one in the sources.

use ganger_document::request::enq::TaskIn;
use http::Method;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use utoipa::openapi::path::{
    HttpMethod, Operation as Documented, OperationBuilder, ParameterBuilder, ParameterIn, PathItem,
    PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Required,
    ResponseBuilder,
};

use crate::description::{Content, Description, Schemas, add_schema};
use crate::openapi::{DOCUMENT, VERSION};
use crate::problem::ProblemView;

/// Set to anything, the test writes the document instead of comparing it.
const WRITE: &str = "GANGER_WRITE_OPENAPI";

/// Conventions of all operations, as text in `/openapi.json`.
const CONVENTIONS: &str = "\
A durable job queue. What is answered with a status of 2xx is on disk.

Bytes. `payload`, `value` and `result` hold any JSON value, and its exact text is what is stored; \
`payload_base64`, `value_base64` and `result_base64` hold any bytes instead. Answers use the first form \
where the stored bytes are JSON, else the second.

Names are text of at most 255 bytes. A byte that is not UTF-8 is written \\xNN with two lower-case \
hexadecimal digits; the backslash of a literal \\xNN is written \\x5c.

Jobs are named by their id, or as shard/id; in a path the slash is written %2F.

A request is for the shard of the job in its path, else of the header Ganger-Shard, else of ?shard=, else the \
server's own.

Durations are strings such as 30s, 1h30m, 500ms, or numbers of seconds; fields that end in _seconds are \
numbers. Times are RFC 3339 with an offset.

Namespaces are chosen by ?namespace= or the header Ganger-Namespace; `default` if absent. In a namespace \
on its callers' clock the header Ganger-Now brings the time.

Unknown fields and parameters are refused. Errors are application/problem+json with a stable `code`.";

/// The schema of the problem document.
const PROBLEM: crate::description::AddSchema = add_schema::<ProblemView<'static>>;

/// The OpenAPI document of these operations.
fn document(operations: &[Description]) -> OpenApi {
    let mut schemas = Schemas::new();
    // enq's form of a submission, to which no operation refers.
    add_schema::<TaskIn>(&mut schemas);
    PROBLEM(&mut schemas);
    let mut paths = PathsBuilder::new();
    for operation in operations {
        let item = PathItem::new(
            method(&operation.method),
            documented(operation, &mut schemas),
        );
        paths = paths.path(operation.path, item);
    }
    let components = ComponentsBuilder::new().schemas_from_iter(schemas).build();
    let info = InfoBuilder::new()
        .title("ganger")
        .version(VERSION)
        .description(Some(CONVENTIONS))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .paths(paths.build())
        .components(Some(components))
        .build()
}

fn documented(operation: &Description, schemas: &mut Schemas) -> Documented {
    let mut out = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .summary(Some(operation.summary))
        .tag(tag(operation.path));
    for name in names(operation.path) {
        out = out.parameter(parameter(name, ParameterIn::Path, "", Required::True));
    }
    for (name, about) in operation.query {
        out = out.parameter(parameter(name, ParameterIn::Query, about, Required::False));
    }
    if operation.path.starts_with("/api/") {
        let whose = "whose; default if absent; as the header Ganger-Namespace";
        let shard = "of which shard; the server's own if absent; as the header Ganger-Shard";
        for (name, about) in [("namespace", whose), ("shard", shard)] {
            let place = ParameterIn::Query;
            out = out.parameter(parameter(name, place, about, Required::False));
        }
    }
    if let Some(body) = operation.body {
        let required = if body.is_optional {
            Required::False
        } else {
            Required::True
        };
        let body = RequestBodyBuilder::new()
            .content(body.media_type, content(body, schemas))
            .required(Some(required));
        out = out.request_body(Some(body.build()));
    }
    let mut response = ResponseBuilder::new().description("Done.");
    if let Some(reply) = operation.reply {
        response = response.content(reply.media_type, content(reply, schemas));
    }
    let problem = Content {
        media_type: "application/problem+json",
        schema: Some(PROBLEM),
        is_optional: false,
    };
    let refused = ResponseBuilder::new()
        .description("Refused, and nothing was changed.")
        .content(problem.media_type, content(problem, schemas));
    out.response("2XX", response.build())
        .response("default", refused.build())
        .build()
}

fn content(content: Content, schemas: &mut Schemas) -> utoipa::openapi::Content {
    let schema = content.schema.map(|describe| describe(schemas));
    ContentBuilder::new().schema(schema).build()
}

fn parameter(
    name: &str,
    place: ParameterIn,
    about: &str,
    required: Required,
) -> utoipa::openapi::path::Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description((!about.is_empty()).then_some(about))
        .schema(Some(text))
        .build()
}

/// The names of the path parameters, in braces.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The group of an operation: its resource.
fn tag(path: &str) -> &str {
    path.strip_prefix("/api/v1/")
        .and_then(|rest| rest.split('/').next())
        .unwrap_or("server")
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

#[test]
fn every_operation_is_documented_once_and_every_reference_leads_somewhere() {
    let all = super::all().into_iter();
    let operations: Vec<_> = all.map(|operation| operation.description).collect();
    let text = serde_json::to_string(&document(&operations)).expect("plain data");
    let document: serde_json::Value = serde_json::from_str(&text).expect("our own JSON");
    let paths = document["paths"].as_object().expect("paths");
    let mut ids = Vec::new();
    for operation in &operations {
        let method = operation.method.as_str().to_lowercase();
        let found = &paths[operation.path][&method];
        assert_eq!(found["operationId"], operation.id);
        ids.push(operation.id);
    }
    let documented: usize = paths
        .values()
        .map(|item| item.as_object().map_or(0, serde_json::Map::len))
        .sum();
    assert_eq!(documented, ids.len());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(documented, ids.len(), "an operation id stands twice");
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("a name");
        assert!(schemas.contains_key(name), "schema {name} is missing");
    }
}

#[test]
fn the_document_in_the_sources_is_that_of_the_operations() {
    let all = super::all().into_iter();
    let operations: Vec<_> = all.map(|operation| operation.description).collect();
    let mut made = Vec::new();
    let formatter = PrettyFormatter::with_indent(b" ");
    let mut serializer = Serializer::with_formatter(&mut made, formatter);
    document(&operations)
        .serialize(&mut serializer)
        .expect("plain data");
    let mut made = String::from_utf8(made).expect("JSON is UTF-8");
    made.push('\n');
    if std::env::var_os(WRITE).is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        std::fs::write(path, made).expect("the document is written");
        return;
    }
    let difference = made
        .lines()
        .zip(DOCUMENT.lines())
        .position(|(made, kept)| made != kept);
    assert!(
        made == DOCUMENT,
        "openapi.json differs from the operations, first in line {}; write it again with `{WRITE}=1 cargo test -p \
         ganger-dialect-http openapi`",
        difference.map_or(0, |line| line + 1)
    );
}
