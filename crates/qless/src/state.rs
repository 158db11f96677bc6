//! The qless state of one namespace: its rows, and the indexes derived from them.
//!
//! Fields are private to this module. Commands read through `queries` and write through the functions of `jobs` and
//! `records`. Each of these functions changes a row, its index entries, and the list of changed rows together.

mod indexes;
mod invariants;
mod jobs;
mod order;
mod queries;
mod records;
mod table;
mod touched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{
    QlessAnswer, QlessJob, QlessKey, QlessMessage, QlessQueue, QlessRecurring, QlessReply,
    QlessRequest, QlessRow, QlessStatistics, QlessThrottle, QlessTime,
};

use crate::dispatch;
use indexes::Indexes;
use table::JobTable;
use touched::Touch;

pub(crate) use jobs::JobFields;
pub(crate) use order::{ReadyEntry, TimeIndex, between, since, until};
pub use touched::{JobPosition, Touched};

/// The state of qless in one namespace.
#[derive(Clone, Debug, Default)]
pub struct Qless {
    rows: Rows,
    /// Indexes over the rows. They can be rebuilt from `rows` at any time.
    indexes: Indexes,
    /// Keys of rows that changed since [`Qless::take_changed`] last ran.
    changed: BTreeSet<QlessKey>,
    /// Queues that got ready jobs since [`Qless::take_grown`] last ran.
    queues_with_new_jobs: BTreeSet<Bytes>,
    /// Records of the jobs that changed since [`Qless::take_touched`] last ran: one for each job whose table entry
    /// refers to a record, and one for each removed job. All of these jobs are among the changed rows.
    touched: Vec<Touch>,
}

/// Rows of one namespace, in the form that the store keeps.
#[derive(Clone, Debug, Default)]
struct Rows {
    jobs: JobTable,
    /// Recurring jobs by jid. Their ids are separate from those of jobs.
    recurring: BTreeMap<Bytes, QlessRecurring>,
    /// Queues that are known or paused, by name. Other queues have no row.
    queues: BTreeMap<Bytes, QlessQueue>,
    /// Time of each known worker's last sign of life, by worker.
    workers: BTreeMap<Bytes, QlessTime>,
    /// Options that clients set, by name. An option with its default value has no row.
    settings: BTreeMap<Bytes, Bytes>,
    /// Counters of the tags, by tag. A counter of 0 has no row.
    tag_counts: BTreeMap<Bytes, i64>,
    /// Time when tracking began, by jid. The job itself may no longer exist.
    tracked: BTreeMap<Bytes, QlessTime>,
    /// Statistics by queue and beginning of the day.
    statistics: BTreeMap<(Bytes, QlessTime), QlessStatistics>,
    /// Throttles that have a maximum, by id.
    throttles: BTreeMap<Bytes, QlessThrottle>,
}

impl Qless {
    /// Runs a request, completely or not at all, and appends its messages in order. `at` is the server's time; only the
    /// lifetimes of throttles depend on it.
    ///
    /// # Errors
    /// If the script would refuse the call. The state is unchanged then.
    pub fn call(
        &mut self,
        at: Elapsed,
        request: QlessRequest,
        messages: &mut Vec<QlessMessage>,
    ) -> QlessAnswer {
        match request {
            QlessRequest::Script { generation, words } => {
                dispatch::run_script(self, at, generation, &words, messages)
            }
            QlessRequest::Count { queue, set } => Ok(dispatch::count_reply(self.size(&queue, set))),
            QlessRequest::NextRun { queue, jid } => Ok(self
                .recurring(&jid)
                .filter(|job| job.queue == queue)
                .map_or(QlessReply::Nil, |job| {
                    QlessReply::Score(job.next_at.seconds())
                })),
            QlessRequest::Clear => {
                self.clear();
                Ok(QlessReply::Nil)
            }
        }
    }

    /// Returns the rows that changed since the last call, each in its current state; `None` for a removed row. Discards
    /// the records of touched jobs that [`Qless::take_touched`] has not returned.
    pub fn take_changed(&mut self) -> Vec<(QlessKey, Option<QlessRow>)> {
        self.take_touched(|_| {});
        let changed = std::mem::take(&mut self.changed);
        let rows = changed.into_iter().map(|key| {
            let row = self.rows.get(&key);
            (key, row)
        });
        rows.collect()
    }

    /// Returns the queues that got ready jobs since the last call.
    pub fn take_grown(&mut self) -> BTreeSet<Bytes> {
        std::mem::take(&mut self.queues_with_new_jobs)
    }

    /// Loads a stored row. Rows may come in any order.
    pub fn load(&mut self, row: QlessRow) {
        self.indexes.add(&row);
        self.rows.put(row);
    }

