//! What a page is made for: the namespace and the shards that it shows, the viewer's rights and clock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ganger_shard::{CallError, Handle, Health};
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, Reply, ShardId};

use crate::fault::Fault;
use crate::format::Clock;
use crate::links::{ALL_NAMESPACES, Links};
use crate::rights::Rights;
use crate::site::Site;

/// How long one shard may take before a page of all shards goes on without it.
const SHARD_WAIT: Duration = Duration::from_secs(1);

/// Namespaces that a page of all of them shows.
const NAMESPACES_MAX: usize = 200;

/// What a page is made for.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) site: Site,
    pub(crate) links: Links,
    pub(crate) clock: Clock,
    pub(crate) rights: Rights,
    shards: Vec<Handle>,
    /// All shards of this process, as they were when the view was made.
    all: Arc<[Handle]>,
    /// The shard that answers where none is named.
    home: Handle,
    /// What tokens of forms are made of; `None` where there are no sessions, and in views that many share.
    form_key: Option<Vec<u8>>,
}

/// What the shards of a view answered.
pub(crate) struct Gathered<T> {
    /// The answers, in the order of the shards.
    pub(crate) found: Vec<(Handle, T)>,
    /// The shards whose numbers are missing.
    pub(crate) missing: Missing,
}

/// Shards whose jobs are not in the numbers of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// They did not answer in time.
    pub(crate) silent: Vec<ShardId>,
    /// Other servers have them.
    pub(crate) elsewhere: Vec<ShardId>,
    /// Number of namespaces of a page of all of them that are not shown.
    pub(crate) namespaces: usize,
}

impl Missing {
    /// Adds the shards that are missing in another namespace.
    pub(crate) fn merge(&mut self, other: Self) {
        for (all, more) in [
            (&mut self.silent, other.silent),
            (&mut self.elsewhere, other.elsewhere),
        ] {
            all.extend(more);
            all.sort_unstable();
            all.dedup();
        }
    }
}

impl View {
    /// A view of one shard, or of all shards of this process.
    pub(crate) fn new(
        site: Site,
        links: Links,
        clock: Clock,
        rights: Rights,
    ) -> Result<Self, Fault> {
        let (all, home) = (site.settings.shards.now(), site.home());
        let shards = match links.shard() {
            None => all.to_vec(),
            Some(shard) => {
                let found = all.iter().find(|handle| handle.id() == shard);
                let found = found.ok_or_else(|| unknown_shard(&site, shard))?;
                vec![found.clone()]
            }
        };
        Ok(Self {
            site,
            links,
            clock,
            rights,
            shards,
            all,
            home,
            form_key: None,
        })
    }

    /// The view of one viewer, whose forms carry tokens.
    pub(crate) fn for_forms(self, form_key: Option<Vec<u8>>) -> Self {
        Self { form_key, ..self }
    }

    /// The view of another namespace.
    pub(crate) fn in_namespace(&self, namespace: Namespace) -> Self {
        let view = self.clone();
        Self {
            links: view.links.in_namespace(namespace.clone()),
            rights: view.rights.in_namespace(namespace),
            ..view
        }
    }

    /// Whether the view is of all namespaces together, which Overview and Queues can be.
    pub(crate) fn is_of_all_namespaces(&self) -> bool {
        self.links.is_of_all_namespaces()
    }

    /// Whether the viewer may look at all namespaces together.
    pub(crate) fn may_see_all_namespaces(&self) -> bool {
        let all = Namespace::from_static(ALL_NAMESPACES);
        let rights = self.rights.clone().in_namespace(all);
        rights.may_read("listQueues")
    }

    /// The views of the namespaces of which this one is: itself, or that of each namespace, at most
    /// [`NAMESPACES_MAX`]; and the number of those beyond it.
    pub(crate) async fn by_namespace(&self) -> (Vec<Self>, usize) {
        if !self.is_of_all_namespaces() {
            return (vec![self.clone()], 0);
        }
        let names = self.namespaces().await;
        let left_out = names.len().saturating_sub(NAMESPACES_MAX);
        let names = names.into_iter().take(NAMESPACES_MAX);
        (
            names.map(|name| self.in_namespace(name)).collect(),
            left_out,
        )
    }

    /// A token for a form, another one each time.
    pub(crate) fn form_token(&self) -> Option<String> {
        let key = self.form_key.as_deref()?;
        Some(self.site.csrf.token(key))
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.links.namespace()
    }

    pub(crate) fn shards(&self) -> &[Handle] {
        &self.shards
    }

    /// All shards of this process.
    pub(crate) fn all(&self) -> &[Handle] {
        &self.all
    }

    /// The names of all shards, also of those that other servers have, in order.
    pub(crate) fn known(&self) -> Vec<ShardId> {
        let mut known = self.site.elsewhere();
        known.extend(self.all.iter().map(|shard| shard.id().clone()));
        known.sort_unstable();
        known
    }

    /// The shard that answers where none is named.
    pub(crate) fn home(&self) -> &Handle {
        &self.home
    }

