//! Shows the numbers to whoever asks: `GET /metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::Error;
use crate::metrics::Metrics;

/// The content type of the text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the numbers for as long as the runtime lives; where, if the port was left open with 0.
pub(crate) async fn listen(
    address: SocketAddr,
    metrics: Arc<Metrics>,
) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let routes = Router::new()
        .route("/metrics", get(show))
        .with_state(metrics);
    tokio::spawn(async move {
        // It ends with the process only.
        let _ = axum::serve(listener, routes).await;
    });
    tracing::info!(%address, "numbers are shown at /metrics");
    Ok(address)
}

async fn show(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], metrics.text())
}
