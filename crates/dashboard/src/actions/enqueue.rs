//! New job.

use ganger_document::names::text;
use ganger_types::command::Enqueue;
use ganger_types::{Command, IdempotencyKey, Reply};

use crate::fault::Fault;
use crate::frame::Hidden;
use crate::links::job_name;
use crate::notice::Notice;
use crate::pages::{NEW_JOB_FIELDS, new_job_page, read_new_job};
use crate::view::View;

use super::{Done, Form, apply};

/// Enqueues the job of the form. The same form makes no second job, not even after a restart; one that was changed does,
/// also if it comes from the history of the browser with its old key.
pub(super) async fn run(view: &View, form: &Form) -> Result<Done, Fault> {
    let shard = form.shard(view)?.clone();
    let values: Vec<(&'static str, String)> = NEW_JOB_FIELDS
        .iter()
        .filter_map(|name| Some((*name, form.fields.text(name).ok()??.to_owned())))
        .collect();
    let again = |fault: &Fault| {
        let page = new_job_page(view, &values, Some(fault), &Hidden::again(view, form));
        Done::Page(page.status((view.site.settings.status_of)(fault.code)))
    };
    let job = match read_new_job(&form.fields) {
        Ok(job) => job,
        Err(fault) => return Ok(again(&fault)),
    };
    let key = form.fields.has("key").then(|| {
        let hash = form.fingerprint("enqueueJob");
        let hex = hash.iter().map(|byte| format!("{byte:02x}"));
        IdempotencyKey::new(hex.collect::<String>().as_bytes())
    });
    let command = Enqueue {
        namespace: view.namespace().clone(),
        jobs: vec![job],
        idempotency_key: key
            .transpose()
            .map_err(|error| Fault::value("key", &error.to_string()))?,
        graph: false,
    };
    let reply = match apply(&shard, Command::Enqueue(Box::new(command))).await {
        Ok(reply) => reply,
        Err(fault) => return Ok(again(&fault)),
    };
    let Reply::Enqueued { jobs, .. } = reply else {
        return Err(Fault::unexpected_reply());
    };
    let job = jobs.first().ok_or_else(Fault::unexpected_reply)?;
    let name = job_name(shard.id(), &job.id);
    let words = if job.existed {
        "It was there already:"
    } else {
        "Enqueued"
    };
    let notice = Notice::done(format!(
        "{words} {}.",
        crate::text::plain(&text(name.as_bytes()))
    ));
    let to = view.links.job(shard.id(), &job.id).as_str().to_owned();
    Ok(Done::Notice {
        notice,
        to: Some(to),
    })
}
