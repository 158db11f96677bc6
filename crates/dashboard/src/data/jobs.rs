//! A page of jobs over all shards of a view, with a bound on the records that it looks at.
//!
//! The store finds jobs by label, graph, failure group and the like without looking at others. Other conditions have no
//! index, so a page ends when its budget is spent, and says how far it looked.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::query::{Budget, JobQuery, Query};
use ganger_types::{
    JobRecord, JobState, JobStates, PageCursor, Reply, ShardId, StoredJob, Timestamp,
};

use crate::fault::Fault;
use crate::view::{Missing, View};

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
struct Slice {
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
    let slices = view
        .gather(|shard| async move {
            let mut query = query.clone();
            if let Some(place) = place {
                match place.of(shard.id()) {
                    Some(Some(cursor)) => query.go_on(cursor.clone()),
                    Some(None) => {}
                    // This shard had no more before.
                    None => return Ok((query.limit, None)),
                }
            }
            let slice = look(shard, query.clone()).await?;
            Ok((query.limit, Some(slice)))
        })
        .await?;
    let shards = slices
        .found
        .into_iter()
        .filter_map(|(shard, (_, slice))| slice.map(|slice| (shard.id().clone(), slice)));
    let shards: Vec<_> = shards.collect();
    let mut listing = merge(&shards, query, place);
    listing.missing = slices.missing;
    for (shard, taken) in std::mem::take(&mut listing.unplaced) {
        let mut again = query.clone();
        if let Some(Some(cursor)) = place.and_then(|place| place.of(&shard)) {
            again.go_on(cursor.clone());
        }
        let rest = cursor_behind(view.shard(&shard)?, again, taken).await?;
        let next = listing.next.get_or_insert_default();
        next.0.extend(rest.map(|rest| (shard, Some(rest))));
    }
    Ok(listing)
}

/// The place behind the first so many jobs of a query. Jobs of external systems have no number that would tell it.
async fn cursor_behind(
    shard: &Handle,
    mut query: JobQuery,
    taken: usize,
) -> Result<Option<PageCursor>, Fault> {
    query.limit = taken;
    Ok(shard.list(query).await?.next)
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

/// Reads a page of one shard within its budget.
async fn look(shard: &Handle, query: JobQuery) -> Result<Slice, Fault> {
    let budget = Budget::of_page(LOOK_TIME);
    let page = shard.list(JobQuery { budget, ..query }).await?;
    let looked = &page.looked;
    Ok(Slice {
        looked: usize::try_from(looked.records).unwrap_or(usize::MAX),
        looked_back_to: looked.back_to.filter(|_| looked.is_cut),
        rest: page.next,
        jobs: page.jobs,
    })
}

/// How many jobs match, where memory tells: a filter of states and one queue, or of states alone.
pub(crate) async fn known_count(view: &View, query: &JobQuery) -> Result<Option<u64>, Fault> {
    if *query != query.without_conditions() {
        return Ok(None);
    }
    let counts = view
        .gather(|shard| async move { Ok(shard.count(query.clone()).await?) })
        .await?;
    Ok(Some(counts.found.iter().map(|(_, count)| count).sum()))
}

/// Counts all jobs that match, however many records that takes.
pub(crate) async fn exact_count(view: &View, query: &JobQuery) -> Result<u64, Fault> {
    let mut sum = 0;
    for shard in view.shards() {
        sum += shard.count(query.clone()).await?;
    }
    Ok(sum)
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
pub(crate) async fn groups(view: &View) -> Result<Vec<(ganger_types::Group, u64)>, Fault> {
    let gathered = view
        .gather(|shard| async move {
            let query = Query::FailureGroups(view.namespace().clone());
            match view.ask(shard, query).await? {
                Reply::FailureGroups(groups) => Ok(groups),
                _ => Err(Fault::unexpected_reply()),
            }
        })
        .await?;
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
