//! Errors are in terms of JSON: sends every body of the OpenAPI document with values of wrong types at every place.

use crate::support::{Face, face};
use http::Method;
use serde_json::{Map, Value, json};

/// Words of Rust, and names of the server's own types, that no error may contain.
const RUST_WORDS: &[&str] = &[
    "struct",
    "enum",
    "variant",
    "sequence",
    "newtype",
    "tuple",
    "usize",
    "i64",
    "u64",
    "i32",
    "u32",
    "u8,",
    "f64",
    "Option",
    "visitor",
    "expected value",
    "unit",
];

/// Values of every JSON type.
fn values() -> Vec<Value> {
    vec![
        json!(7),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!("x"),
        json!(""),
        json!(true),
        Value::Null,
        json!([]),
        json!([7]),
        json!(["x", []]),
        json!({}),
        json!({"x": 1}),
    ]
}

#[tokio::test]
async fn no_error_names_a_type_of_the_server() {
    let face = face();
    let document = face.get("/openapi.json").await;
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let method: Method = method.to_uppercase().parse().expect("a method");
            let path = path.replace(['{', '}'], "");
            for body in bodies(&document, schema, 0) {
                refused += u32::from(check(&face, method.clone(), &path, &body).await);
            }
        }
    }
    assert!(refused > 2_000, "only {refused} bodies were refused");
}

/// Sends the body and returns whether it was refused.
async fn check(face: &Face, method: Method, path: &str, body: &Value) -> bool {
    let answer = face.text(method.clone(), path, body.to_string()).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        answer.status.as_u16() < 500,
        "{method} {path} {body}: {text}"
    );
    if answer.status.is_success() {
        return false;
    }
    for word in RUST_WORDS {
        assert!(
            !text.contains(word),
            "{method} {path} {body}: {word:?} is in {text}"
        );
    }
    // Names such as EdgeIn.
    let is_own = |word: &str| {
        word.len() > 2 && word.ends_with("In") && word.starts_with(|c: char| c.is_ascii_uppercase())
    };
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    assert!(!words.any(is_own), "{method} {path} {body}: {text}");
    true
}

/// Bodies that differ from an empty object at one place, at any depth; and values that are not objects.
fn bodies(document: &Value, schema: &Value, depth: u32) -> Vec<Value> {
    let mut out = values();
    if depth > 4 {
        return out;
    }
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return bodies(document, &document["components"]["schemas"][name], depth);
    }
    for form in ["oneOf", "anyOf", "allOf"] {
        for part in schema[form].as_array().into_iter().flatten() {
            out.extend(bodies(document, part, depth + 1));
        }
    }
    if !schema["items"].is_null() {
        let items = bodies(document, &schema["items"], depth + 1);
        out.extend(items.into_iter().map(|item| json!([item])));
    }
    for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
        for value in bodies(document, inner, depth + 1) {
            let mut object = Map::new();
            for required in schema["required"].as_array().into_iter().flatten() {
                let name = required.as_str().expect("a name");
                object.insert(name.to_owned(), json!("x"));
            }
            object.insert(field.clone(), value);
            out.push(Value::Object(object));
        }
    }
    out
}

#[tokio::test]
async fn errors_say_what_to_write_and_where() {
    let face = face();
    for (path, body, place, wanted) in [
        (
            "/api/v1/jobs",
            json!({"kind": "k", "unique": 7}),
            "/unique",
            r#"{"key": "user-1""#,
        ),
        (
            "/api/v1/jobs",
            json!({"kind": "k", "after": [7]}),
            "/after/0",
            r#"{"job": "a1"}"#,
        ),
        (
            "/api/v1/jobs",
            json!({"kind": "k", "inputs": ["x"]}),
            "/inputs/0",
            r#"{"value": 1}"#,
        ),
        (
            "/api/v1/jobs",
            json!({"kind": "k", "priority": "x"}),
            "/priority",
            "a whole number",
        ),
        (
            "/api/v1/jobs",
            json!({"kind": "k", "after": [{"name": "a", "policy": 7}]}),
            "/after/0/policy",
            "\"wait\"",
        ),
        (
            "/api/v1/leases",
            json!({"worker": "w", "queues": [7]}),
            "/queues/0",
            r#"{"queue": "mail""#,
        ),
        (
            "/api/v1/leases",
            json!({"worker": "w", "mode": 7}),
            "/mode",
            "\"round_robin\"",
        ),
        ("/api/v1/leases", json!({}), "", "missing field `worker`"),
        (
            "/api/v1/jobs/cancel",
            json!({"filter": {"state": "done"}}),
            "/filter/state",
            "\"succeeded\"",
        ),
    ] {
        let answer = face.text(Method::POST, path, body.to_string()).await;
        let problem = answer.json();
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(wanted), "{body}: {detail}");
        assert!(
            detail.starts_with(if place.is_empty() { "the body" } else { place }),
            "{body}: {detail}"
        );
    }
}

#[tokio::test]
async fn short_forms_say_the_same_as_the_long_ones() {
    let face = face();
    let graph = json!({"jobs": [
        {"name": "a", "kind": "k", "queue": "mail", "unique": "once"},
        {"name": "b", "id": "b1", "kind": "k", "after": ["a", {"name": "a", "policy": "wait"}]}]});
    face.post("/api/v1/graphs", graph).await;
    let later = json!({"id": "c1", "kind": "k", "after": ["b1"]});
    face.post("/api/v1/jobs", later).await;
    assert_eq!(face.get("/api/v1/jobs/c1").await["state"], "blocked");
    let again = json!({"kind": "k", "queue": "mail", "unique": {"key": "once"}});
    let answer = face.post("/api/v1/jobs", again).await;
    assert_eq!(answer["existed"], true, "{answer}");
    let taken = json!({"worker": "w", "queues": ["mail"]});
    let taken = face.post("/api/v1/leases", taken).await;
    assert_eq!(taken["jobs"][0]["kind"], "k");
    let nobody = json!({"kind": "k", "after": ["nobody"]});
    let answer = face
        .text(Method::POST, "/api/v1/jobs", nobody.to_string())
        .await;
    assert_eq!(answer.code(), "dependency_not_found");
}
