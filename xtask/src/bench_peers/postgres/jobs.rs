//! A queue as a table: rows are inserted, leased with `SKIP LOCKED`, deleted.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ganger_bench::{BlockingLink, Watch};

use super::session::{INT8, Session, TEXT, array, execution};

/// Plans of prepared statements are made once, when the table may still be empty: they must be those for a full one.
const PLANS: &str = "SET enable_seqscan = off";

const INSERT_ONE: &str = "INSERT INTO jobs (payload) VALUES ($1)";
const INSERT_MANY: &str = "INSERT INTO jobs (payload) SELECT unnest($1::text[])";
const DELETE: &str = "DELETE FROM jobs WHERE id = ANY($1::bigint[])";

/// One connection and the rows it has leased.
pub(super) struct Jobs {
    session: Session,
    /// One enqueue, and whether it has several rows, which are a transaction of their own.
    message: Vec<u8>,
    is_batch: bool,
    /// Enqueues that were added since the last transaction.
    added: usize,
    /// Enqueues of each transaction that is under way.
    transactions: VecDeque<usize>,
    /// One take, and the jobs that it is for.
    take: (usize, Vec<u8>),
    taken: Vec<[u8; 8]>,
}

impl Jobs {
    pub(super) fn new(mut session: Session) -> Result<Self> {
        session.query(PLANS)?;
        session.prepare("delete", DELETE)?;
        Ok(Self {
            session,
            message: Vec::new(),
            is_batch: false,
            added: 0,
            transactions: VecDeque::new(),
            take: (0, Vec::new()),
            taken: Vec::new(),
        })
    }

    fn end_transaction(&mut self) -> Result<()> {
        if self.added > 0 {
            self.session.sync()?;
            self.transactions.push_back(std::mem::take(&mut self.added));
        }
        Ok(())
    }

    /// Prepares a take of so many jobs.
    fn prepare_take(&mut self, jobs: usize) -> Result<()> {
        let name = format!("take {jobs}");
        self.session.prepare(
            &name,
            &format!(
                "UPDATE jobs SET leased_until = now() + interval '60 s' WHERE id IN (SELECT id FROM jobs \
                 WHERE leased_until IS NULL ORDER BY id LIMIT {jobs} FOR UPDATE SKIP LOCKED) RETURNING id, payload"
            ),
        )?;
        self.take = (jobs, execution(&name, None)?);
        Ok(())
    }
}

impl BlockingLink for Jobs {
    fn prepare(&mut self, payload: &[u8], jobs: usize) -> Result<()> {
        self.is_batch = jobs > 1;
        let name = format!("insert {}", jobs.min(2));
        if self.message.is_empty() {
            let text = if jobs == 1 { INSERT_ONE } else { INSERT_MANY };
            self.session.prepare(&name, text)?;
        }
        self.message = if jobs == 1 {
            execution(&name, Some(payload))?
        } else {
            let values = vec![payload; jobs];
            let values = array(TEXT, values.into_iter())?;
            execution(&name, Some(&values))?
        };
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.session.add(&self.message);
        self.added += 1;
        if self.is_batch {
            self.end_transaction()?;
        }
        Ok(())
    }

    fn acknowledged(&mut self, until: Option<Instant>) -> Result<usize> {
        // All that waits becomes one transaction: of single rows, PostgreSQL would flush each by itself.
        self.end_transaction()?;
        if !self.session.flush_and_wait(until)? {
            return Ok(0);
        }
        self.session.until_ready(&mut |_| Ok(()))?;
        Ok(self.transactions.pop_front().unwrap_or(0))
    }

    fn take(&mut self, jobs: usize, watch: Watch<'_>) -> Result<usize> {
        if self.take.0 != jobs {
            self.prepare_take(jobs)?;
        }
        self.session.add(&self.take.1);
        self.session.sync()?;
        let taken = &mut self.taken;
        self.session.until_ready(&mut |mut row| {
            let id = str::from_utf8(row.column()?)?;
            let id: i64 = id
                .parse()
                .context("PostgreSQL sent an id that is no number")?;
            taken.push(id.to_be_bytes());
            watch(row.column()?);
            Ok(())
        })?;
        Ok(taken.len())
    }

    fn complete(&mut self) -> Result<()> {
        let ids = self.taken.iter().map(|id| &id[..]);
        let ids = array(INT8, ids)?;
        self.session.add(&execution("delete", Some(&ids))?);
        self.session.sync()?;
        self.taken.clear();
        self.session.until_ready(&mut |_| Ok(()))
    }

    fn waits(&self) -> bool {
        false
    }
}
