//! The right to every operation of HTTP and gRPC, for every role, in its own and in another namespace.

use std::net::SocketAddr;

use crate::kit::{config, response_head, response_to, start_server, status};
use ganger_access::{Entry, Grant, Grants, Kind, NewSecret, Operation, Role, Scope, Verb};
use ganger_server::{Config, Secret};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};

const ROOT: &str = "a-token-for-tests-only";

/// Returns the roles that have a verb, written down independently of the product's table.
fn holders(verb: Verb) -> &'static str {
    match verb {
        Verb::Greet => "admin operator producer worker reader",
        Verb::Observe => "admin operator producer reader",
        Verb::Submit | Verb::Cancel => "admin operator producer",
        Verb::Work => "admin worker",
        Verb::Operate => "admin operator",
        Verb::Govern => "admin",
        Verb::Peer => "",
    }
}

/// Whether a role in the namespace `mine` alone may call the operation in `namespace`, which is `mine` or `other`.
fn is_allowed(operation: Operation, role: Role, namespace: &str) -> bool {
    let right = operation.right;
    let holds = holders(right.verb)
        .split(' ')
        .any(|held| held == role.as_str());
    match right.scope {
        Scope::Open | Scope::Authenticated => true,
        Scope::AnyNamespace => holds,
        Scope::Namespace => holds && namespace == "mine",
        Scope::Server | Scope::Peer => false,
    }
}

struct Roles {
    directory: tempfile::TempDir,
    secrets: Vec<(Role, String)>,
}

fn roles() -> Roles {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access");
    let secrets = Role::ALL.map(|role| {
        let secret = NewSecret::make().expect("random");
        let entry = Entry {
            name: role.to_string(),
            kind: Kind::Token(secret.hash()),
            grants: Grants(vec![Grant::new(role, "mine")]),
            expires: None,
            created: None,
        };
        ganger_access::add(&path, &entry).expect("added");
        (role, secret.reveal().to_owned())
    });
    Roles {
        directory,
        secrets: secrets.to_vec(),
    }
}

fn config_with(roles: &Roles) -> Config {
    Config {
        token: Secret::new(ROOT).ok(),
        access_file: Some(roles.directory.path().join("access")),
        audit_log: Some(roles.directory.path().join("audit.log")),
        ..config()
    }
}

fn request(line: &str, secret: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Returns method, path and id of every operation in the server's OpenAPI document.
async fn http_operations(addr: SocketAddr) -> Vec<(String, String, String)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(addr)
        .await
        .expect("it listens");
    let ask = format!(
        "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {ROOT}\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let document: serde_json::Value = serde_json::from_str(body).expect("a document");
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods.iter().filter_map(move |(method, operation)| {
            let id = operation["operationId"].as_str()?;
            Some((method.to_uppercase(), path.clone(), id.to_owned()))
        })
    });
    operations.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_http_operation_checks_its_right_for_every_role() {
    let roles = roles();
    let running = start_server(config_with(&roles)).await;
    let addr = running.addr();
    let operations = http_operations(addr).await;
    let rights = ganger_dialect_http::rights();
    assert_eq!(operations.len(), rights.len());
    let mut wrong = Vec::new();
    for (method, path, id) in &operations {
        let right = rights.iter().find(|right| right.name == id);
        let right = *right.expect("the server has the operation");
        for (role, secret) in &roles.secrets {
            for namespace in ["mine", "other"] {
                let path = path.replace("{name}", namespace);
                let path: String = path
                    .split('/')
                    .map(|part| if part.starts_with('{') { "x" } else { part })
                    .collect::<Vec<_>>()
                    .join("/");
                let line = format!("{method} {path}?namespace={namespace}");
                let answer =
                    response_head(addr, &request(&line, secret, "application/json", b"{}")).await;
                let is_allowed = is_allowed(right, *role, namespace);
                if (status(&answer) != "403") != is_allowed || status(&answer) == "401" {
                    wrong.push(format!("{id} {role} {namespace}: {}", status(&answer)));
                }
            }
        }
        let path = path.replace(['{', '}'], "");
        let without_token =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        let anonymous = response_head(addr, without_token.as_bytes()).await;
        let is_open = right.right.scope == Scope::Open;
        assert_eq!(status(&anonymous) != "401", is_open, "{id}: {anonymous}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    running.stop().await;
}

fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(ganger_proto::FILE_DESCRIPTOR_SET).expect("a descriptor")
}

/// Returns every gRPC method with the name of its request message.
fn grpc_methods() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for file in descriptors().file {
        for service in &file.service {
            for method in &service.method {
                let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                all.push((name, method.input_type().trim_start_matches('.').to_owned()));
            }
        }
    }
    all
}

