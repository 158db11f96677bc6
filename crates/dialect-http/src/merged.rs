//! Lists of all shards in one: which lists can be merged, what each shard is asked, and how their pages become one.
//!
//! The server that is asked sends the request to each shard, wherever it is, and merges the documents. The place of a
//! merged page holds a place for each shard, so that no shard is read twice or skipped.

use std::cmp::Ordering;
use std::fmt::Write as _;

use ganger_router::{places_text, read_places};
use ganger_types::ShardId;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::problem::Problem;

/// Value of the parameter `shard` that means all of them.
pub const ALL_SHARDS: &str = "all";
/// Shards that one merged list may have.
const SHARDS_MAX: usize = 1_000;
/// Default number of entries on a page, as of each single list.
const LIMIT_DEFAULT: usize = 100;
/// Largest number of entries on a page.
const LIMIT_MAX: usize = 1_000;

/// Order of the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By a field, smallest first; entries without it last.
    Up(&'static str),
    /// By a field, largest first; entries without it last.
    Down(&'static str),
    /// As the parameter `order` of jobs says.
    OfJobs,
}

/// A list that can be merged.
#[derive(Clone, Copy, Debug)]
struct List {
    path: &'static str,
    /// Field of the document that has the entries.
    field: &'static str,
    order: Order,
}

const fn list(path: &'static str, field: &'static str, order: Order) -> List {
    List { path, field, order }
}

/// All lists that can be merged. To merge another one, give it the parameters `after` and `limit`, and add a row.
const LISTS: &[List] = &[
    list("/api/v1/jobs", "jobs", Order::OfJobs),
    list("/api/v1/queues", "queues", Order::Up("queue")),
    list("/api/v1/failures", "groups", Order::Down("last_at")),
    list("/api/v1/workers", "workers", Order::Up("worker")),
    list("/api/v1/schedules", "schedules", Order::Up("id")),
    list("/api/v1/kinds", "kinds", Order::Up("kind")),
    list("/api/v1/tracked", "jobs", Order::Up("since")),
];

/// Path of the count of jobs, which is added up.
const COUNT: &str = "/api/v1/jobs/count";

/// Whether the answers of all shards to a request with this path can be merged.
pub fn is_merged(path: &str) -> bool {
    path == COUNT || LISTS.iter().any(|list| list.path == path)
}

/// Returns the paths that can be merged, for an error.
pub fn merged_paths() -> String {
    let paths: Vec<&str> = LISTS.iter().map(|list| list.path).collect();
    format!("{}, {COUNT}", paths.join(", "))
}

/// A request for a merged list.
#[derive(Debug)]
pub struct MergedRequest {
    list: Option<List>,
    path: String,
    /// Parameters other than shard, place and limit, as they were sent.
    rest: String,
    limit: usize,
    is_limited: bool,
    order: String,
    /// Shards to ask, each with its place.
    shards: Vec<(ShardId, String)>,
}

/// A document of one shard.
pub type Document = Value;
/// What one shard answered.
pub type Page = (ShardId, Document);

/// Reads the document of a shard; `None` if it is not JSON.
pub fn read_document(bytes: &[u8]) -> Option<Document> {
    serde_json::from_slice(bytes).ok()
}

impl MergedRequest {
    /// Reads a request: its path, its query, and the shards that are known.
    ///
    /// # Errors
    /// If the place is not that of a merged list, or there are too many shards.
    pub fn read(path: &str, query: &str, known: Vec<ShardId>) -> Result<Self, Problem> {
        let (mut rest, mut after, mut limit) = (Vec::new(), None, None);
        let mut order = String::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "shard" => {}
                "after" => after = Some(decoded(value)),
                "limit" => limit = Some(decoded(value)),
                _ => {
                    if name == "order" {
                        order = decoded(value);
                    }
                    rest.push(pair);
                }
            }
        }
        let is_limited = limit.is_some();
        let limit = match limit {
            None => LIMIT_DEFAULT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                .ok_or_else(|| {
                    let reason =
                        format!("must be a whole number from 1 to {LIMIT_MAX}, not {text:?}");
                    refused("limit", &reason)
                })?,
        };
        let shards = match after {
            Some(text) => read_place(&text)?,
            None => known
                .into_iter()
                .map(|shard| (shard, String::new()))
                .collect(),
        };
        if shards.len() > SHARDS_MAX {
            let reason = format!(
                "has {} shards, the limit is {SHARDS_MAX}: name one",
                shards.len()
            );
            return Err(refused("shard", &reason));
        }
        Ok(Self {
            list: LISTS.iter().find(|list| list.path == path).copied(),
            path: path.to_owned(),
            rest: rest.join("&"),
            limit,
            is_limited,
            order,
            shards,
        })
    }

    /// The shards to ask, each with the path and query of its request.
    pub fn requests(&self) -> Vec<(ShardId, String)> {
        let shards = self.shards.iter();
        let all = shards.map(|(shard, place)| (shard.clone(), self.request(place, self.limit)));
        all.collect()
    }

    fn request(&self, place: &str, limit: usize) -> String {
        let mut text = format!("{}?{}", self.path, self.rest);
        if self.list.is_some() {
            // Writing to a string cannot fail.
            let _ = write!(text, "&limit={limit}");
            if !place.is_empty() {
                let place = utf8_percent_encode(place, NON_ALPHANUMERIC);
                let _ = write!(text, "&after={place}");
            }
        } else if self.is_limited {
            let _ = write!(text, "&limit={limit}");
        }
        text
    }

    /// Merges the pages of the shards that answered. Of some shards only a part of the page fits: the second value has a
    /// request for each of them, whose answer has the place behind that part; give these answers to [`Merged::finish`].
    pub fn merge(
        &self,
        pages: &[Page],
        unreachable: &[ShardId],
    ) -> (Merged, Vec<(ShardId, String)>) {
        let unreachable = unreachable.iter().map(|shard| Value::from(shard.as_str()));
        let unreachable: Vec<Value> = unreachable.collect();
        let Some(list) = self.list else {
            return (sum(pages, unreachable), Vec::new());
        };
        let mut entries: Vec<(usize, Value)> = Vec::new();
        let mut sizes = Vec::new();
        for (number, (shard, page)) in pages.iter().enumerate() {
            let found = page[list.field].as_array().cloned().unwrap_or_default();
            sizes.push(found.len());
            entries.extend(found.into_iter().map(|mut entry| {
                if let Some(fields) = entry.as_object_mut() {
                    fields.insert("shard".to_owned(), shard.as_str().into());
                }
                (number, entry)
            }));
        }
        // A stable order: entries of one shard stay in theirs.
        entries.sort_by(|a, b| self.compare(list, &a.1, &b.1));
        entries.truncate(self.limit);
        let mut merged = Merged {
            document: Map::new(),
            places: Vec::new(),
        };
        let mut behind = Vec::new();
        for (number, (shard, page)) in pages.iter().enumerate() {
            let taken = entries.iter().filter(|(of, _)| *of == number).count();
            let place = self.shards.iter().find(|(known, _)| known == shard);
            let place = place.map_or("", |(_, place)| place.as_str());
            if taken == sizes[number] {
                if let Some(next) = page["next"].as_str() {
                    merged.places.push((shard.clone(), next.to_owned()));
                }
            } else if taken == 0 {
                merged.places.push((shard.clone(), place.to_owned()));
            } else {
                behind.push((shard.clone(), self.request(place, taken)));
            }
        }
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        merged
            .document
            .insert(list.field.to_owned(), Value::Array(entries));
        merged.bounds(pages);
        // A shard that cannot be reached now is asked again by a request for the same place.
        merged
            .document
            .insert("unreachable".to_owned(), unreachable.into());
        (merged, behind)
    }

    fn compare(&self, list: List, a: &Value, b: &Value) -> Ordering {
        let order = match (list.order, self.order.as_str()) {
            (Order::OfJobs, "newest") => Order::Down("created_at"),
            (Order::OfJobs, "finished_newest") => Order::Down("finished_at"),
            (Order::OfJobs, "runs_next") => Order::Up("priority"),
            (Order::OfJobs, _) => Order::Up("created_at"),
            (order, _) => order,
        };
        let (Order::Up(field) | Order::Down(field)) = order else {
            return Ordering::Equal;
        };
        let (a, b) = (&a[field], &b[field]);
        match (a.is_null(), b.is_null()) {
            (false, false) if matches!(order, Order::Down(_)) => compare_values(b, a),
            (false, false) => compare_values(a, b),
            (a, b) => a.cmp(&b),
        }
    }
}

