//! Records which jobs changed and their position before, so that their moves can be reported.
//!
//! A job's first change creates a record with the few fields that define its position. This module compares nothing,
//! and records no jobs that are loaded or that are all removed at once.

use bytes::Bytes;
use ganger_types::qless::{QlessJob, QlessSet, QlessState};
use std::sync::Arc;

use super::Qless;
use super::table::Entry;

/// The position of a job: the fields that a move changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPosition {
    /// State of the job's record.
    pub state: QlessState,
    /// Whether the job is in the scheduled set of its queue. Its state can be another one.
    pub is_scheduled: bool,
    /// Queue of the job; empty once it is complete.
    pub queue: Bytes,
    /// Worker that holds or last held the job; empty if none has.
    pub worker: Bytes,
    /// Number of times that a worker got the job.
    pub handed_out: u64,
}

impl JobPosition {
    /// Returns the current position of a job.
    fn of(job: &QlessJob) -> Self {
        let place = job.place.as_ref();
        Self {
            state: job.state,
            is_scheduled: place.is_some_and(|place| place.set == QlessSet::Scheduled),
            queue: job.queue.clone(),
            worker: job.worker.clone(),
            handed_out: job.handed_out,
        }
    }
}

/// The record of a job's changes since its position was last reported.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    jid: Bytes,
    /// The job's position before its first change; `None` if it did not exist.
    before: Option<JobPosition>,
    /// Whether a failure of the job was recorded.
    has_failed: bool,
    /// The job in its last state, if it was removed.
    removed: Option<Arc<QlessJob>>,
}

/// The changes of a job since the last call of [`Qless::take_touched`].
#[derive(Clone, Copy, Debug)]
pub struct Touched<'a> {
    /// The job's position before; `None` if it did not exist.
    pub before: Option<&'a JobPosition>,
    /// The job in its current state, or in its last state if it was removed.
    pub job: &'a QlessJob,
    /// Whether the job failed. Its recorded failure is this one.
    pub has_failed: bool,
    /// Whether the job was removed.
    pub is_gone: bool,
}

impl Qless {
    /// Calls `look` for each job that changed since the last call, in the order of their first changes. A job that was
    /// removed and put again appears twice.
    pub fn take_touched(&mut self, mut look: impl FnMut(Touched<'_>)) {
        for touch in std::mem::take(&mut self.touched) {
            let job = match &touch.removed {
                Some(job) => job,
                None => match self.rows.jobs.entry(&touch.jid) {
                    Some(entry) => {
                        entry.touch = None;
                        &entry.job
                    }
                    None => continue,
                },
            };
            look(Touched {
                before: touch.before.as_ref(),
                job,
                has_failed: touch.has_failed,
                is_gone: touch.removed.is_some(),
            });
        }
    }

    /// Records a job before its first change.
    pub(super) fn touch(touched: &mut Vec<Touch>, entry: &mut Entry) {
        entry.touch = Some(touched.len());
        touched.push(Touch {
            jid: entry.job.jid.clone(),
            before: Some(JobPosition::of(&entry.job)),
            has_failed: false,
            removed: None,
        });
    }

    /// Records a job that did not exist before. Returns the index of the record.
    pub(super) fn touch_new(&mut self, jid: &Bytes) -> usize {
        let touch = self.touched.len();
        self.touched.push(Touch {
            jid: jid.clone(),
            before: None,
            has_failed: false,
            removed: None,
        });
        touch
    }

    /// Records that a job was removed from the table.
    pub(super) fn touch_removed(&mut self, entry: Entry) {
        let Entry { job, touch } = entry;
        match touch.and_then(|touch| self.touched.get_mut(touch)) {
            Some(touch) => touch.removed = Some(job),
            None => self.touched.push(Touch {
                jid: job.jid.clone(),
                before: Some(JobPosition::of(&job)),
                has_failed: false,
                removed: Some(job),
            }),
        }
    }

    /// Records that a job has failed. The failure has already created the job's record.
    pub(super) fn touch_failed(&mut self, jid: &Bytes) {
        let touch = self.rows.jobs.entry(jid).and_then(|entry| entry.touch);
        if let Some(touch) = touch.and_then(|touch| self.touched.get_mut(touch)) {
            touch.has_failed = true;
        }
    }
}
