//! Changes the settings of queues and namespaces, and deregisters workers.

use crate::check::at_most;
use ganger_types::command::{
    ConfigureNamespace, ConfigureQueue, DeregisterWorker, ForgetQueue, QueueChange,
};
use ganger_types::history::AttemptEnd;
use ganger_types::limits::RELEASES_MAX;
use ganger_types::{Answer, Change, Happening, JobKey, QueueSettings, Rejection, Reply};

use super::enqueue::check_retry;
use super::lease::check_lease_for;
use crate::engine::Engine;
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn configure_queue(&mut self, cmd: ConfigureQueue, turn: &mut Turn<'_>) -> Answer {
        if let QueueChange::All(settings) | QueueChange::AllIf { settings, .. } = &cmd.change {
            check_settings(settings)?;
        }
        if let QueueChange::AllIf { version, .. } = &cmd.change {
            self.check_version(&cmd, *version)?;
        }
        self.check_new_queues(&cmd.namespace, [&cmd.queue])?;

        let space = self.make_space(&cmd.namespace);
        let queue = self.make_queue(space, &cmd.queue, turn.now.wall);
        let state = &mut self.queues[queue];
        state.known = true;
        match cmd.change {
            QueueChange::All(settings) | QueueChange::AllIf { settings, .. } => {
                state.settings = settings;
            }
            QueueChange::Paused(paused) => state.settings.paused = paused,
        }
        state.retired_until = Default::default();
        let paused = state.settings.paused;
        self.queues.wake(queue);
        self.queues.mark_changed(queue);
        self.announce(
            space,
            turn.now.wall,
            Happening::QueueChanged {
                queue: cmd.queue,
                paused,
            },
            turn,
        );
        Ok(Reply::Done)
    }

    /// Refuses a change of settings that are no longer those that the caller has seen.
    fn check_version(&self, cmd: &ConfigureQueue, version: u64) -> Result<(), Rejection> {
        let found = self.find_queue(&cmd.namespace, &cmd.queue);
        let current = match found {
            Some(queue) => self.queues[queue].settings.version(),
            None => QueueSettings::default().version(),
        };
        if current == version {
            return Ok(());
        }
        Err(Rejection::SettingsChanged {
            queue: cmd.queue.clone(),
            version: current,
        })
    }

    /// Hides a queue from listings until it is used again. A queue without jobs is removed.
    pub(crate) fn forget_queue(&mut self, cmd: &ForgetQueue, turn: &mut Turn<'_>) -> Answer {
        let missing = || Rejection::QueueNotFound {
            queue: cmd.queue.clone(),
        };
        let queue = self
            .find_queue(&cmd.namespace, &cmd.queue)
            .ok_or_else(missing)?;
        let live = self.queues[queue].counts.live();
        if live > 0 {
            return Err(Rejection::QueueInUse {
                queue: cmd.queue.clone(),
                live,
            });
        }

        let state = &mut self.queues[queue];
        state.known = false;
        let kept = state.counts.succeeded + state.counts.failed + state.counts.cancelled;
        if kept > 0 {
            self.queues.mark_changed(queue);
        } else {
            let space = state.space;
            self.queues.unmark_changed(queue);
            self.spaces[space].queues.remove(&cmd.queue);
            turn.out.changes.push(Change::RemoveQueue(
                cmd.namespace.clone(),
                cmd.queue.clone(),
            ));
        }
        Ok(Reply::Done)
    }

    pub(crate) fn configure_namespace(
        &mut self,
        cmd: ConfigureNamespace,
        turn: &mut Turn<'_>,
    ) -> Answer {
        check_lease_for(Some(cmd.settings.lease_for))?;
        check_retry(&cmd.settings.retry)?;
        if cmd.settings.history_max < 2 {
            return Err(Rejection::OutOfRange {
                what: "the number of history entries",
                expected: "at least 2",
            });
        }
        let payload_max = u64::from(u32::MAX);
        at_most(
            "the limit of payloads in bytes",
            cmd.settings.payload_bytes_max,
            payload_max,
        )?;
        self.check_new_namespace(&cmd.namespace)?;

        let space = self.make_space(&cmd.namespace);
        let state = &mut self.spaces[space];
        state.settings = cmd.settings;
        turn.out
            .changes
            .push(Change::PutNamespace(Box::new(state.record())));
        let queues: Vec<_> = state.queues.values().copied().collect();
        for queue in queues {
            self.queues[queue].retired_until = Default::default();
        }
        Ok(Reply::Done)
    }

    /// Gives the worker's jobs back to their old positions without counting the attempts, and forgets its name.
    pub(crate) fn deregister(&mut self, cmd: &DeregisterWorker, turn: &mut Turn<'_>) -> Reply {
        let Some(space) = self.find_space(&cmd.namespace) else {
            return Reply::Changed {
                count: 0,
                skipped: Vec::new(),
            };
        };
        let Some(worker) = self.spaces[space].workers.get(&cmd.worker) else {
            return Reply::Changed {
                count: 0,
                skipped: Vec::new(),
            };
        };
        let held: Vec<JobKey> = worker.holds.iter().copied().collect();
        for key in &held {
            let reason = "the worker deregistered".to_owned();
            let end = AttemptEnd::Released {
                counted: false,
                reason: reason.clone(),
            };
            self.end_attempt(turn.now, *key, end);
            let job = self.job_mut(*key);
            let at = job.ready_at;
            if job.details_mut().releases < RELEASES_MAX {
                job.attempts_counted -= 1;
            }
            let details = job.details_mut();
            details.releases += 1;
            let is_ahead = details.is_ahead;
            self.transition(*key, Move::Ready { at, is_ahead }, &reason, turn);
        }
        self.spaces[space].workers.remove(&cmd.worker);
        let happening = Happening::WorkerGone {
            worker: cmd.worker.clone(),
        };
        self.announce(space, turn.now.wall, happening, turn);
        Reply::Changed {
            count: u64::try_from(held.len()).unwrap_or(u64::MAX),
            skipped: Vec::new(),
        }
    }
}

fn check_settings(settings: &QueueSettings) -> Result<(), Rejection> {
    check_lease_for(settings.lease_for)?;
    settings.retry.as_ref().map_or(Ok(()), check_retry)
}
