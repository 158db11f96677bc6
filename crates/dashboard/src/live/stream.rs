//! The stream of one viewer: the newest parts that it has not seen, no faster than it reads.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Response, header};
use serde_json::json;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;

use crate::assets;
use crate::session::{Nonce, Session};
use crate::site::{Site, seconds_now};

use super::event_stream;
use super::hub::{Hub, Snapshot};

/// Messages that wait for a reader. While they do, newer states replace each other.
const WAITING_MAX: usize = 16;
/// Between two signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(15);
/// A reader that takes nothing for so long is gone.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// More bytes in one state of a page are followed by a pause.
const BYTES_PER_SECOND: usize = 64 << 10;

/// What a viewer has seen: the fingerprint of each part.
pub(super) type Seen = HashMap<String, u64>;

/// Reads fingerprints by part, such as `part-head.1f2e,part-jobs.77`; what has another form is ignored.
pub(super) fn seen(text: &str) -> Seen {
    let parts = text.split(',').take(100).filter_map(|part| {
        let (id, print) = part.split_once('.')?;
        Some((id.to_owned(), u64::from_str_radix(print, 16).ok()?))
    });
    parts.collect()
}

/// A stream that says one thing and ends.
pub(super) fn refused(event: &str, text: &str) -> Response<Body> {
    let data = json!({ "text": text });
    event_stream(Body::from(format!("event: {event}\ndata: {data}\n\n")))
}

/// The parts that were not seen, at once, for those who cannot keep a stream.
pub(super) async fn once(hub: &Hub, seen: &Seen) -> Response<Body> {
    let mut newest = hub.watch();
    // The sender lives as long as the hub, which is held here.
    let made = newest.wait_for(|snapshot| snapshot.number > 0).await;
    let snapshot = made
        .map(|snapshot| Arc::clone(&snapshot))
        .unwrap_or_default();
    let parts: Vec<_> = snapshot
        .parts
        .iter()
        .filter(|part| seen.get(part.id) != Some(&part.print))
        .map(|part| json!({ "id": part.id, "print": format!("{:x}", part.print), "html": &*part.html }))
        .collect();
    let body = json!({ "parts": parts, "assets": assets::VERSION, "refusal": snapshot.refusal });
    let mut response = Response::new(Body::from(body.to_string()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Opens the stream of a viewer. `kept` is held until it ends.
pub(super) fn open(
    site: &Site,
    session: Option<&Session>,
    hub: Arc<Hub>,
    seen: Seen,
    kept: impl Send + 'static,
) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let viewer = Viewer {
        site: site.clone(),
        session: session.map(|session| session.nonce),
        expires_in: session
            .map(|session| Duration::from_secs(session.expires.saturating_sub(seconds_now()))),
        hub,
        seen,
        sender,
    };
    tokio::spawn(async move {
        viewer.run().await;
        drop(kept);
    });
    let messages = ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    event_stream(Body::from_stream(messages))
}

struct Viewer {
    site: Site,
    session: Option<Nonce>,
    /// Time until the session expires, unless the browser has a newer cookie by then; `None` without a session.
    expires_in: Option<Duration>,
    hub: Arc<Hub>,
    seen: Seen,
    sender: Sender<Bytes>,
}

/// The viewer is gone, or is to go.
struct Gone;

impl Viewer {
    async fn run(mut self) {
        let stopping = self.site.settings.stopping.clone();
        let closed = self.sender.clone();
        let expires_in = self.expires_in;
        let expired = async {
            match expires_in {
                Some(expires_in) => tokio::time::sleep(expires_in).await,
                None => std::future::pending().await,
            }
        };
        let follow = async {
            // The reader sees that the stream ends, and why cannot be said any more.
            let _ = self.follow().await;
        };
        tokio::select! {
            () = follow => {}
            () = stopping.cancelled() => {}
            () = closed.closed() => {}
            // The browser connects again. With a newer cookie, which another tab may have got, the page goes on; else it
            // is told that it is signed out.
            () = expired => {}
        }
    }

    async fn follow(&mut self) -> Result<(), Gone> {
        let hello = json!({ "assets": assets::VERSION, "now": self.now() });
        self.say(format!("event: hello\ndata: {hello}\n\n")).await?;
        let mut newest = self.hub.watch();
        let mut ended = self.site.kept.changes();
        let mut beat = tokio::time::interval(BEAT_EVERY);
        beat.reset();
        // What is there already is looked at first.
        newest.mark_changed();
        loop {
            tokio::select! {
                changed = newest.changed() => {
                    changed.map_err(|_| Gone)?;
                    let snapshot = Arc::clone(&newest.borrow_and_update());
                    let bytes = self.send(&snapshot).await?;
                    rest(bytes).await;
                }
                _ = beat.tick() => {
                    let beat = json!({ "now": self.now() });
                    self.say(format!("event: beat\ndata: {beat}\n\n")).await?;
                }
                changed = ended.changed() => {
                    changed.map_err(|_| Gone)?;
                    if self.session.is_some_and(|nonce| self.site.kept.is_ended(nonce)) {
                        self.say("event: signed-out\ndata: {}\n\n".to_owned()).await?;
                        return Err(Gone);
                    }
                }
            }
        }
    }

    fn now(&self) -> String {
        crate::format::exact(self.site.home().wall_time())
    }

    /// Sends the parts that were not seen; returns their bytes.
    async fn send(&mut self, snapshot: &Snapshot) -> Result<usize, Gone> {
        if snapshot.is_elsewhere {
            return Err(Gone);
        }
        if let Some(refusal) = &snapshot.refusal {
            let data = json!({ "text": refusal });
            self.say(format!("event: fault\ndata: {data}\n\n")).await?;
            return Ok(0);
        }
        let mut bytes = 0;
        for part in &snapshot.parts {
            if self.seen.get(part.id) == Some(&part.print) {
                continue;
            }
            let print = format!("{:x}", part.print);
            let data = json!({ "id": part.id, "print": print, "html": &*part.html });
            let message = format!("event: part\nid: {}\ndata: {data}\n\n", snapshot.positions);
            bytes += message.len();
            self.say(message).await?;
            self.seen.insert(part.id.to_owned(), part.print);
        }
        Ok(bytes)
    }

    async fn say(&self, message: String) -> Result<(), Gone> {
        let sent = self.sender.send_timeout(message.into(), SILENT_MAX).await;
        sent.map_err(|_| Gone)
    }
}

/// A state of many bytes is followed by a pause in which others are left out.
async fn rest(bytes: usize) {
    let pause = match bytes {
        0..=BYTES_PER_SECOND => return,
        _ if bytes <= 4 * BYTES_PER_SECOND => Duration::from_secs(2),
        _ => Duration::from_secs(5),
    };
    tokio::time::sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_and_what_is_none_is_left_out() {
        let seen = seen("part-head.1f,part-x.zz,y,part-jobs.ffffffffffffffff");
        assert_eq!(seen.len(), 2);
        assert_eq!(seen["part-head"], 31);
        assert_eq!(seen["part-jobs"], u64::MAX);
    }
}
