//! Shows a worker's numbers at `GET /metrics`, and that it lives at `GET /healthz`, to anyone who reaches the address.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;

/// The content type of the text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the numbers for as long as the runtime lives; where, if the port was left open with 0.
///
/// # Errors
/// If nobody can listen there.
pub async fn show_metrics(
    address: SocketAddr,
    text: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let show = move || {
        let text = text();
        async move { ([(header::CONTENT_TYPE, MEDIA_TYPE)], text) }
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
        // It ends with the process only.
        let _ = axum::serve(listener, routes).await;
    });
    tracing::info!(%address, "numbers are shown at /metrics");
    Ok(address)
}
