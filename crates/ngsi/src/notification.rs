//! Checks the content type of a notification and the form of its body.

use serde_json::{Map, Value};

use crate::python::repr;
use crate::{Entity, json};

/// The reason why a notification is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct NotificationError {
    /// HTTP status of the answer: 400 or 415.
    pub status: u16,
    /// Detail of the problem document.
    pub detail: String,
}

impl NotificationError {
    /// Creates an error with status 400.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self {
            status: 400,
            detail: detail.into(),
        }
    }
}

/// Parses the body of a notification and returns its entities.
///
/// # Errors
/// If the content type is not JSON (415), or the body is not JSON or not a notification (400).
pub fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Vec<Entity>, NotificationError> {
    let content_type = content_type.unwrap_or_default();
    if !is_json(content_type) {
        return Err(NotificationError {
            status: 415,
            detail: format!("Invalid Content-type ({content_type}), expected JSON data"),
        });
    }
    if body.is_empty() {
        return Err(NotificationError::bad_request(
            "None is not of type 'object'",
        ));
    }
    // QuantumLeap cannot distinguish `null` from a body that it could not parse.
    match json::parse(body) {
        Err(_) | Ok(Value::Null) => Err(NotificationError::bad_request(
            "Request body is not valid JSON",
        )),
        Ok(Value::Object(notification)) => entities(notification),
        Ok(other) => Err(wrong_type(&other, "object", "")),
    }
}

/// Whether the type is `application/json` or `application/<x>+json`, in any case, with or without parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence
        .strip_prefix("application/")
        .is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}

fn entities(mut notification: Map<String, Value>) -> Result<Vec<Entity>, NotificationError> {
    let data = match notification.get_mut("data").map(Value::take) {
        None => return Err(missing_member("data", "")),
        Some(Value::Array(data)) => data,
        Some(other) => return Err(wrong_type(&other, "array", "data")),
    };
    let entities: Vec<Entity> = data
        .into_iter()
        .enumerate()
        .map(|(index, entity)| check_entity(entity, &format!("data.{index}")))
        .collect::<Result<_, _>>()?;
    match notification.get("subscriptionId") {
        None | Some(Value::String(_)) => Ok(entities),
        Some(other) => Err(wrong_type(other, "string", "subscriptionId")),
    }
}

/// Checks that an entity is an object with `id` and `type`, both strings. The presence of both is checked first.
fn check_entity(entity: Value, path: &str) -> Result<Entity, NotificationError> {
    let Value::Object(entity) = entity else {
        return Err(wrong_type(&entity, "object", path));
    };
    let members = ["id", "type"];
    for name in members {
        if !entity.contains_key(name) {
            return Err(missing_member(name, path));
        }
    }
    for name in members {
        if !entity[name].is_string() {
            return Err(wrong_type(
                &entity[name],
                "string",
                &format!("{path}.{name}"),
            ));
        }
    }
    Ok(entity)
}

fn missing_member(name: &str, path: &str) -> NotificationError {
    NotificationError::bad_request(format!(
        "'{name}' is a required property{}",
        path_suffix(path)
    ))
}

fn wrong_type(value: &Value, expected: &str, path: &str) -> NotificationError {
    let value = repr(value);
    NotificationError::bad_request(format!(
        "{value} is not of type '{expected}'{}",
        path_suffix(path)
    ))
}