/// A merged list that lacks the places of some shards.
#[derive(Debug)]
pub struct Merged {
    document: Map<String, Value>,
    places: Vec<(ShardId, String)>,
}

impl Merged {
    /// Adds the places of the remaining shards, and returns the document.
    pub fn finish(mut self, behind: &[Page]) -> Value {
        for (shard, page) in behind {
            if let Some(next) = page["next"].as_str() {
                self.places.push((shard.clone(), next.to_owned()));
            }
        }
        self.places.sort();
        let next = match self.places.as_slice() {
            [] => Value::Null,
            places => places_text(places).into(),
        };
        self.document.insert("next".to_owned(), next);
        Value::Object(self.document)
    }

    /// Adds how far the shards have looked, if they say so.
    fn bounds(&mut self, pages: &[Page]) {
        let mut complete = pages
            .iter()
            .filter_map(|(_, page)| page["complete"].as_bool());
        if let Some(first) = complete.next() {
            let all = first && complete.all(|complete| complete);
            self.document.insert("complete".to_owned(), all.into());
            let looked = pages
                .iter()
                .filter_map(|(_, page)| page["looked_at"].as_u64());
            self.document
                .insert("looked_at".to_owned(), looked.sum::<u64>().into());
            let back = pages
                .iter()
                .filter_map(|(_, page)| page["looked_back_to"].as_str());
            if let Some(back) = back.max() {
                self.document
                    .insert("looked_back_to".to_owned(), back.into());
            }
        }
    }
}

