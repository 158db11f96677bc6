//! Selects tasks: by tenant, service path and correlation id in the headers, and by status in the query.

use axum::extract::Query;
use ganger_ngsi::job::QUEUE;
use ganger_ngsi::python;
use ganger_ngsi::task::Origin;
use ganger_types::query::JobQuery;
use ganger_types::{JobRecord, LabelKey, LabelValue, Namespace, Queue};
use http::request::Parts;
use serde_json::Value;

use crate::headers;
use crate::job::{self, Status};
use crate::problem::Problem;

const STATUS: &str = "taskStatus";

/// The tasks that a request selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Tenant, service path, and the correlation id if it is not empty.
    pub(crate) origin: Origin,
    /// Status of the tasks; `None` for any.
    pub(crate) status: Option<Status>,
    scope: (LabelKey, LabelValue),
    correlator: Option<(LabelKey, LabelValue)>,
}

impl Selection {
    /// Returns the selection of the headers.
    pub(crate) fn of_headers(parts: &Parts) -> Self {
        let mut origin = headers::origin(&parts.headers);
        // An empty header counts as missing.
        origin.correlator = origin.correlator.filter(|text| !text.is_empty());
        Self {
            scope: job::scope_label(&origin),
            correlator: origin.correlator.as_deref().map(job::correlator_label),
            origin,
            status: None,
        }
    }

    /// Returns the selection of headers and query.
    pub(crate) fn of(parts: &Parts) -> Result<Self, Problem> {
        let selection = Self::of_headers(parts);
        Ok(Self {
            status: status(parts)?,
            ..selection
        })
    }

    /// Restricts the selection to a status.
    pub(crate) fn in_status(&self, status: Status) -> Self {
        Self {
            status: Some(status),
            ..self.clone()
        }
    }

    /// Whether the headers select nothing. A count then includes all tasks.
    pub(crate) fn is_unbounded(&self) -> bool {
        let has_tenant = self.origin.tenant.as_ref().is_some_and(|it| !it.is_empty());
        !has_tenant && self.origin.service_path.is_none() && self.correlator.is_none()
    }

    /// Whether the selection has a correlation id.
    pub(crate) fn has_correlator(&self) -> bool {
        self.correlator.is_some()
    }

    /// Returns a query to the store with few enough conditions to count from an index. Check its results with
    /// [`Self::has`].
    pub(crate) fn query(&self, namespace: &Namespace) -> JobQuery {
        JobQuery {
            labels: vec![
                self.correlator
                    .clone()
                    .unwrap_or_else(|| self.scope.clone()),
            ],
            ..every_task(namespace, self.status)
        }
    }

    /// Whether the selection includes a task.
    pub(crate) fn has(&self, job: &JobRecord) -> bool {
        let correlator = self.correlator.as_ref();
        job.labels.contains(&self.scope)
            && correlator.is_none_or(|label| job.labels.contains(label))
    }
}

/// Returns the query for the tasks of all tenants.
pub(crate) fn every_task(namespace: &Namespace, status: Option<Status>) -> JobQuery {
    JobQuery {
        namespace: namespace.clone(),
        queue: Some(Queue::from_static(QUEUE)),
        states: status.map(Status::states).unwrap_or_default(),
        ..JobQuery::default()
    }
}

fn status(parts: &Parts) -> Result<Option<Status>, Problem> {
    let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) else {
        return Err(Problem::bad_request("the query string is invalid"));
    };
    let Some((_, value)) = pairs.into_iter().rfind(|(name, _)| name == STATUS) else {
        return Ok(None);
    };
    let mut known = Status::ALL.into_iter();
    let status = known.find(|status| status.as_str() == value);
    status.map(Some).ok_or_else(|| {
        let value = python::repr(&Value::String(value));
        Problem::bad_request(format!(
            "{value} is not one of ['pending', 'succeeded', 'failed'], which the query parameter '{STATUS}' may be"
        ))
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn selection(headers: &[(&str, &str)]) -> Selection {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        Selection::of(&parts).expect("readable")
    }

    #[test]
    fn only_a_request_without_any_of_the_headers_is_unbounded() {
        assert!(selection(&[]).is_unbounded());
        assert!(selection(&[("fiware-service", "")]).is_unbounded());
        assert!(selection(&[("fiware-correlator", "")]).is_unbounded());
        for header in [
            ("fiware-service", "x"),
            ("ngsild-tenant", "x"),
            ("fiware-servicepath", "/"),
            ("fiware-servicepath", ""),
            ("fiware-correlator", "c"),
        ] {
            assert!(!selection(&[header]).is_unbounded(), "{header:?}");
        }
    }

    #[test]
    fn a_missing_path_is_the_root_and_an_empty_one_is_not() {
        let root = selection(&[("fiware-service", "x")]).scope;
        assert_eq!(
            root,
            selection(&[("fiware-service", "x"), ("fiware-servicepath", "/")]).scope
        );
        assert_ne!(
            root,
            selection(&[("fiware-service", "x"), ("fiware-servicepath", "")]).scope
        );
    }

    #[test]
    fn values_too_long_for_a_label_are_found_by_their_hash() {
        let long = "/p".repeat(500);
        let selected = selection(&[("fiware-servicepath", &long), ("fiware-correlator", &long)]);
        let (_, scope) = &selected.scope;
        assert_eq!(scope.as_bytes().len(), "sha256:".len() + 64);
        let (key, correlator) = selected.correlator.expect("given");
        assert_eq!(key.as_bytes(), b"fiware-correlator-sha256");
        assert_ne!(*scope, correlator);
    }
}
