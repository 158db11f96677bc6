//! Actions on many jobs: those that were selected, or all that a filter matches.
//!
//! A filter is first tried without changing anything: the question names the numbers. Then each shard starts an operation;
//! jobs created after the question are left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures::future::join_all;
use ganger_document::names::{read, show};
use ganger_shard::{BulkAction, BulkResult};
use ganger_types::operation::JobFilter;
use ganger_types::query::JobQuery;
use ganger_types::{JobId, JobRef, JobState, OperationAction, ShardId, Timestamp};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::filter::Filter;
use crate::format::{count, exact, plural};
use crate::links::job_name;
use crate::notice::Notice;
use crate::pages::find_job;
use crate::question::Shard;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;

use super::changes::{self, Changed};
use super::jobs::reason_field;
use super::operations;
use super::{ASK_FORM, Done, Form, Question, SELECTED_MAX};

/// Jobs of a shard that one action looks at.
pub(super) const LOOKED_MAX: usize = 100_000;
/// Above so many jobs their number must be typed.
const TYPED_ABOVE: u64 = 1_000;
/// Times over which a retry can be spread, so that it does not overload what has just come back: words and seconds.
const SPREADS: &[(&str, u64)] = &[("1 min", 60), ("10 min", 600), ("1 h", 3_600)];
/// Jobs that a question names, and skipped ones that a notice names.
const NAMED: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JobsAction {
    Retry,
    Cancel,
    Delete,
}

impl JobsAction {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Cancel => "Cancel",
            Self::Delete => "Delete",
        }
    }

    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Retry => "Retried",
            Self::Cancel => "Cancelled",
            Self::Delete => "Deleted",
        }
    }

    /// The operation that it is.
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Retry => "retryJobs",
            Self::Cancel => "cancelJobs",
            Self::Delete => "deleteJobs",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Retry => "Each goes back on its queue with a new series of attempts.",
            Self::Cancel => {
                "What runs loses its lease. Jobs that wait for them fail, wait or go on, as their dependencies say."
            }
            Self::Delete => {
                "Their payloads, results, logs and histories are removed. This cannot be undone."
            }
        }
    }

    /// What an operation does with each job.
    pub(super) fn operation(self) -> OperationAction {
        match self {
            Self::Retry => OperationAction::Retry { queue: None },
            Self::Cancel => OperationAction::Cancel,
            Self::Delete => OperationAction::Delete,
        }
    }

    pub(super) fn bulk(self, reason: &str) -> BulkAction {
        match self {
            Self::Retry => BulkAction::Retry {
                queue: None,
                dependents: false,
                graph: None,
            },
            Self::Cancel => BulkAction::Cancel {
                reason: reason.to_owned(),
            },
            Self::Delete => BulkAction::Delete,
        }
    }
}

pub(super) async fn run(view: &View, form: &Form, chosen: JobsAction) -> Result<Done, Fault> {
    match form.with.text("scope")? {
        Some("selected") => selected(view, form, chosen).await,
        _ => matching(view, form, chosen).await,
    }
}

/// A selected job: its shard, its id and its state.
pub(super) type Chosen = (ShardId, JobId, JobState);

/// The selected jobs, in the order of the form.
pub(super) async fn chosen_jobs(view: &View, form: &Form) -> Result<Vec<Chosen>, Fault> {
    let given = form.fields.texts("job")?;
    let given = if given.is_empty() {
        form.with.texts("job")?
    } else {
        given
    };
    if given.is_empty() {
        return Err(Fault::value(
            "job",
            "no job is selected: select some, then press the button again",
        ));
    }
    if given.len() > SELECTED_MAX {
        return Err(Fault::value(
            "job",
            &format!(
                "{} jobs are selected, the limit is {SELECTED_MAX}: use a filter",
                given.len()
            ),
        ));
    }
    let mut jobs = Vec::new();
    for reference in given {
        let reference = read(reference.as_bytes());
        let named = JobRef::read(&reference, view.home().id());
        let named = named.map_err(|error| Fault::value("job", &error.to_string()))?;
        if reference.contains(&b'/') {
            jobs.push((named.shard, named.id));
        } else {
            let (shard, job) = find_job(view, &reference).await?;
            jobs.push((shard.id().clone(), job.record.id));
        }
    }
    with_states(view, jobs).await
}

