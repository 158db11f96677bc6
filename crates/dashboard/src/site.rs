//! What all pages share: the shards, the settings, the sessions.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use ganger_router::Graphs;
use ganger_shard::Handle;
use ganger_types::ShardId;
use http::{Response, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::actions::Repeats;
use crate::live::Hubs;
use crate::notice::Notices;
use crate::pace::Pace;
use crate::rights::Table;
use crate::session::{Cookies, Csrf, Kept, Lifetime, Session};
use crate::settings::Settings;

/// Questions of pages that one shard has in its inbox at once. Further ones wait here, so that many viewers cost the
/// shard no more than few.
const QUESTIONS_MAX: usize = 2;

/// The state of the dashboard. Cloning is a reference count.
#[derive(Clone)]
pub(crate) struct Site(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    /// What stands before `/ui`.
    pub(crate) base: Arc<str>,
    pub(crate) table: Table,
    pub(crate) cookies: Cookies,
    pub(crate) csrf: Csrf,
    pub(crate) kept: Kept,
    pub(crate) life: Lifetime,
    pub(crate) notices: Notices,
    pub(crate) pace: Pace,
    pub(crate) repeats: Repeats,
    pub(crate) hubs: Hubs,
    /// Graphs on all shards that are known.
    pub(crate) graphs: Graphs,
    questions: BTreeMap<ShardId, Semaphore>,
}

impl std::ops::Deref for Site {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Site {
    pub(crate) fn new(settings: Settings) -> io::Result<Self> {
        let options = &settings.options;
        let base: Arc<str> = options.base_path.trim_end_matches('/').into();
        let key_file = options.session_key_file.as_deref();
        let kept = Kept::open(settings.session_file.clone(), key_file.map(Path::new))?;
        let (is_secure, viewers) = (settings.is_encrypted, options.viewers_max);
        let is_secure = is_secure
            || options
                .origin
                .as_deref()
                .is_some_and(|origin| origin.starts_with("https://"));
        let operations = settings.operations.iter();
        let mut shards = match &settings.router {
            Some(router) => router.known(),
            None => Vec::new(),
        };
        shards.extend(settings.shards.now().iter().map(|shard| shard.id().clone()));
        Ok(Self(Arc::new(Inner {
            table: Arc::new(operations.map(|it| (it.name, *it)).collect()),
            cookies: Cookies::new(kept.key(), is_secure, &base),
            csrf: Csrf::new(kept.key()),
            kept,
            life: Lifetime {
                idle: options.session_idle,
                max: options.session_max,
            },
            notices: Notices::default(),
            pace: Pace::default(),
            repeats: Repeats::default(),
            hubs: Hubs::new(viewers),
            graphs: match &settings.router {
                Some(router) => router.graphs(),
                None => Graphs::of_shards(&settings.shards.now()),
            },
            questions: shards
                .into_iter()
                .map(|shard| (shard, Semaphore::new(QUESTIONS_MAX)))
                .collect(),
            base,
            settings,
        })))
    }

    /// The shard that answers where none is named.
    pub(crate) fn home(&self) -> Handle {
        self.settings.shards.first()
    }

    /// Gives the browser a later end of its session, if it is time.
    pub(crate) fn renew(&self, session: &Session, response: &mut Response<Body>) {
        let now = seconds_now();
        if let Some(session) = session.renewed(now, self.life) {
            let cookie = self.cookies.set(&session, now);
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }

    /// Waits until a session has expired or was ended.
    pub(crate) async fn session_over(&self, session: &Session) {
        let left = Duration::from_secs(session.expires.saturating_sub(seconds_now()));
        let mut ended = self.kept.changes();
        // The sender lives as long as the site.
        let ended = ended.wait_for(|_| self.kept.is_ended(session.nonce));
        drop(timeout(left, ended).await);
    }

    /// The turns at asking a shard.
    pub(crate) fn questions(&self, shard: &ShardId) -> Option<&Semaphore> {
        self.questions.get(shard)
    }

    /// The shards that other servers have, by name.
    pub(crate) fn elsewhere(&self) -> Vec<ShardId> {
        let known = self
            .settings
            .router
            .as_ref()
            .map(ganger_router::Router::known);
        let mut known = known.unwrap_or_default();
        known.retain(|shard| self.settings.shards.get(shard).is_none());
        known
    }
}

/// Seconds since the epoch, for the ends of sessions.
pub(crate) fn seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
