//! Lists of all shards in one: which lists can be merged, what each shard is asked, and how their pages become one.
//!
//! The server that is called asks each shard, wherever it is, and merges the replies. The cursor of a merged page holds a
//! place for each shard, so that no shard is read twice or skipped.

mod lists;

use std::cmp::Ordering;

use ganger_proto::v1;
use ganger_router::{places_text, read_places};
use ganger_types::ShardId;
use prost::Message;

use crate::decode::At;
use crate::problem::Problem;
use lists::List;

/// Value of the metadata `ganger-shard` that means all shards.
pub const ALL_SHARDS: &str = "all";
/// Shards that one merged list may have.
const SHARDS_MAX: usize = 1_000;

/// Paths of the lists that can be merged. To merge another one, implement [`List`] for its reply, and add a row here and
/// in [`answer`].
const PATHS: &[&str] = &[
    "/ganger.v1.Jobs/List",
    COUNT,
    "/ganger.v1.Queues/List",
    "/ganger.v1.Schedules/List",
    "/ganger.v1.Insight/FailureGroups",
    "/ganger.v1.Insight/Workers",
    "/ganger.v1.Insight/Tracked",
];

/// Path of the count of jobs, which is added up.
const COUNT: &str = "/ganger.v1.Jobs/Count";

/// Whether the replies of all shards to calls of the method at this path can be merged.
pub fn is_merged(path: &str) -> bool {
    PATHS.contains(&path)
}

/// The refusal of a call for all shards whose replies cannot be merged.
pub fn not_merged() -> Problem {
    let reason = format!(
        "metadata ganger-shard: all shards are possible for {} only: name one",
        PATHS.join(", ")
    );
    Problem::new("invalid_value", reason)
}

/// The refusal of a call for all shards whose body is not one message.
pub fn bad_request() -> Problem {
    let reason = "the body must be one message without compression";
    Problem::new("invalid_value", reason)
}

/// Encoded messages, each with the shard that it is for or from.
pub type Messages = Vec<(ShardId, Vec<u8>)>;

/// What the shards replied, and the shards that could not be reached.
pub type Replies = (Messages, Vec<ShardId>);

/// Answers a call for all shards. `request`: the encoded message; `known`: all shards; `ask`: sends messages to shards at
/// once, and returns their replies, or what else the caller gets.
///
/// # Errors
/// If the request is no message of the method, its cursor is not one of a merged list, no shard can be reached, or `ask`
/// fails.
pub async fn answer<E, F>(
    path: &str,
    request: &[u8],
    known: Vec<ShardId>,
    ask: impl Fn(Messages) -> F,
) -> Result<Vec<u8>, E>
where
    E: From<Problem>,
    F: Future<Output = Result<Replies, E>>,
{
    match path {
        COUNT => sum(request, known, ask).await,
        "/ganger.v1.Queues/List" => list::<v1::QueuesReply, _, _>(request, known, ask).await,
        "/ganger.v1.Schedules/List" => list::<v1::SchedulesReply, _, _>(request, known, ask).await,
        "/ganger.v1.Insight/FailureGroups" => {
            list::<v1::FailureGroupsReply, _, _>(request, known, ask).await
        }
        "/ganger.v1.Insight/Workers" => list::<v1::WorkersReply, _, _>(request, known, ask).await,
        "/ganger.v1.Insight/Tracked" => list::<v1::TrackedReply, _, _>(request, known, ask).await,
        "/ganger.v1.Jobs/List" => list::<v1::ListReply, _, _>(request, known, ask).await,
        _ => Err(not_merged().into()),
    }
}

/// The sum of the counts of all shards.
async fn sum<E, F>(
    request: &[u8],
    known: Vec<ShardId>,
    ask: impl Fn(Messages) -> F,
) -> Result<Vec<u8>, E>
where
    E: From<Problem>,
    F: Future<Output = Result<Replies, E>>,
{
    let requests = known.into_iter().map(|shard| (shard, request.to_vec()));
    let (counts, unreachable) = reached(ask(requests.collect()).await?)?;
    let mut sum = v1::CountReply {
        exact: unreachable.is_empty(),
        unreachable: names(&unreachable),
        ..v1::CountReply::default()
    };
    for (_, count) in counts {
        let count: v1::CountReply = read(&count)?;
        sum.count = sum.count.saturating_add(count.count);
        sum.exact &= count.exact;
    }
    Ok(sum.encode_to_vec())
}

