//! Namespaces: list and configure.

use axum::Extension;
use axum::response::Response;
use ganger_access::Identity;
use ganger_document::settings::NamespaceSettingsDocument;
use ganger_document::view::queue::{NamespaceView, NamespacesDoc};
use ganger_types::command::ConfigureNamespace;
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, NamespaceRecord, NamespaceSettings, Reply};

use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;

/// Lists the namespaces in which the caller may do something.
pub(crate) async fn list(
    Extension(identity): Extension<Identity>,
    context: RequestContext,
) -> Result<Response, Problem> {
    match context
        .call(Command::Query(Box::new(Query::Namespaces)))
        .await?
    {
        Reply::Namespaces(records) => {
            let namespaces = records
                .into_iter()
                .filter(|record| identity.may_list(record.namespace.as_bytes()))
                .map(NamespaceView::from)
                .collect();
            Ok(json::ok(&NamespacesDoc { namespaces }))
        }
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn put(
    context: RequestContext,
    JsonBody(given): JsonBody<NamespaceSettingsDocument>,
) -> Result<Response, Problem> {
    let name: Namespace = context.name()?;
    let settings: NamespaceSettings = given.into();
    let command = ConfigureNamespace {
        namespace: name.clone(),
        settings: settings.clone(),
    };
    context
        .call(Command::ConfigureNamespace(Box::new(command)))
        .await?;
    Ok(json::ok(&NamespaceView::from(NamespaceRecord {
        namespace: name,
        settings,
    })))
}