/// The sum of the counts of all shards.
fn sum(pages: &[Page], unreachable: Vec<Value>) -> Merged {
    let counts = pages.iter().filter_map(|(_, page)| page["count"].as_u64());
    let count: u64 = counts.sum();
    let is_exact = pages
        .iter()
        .all(|(_, page)| page["exact"] == Value::Bool(true));
    let mut document = Map::new();
    document.insert("count".to_owned(), count.into());
    document.insert(
        "exact".to_owned(),
        (is_exact && unreachable.is_empty()).into(),
    );
    document.insert("unreachable".to_owned(), unreachable.into());
    Merged {
        document,
        places: Vec::new(),
    }
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => {
            let number = |value: &Value| value.as_f64().unwrap_or_default();
            number(a).total_cmp(&number(b))
        }
    }
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

fn read_place(text: &str) -> Result<Vec<(ShardId, String)>, Problem> {
    let places = read_places(text);
    let shown: String = text.chars().take(200).collect();
    let reason =
        format!("{shown:?} is not the `next` of a list of all shards: send that unchanged");
    places.ok_or_else(|| refused("after", &reason))
}

fn refused(name: &str, reason: &str) -> Problem {
    crate::arguments::refused(name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shard(name: &str) -> ShardId {
        ShardId::new(name).expect("a good name")
    }

    fn request(path: &str, query: &str) -> MergedRequest {
        let known = vec![shard("1"), shard("b")];
        MergedRequest::read(path, query, known).expect("good")
    }

    #[test]
    fn pages_are_merged_and_each_shard_goes_on_where_it_was_left() {
        let queues = |names: &[&str], next: Option<&str>| {
            let queues = names.iter().map(|name| json!({"queue": name}));
            json!({"queues": queues.collect::<Vec<_>>(), "next": next})
        };
        let first = request("/api/v1/queues", "shard=all&limit=3&namespace=x");
        let asked = first.requests();
        assert_eq!(asked[0].1, "/api/v1/queues?namespace=x&limit=3");
        let pages = vec![
            (shard("1"), queues(&["a", "b", "c"], Some("c"))),
            (shard("b"), queues(&["a!", "z"], None)),
        ];
        let (merged, behind) = first.merge(&pages, &[]);
        let expected = [
            (shard("1"), "/api/v1/queues?namespace=x&limit=2".to_owned()),
            (shard("b"), "/api/v1/queues?namespace=x&limit=1".to_owned()),
        ];
        assert_eq!(behind, expected);
        let places = [
            (shard("1"), json!({"next": "b"})),
            (shard("b"), json!({"next": "a!"})),
        ];
        let document = merged.finish(&places);
        assert_eq!(
            document["queues"],
            json!([
                {"queue": "a", "shard": "1"},
                {"queue": "a!", "shard": "b"},
                {"queue": "b", "shard": "1"},
            ])
        );
        assert_eq!(document["next"], "1~b!b~a%21");
        let second = request("/api/v1/queues", "shard=all&after=1~b!b~a%2521");
        let asked = second.requests();
        assert_eq!(asked[1].1, "/api/v1/queues?&limit=100&after=a%21");
        let pages = vec![
            (shard("1"), queues(&["c"], None)),
            (shard("b"), queues(&["z"], None)),
        ];
        let (merged, behind) = second.merge(&pages, &[shard("c")]);
        assert!(behind.is_empty());
        let document = merged.finish(&[]);
        assert_eq!(document["next"], Value::Null);
        assert_eq!(document["unreachable"], json!(["c"]));
    }

    #[test]
    fn jobs_follow_the_order_that_was_asked_for() {
        let page = |shard_name: &str, jobs: &[(&str, &str)]| {
            let jobs = jobs.iter();
            let jobs = jobs.map(|(id, at)| json!({"id": id, "created_at": at}));
            (
                shard(shard_name),
                json!({"jobs": jobs.collect::<Vec<_>>(), "complete": true, "looked_at": 2}),
            )
        };
        let newest = request("/api/v1/jobs", "order=newest&shard=all&budget=40ms");
        let pages = vec![
            page("1", &[("d", "2026-04"), ("a", "2026-01")]),
            page("b", &[("c", "2026-03"), ("b", "2026-02")]),
        ];
        let document = newest.merge(&pages, &[]).0.finish(&[]);
        let jobs = document["jobs"].as_array().expect("jobs").iter();
        let ids: Vec<_> = jobs.map(|job| job["id"].clone()).collect();
        assert_eq!(ids, ["d", "c", "b", "a"]);
        assert_eq!(
            (&document["complete"], &document["looked_at"]),
            (&json!(true), &json!(4))
        );
    }

    #[test]
    fn counts_are_added_up_and_exact_only_if_every_shard_answered() {
        let count = request("/api/v1/jobs/count", "shard=all&queue=q");
        assert_eq!(count.requests()[0].1, "/api/v1/jobs/count?queue=q");
        let page = |name, count| (shard(name), json!({"count": count, "exact": true}));
        let document = count
            .merge(&[page("1", 3), page("b", 4)], &[])
            .0
            .finish(&[]);
        assert_eq!(
            (&document["count"], &document["exact"]),
            (&json!(7), &json!(true))
        );
        let document = count.merge(&[page("1", 3)], &[shard("b")]).0.finish(&[]);
        assert_eq!(document["exact"], false);
    }

    #[test]
    fn places_that_were_never_given_out_are_refused() {
        for query in [
            "after=x",
            "after=1",
            "after=~1",
            "limit=0",
            "limit=1001",
            "limit=x",
        ] {
            let read = MergedRequest::read("/api/v1/jobs", query, vec![shard("1")]);
            assert_eq!(read.expect_err(query).code, "invalid_value");
        }
    }
}
