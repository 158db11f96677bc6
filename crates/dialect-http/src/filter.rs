//! Filters of listings and of bulk actions.

use std::time::Duration;

use ganger_document::names::read;
use ganger_types::cursor::read_ready_place;
use ganger_types::limits::{CONDITION_VALUES_MAX, PAGE_JOBS_MAX};
use ganger_types::query::{Budget, JobQuery, ReadyPlace};
use ganger_types::{JobState, JobStates, LabelKey, LabelValue, Namespace, PageCursor, Queue, Tag};

use crate::arguments::{Arguments, refused};
use crate::problem::Problem;

/// Default number of jobs on a page.
const PAGE_JOBS_DEFAULT: usize = 100;
/// Longest time that a request may let the server look.
const BUDGET_MAX: Duration = Duration::from_secs(10);

/// The conditions on jobs, as query parameters.
pub(crate) const CONDITIONS: &[(&str, &str)] = &[
    ("queue", "in this queue"),
    (
        "state",
        "in this state: blocked, scheduled, ready, running, succeeded, failed, cancelled; several with commas, \
         or the parameter repeated",
    ),
    ("kind", "of this kind"),
    ("kind_prefix", "of a kind that begins so"),
    ("id_prefix", "whose id begins so"),
    (
        "tag",
        "with this tag; repeated: with all of them, 16 at most",
    ),
    (
        "label",
        "with this label, as KEY=VALUE; repeated: with all of them, 16 at most",
    ),
    ("graph", "of this graph"),
    ("schedule", "made by this schedule"),
    ("group", "failed in this group"),
    ("failure_text", "whose failure message contains this text"),
    ("worker", "held by this worker"),
    ("unique_key", "with this unique key"),
    ("tracked", "true: tracked; false: not tracked"),
    ("attempt_min", "with at least so many attempts"),
    ("created_from", "created at or after this time"),
    ("created_before", "created before this time"),
    ("finished_from", "ended at or after this time"),
    ("finished_before", "ended before this time"),
    BUDGET,
];

/// The query parameter that bounds how much is looked at.
const BUDGET: (&str, &str) = (
    "budget",
    "time to look, such as 40ms, up to 10s; ends then, or after 20,000 records, and says so",
);

/// The query parameters of a listing of jobs.
pub(crate) const PARAMETERS: &[(&str, &str)] = &joined();

/// The query parameters of a page.
const PAGE: [(&str, &str); 4] = [
    (
        "order",
        "oldest (default) or newest first; finished_newest: the latest end first; runs_next: the ready jobs of a queue \
         as they will be leased",
    ),
    (
        "fields",
        "summary: without history and retry policy, messages cut at 200 bytes",
    ),
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "jobs on a page, 1 to 1000; 100 if absent"),
];

const fn joined() -> [(&'static str, &'static str); CONDITIONS.len() + PAGE.len()] {
    let mut all = [("", ""); CONDITIONS.len() + PAGE.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = if index < CONDITIONS.len() {
            CONDITIONS[index]
        } else {
            PAGE[index - CONDITIONS.len()]
        };
        index += 1;
    }
    all
}

/// The order of a listing, with the place where a page goes on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// By number, the oldest or the newest first; the query has the place.
    Number,
    /// The latest end first, after the end with this number.
    End(Option<u64>),
    /// The ready jobs of this queue in the order in which they are leased, after this place.
    Next(Queue, Option<ReadyPlace>),
}

/// A listing as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    pub(crate) query: JobQuery,
    pub(crate) order: Order,
    /// Whether histories and retry policies are left out.
    pub(crate) is_summary: bool,
}

#[derive(Clone, Copy)]
enum OrderWord {
    Oldest,
    Newest,
    FinishedNewest,
    RunsNext,
}

