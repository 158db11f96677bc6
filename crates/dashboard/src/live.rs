//! Pages that follow changes: the parts of a page are made again after events, once for all who look at the same, and
//! those that changed are sent.

mod hub;
mod pump;
mod stream;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use jiff::tz::TimeZone;

use crate::answer::{Visitor, make_view, scope};
use crate::fault::Fault;
use crate::pages::PATHS;
use crate::params::Params;
use crate::session::Session;
use crate::site::Site;
use crate::view::View;

use hub::Hub;
use pump::Pumps;

/// What is shown of one page to all who look at it with the same rights.
pub(crate) struct Hubs {
    viewers_max: usize,
    viewers: Arc<AtomicUsize>,
    by_page: Mutex<HashMap<String, Weak<Hub>>>,
    pumps: Pumps,
}

/// A place among the viewers; given back when it is dropped.
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hubs {
    pub(crate) fn new(viewers_max: usize) -> Self {
        Self {
            viewers_max,
            viewers: Arc::default(),
            by_page: Mutex::default(),
            pumps: Pumps::default(),
        }
    }

    /// Number of pages that somebody looks at.
    fn open(&self) -> usize {
        let hubs = self.by_page.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.values().filter(|hub| hub.strong_count() > 0).count()
    }

    /// A place, unless all are taken.
    fn seat(&self) -> Option<Seat> {
        let before = self.viewers.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(Arc::clone(&self.viewers));
        (before < self.viewers_max).then_some(seat)
    }

    /// The hub of a page, which is made if nobody looks at it yet.
    fn hub(&self, view: &View, path: &str, query: &str) -> Arc<Hub> {
        let key = format!(
            "{path}?{query}\n{}\n{}",
            view.clock.zone_name(),
            view.rights.fingerprint()
        );
        let mut hubs = self.by_page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = hubs.get(&key).and_then(Weak::upgrade) {
            return hub;
        }
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = Hub::start(view.clone(), path, query);
        hubs.insert(key, Arc::downgrade(&hub));
        drop(hubs);
        for shard in view.shards() {
            self.pumps.watch(shard, &hub);
        }
        hub
    }
}

/// The page that a stream follows.
struct Followed {
    view: View,
    path: String,
    query: String,
}

/// Answers `/ui/live`: a stream of the parts of a page that change.
pub(crate) async fn answer(
    site: &Site,
    visitor: &Visitor,
    session: Option<&Session>,
    query: &str,
    zone: &TimeZone,
) -> Response<Body> {
    let params = Params::read_any(query);
    let followed = match followed(site, visitor, &params, zone) {
        Ok(followed) => followed,
        // Its shard moves, perhaps: the browser tries again.
        Err(fault) if fault.code == "shard_unreachable" => return unavailable(),
        Err(fault) => return stream::refused("fault", &fault.heading),
    };
    let seen = stream::seen(params.text("seen").ok().flatten().unwrap_or_default());
    let Some(seat) = site.hubs.seat() else {
        return stream::refused("full", "too many viewers");
    };
    let owner = ganger_access::Owner::of(&visitor.identity, visitor.from.map(|from| from.ip()));
    let Ok(permit) = site.settings.streams.take(owner) else {
        return stream::refused("full", "too many viewers");
    };
    let hub = site
        .hubs
        .hub(&followed.view, &followed.path, &followed.query);
    if params.has("once") {
        return stream::once(&hub, &seen).await;
    }
    stream::open(site, session, hub, seen, (seat, permit))
}

/// Reads which page is meant: the address of the page itself.
fn followed(
    site: &Site,
    visitor: &Visitor,
    params: &Params,
    zone: &TimeZone,
) -> Result<Followed, Fault> {
    let address = params
        .text("view")?
        .ok_or_else(|| Fault::value("view", "is missing"))?;
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let path = path.strip_prefix(&*site.base).unwrap_or(path);
    let path = path.strip_prefix("/ui").unwrap_or(path);
    if !PATHS.contains(&path) {
        return Err(Fault::value("view", "is not the address of a page"));
    }
    let (namespace, shard) = scope(&Params::read_any(query))?;
    Ok(Followed {
        view: make_view(
            site,
            visitor,
            namespace.unwrap_or_default(),
            shard,
            zone.clone(),
        )?,
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

/// What a stream says to somebody whose session has ended.
pub(crate) fn signed_out() -> Response<Body> {
    stream::refused("signed-out", "")
}

fn unavailable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// The headers of a stream: nothing in between may keep it.
fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}