/// Returns the path in the body as a suffix of a detail; empty for the body itself.
fn path_suffix(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" - '{path}'")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{NotificationError, parse};
    use crate::any_json;

    fn refusal(body: &str) -> NotificationError {
        parse(Some("application/json"), body.as_bytes()).expect_err("the input is invalid")
    }

    #[test]
    fn a_body_that_is_no_notification_is_refused_with_path_and_value() {
        for (body, detail) in [
            ("", "None is not of type 'object'"),
            (" ", "Request body is not valid JSON"),
            ("null", "Request body is not valid JSON"),
            ("{", "Request body is not valid JSON"),
            ("{} x", "Request body is not valid JSON"),
            ("[]", "[] is not of type 'object'"),
            ("1", "1 is not of type 'object'"),
            ("true", "True is not of type 'object'"),
            ("\"it's\"", "\"it's\" is not of type 'object'"),
            ("{}", "'data' is a required property"),
            ("{\"data\": {}}", "{} is not of type 'array' - 'data'"),
            ("{\"data\": null}", "None is not of type 'array' - 'data'"),
            ("{\"data\": [5]}", "5 is not of type 'object' - 'data.0'"),
            ("{\"data\": [{}]}", "'id' is a required property - 'data.0'"),
            (
                "{\"data\": [{\"type\": 1}]}",
                "'id' is a required property - 'data.0'",
            ),
            (
                "{\"data\": [{\"id\": \"\", \"type\": \"\"}, {\"id\": \"\"}]}",
                "'type' is a required property - 'data.1'",
            ),
            (
                "{\"data\": [{\"id\": 1, \"type\": {\"a\": [null]}}]}",
                "1 is not of type 'string' - 'data.0.id'",
            ),
            (
                "{\"data\": [{\"id\": \"\", \"type\": {\"a\": [null]}}]}",
                "{'a': [None]} is not of type 'string' - 'data.0.type'",
            ),
            (
                "{\"subscriptionId\": 5.50, \"data\": []}",
                "5.5 is not of type 'string' - 'subscriptionId'",
            ),
            (
                "{\"subscriptionId\": null, \"data\": [1]}",
                "1 is not of type 'object' - 'data.0'",
            ),
        ] {
            let expected = NotificationError {
                status: 400,
                detail: detail.to_owned(),
            };
            assert_eq!(refusal(body), expected, "{body}");
        }
    }

    #[test]
    fn deep_nesting_is_not_valid_json() {
        let body = format!("{{\"data\": {}{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(refusal(&body).detail, "Request body is not valid JSON");
    }

    #[test]
    fn every_json_content_type_is_accepted_and_no_other() {
        let body = b"{\"data\": []}";
        for content_type in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON;charset=utf-8",
            "application/ld+json",
            "application/geo+json ; a=b",
        ] {
            assert_eq!(
                parse(Some(content_type), body),
                Ok(Vec::new()),
                "{content_type}"
            );
        }
        for content_type in [
            "text/plain",
            "text/json",
            "application/jsonx",
            "json",
            "*/*",
        ] {
            let refusal = parse(Some(content_type), b"").expect_err("the input is invalid");
            let detail = format!("Invalid Content-type ({content_type}), expected JSON data");
            assert_eq!(
                refusal,
                NotificationError {
                    status: 415,
                    detail
                }
            );
        }
        let refusal = parse(None, body).expect_err("the input is invalid");
        assert_eq!(refusal.status, 415);
        assert_eq!(
            refusal.detail,
            "Invalid Content-type (), expected JSON data"
        );
    }

    #[test]
    fn entities_are_unchanged_and_other_members_are_ignored() {
        let body = br#"{"x": 1, "data": [{"type": "", "b": 1e2, "id": "", "a": {"value": 36893488147419103232}}]}"#;
        let entities = parse(Some("application/json"), body).expect("a valid notification");
        let text = serde_json::to_string(&entities).expect("JSON");
        assert_eq!(
            text,
            r#"[{"type":"","b":1e+2,"id":"","a":{"value":36893488147419103232}}]"#
        );
    }

    proptest! {
        #[test]
        fn any_json_is_a_notification_or_refused(value in any_json::value()) {
            let body = value.to_string();
            if let Err(refusal) = parse(Some("application/json"), body.as_bytes()) {
                prop_assert!(refusal.status == 400 && !refusal.detail.is_empty());
            }
        }

        #[test]
        fn any_list_of_data_is_one_of_entities_or_refused(data in any_json::value()) {
            let body = format!("{{\"data\": [{data}]}}");
            match parse(Some("application/json"), body.as_bytes()) {
                Err(refusal) => prop_assert!(refusal.detail.ends_with('\'')),
                Ok(entities) => prop_assert_eq!(serde_json::Value::from(entities[0].clone()), data),
            }
        }

        #[test]
        fn any_bytes_are_a_notification_or_refused(body in any::<Vec<u8>>()) {
            let _ = parse(Some("application/json"), &body);
        }
    }
}
