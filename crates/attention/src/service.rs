//! Puts together what needs attention, and keeps it for a second, so that many viewers cost no more than one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use ganger_router::Router;
use ganger_shard::{CallError, Handle, ShardSet};
use ganger_types::{JobRef, Namespace};
use tokio::time::Instant;

use crate::alert::{Alerts, Change, NAME_MAX, What, enqueue};
use crate::commits::CommitWindow;
use crate::facts::{CommitFacts, Facts};
use crate::{Item, elsewhere, look, rules};

pub use crate::facts::ServerFacts;

/// Time for which a look is good.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Time for which an answer of other servers is shown while they are asked again: a server that hangs must not delay
/// every page by its timeout.
const SHOWN_FOR: Duration = Duration::from_secs(10);
/// Namespaces whose last look is kept.
const LOOKS_MAX: usize = 256;

/// Shards that a list of items covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The shards of this process.
    Here,
    /// All shards, those of other servers too.
    All,
}

/// Why an alert was not tested.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotTested {
    /// The configuration has no alert of this name.
    #[error("the configuration has no alert {name:?}: it has {}", if known.is_empty() { "none" } else { known.as_str() })]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Names of all alerts, separated by commas.
        known: String,
    },
    /// The alert sends no messages.
    #[error("the alert {0} has no webhook: there is nothing to test")]
    NoWebhook(String),
    /// The message cannot be stored.
    #[error(transparent)]
    NotStored(#[from] CallError),
}

impl NotTested {
    /// Returns the code of the error, as docs/errors.md has it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "alert_not_found",
            Self::NoWebhook(_) => "alert_without_webhook",
            Self::NotStored(_) => "unavailable",
        }
    }
}

/// Where the facts come from.
#[derive(Clone)]
pub struct Sources {
    /// The shards of this process.
    pub shards: ShardSet,
    /// The router to the shards of other servers; `None` if there are none.
    pub router: Option<Router>,
    /// The alerts of the configuration.
    pub alerts: Arc<Alerts>,
    /// Returns what is known about the server itself.
    pub server: Arc<dyn Fn() -> ServerFacts + Send + Sync>,
}

/// Finds what needs attention. Cheap to clone.
#[derive(Clone)]
pub struct Attention(Arc<Inner>);

struct Inner {
    sources: Sources,
    commits: Mutex<Vec<CommitWindow>>,
    looks: Mutex<BTreeMap<Namespace, Arc<Look>>>,
}

/// The last look at a namespace. Who holds the lock looks; others wait for the result.
#[derive(Default)]
struct Look {
    here: tokio::sync::Mutex<Option<(Instant, Arc<Facts>)>>,
    /// What other servers answered, by whether it has what concerns servers.
    elsewhere: [Answers; 2],
}

/// What other servers answered last.
#[derive(Default)]
struct Answers {
    last: Mutex<Option<(Instant, Vec<Item>)>>,
    /// Held while they are asked.
    asking: tokio::sync::Mutex<()>,
}

impl Answers {
    /// The last answer with its age, if it may still be shown.
    fn last(&self) -> Option<(Duration, Vec<Item>)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, items) = last.as_ref()?;
        let age = at.elapsed();
        (age < SHOWN_FOR).then(|| (age, items.clone()))
    }

    async fn ask(&self, router: &Router, namespace: &Namespace, sees_server: bool) -> Vec<Item> {
        let items = elsewhere::look(router, namespace, sees_server).await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), items.clone()));
        items
    }
}

/// What other servers answered: within the last second, or shortly before while they are asked again.
async fn others(
    look: &Arc<Look>,
    router: &Router,
    namespace: &Namespace,
    sees_server: bool,
) -> Vec<Item> {
    let answers = &look.elsewhere[usize::from(sees_server)];
    if let Some((age, items)) = answers.last() {
        if age >= FRESH_FOR {
            let (look, router, namespace) = (Arc::clone(look), router.clone(), namespace.clone());
            tokio::spawn(async move {
                let answers = &look.elsewhere[usize::from(sees_server)];
                if let Ok(_asking) = answers.asking.try_lock() {
                    answers.ask(&router, &namespace, sees_server).await;
                }
            });
        }
        return items;
    }
    let _asking = answers.asking.lock().await;
    match answers.last() {
        Some((_, items)) => items,
        None => answers.ask(router, namespace, sees_server).await,
    }
}

impl Attention {
    /// Creates a finder over these sources. It looks only when it is asked.
    pub fn new(sources: Sources) -> Self {
        Self(Arc::new(Inner {
            commits: Mutex::default(),
            looks: Mutex::default(),
            sources,
        }))
    }

