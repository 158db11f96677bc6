//! Actions on a queue.

use ganger_document::json;
use ganger_document::names::{show, text};
use ganger_document::settings::QueueSettingsDocument;
use ganger_types::command::{ConfigureQueue, ForgetQueue, QueueChange};
use ganger_types::{Command, Queue, QueueSettings};
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::data::queues::one;
use crate::fault::Fault;
use crate::frame::Hidden;
use crate::notice::Notice;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{do_address, fields, queue_address};

use super::{Done, Form, Question, apply};

pub(super) async fn pause(view: &View, form: &Form, is_paused: bool) -> Result<Done, Fault> {
    let queue: Queue = form.name("queue")?;
    let shard = form.shard(view)?;
    let command = ConfigureQueue {
        namespace: view.namespace().clone(),
        queue: queue.clone(),
        change: QueueChange::Paused(is_paused),
    };
    apply(shard, Command::ConfigureQueue(Box::new(command))).await?;
    let shown = show(queue.as_bytes());
    let words = if is_paused { "Paused" } else { "Resumed" };
    let mut notice = Notice::done(format!("{words} the queue {}.", plain(&shown)));
    let undo = if is_paused {
        "resumeQueue"
    } else {
        "pauseQueue"
    };
    let pairs = [("queue", &*shown), ("shard", shard.id().as_str())];
    notice.undo = Some(("Undo".to_owned(), undo, fields(view, &pairs)));
    Ok(Done::Notice { notice, to: None })
}

pub(super) async fn forget(view: &View, form: &Form) -> Result<Done, Fault> {
    let queue: Queue = form.name("queue")?;
    let shard = form.shard(view)?;
    let shown = text(queue.as_bytes());
    if !form.is_confirmed() {
        let question = Question {
            heading: format!("Forget the queue {}?", plain(&shown)),
            content: html! {
                p { "Its settings and its counts are removed. This cannot be undone. A queue with jobs is not forgotten; the next job of this name begins it again." }
            },
            button: "Forget this queue".to_owned(),
            action: "forgetQueue",
            pairs: &[("queue", &shown), ("shard", shard.id().as_str())],
            is_danger: true,
        };
        return Ok(question.page(view, form));
    }
    let command = ForgetQueue {
        namespace: view.namespace().clone(),
        queue,
    };
    apply(shard, Command::ForgetQueue(command)).await?;
    let notice = Notice::done(format!("Forgot the queue {}.", plain(&shown)));
    let to = view.links.to("/queues").as_str().to_owned();
    Ok(Done::Notice {
        notice,
        to: Some(to),
    })
}

/// A setting of the form: name in the document, words, hint.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "running_max",
        "Jobs running at once",
        "a whole number; empty: no limit",
    ),
    (
        "live_max",
        "Live jobs taken",
        "a whole number; empty: no limit",
    ),
    (
        "alert_age",
        "Needs attention after",
        "how long a ready job may wait, such as 10m; empty: 10 minutes",
    ),
    (
        "lease_for",
        "Length of leases",
        "such as 60s; empty: as the namespace",
    ),
    (
        "grace_for",
        "Warning before a lease is taken away",
        "such as 10s; empty: none",
    ),
    (
        "retry",
        "Retries",
        "JSON such as {\"max\": 3}; empty: as the namespace",
    ),
    (
        "retention",
        "Retention",
        "JSON such as {\"failed\": {\"age\": \"7d\"}}; empty: as the namespace",
    ),
];

/// The settings as the document has them, field by field.
fn current(settings: &QueueSettings) -> Map<String, Value> {
    match serde_json::to_value(QueueSettingsDocument::from(settings)) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn value_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The page with the form of all settings.
pub(crate) async fn settings_form(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["name"])?;
    view.rights.check("setQueue")?;
    let queue: Queue = params.needed("name")?;
    let shard = view.shards().first().unwrap_or(view.home()).clone();
    let settings = current(&one(view, &shard, &queue).await?.settings);
    let back = queue_address(view, shard.id(), &queue).as_str().to_owned();
    let hidden = Hidden::new(view, back);
    Ok(form_page(
        view,
        &queue,
        shard.id().as_str(),
        &settings,
        &settings,
        None,
        &hidden,
    ))
}

