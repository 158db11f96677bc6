//! Serves a worker's metrics at `GET /metrics` and its liveness at `GET /healthz`, without authentication.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use ganger_metrics::CONTENT_TYPE;
use tokio::net::TcpListener;

/// Serves the metrics for as long as the runtime lives; returns the address, with the chosen port if 0 was given.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn show_metrics(
    address: SocketAddr,
    text: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let show = move || {
        let text = text();
        async move { ([(header::CONTENT_TYPE, CONTENT_TYPE)], text) }
    };
    let live = async || {
        (
            [(header::CONTENT_TYPE, "application/json")],
            "{\"status\":\"live\"}",
        )
    };
    let routes = Router::new()
        .route("/metrics", get(show))
        .route("/healthz", get(live));
    tokio::spawn(async move {
        // The task ends with the process.
        let _ = axum::serve(listener, routes).await;
    });
    tracing::info!(%address, "serving metrics at /metrics");
    Ok(address)
}