    /// Whether the view is of several shards, so that rows must name theirs.
    pub(crate) fn is_of_many(&self) -> bool {
        self.shards.len() > 1
    }

    /// A shard of this process.
    pub(crate) fn shard(&self, shard: &ShardId) -> Result<&Handle, Fault> {
        let mut found = self.all.iter().filter(|handle| handle.id() == shard);
        found.next().ok_or_else(|| unknown_shard(&self.site, shard))
    }

    /// Asks a shard, when it is this page's turn.
    pub(crate) async fn ask(&self, shard: &Handle, query: Query) -> Result<Reply, Fault> {
        let turn = match self.site.questions(shard.id()) {
            // A semaphore that is never closed always gives a turn.
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let reply = shard.call(Command::Query(Box::new(query))).await;
        drop(turn);
        Ok(reply?)
    }

    /// Asks a shard several questions in one turn.
    pub(crate) async fn ask_all(
        &self,
        shard: &Handle,
        queries: Vec<Query>,
    ) -> Result<Vec<Result<Reply, CallError>>, Fault> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let turn = match self.site.questions(shard.id()) {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let commands = queries
            .into_iter()
            .map(|query| Command::Query(Box::new(query)));
        let replies = shard.call_all(commands.collect()).await;
        drop(turn);
        Ok(replies?)
    }

    /// Asks all shards of the view at once. Of several, those that do not answer in time are left out.
    pub(crate) async fn gather<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a Handle) -> F,
    ) -> Result<Gathered<T>, Fault>
    where
        F: Future<Output = Result<T, Fault>> + 'a,
    {
        let answers = self.shards.iter().map(|shard| {
            let answer = ask(shard);
            async move { (shard, tokio::time::timeout(SHARD_WAIT, answer).await) }
        });
        let mut gathered = Gathered {
            found: Vec::new(),
            missing: Missing {
                silent: Vec::new(),
                elsewhere: match self.links.shard() {
                    None => self.site.elsewhere(),
                    Some(_) => Vec::new(),
                },
                namespaces: 0,
            },
        };
        let mut first = None;
        for (shard, answer) in join_all(answers).await {
            match answer {
                Ok(Ok(found)) => gathered.found.push((shard.clone(), found)),
                Ok(Err(fault)) if !is_absence(&fault) => return Err(fault),
                Ok(Err(fault)) => {
                    first.get_or_insert(fault);
                    gathered.missing.silent.push(shard.id().clone());
                }
                Err(_) => {
                    first.get_or_insert_with(|| silent(shard));
                    gathered.missing.silent.push(shard.id().clone());
                }
            }
        }
        match first {
            Some(fault) if gathered.found.is_empty() => Err(fault),
            _ => Ok(gathered),
        }
    }

    /// The namespaces that the viewer may choose.
    pub(crate) async fn namespaces(&self) -> Vec<Namespace> {
        let asked = self.ask(self.home(), Query::Namespaces);
        let Ok(Ok(Reply::Namespaces(all))) = tokio::time::timeout(SHARD_WAIT, asked).await else {
            return vec![self.namespace().clone()];
        };
        let names = all.into_iter().map(|record| record.namespace);
        let mut names: Vec<Namespace> = names.filter(|name| self.rights.lists(name)).collect();
        if !self.is_of_all_namespaces() && !names.contains(self.namespace()) {
            names.push(self.namespace().clone());
        }
        names.sort();
        names
    }
}

/// Whether the shard did not answer at all, which a page of several shards survives.
fn is_absence(fault: &Fault) -> bool {
    matches!(fault.code, "unavailable" | "overloaded")
}

fn silent(shard: &Handle) -> Fault {
    match shard.health() {
        Health::Starting { jobs } => starting(jobs),
        Health::Unreachable { reason } | Health::Stopped { reason } => {
            Fault::from(CallError::Unavailable {
                shard: shard.id().clone(),
                reason,
            })
        }
        Health::Ready | Health::Full => Fault::from(CallError::Unavailable {
            shard: shard.id().clone(),
            reason: format!(
                "it has not answered within {}",
                crate::format::span(SHARD_WAIT)
            ),
        }),
    }
}

/// The server still reads its jobs.
pub(crate) fn starting(jobs: u64) -> Fault {
    let jobs = crate::format::count(jobs);
    Fault::new(
        "unavailable",
        "The server is starting",
        format!("The server reads its jobs: {jobs} so far. This page comes by itself."),
    )
    .retry_after(Duration::from_secs(1))
}

fn unknown_shard(site: &Site, shard: &ShardId) -> Fault {
    if site.elsewhere().contains(shard) {
        return Fault::new(
            "shard_unreachable",
            format!("Shard {shard} cannot be reached"),
            "It is on another server, which does not answer. Try again.",
        );
    }
    let here = site.settings.shards.now();
    let known: Vec<&str> = here.iter().map(|it| it.id().as_str()).collect();
    Fault::new(
        "unknown_shard",
        format!("There is no shard {shard}"),
        format!("This server has {}.", known.join(", ")),
    )
}