/// Finds the state of each job; one that is gone is a fault.
async fn with_states(view: &View, jobs: Vec<(ShardId, JobId)>) -> Result<Vec<Chosen>, Fault> {
    let mut by_shard: BTreeMap<&ShardId, Vec<JobId>> = BTreeMap::new();
    for (shard, id) in &jobs {
        by_shard.entry(shard).or_default().push(id.clone());
    }
    let mut states = BTreeMap::new();
    for (shard, jobs) in by_shard {
        let question = changes::States { jobs };
        let answer = view.known_place_of(shard)?.ask(view, &question).await?;
        states.insert(shard.clone(), answer.into_iter());
    }
    let mut chosen = Vec::new();
    for (shard, id) in jobs {
        let state = states.get_mut(&shard).and_then(Iterator::next).flatten();
        let state = state.ok_or_else(|| {
            let name = plain(&job_name(&shard, &id));
            Fault::missing("job_not_found", format!("There is no job {name}"))
        })?;
        chosen.push((shard, id, state));
    }
    Ok(chosen)
}

async fn selected(view: &View, form: &Form, chosen: JobsAction) -> Result<Done, Fault> {
    let jobs = chosen_jobs(view, form).await?;
    let number = plural(u64::try_from(jobs.len()).unwrap_or(u64::MAX), "job");
    if !form.is_confirmed() {
        let names: Vec<String> = jobs
            .iter()
            .map(|(shard, id, _)| job_name(shard, id))
            .collect();
        let mut pairs: Vec<(&str, &str)> =
            names.iter().map(|name| ("job", name.as_str())).collect();
        pairs.push(("scope", "selected"));
        let content = html! {
            (list_of(&jobs))
            p { (chosen.consequence()) }
            @if chosen == JobsAction::Cancel { (reason_field()) }
        };
        let question = Question {
            heading: format!("{} {number}?", chosen.verb()),
            content,
            button: format!("{} {number}", chosen.verb()),
            action: chosen.action(),
            pairs: &pairs,
            is_danger: chosen != JobsAction::Retry,
        };
        return Ok(question.page(view, form));
    }
    let reason = form.fields.text("reason")?.unwrap_or_default();
    let act = |jobs| changes::Act {
        chosen,
        reason: reason.to_owned(),
        jobs,
    };
    let changed = on_each(view, jobs, act).await?;
    Ok(notice_of(chosen.done(), &changed))
}

/// Changes selected jobs, shard by shard. Those of a server that does not answer count as left out.
pub(super) async fn on_each<Q: crate::question::Question<Answer = Changed>>(
    view: &View,
    jobs: Vec<Chosen>,
    question: impl Fn(Vec<JobId>) -> Q,
) -> Result<Changed, Fault> {
    let mut by_shard: BTreeMap<ShardId, Vec<JobId>> = BTreeMap::new();
    for (shard, id, _) in jobs {
        by_shard.entry(shard).or_default().push(id);
    }
    let is_single = by_shard.len() == 1;
    let mut all = Changed::default();
    for (shard, jobs) in by_shard {
        let names = jobs.iter().map(|id| plain(&job_name(&shard, id)));
        let names: Vec<String> = names.collect();
        match view
            .known_place_of(&shard)?
            .ask(view, &question(jobs))
            .await
        {
            Ok(changed) => {
                all.jobs += changed.jobs;
                all.skipped.extend(changed.skipped);
            }
            Err(fault) if is_single => return Err(fault),
            Err(fault) => {
                let why = if fault.code == "unavailable" {
                    format!("{}, look at it again", fault.heading)
                } else {
                    fault.detail
                };
                let reason = |name| format!("{name}: {why}");
                all.skipped.extend(names.into_iter().map(reason));
            }
        }
    }
    Ok(all)
}

/// What was done, in a word such as `Retried`.
pub(super) fn notice_of(done: &str, changed: &Changed) -> Done {
    let skipped = u64::try_from(changed.skipped.len()).unwrap_or(u64::MAX);
    notice(done, changed.jobs, skipped, &changed.skipped)
}

