//! Which page is at which address, and which events it must be made again for.

use ganger_document::names::read;
use ganger_types::{JobId, Namespace, Queue};

use crate::data::attention;
use crate::fault::Fault;
use crate::links::OF_ALL_NAMESPACES;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::view::View;

/// The page at a path below `/ui`, with the line of what needs attention above it. Overview has the whole list.
pub(crate) async fn build(view: &View, path: &str, query: &str) -> Result<Page, Stop> {
    if view.is_of_all_namespaces() && !OF_ALL_NAMESPACES.contains(&path) {
        let one = view.in_namespace(Namespace::default());
        return Err(Stop::Elsewhere(one.links.to(path).as_str().to_owned()));
    }
    // In a box: inlined in both branches below, the code of all pages would be there twice.
    let page = Box::pin(page_at(view, path, query));
    if path == "/" || !view.rights.may_read("getAttention") {
        return page.await;
    }
    let (page, items) = futures::future::join(page, attention::items(view)).await;
    let line = attention::line(view, &items);
    Ok(page?.first("part-attention-line", line))
}

async fn page_at(view: &View, path: &str, query: &str) -> Result<Page, Stop> {
    match path {
        "/" if view.is_of_all_namespaces() => Ok(super::all_namespaces::page(view, query).await?),
        "/" => Ok(super::overview::page(view, query).await?),
        "/queues" => Ok(super::queues::page(view, query).await?),
        "/queue" => super::queue::page(view, query).await,
        "/queue/settings" => crate::actions::settings_form(view, query).await,
        "/jobs" => super::jobs::page(view, query).await,
        "/jobs/new" => super::new_job::page(view, query).await,
        "/job" => super::job::page(view, query).await,
        "/graphs" => super::graphs::page(view, query).await,
        "/graph" => super::graph::page(view, query).await,
        "/failures" => super::failures::page(view, query).await,
        "/failure" => super::failures::one(view, query).await,
        "/schedules" => super::schedules::page(view, query).await,
        "/schedules/new" => super::schedule_form::new_page(view, query),
        "/schedule" => super::schedule::page(view, query).await,
        "/schedule/edit" => super::schedule_form::edit_page(view, query).await,
        "/workers" => super::workers::page(view, query).await,
        "/worker" => super::worker::page(view, query).await,
        "/stats" => super::stats::page(view, query).await,
        "/events" => super::events::page(view, query).await,
        "/operations" => super::operations::page(view, query).await,
        "/operation" => super::operations::one(view, query).await,
        "/audit" => super::audit::page(view, query).await,
        "/namespaces" => super::namespaces::page(view, query).await,
        "/namespaces/settings" => crate::actions::namespace_form(view, query).await,
        "/shards" => super::shards::page(view, query).await,
        "/search" => super::search::page(view, query).await,
        "/about" => Ok(super::about::page(view, query)?),
        _ => Err(no_such_page(path).into()),
    }
}

/// The paths of pages.
pub(crate) const PATHS: &[&str] = &[
    "/",
    "/queues",
    "/queue",
    "/queue/settings",
    "/jobs",
    "/jobs/new",
    "/job",
    "/graphs",
    "/graph",
    "/failures",
    "/failure",
    "/schedules",
    "/schedules/new",
    "/schedule",
    "/schedule/edit",
    "/workers",
    "/worker",
    "/stats",
    "/events",
    "/operations",
    "/operation",
    "/audit",
    "/namespaces",
    "/namespaces/settings",
    "/shards",
    "/search",
    "/about",
];

fn no_such_page(path: &str) -> Fault {
    Fault::new(
        "path_not_found",
        "There is no such page",
        format!("The dashboard has no page at {path:?}."),
    )
}

/// The events that a page depends on, besides those of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) queue: Option<Queue>,
    pub(crate) job: Option<JobId>,
}

/// What a page must be made again for. A page of one job or queue does not care for others.
pub(crate) fn interest(path: &str, query: &str) -> Interest {
    let params = Params::read_any(query);
    match path {
        "/queue" => Interest {
            queue: params.name("name").ok().flatten(),
            job: None,
        },
        "/job" => {
            let id = params.bytes("id").map(read).unwrap_or_default();
            let id = match id.iter().position(|byte| *byte == b'/') {
                Some(at) => &id[at + 1..],
                None => &id[..],
            };
            Interest {
                queue: None,
                job: JobId::new(id).ok(),
            }
        }
        _ => Interest::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_one_thing_is_made_again_for_that_thing_only() {
        let queue = interest("/queue", "name=mail").queue.expect("a queue");
        assert_eq!(queue.as_bytes(), b"mail");
        let job = interest("/job", "id=1/a/b&view=log").job.expect("a job");
        assert_eq!(job.as_bytes(), b"a/b");
        assert_eq!(interest("/jobs", "queue=mail"), Interest::default());
    }
}
