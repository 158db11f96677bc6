//! `jobs`: lists the jids of the jobs in one state.

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessRefusal, QlessReply, QlessSet, QlessTime};

use crate::call::{Arguments, Call, refuse};
use crate::pages::{by_limit, by_range};
use crate::procedures::promotion::promote;
use crate::state::{Qless, TimeIndex, since, until};

/// `jobs complete [offset] [count]`, `jobs state queue [offset] [count]`: returns a page of jids, completed jobs with
/// the latest first, others with the earliest first.
pub(super) fn jobs(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let kind = arguments.required(0, "Jobs(): Arg \"state\" missing")?;
    let jids = if kind == "complete" {
        let page = Page::read(arguments, 1)?;
        page.take_by_range(state.completed().iter().rev(), state.completed().len())
    } else {
        let queue = arguments.required(1, "Jobs(): Arg \"queue\" missing")?;
        let page = Page::read(arguments, 2)?;
        jobs_of_queue(state, call, kind, queue, page)?
    };
    Ok(QlessReply::List(jids))
}

fn jobs_of_queue(
    state: &mut Qless,
    call: &Call<'_>,
    kind: &Bytes,
    queue: &Bytes,
    page: Page,
) -> Result<Vec<Bytes>, QlessRefusal> {
    let all = |set: &TimeIndex| page.take_by_range(set.iter(), set.len());
    let locks = state.time_index(queue, QlessSet::Locks);
    Ok(match &kind[..] {
        b"running" => page.take_by_limit(since(locks, call.at())),
        b"stalled" => page.take_by_limit(until(locks, call.at())),
        b"scheduled" => {
            promote(state, queue, call.at(), usize::MAX);
            all(state.time_index(queue, QlessSet::Scheduled))
        }
        b"depends" => all(state.time_index(queue, QlessSet::Depends)),
        b"recurring" => page.take_by_limit(state.time_index(queue, QlessSet::Recur).iter()),
        b"throttled" if call.has_throttles() => all(state.time_index(queue, QlessSet::Throttled)),
        _ => return Err(refuse(&[b"Jobs(): Unknown type \"", kind, b"\""])),
    })
}

/// The page of a list that a call asks for.
#[derive(Clone, Copy)]
struct Page {
    /// Index of the first element; 0 by default.
    offset: i64,
    /// Number of elements; 25 by default.
    count: i64,
}

impl Page {
    /// Reads the offset at `index` and the count after it.
    fn read(arguments: Arguments<'_>, index: usize) -> Result<Self, QlessRefusal> {
        Ok(Self {
            offset: arguments.whole_or(index, 0.0, "Jobs(): Arg \"offset\" not a number: ")?,
            count: arguments.whole_or(index + 1, 25.0, "Jobs(): Arg \"count\" not a number: ")?,
        })
    }

    /// Returns the page by the range rule; `length` is the length of the list.
    fn take_by_range<'a>(
        self,
        list: impl Iterator<Item = &'a (QlessTime, Bytes)>,
        length: usize,
    ) -> Vec<Bytes> {
        let range = by_range(length, self.offset, self.count);
        let part = list.skip(range.start).take(range.len());
        part.map(|(_, jid)| jid.clone()).collect()
    }

    /// Returns the page by the limit rule.
    fn take_by_limit<'a>(self, list: impl Iterator<Item = &'a (QlessTime, Bytes)>) -> Vec<Bytes> {
        // The iterator ends by itself, so the range needs no length.
        let range = by_limit(usize::MAX, self.offset, self.count);
        let part = list.skip(range.start).take(range.len());
        part.map(|(_, jid)| jid.clone()).collect()
    }
}