/// The first of the selected jobs, and how many more there are.
pub(super) fn list_of(jobs: &[Chosen]) -> Markup {
    html! {
        ul {
            @for (shard, id, state) in jobs.iter().take(NAMED) { li { (isolated(&job_name(shard, id))) " " (svg::state(*state)) } }
            @if jobs.len() > NAMED { li { "and " (jobs.len() - NAMED) " more" } }
        }
    }
}

/// What was done, in a word such as `Retried`, to how many jobs, and why others were left out.
pub(super) fn notice(done: &str, changed: u64, skipped: u64, reasons: &[String]) -> Done {
    let mut text = format!("{done} {}", plural(changed, "job"));
    if skipped > 0 {
        write!(text, ", skipped {}", count(skipped)).expect("strings take everything");
    }
    if !reasons.is_empty() {
        let named = reasons
            .iter()
            .take(NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        write!(text, ": {named}").expect("strings take everything");
    }
    text.push('.');
    let notice = if changed > 0 || skipped == 0 {
        Notice::done(text)
    } else {
        Notice::refused(text)
    };
    Done::Notice { notice, to: None }
}

/// What a filter matches, over all shards of the view.
pub(super) struct DryRun {
    pub(super) shards: Vec<(Shard, BulkResult)>,
}

impl DryRun {
    /// Number of jobs that would be changed, as far as they were looked at.
    pub(super) fn would_change(&self) -> u64 {
        self.sum(|result| result.changed)
    }

    fn sum(&self, of: fn(&BulkResult) -> u64) -> u64 {
        self.shards.iter().map(|(_, result)| of(result)).sum()
    }

    /// Whether more jobs match than were looked at.
    pub(super) fn is_bounded(&self) -> bool {
        self.shards.iter().any(|(_, result)| result.next.is_some())
    }
}

async fn matching(view: &View, form: &Form, chosen: JobsAction) -> Result<Done, Fault> {
    let filter = Filter::read(&form.with, view.namespace(), &view.clock.zone)?;
    if filter.is_empty() {
        return Err(Fault::value(
            "filter",
            "has no condition, so it would mean every job: filter the list first",
        ));
    }
    let until = match form.with.text("until")? {
        Some(text) => text
            .parse()
            .map(Timestamp)
            .map_err(|_| Fault::value("until", "is not a time of ours"))?,
        None => view.clock.now,
    };
    let mut query = filter.query.clone();
    let bound = until.after(std::time::Duration::from_micros(1));
    query.created_before = Some(query.created_before.map_or(bound, |own| own.min(bound)));
    let shards = match form.with.text("shard")? {
        Some(_) => vec![Shard::Here(form.shard(view)?.clone())],
        None => view.everywhere().to_vec(),
    };
    if !form.is_confirmed() {
        let dry_run = try_all(view, &shards, chosen, &query).await?;
        return Ok(ask(view, form, chosen, &filter, until, &dry_run, None));
    }
    if let Some(refusal) = wrong_number(form)? {
        let dry_run = try_all(view, &shards, chosen, &query).await?;
        let refusal = Some(refusal);
        return Ok(ask(view, form, chosen, &filter, until, &dry_run, refusal));
    }
    let dry_run = try_all(view, &shards, chosen, &query).await?;
    let wanted = operations::Wanted {
        filter: JobFilter::of(query),
        spread_over: form.fields.text("spread_over")?.and_then(spread),
        reason: form.fields.text("reason")?.unwrap_or_default().to_owned(),
        is_all: !dry_run.is_bounded(),
    };
    let found = dry_run.shards.into_iter();
    let found = found.map(|(shard, result)| (shard, result.changed));
    operations::start(view, chosen, wanted, found.collect()).await
}

/// What to say if the question wanted the number of jobs to be typed, and another one was.
pub(super) fn wrong_number(form: &Form) -> Result<Option<&'static str>, Fault> {
    let Some(wanted) = form.with.text("typed")? else {
        return Ok(None);
    };
    let typed = form.fields.text("number")?.unwrap_or_default();
    let is_right = typed.replace([',', ' '], "") == wanted;
    Ok((!is_right).then_some("The number that was typed is another."))
}

/// The time over which a form asks to spread a retry; `None`: at once.
pub(super) fn spread(text: &str) -> Option<Duration> {
    SPREADS
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, seconds)| Duration::from_secs(*seconds))
}