    /// Every row, in order of their keys.
    pub fn rows(&self) -> Vec<QlessRow> {
        self.rows.all().collect()
    }

    /// Checks the indexes against the rows, and the rows against each other. Appends one line for each difference to
    /// `wrong`.
    pub fn check(&self, wrong: &mut Vec<String>) {
        self.check_invariants(wrong);
    }

    /// Removes all rows. No job counts as touched, because reporting their moves would report every job.
    fn clear(&mut self) {
        self.touched.clear();
        self.changed
            .extend(self.rows.all().map(|row| QlessRow::key(&row)));
        let mut jobs = std::mem::take(&mut self.rows.jobs);
        jobs.clear();
        self.rows = Rows {
            jobs,
            ..Rows::default()
        };
        self.indexes = Indexes::default();
    }
}

impl Rows {
    /// Returns the row with that key; `None` if there is none.
    fn get(&self, key: &QlessKey) -> Option<QlessRow> {
        match key {
            QlessKey::Job { number, jid } => {
                let job = self.jobs.get(jid).filter(|job| job.number == *number);
                job.map(job_row)
            }
            QlessKey::Recurring(jid) => self.recurring.get(jid).map(recurring_row),
            QlessKey::Queue(name) => self.queues.get(name).cloned().map(QlessRow::Queue),
            QlessKey::Worker(name) => {
                (self.workers.get(name)).map(|at| QlessRow::Worker(name.clone(), *at))
            }
            QlessKey::Setting(option) => (self.settings.get(option))
                .map(|value| QlessRow::Setting(option.clone(), value.clone())),
            QlessKey::TagCount(tag) => {
                (self.tag_counts.get(tag)).map(|count| QlessRow::TagCount(tag.clone(), *count))
            }
            QlessKey::Tracked(jid) => {
                (self.tracked.get(jid)).map(|at| QlessRow::Tracked(jid.clone(), *at))
            }
            QlessKey::Statistics(queue, day) => (self.statistics)
                .get(&(queue.clone(), *day))
                .map(statistics_row),
            QlessKey::Throttle(id) => self.throttles.get(id).cloned().map(QlessRow::Throttle),
        }
    }

    /// Stores a row, or replaces the one with the same key.
    fn put(&mut self, row: QlessRow) {
        match row {
            QlessRow::Job(job) => self.jobs.insert(job, None),
            QlessRow::Recurring(job) => drop(self.recurring.insert(job.jid.clone(), *job)),
            QlessRow::Queue(queue) => drop(self.queues.insert(queue.name.clone(), queue)),
            QlessRow::Worker(name, at) => drop(self.workers.insert(name, at)),
            QlessRow::Setting(option, value) => drop(self.settings.insert(option, value)),
            QlessRow::TagCount(tag, count) => drop(self.tag_counts.insert(tag, count)),
            QlessRow::Tracked(jid, at) => drop(self.tracked.insert(jid, at)),
            QlessRow::Statistics(it) => {
                drop(self.statistics.insert((it.queue.clone(), it.day), *it));
            }
            QlessRow::Throttle(it) => drop(self.throttles.insert(it.id.clone(), it)),
        }
    }

    /// Every row, in order of their keys.
    fn all(&self) -> impl Iterator<Item = QlessRow> {
        let mut jobs: Vec<_> = self.jobs.values().collect();
        jobs.sort_unstable_by_key(|job| job.number);
        let jobs = jobs.into_iter().map(job_row);
        let recurring = self.recurring.values().map(recurring_row);
        let queues = self.queues.values().cloned().map(QlessRow::Queue);
        let workers = (self.workers.iter()).map(|(name, at)| QlessRow::Worker(name.clone(), *at));
        let settings = (self.settings.iter())
            .map(|(option, value)| QlessRow::Setting(option.clone(), value.clone()));
        let tag_counts =
            (self.tag_counts.iter()).map(|(tag, count)| QlessRow::TagCount(tag.clone(), *count));
        let tracked = (self.tracked.iter()).map(|(jid, at)| QlessRow::Tracked(jid.clone(), *at));
        let statistics = self.statistics.values().map(statistics_row);
        let throttles = self.throttles.values().cloned().map(QlessRow::Throttle);
        (jobs.chain(recurring).chain(queues).chain(workers))
            .chain(settings)
            .chain(tag_counts)
            .chain(tracked)
            .chain(statistics)
            .chain(throttles)
    }
}

fn job_row(job: &Arc<QlessJob>) -> QlessRow {
    QlessRow::Job(Arc::clone(job))
}

fn recurring_row(job: &QlessRecurring) -> QlessRow {
    QlessRow::Recurring(Box::new(job.clone()))
}

fn statistics_row(it: &QlessStatistics) -> QlessRow {
    QlessRow::Statistics(Box::new(it.clone()))
}