    /// Creates a finder over the shards of a process without other servers, for tests.
    pub fn of_shards(shards: impl Into<ShardSet>) -> Self {
        Self::new(Sources {
            shards: shards.into(),
            router: None,
            alerts: Arc::default(),
            server: Arc::new(ServerFacts::default),
        })
    }

    /// Returns what needs attention in a namespace, the worst first. `sees_server` also asks for what concerns servers
    /// more than the namespace. The answer is at most a second old; a shard that does not answer within a second is an
    /// item itself.
    pub async fn items(&self, namespace: &Namespace, sees_server: bool, scope: Scope) -> Vec<Item> {
        let look = self.look(namespace);
        let facts = self.facts_of(&look, namespace);
        let Some(router) = self
            .0
            .sources
            .router
            .as_ref()
            .filter(|_| scope == Scope::All)
        else {
            let facts = facts.await;
            return self.with_alerts(rules::judge(&facts, sees_server), namespace, sees_server);
        };
        let others = others(&look, router, namespace, sees_server);
        let (facts, others) = futures::future::join(facts, others).await;
        let mut items = rules::judge(&facts, sees_server);
        items.extend(others);
        self.with_alerts(items, namespace, sees_server)
    }

    /// Returns the alerts of the configuration, with their states.
    pub fn alerts(&self) -> &Arc<Alerts> {
        &self.0.sources.alerts
    }

    /// Stores a test message of an alert, which is then sent; returns its job.
    ///
    /// # Errors
    /// If there is no such alert, it has no webhook, or the message cannot be stored.
    pub async fn test_alert(&self, name: &str) -> Result<JobRef, NotTested> {
        let Some(alert) = self.alerts().find(name) else {
            let known = self.alerts().all().iter().map(|alert| alert.name.clone());
            return Err(NotTested::Unknown {
                name: name.chars().take(NAME_MAX).collect(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        };
        if alert.webhook.is_none() {
            return Err(NotTested::NoWebhook(alert.name.clone()));
        }
        let shard = self
            .home()
            .ok_or_else(|| NotTested::NoWebhook(alert.name.clone()))?;
        let now = shard.wall_time();
        let change = Change {
            what: What::Test,
            text: "a test: nothing is wrong".to_owned(),
            since: now,
            at: now,
        };
        let id = enqueue(&shard, alert, &change).await?;
        Ok(JobRef {
            shard: shard.id().clone(),
            id,
        })
    }

    /// Returns the shard that keeps the messages of alerts: the first of this process; `None` while it has none.
    pub fn home(&self) -> Option<Handle> {
        self.0.sources.shards.now().first().cloned()
    }

    fn with_alerts(
        &self,
        mut items: Vec<Item>,
        namespace: &Namespace,
        sees_server: bool,
    ) -> Vec<Item> {
        items.extend(self.alerts().items(namespace, sees_server));
        rules::sort(&mut items);
        items
    }

    /// Returns the facts about a namespace and the shards of this process; they are at most a second old.
    pub async fn facts(&self, namespace: &Namespace) -> Arc<Facts> {
        let look = self.look(namespace);
        self.facts_of(&look, namespace).await
    }

    async fn facts_of(&self, look: &Look, namespace: &Namespace) -> Arc<Facts> {
        let mut last = look.here.lock().await;
        if let Some((at, facts)) = &*last
            && at.elapsed() < FRESH_FOR
        {
            return Arc::clone(facts);
        }
        let Sources {
            shards,
            router,
            server,
            ..
        } = &self.0.sources;
        let shards = shards.now();
        let found = shards
            .iter()
            .map(|shard| look::look(shard, router.as_ref(), namespace, self.commits(shard)));
        let facts = Arc::new(Facts {
            now: shards.first().map(Handle::wall_time).unwrap_or_default(),
            shards: join_all(found).await,
            server: server(),
        });
        *last = Some((Instant::now(), Arc::clone(&facts)));
        facts
    }

    fn commits(&self, shard: &Handle) -> CommitFacts {
        let count = shard.commit_seconds();
        let mut windows = self
            .0
            .commits
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = windows
            .iter()
            .position(|window| window.shard == *shard.id());
        let place = known.unwrap_or_else(|| {
            windows.push(CommitWindow::new(shard.id().clone()));
            windows.len() - 1
        });
        windows[place].add(shard.wall_time(), count)
    }

    /// The last look at a namespace. Beyond the number that is kept, those that nobody uses now are forgotten.
    fn look(&self, namespace: &Namespace) -> Arc<Look> {
        let mut looks = self.0.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() >= LOOKS_MAX && !looks.contains_key(namespace) {
            looks.retain(|_, look| Arc::strong_count(look) > 1);
        }
        Arc::clone(looks.entry(namespace.clone()).or_default())
    }
}