/// Tries the action on each shard, without changing anything.
pub(super) async fn try_all(
    view: &View,
    shards: &[Shard],
    chosen: JobsAction,
    query: &JobQuery,
) -> Result<DryRun, Fault> {
    let question = changes::Try {
        chosen,
        query: query.clone(),
    };
    let results = shards.iter().map(|shard| shard.ask(view, &question));
    let results: Result<Vec<BulkResult>, Fault> = join_all(results).await.into_iter().collect();
    Ok(DryRun {
        shards: shards.iter().cloned().zip(results?).collect(),
    })
}

/// The question before an action on all that match, with the numbers of the dry run.
fn ask(
    view: &View,
    form: &Form,
    chosen: JobsAction,
    filter: &Filter,
    until: Timestamp,
    dry_run: &DryRun,
    refusal: Option<&str>,
) -> Done {
    let would = dry_run.sum(|it| it.changed);
    let bound = if dry_run.is_bounded() {
        "at least "
    } else {
        ""
    };
    let number = plural(would, "job");
    let (until_text, typed) = (until.0.to_string(), typed(would));
    let shard = form.with.text("shard").ok().flatten();
    let mut pairs: Vec<(&str, &str)> = filter
        .pairs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    pairs.extend([("scope", "all"), ("until", until_text.as_str())]);
    pairs.extend(shard.map(|shard| ("shard", shard)));
    pairs.extend(typed.as_deref().map(|typed| ("typed", typed)));
    let content = html! {
        @if let Some(refusal) = refusal { div.alert role="alert" { p { (refusal) } } }
        p { "These match the filter: " (bound) strong { (number) } "."
            @let skipped = dry_run.sum(|it| it.skipped);
            @if skipped > 0 { " " (plural(skipped, "other job")) " match too and are left out: their states do not allow it." } }
        (numbers(dry_run))
        p { "Jobs created after " time datetime=(exact(until)) { (view.clock.text(until)) } " are left out. " (chosen.consequence()) }
        @if chosen == JobsAction::Cancel { (reason_field()) }
        @if chosen == JobsAction::Retry { (spread_field()) }
        (number_field(would))
    };
    let question = Question {
        heading: format!("{} {bound}{number}?", chosen.verb()),
        content,
        button: format!("{} {number}", chosen.verb()),
        action: chosen.action(),
        pairs: &pairs,
        is_danger: chosen != JobsAction::Retry,
    };
    question.page(view, form)
}

/// The number that must be typed; `None` for so few jobs that none must be.
pub(super) fn typed(would: u64) -> Option<String> {
    (would > TYPED_ABOVE).then(|| would.to_string())
}

/// The field for the number, where one must be typed.
pub(super) fn number_field(would: u64) -> Markup {
    html! {
        @if typed(would).is_some() { p { label { "Type the number " (count(would)) " " input name="number" form=(ASK_FORM) required inputmode="numeric" autocomplete="off"; } } }
    }
}

pub(super) fn spread_field() -> Markup {
    html! {
        p { label { "Spread over "
            select name="spread_over" form=(ASK_FORM) {
                option value="" { "no time: at once" }
                @for (word, _) in SPREADS { option value=(word) { (word) } }
            }
        } }
    }
}

pub(super) fn numbers(dry_run: &DryRun) -> Markup {
    let (mut states, mut queues) = (
        BTreeMap::<JobState, u64>::new(),
        BTreeMap::<Vec<u8>, u64>::new(),
    );
    let mut samples = Vec::new();
    for (shard, result) in &dry_run.shards {
        for (state, number) in &result.by_state {
            *states.entry(*state).or_default() += number;
        }
        for (queue, number) in &result.by_queue {
            *queues.entry(queue.as_bytes().to_vec()).or_default() += number;
        }
        samples.extend(result.sample.iter().map(|id| job_name(shard.id(), id)));
    }
    html! {
        ul.numbers {
            @for (state, number) in states { li { (count(number)) " " (svg::state(state)) } }
            @for (queue, number) in queues.iter().take(NAMED) { li { (count(*number)) " in the queue " (name(queue)) } }
            @if queues.len() > NAMED { li { "and in " (queues.len() - NAMED) " more queues" } }
        }
        @if !samples.is_empty() {
            p { "Among them: " @for sample in samples.iter().take(NAMED) { (isolated(&show(sample.as_bytes()))) " " } }
        }
    }
}
