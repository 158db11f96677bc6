//! Forwards a request to another server unchanged, and returns its response.

use ganger_types::ShardId;
use tonic::body::Body;
use tonic::codegen::http::header::{self, HeaderName};
use tonic::codegen::http::{HeaderMap, Request, Response, Uri, Version, uri};
use tonic::codegen::{Body as HttpBody, Bytes, Service as _, StdError};

use crate::link::Link;
use crate::status::was_never_sent;
use crate::{RouteError, Router};

/// Headers of a single connection, which are not forwarded, in addition to those that `Connection` names.
const CONNECTION_HEADERS: [HeaderName; 9] = [
    header::CONNECTION,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

impl Router {
    /// Forwards a request to the server that owns a shard: method, path, headers, and the streamed body in both
    /// directions.
    ///
    /// # Errors
    /// If the shard is unknown, unreachable, or did not respond. An error response of the server is returned as a
    /// response.
    pub async fn forward<B>(
        &self,
        shard: &ShardId,
        request: Request<B>,
    ) -> Result<Response<Body>, RouteError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError>,
    {
        self.link(shard)?.forward(shard, request).await
    }
}

impl Link {
    /// Forwards a request to the server of a shard over this connection; see [`Router::forward`].
    ///
    /// # Errors
    /// See [`Router::forward`].
    pub async fn forward<B>(
        mut self,
        shard: &ShardId,
        request: Request<B>,
    ) -> Result<Response<Body>, RouteError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError>,
    {
        let unreachable = |error: tonic::transport::Error| RouteError::Unreachable {
            shard: shard.clone(),
            reason: words(&error),
        };
        let unanswered = |error: tonic::transport::Error| {
            if was_never_sent(&error) {
                return unreachable(error);
            }
            RouteError::OutcomeUnknown {
                shard: shard.clone(),
                reason: words(&error),
            }
        };
        let (mut head, body) = request.into_parts();
        clean(&mut head.headers);
        let path = head.uri.path_and_query().cloned();
        let mut target = uri::Parts::default();
        target.path_and_query = path;
        head.uri = Uri::from_parts(target).unwrap_or_default();
        head.version = Version::HTTP_2;
        // The extensions are only for this server.
        head.extensions.clear();
        let request = Request::from_parts(head, Body::new(body));
        std::future::poll_fn(|cx| self.poll_ready(cx))
            .await
            .map_err(unreachable)?;
        let mut response = self.call(request).await.map_err(unanswered)?;
        clean(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        response.extensions_mut().clear();
        Ok(response)
    }
}

fn clean(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&CONNECTION_HEADERS) {
        headers.remove(name);
    }
    // HTTP/2 allows only this value.
    if headers
        .get(header::TE)
        .is_some_and(|value| value != "trailers")
    {
        headers.remove(header::TE);
    }
}

/// Returns the error's text with its causes, which have the details.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::codegen::http::HeaderValue;

    #[test]
    fn what_is_about_the_connection_stays_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-own"),
            ("x-own", "1"),
            ("host", "a"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("ganger-namespace", "mail"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        clean(&mut headers);
        assert_eq!(headers.len(), 1, "{headers:?}");
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        clean(&mut headers);
        assert_eq!(headers.len(), 2, "gRPC needs its te: {headers:?}");
    }
}