/// A page of a list of all shards.
async fn list<R, E, F>(
    request: &[u8],
    known: Vec<ShardId>,
    ask: impl Fn(Messages) -> F,
) -> Result<Vec<u8>, E>
where
    R: List,
    E: From<Problem>,
    F: Future<Output = Result<Replies, E>>,
{
    let call = Call::<R>::read(request, known)?;
    let requests = call.places.iter();
    let requests = requests.map(|(shard, place)| (shard.clone(), call.request(place, call.limit)));
    let (pages, unreachable) = reached(ask(requests.collect()).await?)?;
    let pages = pages.iter().map(|(shard, page)| {
        let page: R = read(page)?;
        Ok((shard.clone(), page))
    });
    let pages: Vec<(ShardId, R)> = pages.collect::<Result<_, Problem>>()?;
    let mut merged = call.merge(pages, &unreachable);
    let (behind, missing) = ask(std::mem::take(&mut merged.behind)).await?;
    if !missing.is_empty() {
        return Err(unreachable_problem(&format!(
            "shard {} stopped answering: try again",
            names(&missing).join(", ")
        ))
        .into());
    }
    for (shard, page) in &behind {
        let page: R = read(page)?;
        if !page.next().is_empty() {
            merged.places.push((shard.clone(), page.next().to_owned()));
        }
    }
    Ok(merged.finish().encode_to_vec())
}

/// A call for a list of all shards.
struct Call<R: List> {
    request: R::Request,
    limit: u32,
    /// Shards to ask, each with its place.
    places: Vec<(ShardId, String)>,
}

/// A merged page that lacks the places of some shards.
struct Merged<R> {
    page: R,
    places: Vec<(ShardId, String)>,
    /// Requests to the shards of whose pages only a part fits; their replies have the places behind that part.
    behind: Messages,
}

impl<R: List> Call<R> {
    fn read(request: &[u8], known: Vec<ShardId>) -> Result<Self, Problem> {
        let request: R::Request = read(request)?;
        let (cursor, limit) = R::page(&request);
        let places = match cursor {
            "" => known
                .into_iter()
                .map(|shard| (shard, String::new()))
                .collect(),
            text => read_places(text).ok_or_else(|| {
                let reason = "is not the `next` of a list of all shards: send that unchanged";
                Problem::invalid(At::top("cursor"), reason)
            })?,
        };
        if places.len() > SHARDS_MAX {
            let at = "metadata ganger-shard";
            return Err(Problem::too_large(at, places.len(), SHARDS_MAX));
        }
        Ok(Self {
            request,
            limit,
            places,
        })
    }

    fn request(&self, place: &str, limit: u32) -> Vec<u8> {
        let mut request = self.request.clone();
        R::set_page(&mut request, place, limit);
        request.encode_to_vec()
    }

    fn merge(&self, mut pages: Vec<(ShardId, R)>, unreachable: &[ShardId]) -> Merged<R> {
        let mut entries: Vec<(usize, R::Entry)> = Vec::new();
        let mut sizes = Vec::with_capacity(pages.len());
        for (number, (shard, page)) in pages.iter_mut().enumerate() {
            let found = std::mem::take(page.entries());
            sizes.push(found.len());
            entries.extend(found.into_iter().map(|mut entry| {
                R::mark(&mut entry, shard);
                (number, entry)
            }));
        }
        // A stable order: entries of one shard stay in theirs.
        entries.sort_by(|a, b| R::compare(&self.request, &a.1, &b.1));
        entries.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let (mut places, mut behind) = (Vec::new(), Vec::new());
        for (number, (shard, page)) in pages.iter().enumerate() {
            let taken = entries.iter().filter(|(of, _)| *of == number).count();
            let place = self.places.iter().find(|(known, _)| known == shard);
            let place = place.map_or("", |(_, place)| place.as_str());
            if taken == sizes[number] {
                if !page.next().is_empty() {
                    places.push((shard.clone(), page.next().to_owned()));
                }
            } else if taken == 0 {
                places.push((shard.clone(), place.to_owned()));
            } else {
                let taken = u32::try_from(taken).unwrap_or(u32::MAX);
                behind.push((shard.clone(), self.request(place, taken)));
            }
        }
        let mut page = R::default();
        *page.entries() = entries.into_iter().map(|(_, entry)| entry).collect();
        let pages: Vec<R> = pages.into_iter().map(|(_, page)| page).collect();
        page.sum_up(&pages, names(unreachable));
        Merged {
            page,
            places,
            behind,
        }
    }
}

impl<R: List> Merged<R> {
    fn finish(mut self) -> R {
        self.places.sort();
        if !self.places.is_empty() {
            self.page.set_next(places_text(&self.places));
        }
        self.page
    }
}

/// Orders by a key, entries without one last.
fn by_key<K: Ord>(a: Option<K>, b: Option<K>, order: impl Fn(&K, &K) -> Ordering) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => order(&a, &b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn names(shards: &[ShardId]) -> Vec<String> {
    shards.iter().map(ToString::to_string).collect()
}

/// The replies, of which there must be one.
fn reached(replies: Replies) -> Result<Replies, Problem> {
    if replies.0.is_empty() {
        return Err(unreachable_problem("none of the shards can be reached"));
    }
    Ok(replies)
}

fn unreachable_problem(words: &str) -> Problem {
    Problem::new("shard_unreachable", words).after_default()
}

fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, Problem> {
    M::decode(bytes).map_err(|error| {
        let reason = format!("a message of the call cannot be decoded: {error}");
        Problem::new("invalid_value", reason)
    })
}

#[cfg(test)]
mod tests;
