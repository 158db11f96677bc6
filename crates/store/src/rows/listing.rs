//! A page of a listing, or a count, while a store collects it from rows.

use ganger_types::query::JobQuery;
use ganger_types::{JobKey, LeaseRecord};

use super::RowError;
use super::row::{open, record_at, row_key, show, to_sql};
use crate::encoding::JobHeader;
use crate::select;
use crate::{Page, StoredJob};

/// The jobs that a query matches, as far as its rows have been read.
#[derive(Debug)]
pub struct Matches<'a> {
    /// The query that the jobs match.
    pub query: &'a JobQuery,
    jobs: Vec<StoredJob>,
    limit: usize,
    /// Number of jobs found so far if this is a count, which keeps no jobs; `None` for a page.
    count: Option<u64>,
}

impl<'a> Matches<'a> {
    /// Starts a page, which has as many jobs as the query allows.
    pub fn page(query: &'a JobQuery) -> Self {
        Self {
            query,
            jobs: Vec::new(),
            limit: select::page_limit(query),
            count: None,
        }
    }

    /// Starts a count of all jobs that match, regardless of pages.
    pub fn count(query: &'a JobQuery) -> Self {
        Self {
            count: Some(0),
            ..Self::page(query)
        }
    }

    /// The number before that of the first row to read, in the direction of the query.
    pub fn start(&self) -> i64 {
        let start = if self.query.newest_first {
            i64::MAX
        } else {
            -1
        };
        self.query.after.map_or(start, |key| to_sql(key.0))
    }

    /// Number of jobs that the page may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Evaluates a sealed row of the table `jobs` or `finished`; decodes the whole record only if its header may match.
    /// `lease` reads the job's lease. `None` if the job does not match.
    ///
    /// # Errors
    /// If the row is damaged, or if the lease cannot be read.
    pub fn judge<E: From<RowError>>(
        &self,
        table: &str,
        key: JobKey,
        sealed: &[u8],
        lease: impl FnOnce() -> Result<Option<LeaseRecord>, E>,
    ) -> Result<Option<StoredJob>, E> {
        let at = row_key(key);
        let content = open(table, &at, sealed)?;
        let header = JobHeader::of(content)
            .map_err(|error| RowError::unreadable(table, show(&at), &error))?;
        if !select::may_match(self.query, &header) {
            return Ok(None);
        }
        let record = record_at(table, key, sealed)?;
        let job = StoredJob::new(record, lease()?);
        Ok(Some(job).filter(|job| select::matches(self.query, job)))
    }

    /// Adds the next job, if it matches. Returns whether the page is complete; a count never is.
    pub fn add(&mut self, found: Option<StoredJob>) -> bool {
        if let Some(count) = &mut self.count {
            *count += u64::from(found.is_some());
        } else {
            self.jobs.extend(found);
        }
        // One job more than the page holds shows that there is a next page.
        self.jobs.len() > self.limit
    }

    /// Returns the number of jobs found by a count.
    pub fn into_count(self) -> u64 {
        self.count.unwrap_or(0)
    }

    /// Returns the page; its `next` is `None` if it is the last one.
    pub fn into_page(mut self) -> Page {
        let has_more = self.jobs.len() > self.limit;
        self.jobs.truncate(self.limit);
        let last = self.jobs.last().filter(|_| has_more);
        let next = last.map(|job| job.record.key);
        Page {
            jobs: self.jobs,
            next,
        }
    }
}
