//! The task of a notification: origin, id, and the document that is queued and shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::Entity;
use crate::json::ExactObject;

/// The task type that lists show for every task.
pub const TASK_TYPE: &str = "<class 'wq.ql.notify.InsertAction'>";

/// The origin of a notification: its FIWARE headers as received, `None` for each missing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The tenant that the notification belongs to.
    pub tenant: Option<String>,
    /// The service path, or several separated by commas. A missing one counts as `/`.
    pub service_path: Option<String>,
    /// The correlation id of the notification.
    pub correlator: Option<String>,
}

impl Origin {
    /// Returns the service path: `/` if the header was missing.
    pub fn path(&self) -> &str {
        self.service_path.as_deref().unwrap_or("/")
    }

    /// Returns tenant and path as the first two segments of a task's id, such as `eA==:Lw==`. Exactly the tasks of one
    /// tenant and path share them.
    pub fn scope(&self) -> String {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        format!("{}:{}", segment(tenant), segment(self.path()))
    }

    /// Returns a task's id: four segments separated by colons. `uuid` is 32 hexadecimal digits.
    pub fn task_id(&self, uuid: &str) -> String {
        let correlator = segment(self.correlator.as_deref().unwrap_or_default());
        format!("{}:{correlator}:{}", self.scope(), segment(uuid))
    }
}

/// Encodes a segment of an id: in Base64, or as two double quotes if it is empty. Neither contains a colon.
fn segment(text: &str) -> String {
    if text.is_empty() {
        "\"\"".to_owned()
    } else {
        STANDARD.encode(text)
    }
}

/// A task: the insert of a notification's entities.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The headers of the notification.
    pub origin: Origin,
    /// The entities as [`crate::prepare::prepare`] returned them.
    pub payload: Vec<Entity>,
}

/// A stored task that cannot be document.
#[derive(Debug, thiserror::Error)]
#[error("the payload is not the input of an insert: {0}")]
pub struct TaskError(#[from] serde_json::Error);

/// The task document as it is written. Lists show the members in this order.
#[derive(Serialize)]
struct TaskDocumentRef<'a> {
    fiware_service: Option<&'a str>,
    fiware_service_path: &'a str,
    fiware_correlator: Option<&'a str>,
    payload: &'a [Entity],
}

/// The task document as it is read.
#[derive(Deserialize)]
struct TaskDocument {
    fiware_service: Option<String>,
    fiware_service_path: String,
    fiware_correlator: Option<String>,
    payload: Vec<ExactObject>,
}

impl Task {
    /// Returns the document that is queued as the job's payload and shown as `input` in lists.
    ///
    /// # Panics
    /// Never: entities are JSON already.
    pub fn to_json(&self) -> Vec<u8> {
        let document = TaskDocumentRef {
            fiware_service: self.origin.tenant.as_deref(),
            fiware_service_path: self.origin.path(),
            fiware_correlator: self.origin.correlator.as_deref(),
            payload: &self.payload,
        };
        serde_json::to_vec(&document).expect("entities are JSON already")
    }

    /// Parses a document that [`Self::to_json`] wrote. A missing service path comes back as `/`.
    ///
    /// # Errors
    /// If the text is not such a document.
    pub fn from_json(text: &[u8]) -> Result<Self, TaskError> {
        let document: TaskDocument = serde_json::from_slice(text)?;
        let origin = Origin {
            tenant: document.fiware_service,
            service_path: Some(document.fiware_service_path),
            correlator: document.fiware_correlator,
        };
        let payload = document.payload.into_iter().map(|it| it.0).collect();
        Ok(Self { origin, payload })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Origin, Task};
    use crate::any_json;

    fn origin(tenant: &str, service_path: &str, correlator: &str) -> Origin {
        Origin {
            tenant: Some(tenant.to_owned()),
            service_path: Some(service_path.to_owned()),
            correlator: Some(correlator.to_owned()),
        }
    }

    const UUID: &str = "27484435be1d4c09ae947d67f8f29898";

