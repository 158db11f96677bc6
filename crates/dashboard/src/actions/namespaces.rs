//! Changes the settings of a namespace.

use ganger_document::json;
use ganger_document::names::{show, text};
use ganger_document::settings::NamespaceSettingsDocument;
use ganger_types::command::ConfigureNamespace;
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, NamespaceSettings, Reply};
use maud::html;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::frame::Hidden;
use crate::links::Address;
use crate::notice::Notice;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{do_address, fields, refused};

use super::{Done, Form, apply};

type Fields = Map<String, Value>;

/// The settings of the namespace of the view on the shard that answers for it, field by field.
async fn current(view: &View) -> Result<Fields, Fault> {
    let shard = view.home();
    let Reply::Namespaces(records) = view.ask(shard, Query::Namespaces).await? else {
        return Err(Fault::unexpected_reply());
    };
    let found = records
        .into_iter()
        .find(|record| record.namespace == *view.namespace());
    let settings = found.map_or_else(NamespaceSettings::default, |record| record.settings);
    match serde_json::to_value(NamespaceSettingsDocument::from(&settings)) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

/// The page with the form of all settings.
pub(crate) async fn settings_form(view: &View, query: &str) -> Result<Page, Stop> {
    Params::read(query, &[])?;
    view.rights.check("setNamespace")?;
    let settings = current(view).await?;
    let back = address(view, view.namespace()).as_str().to_owned();
    let hidden = Hidden::new(view, back);
    Ok(form_page(view, &settings, &settings, None, &hidden))
}

fn address(view: &View, namespace: &Namespace) -> Address {
    let page = view.links.to("/namespaces");
    page.name("name", namespace.as_bytes())
}

fn form_page(
    view: &View,
    before: &Fields,
    shown: &Fields,
    refusal: Option<&Fault>,
    hidden: &Hidden,
) -> Page {
    let namespace = view.namespace();
    let heading = format!(
        "Settings of the namespace {}",
        plain(&text(namespace.as_bytes()))
    );
    let content = html! {
        h1 { "Settings of the namespace " (name(namespace.as_bytes())) }
        @if let Some(fault) = refusal { (refused(fault)) }
        form.settings method="post" action=(do_address(view, "setNamespace")) {
            (hidden.markup())
            input type="hidden" name="with" value=(fields(view, &[]));
            input type="hidden" name="before" value=(Value::Object(before.clone()).to_string());
            @for (field, value) in shown {
                label { (isolated(field)) input name={ "set-" (field) } value=(value) autocomplete="off"; }
            }
            p.soft { "Each value is JSON: a text stands in quotation marks, null is no limit. The new settings hold on every shard of this server." }
            div.actions {
                a.button href=(address(view, namespace)) { "Back" }
                button.primary { "Save settings" }
            }
        }
    };
    Page::new(heading, "", content).still()
}

/// Sets all settings on every shard of the server, unless they are others than when the form was made.
pub(super) async fn set(view: &View, form: &Form) -> Result<Done, Fault> {
    let found = current(view).await?;
    let before: Fields =
        serde_json::from_str(form.fields.text("before")?.unwrap_or("{}")).unwrap_or_default();
    let again = |fault: &Fault, shown: &Fields| {
        let hidden = Hidden::again(view, form);
        let page = form_page(view, &found, shown, Some(fault), &hidden);
        Done::Page(page.status((view.site.settings.status_of)(fault.code)))
    };
    let given = match given(&form.fields, &found) {
        Ok(given) => given,
        Err(fault) => return Ok(again(&fault, &found)),
    };
    if before != found {
        let fault = Fault::new(
            "wrong_state",
            "Changed meanwhile",
            "Somebody has changed the settings since this form was made. Look at what you changed, then save again.",
        );
        return Ok(again(&fault, &given));
    }
    let document = Value::Object(given.clone()).to_string();
    let settings: NamespaceSettingsDocument = match json::read(document.as_bytes()) {
        Ok(settings) => settings,
        Err(error) => {
            let fault = Fault::new(error.code, "Not changed", error.detail);
            return Ok(again(&fault, &given));
        }
    };
    let settings: NamespaceSettings = settings.into();
    for shard in view.all() {
        let command = ConfigureNamespace {
            namespace: view.namespace().clone(),
            settings: settings.clone(),
        };
        if let Err(fault) = apply(shard, Command::ConfigureNamespace(Box::new(command))).await {
            return Ok(again(&fault, &given));
        }
    }
    let changed = given
        .iter()
        .filter(|(field, value)| found.get(*field) != Some(value))
        .map(|(field, value)| {
            let old = found.get(field).unwrap_or(&Value::Null);
            format!("{field} from {old} to {value}")
        });
    let changed: Vec<String> = changed.collect();
    let shown = plain(&show(view.namespace().as_bytes()));
    let text = if changed.is_empty() {
        format!("The settings of the namespace {shown} are as before.")
    } else {
        format!("Changed the namespace {shown}: {}.", changed.join(", "))
    };
    Ok(Done::Notice {
        notice: Notice::done(text),
        to: Some(address(view, view.namespace()).as_str().to_owned()),
    })
}

/// The document that the fields of the form stand for.
fn given(form: &Params, known: &Fields) -> Result<Fields, Fault> {
    let mut document = Map::new();
    for field in known.keys() {
        let Some(text) = form.text(&format!("set-{field}"))? else {
            continue;
        };
        let value = serde_json::from_str(text)
            .map_err(|error| Fault::value(field, &format!("{text:?} is not JSON: {error}")))?;
        document.insert(field.clone(), value);
    }
    Ok(document)
}
