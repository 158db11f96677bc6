//! A page of jobs over all shards of a view, with a bound on the records that it looks at.
//!
//! The store finds jobs by label, graph, failure group and the like without looking at others. Other conditions have no
//! index, so a page ends when its budget is spent, and says how far it looked.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{Budget, JobQuery, Query};
use ganger_types::{
    Group, JobRecord, JobState, JobStates, PageCursor, Reply, ShardId, StoredJob, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::question::Question;
use crate::view::{Missing, View};
use crate::wire;

/// Time that one page may take for it.
const LOOK_TIME: Duration = Duration::from_millis(40);

/// A page of jobs.
pub(crate) struct Listing {
    pub(crate) jobs: Vec<(ShardId, StoredJob)>,
    /// Where the next page begins; `None` if there is none.
    pub(crate) next: Option<Place>,
    /// Number of records that were looked at for the page, those that do not match included.
    pub(crate) looked: usize,
    /// When the last record that was looked at was created, if the budget ended the page before it was full.
    pub(crate) looked_back_to: Option<Timestamp>,
    pub(crate) missing: Missing,
    /// Shards of which so many jobs are on the page, and whose place behind them is still to be found.
    unplaced: Vec<(ShardId, usize)>,
}

/// A place in the listing of each shard. Shards that are not in it have no more jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) Vec<(ShardId, Option<PageCursor>)>);

/// A page of the jobs of a shard that match.
#[derive(Serialize, Deserialize)]
pub(crate) struct List {
    query: JobQuery,
    /// Whether the page ends when its budget is spent.
    is_bounded: bool,
    /// The last job of the page before.
    after: Option<PageCursor>,
}

impl Place {
    /// Reads what [`Place::text`] writes.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::value(
                "after",
                "is not the place of a page: follow the links Newer and Older",
            )
        };
        let mut places = Vec::new();
        for part in text.split('!') {
            let (shard, cursor) = part.split_once('~').ok_or_else(wrong)?;
            let shard = ShardId::new(shard).ok_or_else(wrong)?;
            let cursor = match cursor {
                "" => None,
                text => Some(text.parse().map_err(|_| wrong())?),
            };
            places.push((shard, cursor));
        }
        Ok(Self(places))
    }

    fn of(&self, shard: &ShardId) -> Option<&Option<PageCursor>> {
        let found = self.0.iter().find(|(known, _)| known == shard);
        found.map(|(_, cursor)| cursor)
    }

    pub(crate) fn text(&self) -> String {
        let parts = self.0.iter().map(|(shard, cursor)| match cursor {
            Some(cursor) => format!("{shard}~{cursor}"),
            None => format!("{shard}~"),
        });
        parts.collect::<Vec<_>>().join("!")
    }
}

/// What one shard found.
#[derive(Serialize, Deserialize)]
pub(crate) struct Slice {
    #[serde(with = "wire::jobs")]
    jobs: Vec<StoredJob>,
    /// Whether there may be more behind the last record that was looked at.
    rest: Option<PageCursor>,
    looked: usize,
    looked_back_to: Option<Timestamp>,
}

/// Lists jobs of all shards of the view, merged by their time of creation.
pub(crate) async fn list(
    view: &View,
    query: &JobQuery,
    place: Option<Place>,
) -> Result<Listing, Fault> {
    let place = place.as_ref();
    let question = |shard: &ShardId| {
        let after = match place {
            None => None,
            // A shard that is not in the place had no more before.
            Some(place) => place.of(shard)?.clone(),
        };
        Some(List {
            query: query.clone(),
            is_bounded: true,
            after,
        })
    };
    let slices = view.gather_each(question).await?;
    let mut listing = merge(&slices.found, query, place);
    listing.missing = slices.missing;
    if let Some(next) = &mut listing.next {
        // A shard that did not answer is asked again for the next page.
        let silent = listing.missing.silent.iter();
        next.0.extend(silent.map(|shard| {
            let cursor = place.and_then(|place| place.of(shard)?.clone());
            (shard.clone(), cursor)
        }));
    }
    for (shard, taken) in std::mem::take(&mut listing.unplaced) {
        let cursor = place.and_then(|place| place.of(&shard)?.clone());
        let rest = cursor_behind(view, &shard, query, cursor, taken).await?;
        let next = listing.next.get_or_insert_default();
        next.0.extend(rest.map(|rest| (shard, Some(rest))));
    }
    Ok(listing)
}

