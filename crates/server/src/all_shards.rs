//! Requests for the lists of all shards: asks each shard, wherever it is, and answers with one document or message.

mod calls;

use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use futures::future::join_all;
use ganger_access::Identity;
use ganger_dialect_http::Problem;
use ganger_dialect_http::merged::{
    ALL_SHARDS, Document, MergedRequest, Page, is_merged, merged_paths, read_document,
};
use ganger_types::ShardId;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};

use crate::port_handler::refuse;
use crate::security::Protocol;
use crate::shard_dispatch::{Route, SHARD, SHARD_PARAMETER, ShardDispatch};

/// Longest wait for one shard; a list of all goes on without it.
const SHARD_WAIT: Duration = Duration::from_secs(1);
/// Bytes of one shard's page.
const PAGE_BYTES_MAX: usize = 32 << 20;

/// What a shard answered.
enum Answer {
    Page(Document),
    /// A refusal of the request, which every shard would answer alike.
    Refusal(Response<Body>),
    Unreachable,
}

impl ShardDispatch {
    /// Whether a request is for all shards: it says so, and there is no shard of that name.
    pub(crate) fn is_for_all(&self, protocol: Protocol, head: &Parts) -> bool {
        let named = head
            .headers
            .get(SHARD)
            .map(|value| value.as_bytes() == ALL_SHARDS.as_bytes());
        let is_named = named.unwrap_or_else(|| {
            if protocol != Protocol::Http {
                return false;
            }
            let mut pairs = head.uri.query().unwrap_or_default().split('&');
            pairs.any(|pair| pair.split_once('=') == Some((SHARD_PARAMETER, ALL_SHARDS)))
        });
        let is_shard = || {
            let shard = ShardId::new(ALL_SHARDS);
            shard.is_some_and(|shard| self.router().known().contains(&shard))
        };
        is_named && !is_shard()
    }

    /// Answers a request for the lists of all shards.
    pub(crate) async fn answer_for_all(
        &self,
        protocol: Protocol,
        head: &Parts,
        body: Body,
        caller: &Identity,
    ) -> Response<Body> {
        if protocol == Protocol::Grpc {
            return self.answer_call_for_all(head, body, caller).await;
        }
        let path = head.uri.path();
        if head.method != Method::GET || !is_merged(path) {
            let detail = format!(
                "parameter shard: all shards are possible for {} only: name one",
                merged_paths()
            );
            return refuse(Protocol::Http, &Problem::new("invalid_value", detail));
        }
        let query = head.uri.query().unwrap_or_default();
        let request = match MergedRequest::read(path, query, self.router().known()) {
            Ok(request) => request,
            Err(problem) => return refuse(Protocol::Http, &problem),
        };
        let (pages, unreachable) = match self.ask_all(head, caller, request.requests()).await {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        if pages.is_empty() {
            let problem = Problem::new("shard_unreachable", "none of the shards can be reached");
            return refuse(Protocol::Http, &problem.retry_after(SHARD_WAIT));
        }
        let (merged, behind) = request.merge(&pages, &unreachable);
        let behind = match self.ask_all(head, caller, behind).await {
            Ok((behind, missing)) if missing.is_empty() => behind,
            Ok((_, missing)) => {
                let names: Vec<&str> = missing.iter().map(ShardId::as_str).collect();
                let detail = format!("shard {} stopped answering: try again", names.join(", "));
                let problem = Problem::new("shard_unreachable", detail);
                return refuse(Protocol::Http, &problem.retry_after(SHARD_WAIT));
            }
            Err(refusal) => return refusal,
        };
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, merged.finish(&behind).to_string()).into_response()
    }

    /// Asks shards at once. Returns the pages, and the shards that did not answer in time; or the refusal of one.
    async fn ask_all(
        &self,
        head: &Parts,
        caller: &Identity,
        requests: Vec<(ShardId, String)>,
    ) -> Result<(Vec<Page>, Vec<ShardId>), Response<Body>> {
        let answers = requests.into_iter().map(|(shard, target)| async move {
            let answer = self.ask_shard(head, caller, &shard, &target);
            let answer = tokio::time::timeout(SHARD_WAIT, answer).await;
            (shard, answer.unwrap_or(Answer::Unreachable))
        });
        let (mut pages, mut unreachable) = (Vec::new(), Vec::new());
        for (shard, answer) in join_all(answers).await {
            match answer {
                Answer::Page(page) => pages.push((shard, page)),
                Answer::Unreachable => unreachable.push(shard),
                Answer::Refusal(refusal) => return Err(refusal),
            }
        }
        Ok((pages, unreachable))
    }

    /// Sends one shard its part of a request, with the head of the request but for method, address and length. `None`: no
    /// server has the shard.
    pub(super) async fn pass_to(
        &self,
        protocol: Protocol,
        head: &Parts,
        caller: &Identity,
        shard: &ShardId,
        mut request: Request<Body>,
    ) -> Option<Response<Body>> {
        *request.headers_mut() = head.headers.clone();
        for name in [SHARD, header::CONTENT_LENGTH.as_str()] {
            request.headers_mut().remove(name);
        }
        *request.extensions_mut() = head.extensions.clone();
        Some(match self.route_to(shard)? {
            Route::Local(dialects, entered) => {
                request.extensions_mut().insert(caller.clone());
                entered.until_read(dialects.answer(protocol, request).await)
            }
            Route::Remote(shard) => {
                self.forward_request(protocol, &shard, request, caller)
                    .await
            }
        })
    }

    async fn ask_shard(
        &self,
        head: &Parts,
        caller: &Identity,
        shard: &ShardId,
        target: &str,
    ) -> Answer {
        let Ok(uri) = target.parse::<Uri>() else {
            return Answer::Unreachable;
        };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri;
        let passed = self.pass_to(Protocol::Http, head, caller, shard, request);
        let Some(response) = passed.await else {
            return Answer::Unreachable;
        };
        let status = response.status();
        if status.is_server_error() {
            return Answer::Unreachable;
        }
        if status != StatusCode::OK {
            return Answer::Refusal(response);
        }
        let body = Limited::new(response.into_body(), PAGE_BYTES_MAX)
            .collect()
            .await;
        let page = body.ok().and_then(|body| read_document(&body.to_bytes()));
        page.map_or(Answer::Unreachable, Answer::Page)
    }
}
