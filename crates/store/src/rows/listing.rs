//! A page of a listing, or a count, while a store collects it from rows.

use std::time::Instant;

use ganger_types::query::JobQuery;
use ganger_types::{JobKey, LeaseRecord};

use super::RowError;
use super::row::{open, record_at, row_key, show, to_sql};
use crate::encoding::JobHeader;
use crate::select;
use crate::{Count, Looked, Page, StoredJob};

/// Number of records between two looks at the clock.
const RECORDS_PER_CLOCK: u64 = 256;

/// The jobs that a query matches, as far as its rows have been read.
#[derive(Debug)]
pub struct Matches<'a> {
    /// The query that the jobs match.
    pub query: &'a JobQuery,
    jobs: Vec<StoredJob>,
    limit: usize,
    /// Number of jobs found so far if this is a count, which keeps no jobs; `None` for a page.
    count: Option<u64>,
    /// Key of the last record that was looked at.
    last: Option<JobKey>,
    looked: Looked,
    began: Instant,
}

impl<'a> Matches<'a> {
    /// Starts a page, which has as many jobs as the query allows.
    pub fn page(query: &'a JobQuery) -> Self {
        Self {
            query,
            jobs: Vec::new(),
            limit: select::page_limit(query),
            count: None,
            last: None,
            looked: Looked::default(),
            began: Instant::now(),
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
        &mut self,
        table: &str,
        key: JobKey,
        sealed: &[u8],
        lease: impl FnOnce() -> Result<Option<LeaseRecord>, E>,
    ) -> Result<Option<StoredJob>, E> {
        let at = row_key(key);
        let content = open(table, &at, sealed)?;
        let header = JobHeader::of(content)
            .map_err(|error| RowError::unreadable(table, show(&at), &error))?;
        self.looked.back_to = Some(header.created_at);
        if !select::may_match(self.query, &header) {
            return Ok(None);
        }
        let record = record_at(table, key, sealed)?;
        let job = StoredJob::new(record, lease()?);
        Ok(Some(job).filter(|job| select::matches(self.query, job)))
    }

    /// Evaluates a job that was read because an index names it. `None` if it does not match.
    pub fn evaluate(&mut self, job: StoredJob) -> Option<StoredJob> {
        self.looked.back_to = Some(job.record.created_at);
        Some(job).filter(|job| select::matches(self.query, job))
    }

    /// Adds the next record, with its job if that matches. Returns whether the page is complete, or the budget is used
    /// up.
    pub fn add(&mut self, key: JobKey, found: Option<StoredJob>) -> bool {
        self.looked.records += 1;
        if let Some(count) = &mut self.count {
            *count += u64::from(found.is_some());
        } else {
            self.jobs.extend(found);
        }
        // One job more than the page holds shows that there is a next page.
        if self.jobs.len() > self.limit {
            return true;
        }
        self.last = Some(key);
        self.looked.is_cut = self.is_spent();
        self.looked.is_cut
    }

    fn is_spent(&self) -> bool {
        let budget = &self.query.budget;
        let records = self.looked.records;
        budget.records.is_some_and(|most| records >= most)
            || records.is_multiple_of(RECORDS_PER_CLOCK)
                && budget.time.is_some_and(|most| self.began.elapsed() >= most)
    }

    /// Whether one job more than the page holds was found.
    pub fn is_full(&self) -> bool {
        self.jobs.len() > self.limit
    }

    /// Records that no further record exists: a budget that was used up by the last one cut nothing.
    pub fn end(&mut self) {
        self.looked.is_cut = false;
    }

    /// Returns the number of jobs found by a count. It says nothing of how far the count went back: stores read the
    /// records in orders of their own.
    pub fn into_count(self) -> Count {
        Count {
            jobs: self.count.unwrap_or(0),
            looked: Looked {
                back_to: None,
                ..self.looked
            },
        }
    }

    /// Returns the page; its `next` is `None` if it is the last one.
    pub fn into_page(mut self) -> Page {
        let has_more = self.jobs.len() > self.limit;
        self.jobs.truncate(self.limit);
        let last = self.jobs.last().map(|job| job.record.key);
        let next = if has_more {
            last
        } else {
            self.last.filter(|_| self.looked.is_cut)
        };
        Page {
            jobs: self.jobs,
            next,
            looked: Looked {
                is_cut: self.looked.is_cut && !has_more,
                ..self.looked
            },
        }
    }
}
