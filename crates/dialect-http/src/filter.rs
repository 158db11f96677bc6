//! Filters of listings and of bulk actions.

use ganger_document::names::read;
use ganger_types::query::JobQuery;
use ganger_types::{
    JobState, JobStates, LabelKey, LabelValue, Namespace, PageCursor, limits::PAGE_JOBS_MAX,
};

use crate::arguments::{Arguments, refused};
use crate::problem::Problem;

/// Default number of jobs on a page.
const PAGE_JOBS_DEFAULT: usize = 100;

/// The query parameters of a listing of jobs.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[
    ("queue", "in this queue"),
    (
        "state",
        "in this state: blocked, scheduled, ready, running, succeeded, failed, cancelled; several with commas, \
         or the parameter repeated",
    ),
    ("kind", "of this kind"),
    ("tag", "with this tag"),
    ("label", "with this label, as KEY=VALUE"),
    ("graph", "of this graph"),
    ("schedule", "made by this schedule"),
    ("group", "failed in this group"),
    ("failure_text", "whose failure message contains this text"),
    ("worker", "held by this worker"),
    ("created_from", "created at or after this time"),
    ("created_before", "created before this time"),
    ("order", "oldest (default) or newest first"),
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "jobs on a page, 1 to 1000; 100 if absent"),
];

/// The query parameters of a count: those of a listing without its page.
pub(crate) const CONDITIONS: &[(&str, &str)] = PARAMETERS.split_at(PARAMETERS.len() - 3).0;

/// Parses the parameters of a listing.
pub(crate) fn from_arguments(
    arguments: &Arguments,
    namespace: Namespace,
) -> Result<JobQuery, Problem> {
    let mut query = conditions(arguments, namespace)?;
    query.newest_first = arguments
        .word("order", &[("oldest", false), ("newest", true)])?
        .unwrap_or(false);
    query.limit = limit(arguments)?;
    go_on(&mut query, arguments)?;
    Ok(query)
}

/// Parses the conditions: the parameters of a listing without its page.
pub(crate) fn conditions(arguments: &Arguments, namespace: Namespace) -> Result<JobQuery, Problem> {
    Ok(JobQuery {
        namespace,
        queue: arguments.name("queue")?,
        states: states(arguments)?,
        kind: arguments.name("kind")?,
        tag: arguments.name("tag")?,
        label: label(arguments)?,
        graph: arguments.name("graph")?,
        schedule: arguments.name("schedule")?,
        group: arguments.name("group")?,
        failure_text: arguments.text("failure_text")?.map(str::to_owned),
        worker: arguments.name("worker")?,
        created_from: arguments.moment("created_from")?,
        created_before: arguments.moment("created_before")?,
        ..JobQuery::default()
    })
}

/// The requested states: comma-separated words, or a repeated parameter, or both.
fn states(arguments: &Arguments) -> Result<JobStates, Problem> {
    let given = arguments.texts("state")?;
    if given.is_empty() {
        return Ok(JobStates::ALL);
    }
    let given = given.join(",");
    JobStates::parse(&given).ok_or_else(|| {
        let known = JobState::ALL.map(JobState::as_str).join(", ");
        refused(
            "state",
            &format!("must be one of {known}, or several with commas, not {given:?}"),
        )
    })
}

/// The number of jobs on a page.
pub(crate) fn limit(arguments: &Arguments) -> Result<usize, Problem> {
    let most = u64::try_from(PAGE_JOBS_MAX).unwrap_or(u64::MAX);
    let given = arguments.number("limit", 1, most)?;
    Ok(given
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(PAGE_JOBS_DEFAULT))
}

/// Continues the query at the cursor that the client sent, the `next` of the previous page.
pub(crate) fn go_on(query: &mut JobQuery, arguments: &Arguments) -> Result<(), Problem> {
    let Some(text) = arguments.text("after")? else {
        return Ok(());
    };
    let place: PageCursor = text.parse().map_err(|_| {
        refused(
            "after",
            &format!("{text:?} is not the `next` of a page: send that unchanged"),
        )
    })?;
    query.go_on(place);
    Ok(())
}

fn label(arguments: &Arguments) -> Result<Option<(LabelKey, LabelValue)>, Problem> {
    let Some(text) = arguments.text("label")? else {
        return Ok(None);
    };
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| refused("label", "must be KEY=VALUE"))?;
    let too_long = |error: ganger_types::NameError| refused("label", &error.to_string());
    let key = LabelKey::new(read(key.as_bytes())).map_err(too_long)?;
    let value = LabelValue::new(read(value.as_bytes())).map_err(too_long)?;
    Ok(Some((key, value)))
}