/// Parses the parameters of a listing.
pub(crate) fn from_arguments(
    arguments: &Arguments,
    namespace: Namespace,
) -> Result<Listing, Problem> {
    let mut query = conditions(arguments, namespace)?;
    let words = [
        ("oldest", OrderWord::Oldest),
        ("newest", OrderWord::Newest),
        ("finished_newest", OrderWord::FinishedNewest),
        ("runs_next", OrderWord::RunsNext),
    ];
    query.limit = limit(arguments)?;
    let order = match arguments
        .word("order", &words)?
        .unwrap_or(OrderWord::Oldest)
    {
        OrderWord::Oldest => Order::Number,
        OrderWord::Newest => {
            query.newest_first = true;
            Order::Number
        }
        OrderWord::FinishedNewest => Order::End(place(arguments, |text| text.parse().ok())?),
        OrderWord::RunsNext => {
            let reason = "runs_next is the order of one queue: name it with `queue`";
            let queue = query.queue.clone();
            let queue = queue.ok_or_else(|| refused("order", reason))?;
            Order::Next(queue, place(arguments, read_ready_place)?)
        }
    };
    if order == Order::Number {
        go_on(&mut query, arguments)?;
    }
    let is_summary = arguments.word("fields", &[("all", false), ("summary", true)])?;
    Ok(Listing {
        query,
        order,
        is_summary: is_summary.unwrap_or(false),
    })
}

fn place<T>(
    arguments: &Arguments,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let text = arguments.text("after")?;
    let place = text.map(|text| read(text).ok_or_else(|| no_place(text)));
    place.transpose()
}

fn no_place(text: &str) -> Problem {
    let reason = format!("{text:?} is not the `next` of a page in this order: send that unchanged");
    refused("after", &reason)
}

/// Parses the conditions: the parameters of a listing without its page.
pub(crate) fn conditions(arguments: &Arguments, namespace: Namespace) -> Result<JobQuery, Problem> {
    Ok(JobQuery {
        namespace,
        queue: arguments.name("queue")?,
        states: states(arguments)?,
        kind: arguments.name("kind")?,
        kind_prefix: arguments.prefix("kind_prefix")?,
        id_prefix: arguments.prefix("id_prefix")?,
        tags: tags(arguments)?,
        labels: labels(arguments)?,
        graph: arguments.name("graph")?,
        schedule: arguments.name("schedule")?,
        group: arguments.name("group")?,
        failure_text: arguments.text("failure_text")?.map(str::to_owned),
        worker: arguments.name("worker")?,
        unique_key: arguments.name("unique_key")?,
        tracked: arguments.word("tracked", &[("true", true), ("false", false)])?,
        attempt_min: attempt_min(arguments)?,
        created_from: arguments.moment("created_from")?,
        created_before: arguments.moment("created_before")?,
        finished_from: arguments.moment("finished_from")?,
        finished_before: arguments.moment("finished_before")?,
        budget: budget(arguments)?,
        ..JobQuery::default()
    })
}

fn attempt_min(arguments: &Arguments) -> Result<Option<u32>, Problem> {
    let given = arguments.number("attempt_min", 0, u64::from(u32::MAX))?;
    Ok(given.and_then(|number| u32::try_from(number).ok()))
}

/// How much the request lets the server look at; all of it if the request does not say.
fn budget(arguments: &Arguments) -> Result<Budget, Problem> {
    let Some(time) = arguments.span("budget")? else {
        return Ok(Budget::default());
    };
    if time.is_zero() || time > BUDGET_MAX {
        let reason = "must be longer than 0 and at most 10s, such as 40ms";
        return Err(refused("budget", reason));
    }
    Ok(Budget::of_page(time))
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

fn tags(arguments: &Arguments) -> Result<Vec<Tag>, Problem> {
    let tags = arguments
        .all("tag")
        .map(|bytes| Tag::new(read(bytes)).map_err(|error| refused("tag", &error.to_string())));
    at_most("tag", tags.collect::<Result<_, _>>()?)
}

fn labels(arguments: &Arguments) -> Result<Vec<(LabelKey, LabelValue)>, Problem> {
    let labels = arguments.all("label").map(label);
    at_most("label", labels.collect::<Result<_, _>>()?)
}

fn at_most<T>(name: &str, values: Vec<T>) -> Result<Vec<T>, Problem> {
    if values.len() <= CONDITION_VALUES_MAX {
        return Ok(values);
    }
    let reason = format!(
        "is given {} times: give it at most {CONDITION_VALUES_MAX} times",
        values.len()
    );
    Err(refused(name, &reason))
}

fn label(given: &[u8]) -> Result<(LabelKey, LabelValue), Problem> {
    let split = given.iter().position(|byte| *byte == b'=');
    let split = split.ok_or_else(|| refused("label", "must be KEY=VALUE"))?;
    let too_long = |error: ganger_types::NameError| refused("label", &error.to_string());
    let key = LabelKey::new(read(&given[..split])).map_err(too_long)?;
    let value = LabelValue::new(read(&given[split + 1..])).map_err(too_long)?;
    Ok((key, value))
}