    #[test]
    fn an_id_is_tenant_path_correlator_and_uuid_in_base64() {
        let ids = [
            (
                Origin {
                    correlator: None,
                    ..origin("x", "/", "")
                },
                "eA==:Lw==:\"\":Mjc0ODQ0MzViZTFkNGMwOWFlOTQ3ZDY3ZjhmMjk4OTg=",
            ),
            (
                Origin::default(),
                "\"\":Lw==:\"\":Mjc0ODQ0MzViZTFkNGMwOWFlOTQ3ZDY3ZjhmMjk4OTg=",
            ),
            (
                origin("", "", "c"),
                "\"\":\"\":Yw==:Mjc0ODQ0MzViZTFkNGMwOWFlOTQ3ZDY3ZjhmMjk4OTg=",
            ),
            (
                origin("AbC", "/a, /b", "\u{e9}>?"),
                "QWJD:L2EsIC9i:w6k+Pw==:Mjc0ODQ0MzViZTFkNGMwOWFlOTQ3ZDY3ZjhmMjk4OTg=",
            ),
        ];
        for (origin, id) in ids {
            assert_eq!(origin.task_id(UUID), id);
            assert!(id.starts_with(&format!("{}:", origin.scope())));
        }
    }

    #[test]
    fn the_document_has_its_members_in_order_with_nulls_and_a_path() {
        let task = Task {
            origin: Origin::default(),
            payload: Vec::new(),
        };
        let text = r#"{"fiware_service":null,"fiware_service_path":"/","fiware_correlator":null,"payload":[]}"#;
        assert_eq!(String::from_utf8_lossy(&task.to_json()), text);
    }

    #[test]
    fn an_empty_header_stays_an_empty_text() {
        let task = Task {
            origin: origin("", "", ""),
            payload: Vec::new(),
        };
        let text =
            r#"{"fiware_service":"","fiware_service_path":"","fiware_correlator":"","payload":[]}"#;
        assert_eq!(String::from_utf8_lossy(&task.to_json()), text);
        assert_eq!(Task::from_json(text.as_bytes()).expect("a task"), task);
    }

    #[test]
    fn other_documents_are_errors() {
        for text in [
            "",
            "null",
            "{}",
            r#"{"fiware_service_path":"/","payload":{}}"#,
            r#"{"fiware_service_path":"/","payload":[1]}"#,
            r#"{"fiware_service":5,"fiware_service_path":"/","payload":[]}"#,
            r#"{"fiware_service_path":"/","payload":[]} x"#,
        ] {
            assert!(Task::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }

    fn any_origin() -> impl Strategy<Value = Origin> {
        let header = || proptest::option::of(any::<String>());
        (header(), header(), header()).prop_map(|(tenant, service_path, correlator)| Origin {
            tenant,
            service_path,
            correlator,
        })
    }

    proptest! {
        #[test]
        fn a_task_survives_a_round_trip(
            origin in any_origin(),
            payload in proptest::collection::vec(any_json::entity(), 0..4),
        ) {
            let task = Task { origin, payload };
            let again = Task::from_json(&task.to_json()).expect("a task");
            prop_assert_eq!(again.to_json(), task.to_json());
            prop_assert_eq!(again.payload, task.payload);
            prop_assert_eq!(again.origin.task_id(UUID), task.origin.task_id(UUID));
        }

        #[test]
        fn integers_of_any_size_are_kept(number in "-?[1-9][0-9]{0,400}") {
            let text = format!(
                r#"{{"fiware_service":null,"fiware_service_path":"/","fiware_correlator":null,"payload":[{{"a":{{"value":{number}}}}}]}}"#
            );
            let task = Task::from_json(text.as_bytes()).expect("a task");
            prop_assert_eq!(task.to_json(), text.into_bytes());
        }

        #[test]
        fn scopes_are_equal_only_if_tenant_and_path_are(one in any_origin(), other in any_origin()) {
            let key = |origin: &Origin| (origin.tenant.clone().unwrap_or_default(), origin.path().to_owned());
            prop_assert_eq!(one.scope() == other.scope(), key(&one) == key(&other));
            prop_assert_eq!(one.task_id(UUID).split(':').count(), 4);
        }
    }
}
