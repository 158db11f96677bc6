//! Whether the database answers.

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

/// For so long the last answer of the database is passed on to all who ask.
const ANSWER_CACHED_FOR: Duration = Duration::from_secs(1);
/// How long the database may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Asks the database, over a session of its own, and not oftener than once a second however many want to know.
pub(crate) struct DatabaseHealth {
    state: Arc<Mutex<Asker>>,
}

struct Asker {
    settings: Settings,
    session: Option<Inserter>,
    /// When it was last asked, and whether it answered.
    last: Option<(Instant, bool)>,
}

impl DatabaseHealth {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = Asker {
            settings,
            session: None,
            last: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Whether the database answers, or did within the last second.
    async fn is_there(&self) -> bool {
        let state = Arc::clone(&self.state);
        // Goes on if the caller has stopped waiting: the next one gets the answer.
        let asked = tokio::spawn(async move { state.lock().await.ask().await });
        asked.await.unwrap_or(false)
    }
}

impl Asker {
    async fn ask(&mut self) -> bool {
        if let Some((at, answered)) = self.last
            && at.elapsed() < ANSWER_CACHED_FOR
        {
            return answered;
        }
        let session = self.session.take();
        let mut session = session.unwrap_or_else(|| Inserter::new(self.settings.clone()));
        let answered = tokio::time::timeout(ANSWER_MAX, session.answers()).await;
        // A session that gave no answer in time is dropped; the next one may fare better.
        self.session = answered.is_ok().then_some(session);
        let answered = answered.unwrap_or(false);
        self.last = Some((Instant::now(), answered));
        answered
    }
}

/// Answers `GET /health` of the API.
pub(crate) async fn health(State(api): State<Api>) -> Response {
    let mut response = if api.database_health().is_there().await {
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
