//! Actions on workers and between shards.

use ganger_attention::NotTested;
use ganger_document::names::text;
use ganger_shard::Handle;
use ganger_types::command::{DeregisterWorker, Reconcile};
use ganger_types::query::{JobQuery, Query};
use ganger_types::{Command, Namespace, Reply, ShardId, Worker};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::plural;
use crate::links::Links;
use crate::notice::Notice;
use crate::page::Page;
use crate::text::{isolated, plain};
use crate::view::View;
use crate::widgets::job_link;

use super::{ASK_FORM, Done, Form, Question, apply};

/// Jobs of a worker that are counted before they are released.
const HELD_LOOKED_MAX: usize = 1_000;
/// Faults of a store that are shown.
const FINDINGS_SHOWN: usize = 100;
/// Jobs of a worker that are named before they are released.
const HELD_NAMED: usize = 5;

pub(super) async fn release_worker(view: &View, form: &Form) -> Result<Done, Fault> {
    let worker: Worker = form.name("worker")?;
    let shard = form.shard(view)?;
    let shown = text(worker.as_bytes());
    if !form.is_confirmed() {
        let question = Question {
            heading: format!("Release the jobs of {}?", plain(&shown)),
            content: html! {
                (holds(view, shard, &worker).await?)
                p { "They go back to their places in the queue at once and run on other workers; the attempts do not count." }
                p { "If the worker still runs one of them, that job runs twice. Its reports and its result for this attempt are refused, but what its program does elsewhere is done." }
                p { "A worker that lives may go on: it gets other jobs when it asks again." }
            },
            button: "Release its jobs".to_owned(),
            action: "releaseWorker",
            pairs: &[("worker", &shown), ("shard", shard.id().as_str())],
            is_danger: true,
        };
        return Ok(question.page(view, form));
    }
    let command = DeregisterWorker {
        namespace: view.namespace().clone(),
        worker,
    };
    let reply = apply(shard, Command::DeregisterWorker(command)).await?;
    let Reply::Changed { count, .. } = reply else {
        return Err(Fault::unexpected_reply());
    };
    Ok(Done::Notice {
        notice: Notice::done(format!(
            "Released {} of the worker {}.",
            plural(count, "job"),
            plain(&shown)
        )),
        to: Some(view.links.to("/workers").as_str().to_owned()),
    })
}

/// The jobs that a worker holds: their number, and the first of them.
async fn holds(view: &View, shard: &Handle, worker: &Worker) -> Result<Markup, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        worker: Some(worker.clone()),
        limit: HELD_LOOKED_MAX,
        ..JobQuery::default()
    };
    let page = shard.list(query).await?;
    let number = u64::try_from(page.jobs.len()).unwrap_or(u64::MAX);
    let more = if page.next.is_some() {
        "more than "
    } else {
        ""
    };
    let named = page.jobs.iter().take(HELD_NAMED);
    let rest = page.jobs.len().saturating_sub(HELD_NAMED);
    Ok(html! {
        p {
            "It holds " (more) (plural(number, "job")) ":"
            @for job in named { " " (job_link(view, shard.id(), &job.record.id)) }
            @if rest > 0 { " and others" }
            "."
        }
    })
}

pub(super) async fn reconcile(view: &View, form: &Form) -> Result<Done, Fault> {
    let shard = form.shard(view)?;
    let peer = form.text("peer")?.and_then(ShardId::new);
    let peer = peer.ok_or_else(|| Fault::value("peer", "is not the name of a shard"))?;
    let is_typed = form.fields.text("typed_peer")? == Some(peer.as_str());
    if !form.is_confirmed() || !is_typed {
        let question = Question {
            heading: format!("Reconcile with shard {peer}?"),
            content: html! {
                @if form.is_confirmed() { div.alert role="alert" { p { "The name that was typed is another." } } }
                p { "One of the two shards went back in time, such as by a restored backup. Messages between them go on from now. What was sent before and is not there any more is not sent again, so jobs that waited for it may run again or wait until somebody retries them." }
                p { label { "Type the name of the shard " input name="typed_peer" form=(ASK_FORM) required autocomplete="off"; } }
            },
            button: format!("Reconcile with shard {peer}"),
            action: "reconcilePeer",
            pairs: &[("peer", peer.as_str()), ("shard", shard.id().as_str())],
            is_danger: true,
        };
        return Ok(question.page(view, form));
    }
    apply(shard, Command::Reconcile(Reconcile { peer: peer.clone() })).await?;
    Ok(Done::Notice {
        notice: Notice::done(format!("Reconciled with shard {peer}.")),
        to: None,
    })
}

/// Has a shard recompute its indexes and compare them with those that it has.
pub(super) async fn check_store(view: &View, form: &Form) -> Result<Done, Fault> {
    let shard = form.shard(view)?;
    let Reply::Audit(findings) = view.ask(shard, Query::Audit).await? else {
        return Err(Fault::unexpected_reply());
    };
    let id = shard.id();
    if findings.is_empty() {
        return Ok(Done::Notice {
            notice: Notice::done(format!(
                "Checked the store of shard {id}: nothing was found."
            )),
            to: None,
        });
    }
    let number = plural(u64::try_from(findings.len()).unwrap_or(u64::MAX), "fault");
    let heading = format!("The store of shard {id} has {number}");
    let content = html! {
        div.heading { h1 { (heading) } }
        p { "Keep a copy of the store and report this. `ganger check` looks at the whole file while the server is stopped." }
        ul { @for finding in findings.iter().take(FINDINGS_SHOWN) { li { (isolated(finding)) } } }
        p { a href=(view.links.to("/shards")) { "Shards" } }
    };
    Ok(Done::Page(Page::new(&heading, "Shards", content)))
}

/// Sends a test message to the webhook of an alert.
pub(super) async fn test_alert(view: &View, form: &Form) -> Result<Done, Fault> {
    let name = form.text("alert")?.unwrap_or_default();
    let tested = view.site.settings.attention.test_alert(name).await;
    let job = tested.map_err(|error| match error {
        NotTested::NotStored(error) => Fault::from(error),
        error => Fault::new(error.code(), "No message was sent", error.to_string()),
    })?;
    let mut notice = Notice::done(format!(
        "A test message of the alert {} is being sent.",
        plain(name)
    ));
    let links = Links::new(
        view.site.base.clone(),
        Namespace::from_static(ganger_attention::alert::NAMESPACE),
        None,
    );
    let address = links.job(&job.shard, &job.id).as_str().to_owned();
    notice.link = Some(("Show the message".to_owned(), address));
    Ok(Done::Notice { notice, to: None })
}