/// The place behind the first so many jobs of a query. Jobs of external systems have no number that would tell it.
async fn cursor_behind(
    view: &View,
    shard: &ShardId,
    query: &JobQuery,
    after: Option<PageCursor>,
    taken: usize,
) -> Result<Option<PageCursor>, Fault> {
    let question = List {
        query: JobQuery {
            limit: taken,
            ..query.clone()
        },
        is_bounded: false,
        after,
    };
    Ok(view.place_of(shard).ask(view, &question).await?.rest)
}

/// Takes the first jobs of all slices, and remembers for each shard how far it was taken.
fn merge(slices: &[(ShardId, Slice)], query: &JobQuery, place: Option<&Place>) -> Listing {
    let looked = slices.iter().map(|(_, slice)| slice.looked).sum();
    let mut all: Vec<(ShardId, StoredJob)> = Vec::new();
    for (shard, slice) in slices {
        all.extend(slice.jobs.iter().map(|job| (shard.clone(), job.clone())));
    }
    if slices.len() > 1 {
        // A stable order: jobs of one shard stay in theirs.
        all.sort_by(|(_, a), (_, b)| {
            let order = a.record.created_at.cmp(&b.record.created_at);
            if query.newest_first {
                order.reverse()
            } else {
                order
            }
        });
    }
    let is_cut = all.len() > query.limit;
    all.truncate(query.limit);
    let mut next = Vec::new();
    let mut unplaced = Vec::new();
    for (shard, slice) in slices {
        let taken = all.iter().filter(|(of, _)| of == shard).count();
        let cursor = if taken == slice.jobs.len() {
            match &slice.rest {
                None => continue,
                rest => rest.clone(),
            }
        } else if taken == 0 {
            place.and_then(|place| place.of(shard)?.clone())
        } else {
            match cursor_at(&slice.jobs[taken - 1].record) {
                None => {
                    unplaced.push((shard.clone(), taken));
                    continue;
                }
                cursor => cursor,
            }
        };
        next.push((shard.clone(), cursor));
    }
    let back_to = slices.iter().filter_map(|(_, slice)| slice.looked_back_to);
    let looked_back_to = if query.newest_first {
        back_to.max()
    } else {
        back_to.min()
    };
    Listing {
        jobs: all,
        next: (!next.is_empty()).then_some(Place(next)),
        looked,
        looked_back_to: looked_back_to.filter(|_| !is_cut),
        missing: Missing::default(),
        unplaced,
    }
}

/// The place behind a job; `None` behind one of an external system.
fn cursor_at(record: &JobRecord) -> Option<PageCursor> {
    (!record.key.is_of_external_job()).then_some(PageCursor::Job(record.key))
}

impl Question for List {
    const NAME: &'static str = "jobs";
    type Answer = Slice;

    fn operation(&self) -> &'static str {
        "listJobs"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Slice, Fault> {
        let mut query = JobQuery {
            namespace: view.namespace().clone(),
            budget: if self.is_bounded {
                Budget::of_page(LOOK_TIME)
            } else {
                Budget::default()
            },
            ..self.query.clone()
        };
        query.limit = query.limit.min(PAGE_JOBS_MAX);
        if let Some(cursor) = &self.after {
            query.go_on(cursor.clone());
        }
        let page = shard.list(query).await?;
        let looked = &page.looked;
        Ok(Slice {
            looked: usize::try_from(looked.records).unwrap_or(usize::MAX),
            looked_back_to: looked.back_to.filter(|_| looked.is_cut),
            rest: page.next,
            jobs: page.jobs,
        })
    }
}