fn message(name: &str) -> DescriptorProto {
    let files = descriptors().file;
    let mut messages = files.iter().flat_map(|file| {
        let package = file.package().to_owned();
        let messages = file.message_type.iter();
        messages.map(move |message| (format!("{package}.{}", message.name()), message))
    });
    let found = messages.find(|(known, _)| known == name);
    found.expect("the message is described").1.clone()
}

/// Encodes a request that names a namespace, in its own field or in the field that begins a stream.
fn request_in_namespace(request: &str, namespace: &str) -> Vec<u8> {
    let message = message(request);
    for field in &message.field {
        let inner = match field.name() {
            "namespace" => namespace.as_bytes().to_vec(),
            "request" | "hello" => {
                request_in_namespace(field.type_name().trim_start_matches('.'), namespace)
            }
            _ => continue,
        };
        let tag = u8::try_from(field.number() << 3 | 2).expect("a small number");
        let length = u8::try_from(inner.len()).expect("short");
        return [&[tag, length][..], &inner].concat();
    }
    Vec::new()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grpc_method_checks_its_right_for_every_role() {
    let roles = roles();
    let running = start_server(config_with(&roles)).await;
    let addr = running.addr();
    let mut wrong = Vec::new();
    for (method, input) in grpc_methods() {
        let right = ganger_dialect_grpc::right(&method).expect("the server has the method");
        for (role, secret) in &roles.secrets {
            for namespace in ["mine", "other"] {
                let message = request_in_namespace(&input, namespace);
                let length = u8::try_from(message.len()).expect("short");
                let body = [&[0, 0, 0, 0, length][..], &message].concat();
                let line = format!("POST /{method}");
                let request = request(&line, secret, "application/grpc", &body);
                let is_streamed = method.ends_with("/EnqueueStream");
                // Each batch of a stream gets its own answer, so the refusal is in the body.
                let (answer, is_refused) = if is_streamed {
                    let answer = response_to(addr, &request).await;
                    let is_refused = answer.contains("permission_denied");
                    (answer, is_refused)
                } else {
                    let answer = response_head(addr, &request).await;
                    let is_refused = answer.contains("grpc-status: 7");
                    (answer, is_refused)
                };
                let is_unknown =
                    answer.contains("grpc-status: 16") || answer.contains("grpc-status: 12");
                if is_refused == is_allowed(right, *role, namespace) || is_unknown {
                    wrong.push(format!("{method} {role} {namespace}: {answer}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    running.stop().await;
    let audit = std::fs::read_to_string(roles.directory.path().join("audit.log")).expect("written");
    for method in ["Delete", "EnqueueStream"] {
        let what = format!("\"what\":\"ganger.v1.Jobs/{method}\"");
        let is_audited = |line: &str| {
            [&what, "\"namespace\":\"other\"", "\"outcome\":\"denied\""]
                .iter()
                .all(|part| line.contains(*part))
        };
        assert!(audit.lines().any(is_audited), "{method}: {audit}");
    }
    for (_, secret) in &roles.secrets {
        assert!(
            !audit.contains(secret.as_str()),
            "a secret in the audit log"
        );
    }
}
