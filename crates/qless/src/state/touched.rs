//! Records which jobs changed, and their position before, so that their moves can be reported.
//!
//! A job is noted when it is first changed, with the few fields that tell a move. Nothing is compared here, and what is
//! loaded or forgotten all at once is not noted.

use bytes::Bytes;
use ganger_types::qless::{QlessJob, QlessSet, QlessState};
use std::sync::Arc;

use super::Qless;
use super::table::Entry;

/// The position of a job: the fields that a move changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPosition {
    /// State in its record.
    pub state: QlessState,
    /// Whether it is scheduled, whatever its record says.
    pub is_scheduled: bool,
    /// Queue of the job; empty once it is complete.
    pub queue: Bytes,
    /// Worker that holds or last held it; empty if none has.
    pub worker: Bytes,
    /// Number of times that it was handed out.
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

/// A job that was touched.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    jid: Bytes,
    /// `None`: it was not there.
    before: Option<JobPosition>,
    /// Whether a failure was noted.
    has_failed: bool,
    /// As it was when it was removed.
    gone: Option<Arc<QlessJob>>,
}

/// What became of a job that was touched.
#[derive(Clone, Copy, Debug)]
pub struct Touched<'a> {
    /// How it stood before; `None`: it was not there.
    pub before: Option<&'a JobPosition>,
    /// The job now, or as it was when it was removed.
    pub job: &'a QlessJob,
    /// Whether a failure was noted, and is the job's last one.
    pub has_failed: bool,
    /// Whether it was removed.
    pub is_gone: bool,
}

impl Qless {
    /// Gives the jobs that were touched since the last call, in the order in which they first were. One that was
    /// removed and put again comes twice.
    pub fn take_touched(&mut self, mut look: impl FnMut(Touched<'_>)) {
        for touch in std::mem::take(&mut self.touched) {
            let job = match &touch.gone {
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
                is_gone: touch.gone.is_some(),
            });
        }
    }

    /// Notes a job that is about to be changed for the first time. It counts as changed from then on.
    pub(super) fn touch(touched: &mut Vec<Touch>, entry: &mut Entry) {
        entry.touch = Some(touched.len());
        touched.push(Touch {
            jid: entry.job.jid.clone(),
            before: Some(JobPosition::of(&entry.job)),
            has_failed: false,
            gone: None,
        });
    }

    /// Notes a job that was not there before; which note that is.
    pub(super) fn touch_new(&mut self, jid: &Bytes) -> usize {
        let touch = self.touched.len();
        self.touched.push(Touch {
            jid: jid.clone(),
            before: None,
            has_failed: false,
            gone: None,
        });
        touch
    }

    /// Notes that a job was taken out of the table.
    pub(super) fn touch_gone(&mut self, entry: Entry) {
        let Entry { job, touch } = entry;
        match touch.and_then(|touch| self.touched.get_mut(touch)) {
            Some(touch) => touch.gone = Some(job),
            None => self.touched.push(Touch {
                jid: job.jid.clone(),
                before: Some(JobPosition::of(&job)),
                has_failed: false,
                gone: Some(job),
            }),
        }
    }

    /// Notes that a job has failed, which was touched for that.
    pub(super) fn touch_failed(&mut self, jid: &Bytes) {
        let touch = self.rows.jobs.entry(jid).and_then(|entry| entry.touch);
        if let Some(touch) = touch.and_then(|touch| self.touched.get_mut(touch)) {
            touch.has_failed = true;
        }
    }
}
