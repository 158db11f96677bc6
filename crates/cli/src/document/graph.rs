//! Arrays and objects: which form a document has, and its jobs in order.

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::Document;
use super::enq;
use super::job::{JobIn, Members};
use super::problem::{Problem, parse};

/// A graph of our own form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphIn<'a> {
    #[serde(borrow)]
    jobs: Vec<&'a RawValue>,
    idempotency_key: Option<String>,
}

/// Tells the forms apart by the fields that only one of them has.
#[derive(Deserialize)]
struct Probe {
    kind: Option<IgnoredAny>,
    jobs: Option<IgnoredAny>,
    task_id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
}

impl Probe {
    fn is_task(&self) -> bool {
        self.task_id.is_some() || self.method.is_some()
    }
}

/// Reads an array: task specs, or jobs of our own form.
pub(super) fn read_array(text: &[u8]) -> Result<Document, Problem> {
    let items = split::<Vec<&RawValue>>(text)?;
    let Some(first) = items.first() else {
        return Err(Problem::new("the submission is empty: it has no tasks"));
    };
    let probe: Option<Probe> = serde_json::from_str(first.get()).ok();
    if probe.is_some_and(|probe| probe.kind.is_some() && !probe.is_task()) {
        return jobs(text, &items, None);
    }
    let tasks = each(text, &items, "task")?;
    let converted = enq::convert(tasks)?;
    Ok(Document {
        jobs: converted.jobs,
        called: converted.called,
        is_single: false,
        idempotency_key: None,
    })
}

/// Reads an object: a graph, one task spec, or one job.
pub(super) fn read_object(text: &[u8]) -> Result<Document, Problem> {
    let probe: Probe = parse(text)?;
    if probe.jobs.is_some() {
        let graph = split::<GraphIn<'_>>(text)?;
        return jobs(text, &graph.jobs, graph.idempotency_key);
    }
    if probe.is_task() {
        let converted = enq::convert(vec![parse(text)?])?;
        return Ok(Document {
            jobs: converted.jobs,
            called: converted.called,
            is_single: false,
            idempotency_key: None,
        });
    }
    let job: JobIn = parse(text)?;
    let called = vec![job.name.clone().or_else(|| job.id.clone())];
    let jobs = vec![job.convert_alone()?];
    Ok(Document {
        jobs,
        called,
        is_single: true,
        idempotency_key: None,
    })
}

fn jobs(
    text: &[u8],
    items: &[&RawValue],
    idempotency_key: Option<String>,
) -> Result<Document, Problem> {
    if items.is_empty() {
        return Err(Problem::new("the submission is empty: it has no jobs"));
    }
    let all: Vec<JobIn> = each(text, items, "job")?;
    let members = members(&all)?;
    let mut out = Document {
        jobs: Vec::with_capacity(all.len()),
        called: Vec::with_capacity(all.len()),
        is_single: false,
        idempotency_key,
    };
    for (place, job) in all.into_iter().enumerate() {
        let caption = job.caption(place);
        out.called.push(job.name.clone().or_else(|| job.id.clone()));
        out.jobs.push(
            job.convert(&members)
                .map_err(|problem| problem.of(caption))?,
        );
    }
    Ok(out)
}

fn members(jobs: &[JobIn]) -> Result<Members, Problem> {
    let mut members = Members::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let Some(name) = &job.name else { continue };
        let index = u32::try_from(place)
            .map_err(|_| Problem::new(format!("{} jobs are too many at once", jobs.len())))?;
        if let Some(earlier) = members.insert(name.clone(), index) {
            return Err(Problem::new(format!(
                "job {place} is named {name:?} like job {earlier}: each name stands for one job"
            )));
        }
    }
    Ok(members)
}

/// Reads the outer shape, with parts that borrow from the text.
fn split<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|_| {
        // Again, for the words and the place.
        match parse::<Box<RawValue>>(text) {
            Err(problem) => problem,
            Ok(_) => parse::<GraphProbe>(text)
                .err()
                .unwrap_or_else(|| Problem::new("the document has an unknown shape")),
        }
    })
}

/// As [`GraphIn`], owned, for the message alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphProbe {
    #[expect(dead_code, reason = "only reading it is of interest")]
    jobs: Vec<IgnoredAny>,
    #[expect(dead_code, reason = "only reading it is of interest")]
    idempotency_key: Option<String>,
}

/// Reads the items one by one, so that a problem names its item.
fn each<T: DeserializeOwned>(
    text: &[u8],
    items: &[&RawValue],
    word: &str,
) -> Result<Vec<T>, Problem> {
    let read = |(place, item): (usize, &&RawValue)| {
        parse(item.get().as_bytes()).map_err(|problem| {
            let name = call(item)
                .map(|name| format!(" ({name})"))
                .unwrap_or_default();
            let problem = problem.of(format_args!("{word} {place}{name}"));
            problem.within(text, offset(text, item.get()))
        })
    };
    items.iter().enumerate().map(read).collect()
}

/// Where `part`, a piece of `text`, begins.
fn offset(text: &[u8], part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}

/// How a broken item calls itself, as far as it can be told.
fn call(item: &RawValue) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(item.get()).ok()?;
    let word = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    if let Some(task) = value.get("task_id") {
        return Some(format!(
            "{}/{}",
            word(task.get("shard")?)?,
            word(task.get("id")?)?
        ));
    }
    value.get("name").or_else(|| value.get("id")).and_then(word)
}