fn form_page(
    view: &View,
    queue: &Queue,
    shard: &str,
    before: &Map<String, Value>,
    shown: &Map<String, Value>,
    refusal: Option<&Fault>,
    hidden: &Hidden,
) -> Page {
    let name_text = text(queue.as_bytes());
    let pairs = fields(view, &[("queue", &name_text), ("shard", shard)]);
    let heading = format!("Settings of the queue {}", plain(&name_text));
    let content = html! {
        h1 { "Settings of the queue " (name(queue.as_bytes())) }
        @if let Some(fault) = refusal { (alert(fault)) }
        form.settings method="post" action=(do_address(view, "setQueue")) {
            (hidden.markup())
            input type="hidden" name="with" value=(pairs);
            input type="hidden" name="before" value=(Value::Object(before.clone()).to_string());
            @for (field, words, hint) in FIELDS {
                label { (words) input name=(field) value=(value_text(shown.get(*field))) placeholder=(hint) autocomplete="off"; span.soft { (hint) } }
            }
            label { "Where due jobs line up" select name="due_order" {
                @for word in ["behind", "ahead"] { option value=(word) selected[value_text(shown.get("due_order")) == word] { (word) } }
            } }
            label.check { input type="checkbox" name="paused" value="true" checked[shown.get("paused") == Some(&Value::Bool(true))]; "Paused" }
            p.soft { "A lower limit takes no running job away: those that run go on, and the next starts below the limit." }
            div.actions {
                a.button href=(queue_address(view, &shard_of(view, shard), queue)) { "Back" }
                button.primary { "Save settings" }
            }
        }
    };
    Page::new(heading, "Queues", content).still()
}

fn shard_of(view: &View, shard: &str) -> ganger_types::ShardId {
    ganger_types::ShardId::new(shard).unwrap_or_else(|| view.home().id().clone())
}

fn alert(fault: &Fault) -> Markup {
    html! { div.alert role="alert" { p { (isolated(&fault.detail)) " (" (fault.code) ")" } } }
}

/// Sets all settings, unless they are others than when the form was made.
pub(super) async fn set(view: &View, form: &Form) -> Result<Done, Fault> {
    let queue: Queue = form.name("queue")?;
    let shard = form.shard(view)?.clone();
    let found = current(&one(view, &shard, &queue).await?.settings);
    let before: Map<String, Value> =
        serde_json::from_str(form.fields.text("before")?.unwrap_or("{}")).unwrap_or_default();
    let given = given(&form.fields);
    let again = |fault: &Fault, shown: &Map<String, Value>| {
        let hidden = Hidden::again(view, form);
        let page = form_page(
            view,
            &queue,
            shard.id().as_str(),
            &found,
            shown,
            Some(fault),
            &hidden,
        );
        Done::Page(page.status((view.site.settings.status_of)(fault.code)))
    };
    if before != found {
        let fault = Fault::new(
            "wrong_state",
            "Changed meanwhile",
            "Somebody has changed the settings since this form was made. Look at what you changed, then save again.",
        );
        return Ok(again(&fault, given.as_ref().unwrap_or(&found)));
    }
    let given = match given {
        Ok(given) => given,
        Err(fault) => return Ok(again(&fault, &found)),
    };
    let document = Value::Object(given.clone()).to_string();
    let settings: QueueSettingsDocument = match json::read(document.as_bytes()) {
        Ok(settings) => settings,
        Err(error) => {
            return Ok(again(
                &Fault::new(error.code, "Not changed", error.detail),
                &given,
            ));
        }
    };
    let command = ConfigureQueue {
        namespace: view.namespace().clone(),
        queue: queue.clone(),
        change: QueueChange::All(settings.into()),
    };
    if let Err(fault) = apply(&shard, Command::ConfigureQueue(Box::new(command))).await {
        return Ok(again(&fault, &given));
    }
    let shown = plain(&show(queue.as_bytes()));
    Ok(Done::Notice {
        notice: Notice::done(format!("Changed the settings of the queue {shown}.")),
        to: Some(queue_address(view, shard.id(), &queue).as_str().to_owned()),
    })
}

/// The document that the fields stand for.
fn given(fields: &Params) -> Result<Map<String, Value>, Fault> {
    let mut document = Map::new();
    for (field, words, _) in FIELDS {
        let Some(text) = fields
            .text(field)?
            .map(str::trim)
            .filter(|text| !text.is_empty())
        else {
            continue;
        };
        let value = match *field {
            "lease_for" | "grace_for" | "alert_age" => Value::String(text.to_owned()),
            _ => serde_json::from_str(text).map_err(|error| {
                Fault::value(words, &format!("{text:?} cannot be read: {error}"))
            })?,
        };
        document.insert((*field).to_owned(), value);
    }
    document.insert("paused".to_owned(), Value::Bool(fields.has("paused")));
    let order = fields.text("due_order")?.unwrap_or("behind");
    document.insert("due_order".to_owned(), Value::String(order.to_owned()));
    Ok(document)
}
