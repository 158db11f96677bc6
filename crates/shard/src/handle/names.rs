//! Names in use that begin alike, for search and completion.

use ganger_store::{IndexedValue, ValuePage, ValueQuery};
use ganger_types::query::{Named, Query};
use ganger_types::{Command, LabelKey, LabelValue, Namespace, Reply};
use serde::{Deserialize, Serialize};

use super::Handle;
use crate::CallError;

/// The kind of thing that names in a list stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of the API")]
pub enum NamesOf {
    Queue,
    Kind,
    Tag,
    Worker,
    Schedule,
    Graph,
    Group,
}

impl NamesOf {
    /// All of them, with their words.
    pub const ALL: [(&'static str, Self); 7] = [
        ("queue", Self::Queue),
        ("kind", Self::Kind),
        ("tag", Self::Tag),
        ("worker", Self::Worker),
        ("schedule", Self::Schedule),
        ("graph", Self::Graph),
        ("group", Self::Group),
    ];
}

/// Number of jobs that one answer about labels counts.
const COUNTED_MAX: u64 = 200_000;

impl Handle {
    /// Returns keys of labels, or values of one key, at most `limit` behind `after`, with their numbers of jobs: the
    /// shorter ones first, then in order.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn labels(
        &self,
        namespace: &Namespace,
        key: Option<LabelKey>,
        (prefix, after): (Vec<u8>, Option<LabelValue>),
        limit: usize,
    ) -> Result<ValuePage, CallError> {
        let query = ValueQuery {
            prefix,
            after: after.map(|after| after.as_bytes().to_vec()),
            limit,
            count_max: COUNTED_MAX / u64::try_from(limit).unwrap_or(u64::MAX).max(1),
        };
        let of = key.map_or(IndexedValue::LabelKey, IndexedValue::Label);
        self.values(namespace, of, query).await
    }

    /// Returns at most `limit` names that begin with `prefix`, in order; those of graphs the shorter ones first. Kinds
    /// are those of which an attempt started lately.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn names(
        &self,
        namespace: &Namespace,
        of: NamesOf,
        prefix: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        let named = match of {
            NamesOf::Kind => {
                return self.series(|table| table.kind_names(namespace, prefix, limit));
            }
            NamesOf::Graph => {
                let query = ValueQuery {
                    prefix: prefix.to_vec(),
                    limit,
                    ..ValueQuery::default()
                };
                let page = self.values(namespace, IndexedValue::Graph, query).await?;
                return Ok(page.values.into_iter().map(|found| found.value).collect());
            }
            NamesOf::Queue => Named::Queue,
            NamesOf::Tag => Named::Tag,
            NamesOf::Worker => Named::Worker,
            NamesOf::Schedule => Named::Schedule,
            NamesOf::Group => Named::Group,
        };
        let query = Query::Names(namespace.clone(), named, prefix.to_vec(), limit);
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::Names(found) => Ok(found),
            _ => Ok(Vec::new()),
        }
    }
}