/// How many jobs of a shard match, where memory tells.
#[derive(Serialize, Deserialize)]
pub(crate) struct Count {
    query: JobQuery,
}

/// The same, however many records that takes.
#[derive(Serialize, Deserialize)]
pub(crate) struct ExactCount(Count);

impl Question for ExactCount {
    const NAME: &'static str = "exact_count_of_jobs";
    const WAIT: Duration = Duration::from_secs(60);
    type Answer = u64;

    fn operation(&self) -> &'static str {
        self.0.operation()
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<u64, Fault> {
        self.0.ask(view, shard).await
    }
}

impl Question for Count {
    const NAME: &'static str = "count_of_jobs";
    type Answer = u64;

    fn operation(&self) -> &'static str {
        "countJobs"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<u64, Fault> {
        let query = JobQuery {
            namespace: view.namespace().clone(),
            ..self.query.clone()
        };
        Ok(shard.count(query).await?)
    }
}

/// The failure groups of a shard with the number of kept jobs in each.
#[derive(Serialize, Deserialize)]
pub(crate) struct GroupCounts;

impl Question for GroupCounts {
    const NAME: &'static str = "counts_of_groups";
    type Answer = Vec<(Group, u64)>;

    fn operation(&self) -> &'static str {
        "listJobs"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let query = Query::FailureGroups(view.namespace().clone());
        match view.ask(shard, query).await? {
            Reply::FailureGroups(groups) => Ok(groups),
            _ => Err(Fault::unexpected_reply()),
        }
    }
}

/// How many jobs match, where memory tells: a filter of states and one queue, or of states alone.
pub(crate) async fn known_count(view: &View, query: &JobQuery) -> Result<Option<u64>, Fault> {
    if *query != query.without_conditions() {
        return Ok(None);
    }
    let query = query.clone();
    let counts = view.gather(&Count { query }).await?;
    Ok(Some(counts.found.iter().map(|(_, count)| count).sum()))
}

/// Counts all jobs that match, however many records that takes.
pub(crate) async fn exact_count(view: &View, query: &JobQuery) -> Result<u64, Fault> {
    let query = query.clone();
    let counts = view.gather(&ExactCount(Count { query })).await?;
    if let Some(shard) = counts.missing.silent.first() {
        let heading = format!("Shard {shard} cannot be reached");
        let detail = "The jobs cannot be counted exactly without it.";
        return Err(Fault::new("shard_unreachable", heading, detail));
    }
    Ok(counts.found.iter().map(|(_, count)| count).sum())
}

/// The newest failed jobs, at most so many.
pub(crate) async fn failed(view: &View, limit: usize) -> Result<Listing, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        states: JobState::Failed.into(),
        newest_first: true,
        limit,
        ..JobQuery::default()
    };
    list(view, &query, None).await
}

/// Jobs that run now, at most so many.
pub(crate) async fn running(view: &View, limit: usize) -> Result<Listing, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        states: JobStates::from(JobState::Running),
        limit,
        ..JobQuery::default()
    };
    list(view, &query, None).await
}

/// Failure groups with the number of kept jobs in each, over all shards of the view.
pub(crate) async fn groups(view: &View) -> Result<Vec<(Group, u64)>, Fault> {
    let gathered = view.gather(&GroupCounts).await?;
    let mut sums = std::collections::BTreeMap::new();
    for (_, groups) in gathered.found {
        for (group, count) in groups {
            *sums.entry(group).or_default() += count;
        }
    }
    Ok(sums.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::JobKey;

    #[test]
    fn places_read_back() {
        let shard = |name| ShardId::new(name).expect("a shard");
        let place = Place(vec![
            (shard("1"), Some(PageCursor::Job(JobKey(17)))),
            (shard("b.2"), None),
        ]);
        assert_eq!(place.text(), "1~17!b.2~");
        assert_eq!(Place::read(&place.text()), Ok(place));
        for wrong in ["", "1", "1~x y", "~17", "1~17!"] {
            assert!(Place::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
