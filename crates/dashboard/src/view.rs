//! What a page is made for: the namespace and the shards that it shows, the viewer's rights and clock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ganger_shard::{CallError, Handle, Health};
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, Reply, ShardId};
use tokio::time::timeout;

use crate::fault::Fault;
use crate::format::Clock;
use crate::links::{ALL_NAMESPACES, Links};
use crate::question::{Question, Shard};
use crate::rights::Rights;
use crate::site::Site;

/// How long one shard may take before a page of all shards goes on without it.
pub(crate) const SHARD_WAIT: Duration = Duration::from_secs(1);

/// Namespaces that a page of all of them shows.
const NAMESPACES_MAX: usize = 200;

/// What a page is made for.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) site: Site,
    pub(crate) links: Links,
    pub(crate) clock: Clock,
    pub(crate) rights: Rights,
    /// The shards of the view that are of this process.
    shards: Vec<Handle>,
    /// All shards of the view, in the order of their names.
    everywhere: Vec<Shard>,
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
    pub(crate) found: Vec<(ShardId, T)>,
    /// The shards whose numbers are missing.
    pub(crate) missing: Missing,
}

/// Shards whose jobs are not in the numbers of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// They did not answer in time.
    pub(crate) silent: Vec<ShardId>,
    /// Number of namespaces of a page of all of them that are not shown.
    pub(crate) namespaces: usize,
}

impl Missing {
    /// Adds the shards that are missing in another namespace.
    pub(crate) fn merge(&mut self, other: Self) {
        self.silent.extend(other.silent);
        self.silent.sort_unstable();
        self.silent.dedup();
    }
}

impl View {
    /// A view of one shard of this process, or of all shards that are known.
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
        let mut everywhere: Vec<Shard> = shards.iter().cloned().map(Shard::Here).collect();
        if links.shard().is_none() {
            everywhere.extend(site.elsewhere().into_iter().map(Shard::Elsewhere));
            everywhere.sort_by(|a, b| a.id().cmp(b.id()));
        }
        Ok(Self {
            site,
            links,
            clock,
            rights,
            shards,
            everywhere,
            all,
            home,
            form_key: None,
        })
    }

    /// The same view with the shards as they are now: they move between the nodes of a cluster.
    ///
    /// # Errors
    /// If the shard of the view is elsewhere now.
    pub(crate) fn again(&self) -> Result<Self, Fault> {
        let clock = Clock {
            now: self.home.wall_time(),
            zone: self.clock.zone.clone(),
        };
        let view = Self::new(
            self.site.clone(),
            self.links.clone(),
            clock,
            self.rights.clone(),
        )?;
        Ok(view.for_forms(self.form_key.clone()))
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

    /// The shards of the view that are of this process.
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
        self.everywhere.len() > 1
    }

    /// All shards of the view, wherever they are.
    pub(crate) fn everywhere(&self) -> &[Shard] {
        &self.everywhere
    }

    /// Where a shard of the view is.
    pub(crate) fn place_of(&self, shard: &ShardId) -> Shard {
        let here = self.all.iter().find(|handle| handle.id() == shard);
        match here {
            Some(handle) => Shard::Here(handle.clone()),
            None => Shard::Elsewhere(shard.clone()),
        }
    }

    /// Where a shard is.
    ///
    /// # Errors
    /// If no server is known to have it.
    pub(crate) fn known_place_of(&self, shard: &ShardId) -> Result<Shard, Fault> {
        match self.place_of(shard) {
            Shard::Elsewhere(_) if !self.site.elsewhere().contains(shard) => {
                Err(unknown_shard(&self.site, shard))
            }
            place => Ok(place),
        }
    }

    /// Whether shards of other servers belong to the view, of whose events this server does not hear.
    pub(crate) fn has_elsewhere(&self) -> bool {
        let mut all = self.everywhere.iter();
        all.any(|shard| matches!(shard, Shard::Elsewhere(_)))
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

    /// Asks all shards of the view at once, wherever they are. Of several, those that do not answer in time are left out.
    pub(crate) async fn gather<Q: Question>(
        &self,
        question: &Q,
    ) -> Result<Gathered<Q::Answer>, Fault> {
        let answers = self
            .everywhere
            .iter()
            .map(|shard| async move { (shard.id().clone(), shard.ask(self, question).await) });
        collect(join_all(answers).await)
    }

    /// Asks all shards of the view at once, each its own question; those without one are left out.
    pub(crate) async fn gather_each<Q: Question>(
        &self,
        question: impl Fn(&ShardId) -> Option<Q>,
    ) -> Result<Gathered<Q::Answer>, Fault> {
        let asked = self.everywhere.iter();
        let asked = asked.filter_map(|shard| Some((shard, question(shard.id())?)));
        let answers = asked.map(|(shard, question)| async move {
            (shard.id().clone(), shard.ask(self, &question).await)
        });
        collect(join_all(answers).await)
    }

    /// The namespaces that the viewer may choose.
    pub(crate) async fn namespaces(&self) -> Vec<Namespace> {
        let asked = self.ask(self.home(), Query::Namespaces);
        let Ok(Ok(Reply::Namespaces(all))) = timeout(SHARD_WAIT, asked).await else {
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

/// Sorts answers into those that were found and the shards that did not answer.
///
/// # Errors
/// If a shard refused, or none answered.
fn collect<T>(answers: Vec<(ShardId, Result<T, Fault>)>) -> Result<Gathered<T>, Fault> {
    let mut gathered = Gathered {
        found: Vec::new(),
        missing: Missing::default(),
    };
    let mut first = None;
    for (shard, answer) in answers {
        match answer {
            Ok(found) => gathered.found.push((shard, found)),
            Err(fault) if !is_absence(&fault) => return Err(fault),
            Err(fault) => {
                first.get_or_insert(fault);
                gathered.missing.silent.push(shard);
            }
        }
    }
    match first {
        Some(fault) if gathered.found.is_empty() => Err(fault),
        _ => Ok(gathered),
    }
}

/// Whether the shard did not answer at all, which a page of several shards survives.
fn is_absence(fault: &Fault) -> bool {
    matches!(fault.code, "unavailable" | "overloaded")
}

/// A shard of this process that did not answer in time.
pub(crate) fn silent(shard: &Handle, wait: Duration) -> Fault {
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
            reason: format!("it has not answered within {}", crate::format::span(wait)),
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
