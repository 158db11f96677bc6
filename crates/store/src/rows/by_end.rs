//! A page of jobs in the order of their ends, merged from one list for each queue and outcome.

use std::collections::{BinaryHeap, VecDeque};

use ganger_types::query::JobQuery;
use ganger_types::{JobKey, JobState, StoredJob};

use super::listing::Matches;
use super::row::{from_sql, to_sql};
use crate::EndedPage;

/// Number of ends that are read of one queue and outcome at a time.
const AHEAD: usize = 32;

/// The ends of jobs, as the tables of a store have them.
pub trait Ends {
    /// Why the tables could not be read.
    type Error;

    /// The numbers of the queues that the query may match.
    ///
    /// # Errors
    /// If the tables cannot be read.
    fn places(&mut self, query: &JobQuery) -> Result<Vec<i64>, Self::Error>;

    /// At most `limit` ends of a queue and outcome before an end, the latest first: number of the end, and job.
    ///
    /// # Errors
    /// If the tables cannot be read.
    fn before(
        &mut self,
        place: i64,
        outcome: JobState,
        before: i64,
        limit: usize,
    ) -> Result<VecDeque<(i64, JobKey)>, Self::Error>;

    /// The job with this number.
    ///
    /// # Errors
    /// If the tables cannot be read.
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, Self::Error>;
}

/// The ends of one queue and outcome that were read and not yet used.
struct Stream {
    place: i64,
    outcome: JobState,
    ahead: VecDeque<(i64, JobKey)>,
}

/// Collects the jobs of a page from the rows of jobs that have ended, the latest end first.
///
/// # Errors
/// If the tables cannot be read.
pub fn page<E: Ends>(
    ends: &mut E,
    query: &JobQuery,
    after: Option<u64>,
) -> Result<EndedPage, E::Error> {
    let start = after.map_or(i64::MAX, to_sql);
    let mut streams = Vec::new();
    // The latest end of each stream, and the number of the stream.
    let mut heap = BinaryHeap::new();
    for place in ends.places(query)? {
        for outcome in query.possible_states().iter().filter(|it| it.is_terminal()) {
            let ahead = ends.before(place, outcome, start, AHEAD)?;
            if let Some((end, _)) = ahead.front() {
                heap.push((*end, streams.len()));
                streams.push(Stream {
                    place,
                    outcome,
                    ahead,
                });
            }
        }
    }
    let mut matches = Matches::page(query);
    let (mut found_ends, mut last) = (Vec::new(), start);
    let mut is_over = true;
    while let Some((end, number)) = heap.pop() {
        let stream = &mut streams[number];
        let Some((_, key)) = stream.ahead.pop_front() else {
            continue;
        };
        if stream.ahead.is_empty() {
            stream.ahead = ends.before(stream.place, stream.outcome, end, AHEAD)?;
        }
        if let Some((next, _)) = stream.ahead.front() {
            heap.push((*next, number));
        }
        let found = ends.job(key)?.and_then(|job| matches.evaluate(job));
        if found.is_some() {
            found_ends.push(end);
        }
        last = end;
        if matches.add(key, found) {
            is_over = heap.is_empty() && !matches.is_full();
            break;
        }
    }
    if is_over {
        matches.end();
    }
    let page = matches.into_page();
    let of_last_job = page.jobs.len().checked_sub(1);
    let next = match (page.next, page.looked.is_cut) {
        (None, _) => None,
        (Some(_), true) => Some(last),
        (Some(_), false) => of_last_job.and_then(|index| found_ends.get(index)).copied(),
    };
    Ok(EndedPage {
        jobs: page.jobs,
        next: next.map(from_sql),
        looked: page.looked,
    })
}
