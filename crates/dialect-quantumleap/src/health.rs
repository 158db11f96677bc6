//! Health check of the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use ganger_ngsi::postgres::{Inserter, Settings};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use tokio::sync::Mutex;

use crate::api::Api;
use crate::problem::json_line;

/// Time for which the last result is reused.
const RESPONSE_CACHED_FOR: Duration = Duration::from_secs(1);
/// Longest wait for the database.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Probes the database over a separate session, at most once a second.
pub(crate) struct DatabaseHealth {
    state: Arc<Mutex<HealthProbe>>,
}

struct HealthProbe {
    settings: Settings,
    session: Option<Inserter>,
    /// Time of the last probe, and whether the database responded.
    last: Option<(Instant, bool)>,
}

impl DatabaseHealth {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = HealthProbe {
            settings,
            session: None,
            last: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Whether the database responds, or did within the last second.
    async fn is_responding(&self) -> bool {
        let state = Arc::clone(&self.state);
        // The probe continues if the caller stops waiting, and its result serves the next caller.
        let probe = tokio::spawn(async move { state.lock().await.probe().await });
        probe.await.unwrap_or(false)
    }
}

impl HealthProbe {
    async fn probe(&mut self) -> bool {
        if let Some((at, responded)) = self.last
            && at.elapsed() < RESPONSE_CACHED_FOR
        {
            return responded;
        }
        let session = self.session.take();
        let mut session = session.unwrap_or_else(|| Inserter::new(self.settings.clone()));
        let responded = tokio::time::timeout(RESPONSE_TIMEOUT, session.ping()).await;
        // After a timeout the session is dropped; a new one may work.
        self.session = responded.is_ok().then_some(session);
        let responded = responded.unwrap_or(false);
        self.last = Some((Instant::now(), responded));
        responded
    }
}

/// Answers `GET /health` of the API.
pub(crate) async fn health(State(api): State<Api>) -> Response {
    let mut response = if api.database_health().is_responding().await {
        json_line(StatusCode::OK, json!({"status": "pass"}))
    } else {
        let document = json!({
            "status": "fail",
            "details": {"timescale": "cannot reach timescale"},
        });
        json_line(StatusCode::SERVICE_UNAVAILABLE, document)
    };
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("max-age=180"),
    );
    response
}
