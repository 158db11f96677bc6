//! `tag`: adds tags to a job and removes them, finds jobs by tag, and lists the most frequent tags.

use bytes::Bytes;
use ganger_types::qless::{Generation, QlessAnswer, QlessRefusal, QlessTag};

use crate::call::{Arguments, Call, refuse};
use crate::json::{Writer, tag_text};
use crate::pages::{by_limit, by_range};
use crate::procedures::tags;
use crate::state::Qless;

/// Minimum counter of a tag that `tag top` lists.
const TOP_MIN: i64 = 2;

/// `tag add jid [tag..]`, `tag remove jid [tag..]`, `tag get tag [offset] [count]`, `tag top [offset] [count]`:
/// dispatches to the subcommand.
pub(super) fn tag(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let missing = "Tag(): Arg \"command\" must be \"add\", \"remove\", \"get\" or \"top\"";
    match &arguments.required(0, missing)?[..] {
        b"add" => add(state, call, arguments),
        b"remove" => remove(state, call, arguments),
        b"get" => get(state, arguments),
        b"top" => top(state, arguments),
        _ => Err(refuse(&[
            b"Tag(): First argument must be \"add\", \"remove\" or \"get\"",
        ])),
    }
}

/// Adds tags and returns the job's tags. Each given tag is counted up and gets a new time, even if the job has it.
fn add(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = existing_job(state, arguments)?;

    for tag in arguments.from(2) {
        state.set_tag_time(jid, tag, Some(call.at()));
        state.count_tag(tag, 1);
    }
    state.edit(jid, |job| extend(job.tags, arguments.from(2)));
    let mut out = Writer::default();
    let job = state.job(jid);
    out.tags(job.map_or(&[], |job| &job.tags));
    if call.generation == Generation::One {
        // The first generation encodes the JSON twice; its clients ignore the reply.
        let mut twice = Writer::default();
        twice.string(out.finish());
        out = twice;
    }
    Ok(out.into())
}

/// Removes tags and returns the job's tags. Each given tag is counted down, even if the job does not have it.
fn remove(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let jid = existing_job(state, arguments)?;

    for tag in arguments.from(2) {
        tags::remove_one(state, call, jid, tag);
    }
    state.edit(jid, |job| retain(job.tags, arguments.from(2)));
    let mut out = Writer::default();
    let job = state.job(jid);
    out.tags(job.map_or(&[], |job| &job.tags));
    Ok(out.into())
}

fn get(state: &Qless, arguments: Arguments<'_>) -> QlessAnswer {
    let tag = arguments.required(1, "Tag(): Arg \"tag\" missing")?;
    let (offset, count) = page(arguments, 2)?;

    let jobs = state.tagged(tag);
    let range = by_range(jobs.len(), offset, count);
    let page = jobs.iter().skip(range.start).take(range.len());
    let mut out = Writer::default();
    out.begin();
    out.key("total").count(jobs.len());
    out.key("jobs").strings(page.map(|(_, jid)| jid));
    out.end();
    Ok(out.into())
}

fn top(state: &Qless, arguments: Arguments<'_>) -> QlessAnswer {
    let (offset, count) = page(arguments, 1)?;

    let ranks = state.tag_ranks();
    let often = ranks
        .iter()
        .rev()
        .take_while(|(count, _)| *count >= TOP_MIN);
    let range = by_limit(ranks.len(), offset, count);
    let page = often.skip(range.start).take(range.len());
    let mut out = Writer::default();
    out.strings(page.map(|(_, tag)| tag));
    Ok(out.into())
}

/// Reads the offset at `index`, 0 by default, and the count after it, 25 by default.
fn page(arguments: Arguments<'_>, index: usize) -> Result<(i64, i64), QlessRefusal> {
    let offset = arguments.whole_or(index, 0.0, "Tag(): Arg \"offset\" not a number: ")?;
    let count = arguments.whole_or(index + 1, 25.0, "Tag(): Arg \"count\" not a number: ")?;
    Ok((offset, count))
}

/// Appends the tags that are not in the list.
pub(super) fn extend(list: &mut Vec<QlessTag>, tags: &[Bytes]) {
    for tag in tags {
        if !list.iter().any(|it| tag_text(it) == tag) {
            list.push(QlessTag::Text(tag.clone()));
        }
    }
}

/// Removes `tags` from the list. The others keep their order.
pub(super) fn retain(list: &mut Vec<QlessTag>, tags: &[Bytes]) {
    list.retain(|it| !tags.contains(&tag_text(it)));
}

fn existing_job<'a>(state: &Qless, arguments: Arguments<'a>) -> Result<&'a Bytes, QlessRefusal> {
    let jid = arguments.required(1, "Tag(): Arg \"jid\" missing")?;
    match state.job(jid) {
        Some(_) => Ok(jid),
        None => Err(refuse(&[b"Tag(): Job ", jid, b" does not exist"])),
    }
}
