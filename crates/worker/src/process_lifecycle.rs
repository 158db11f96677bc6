//! Follows a program from its start until none of its processes is left.

use std::io;
use std::time::{Duration, Instant};

use crate::output_capture::OutputCapture;
use crate::process::Process;
use crate::stop::{NextStep, Stop, StopSchedule};
use crate::supervise::{StartStep, Supervisor, SupervisorEvent};

/// Time in which processes that a program left behind may still write after the program itself has ended.
const DRAIN_FOR: Duration = Duration::from_millis(200);
/// Time that a supervisor may take to clean up; it gives up earlier by itself.
const SWEEP_FOR: Duration = Duration::from_secs(30);

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// No process is left.
    Ended {
        /// Status in the form of `wait`.
        status: i32,
        /// Processes that had to be killed after the program's own had ended.
        killed: u32,
    },
    /// The program never started.
    NotStarted {
        /// The step that failed.
        step: StartStep,
        /// The system's error number.
        errno: i32,
    },
    /// The supervisor has died, or could not clean up, and must be replaced.
    SupervisorLost,
}

/// Follows a program to its end, stopping it when it must be stopped.
pub(crate) fn follow(
    process: &mut Process,
    supervisor: &Supervisor,
    stop: &Stop,
    stop_schedule: &mut StopSchedule,
    captured: &mut OutputCapture,
) -> io::Result<ProcessEnd> {
    let mut lifecycle = ProcessLifecycle {
        exited_at: None,
        swept_at: None,
    };
    loop {
        let now = Instant::now();
        let asked = stop.asked();
        let until = match lifecycle.exited_at {
            None => match stop_schedule.decide(now, asked) {
                NextStep::WaitUntil(until) => until,
                NextStep::Terminate => {
                    supervisor.terminate()?;
                    continue;
                }
                NextStep::Kill => {
                    supervisor.sweep()?;
                    lifecycle.swept_at = Some(now);
                    continue;
                }
            },
            Some(exited_at) => {
                lifecycle.sweep_when_silent(process, supervisor, now)?;
                Some(
                    lifecycle
                        .swept_at
                        .map_or(exited_at + DRAIN_FOR, |at| at + SWEEP_FOR),
                )
            }
        };
        process.poll_events(supervisor, Some(stop), until, captured)?;
        match process.last_event.take() {
            None if lifecycle.is_overdue() => return Ok(ProcessEnd::SupervisorLost),
            None => {}
            // All processes have ended; their output is in the pipes. A process outside the run may hold a pipe open.
            Some(SupervisorEvent::Exited { is_clean: true, .. })
                if lifecycle.swept_at.is_none() =>
            {
                process.drain(captured);
                return Ok(ended(process, 0));
            }
            Some(SupervisorEvent::Exited { .. }) => lifecycle.exited_at = Some(Instant::now()),
            Some(SupervisorEvent::Clean { killed }) => {
                process.drain(captured);
                return Ok(ended(process, killed));
            }
            Some(SupervisorEvent::NotStarted { step, errno }) => {
                return Ok(ProcessEnd::NotStarted { step, errno });
            }
            Some(SupervisorEvent::Stuck | SupervisorEvent::Gone) => {
                return Ok(ProcessEnd::SupervisorLost);
            }
        }
    }
}

struct ProcessLifecycle {
    exited_at: Option<Instant>,
    swept_at: Option<Instant>,
}

impl ProcessLifecycle {
    /// Kills the processes that the program left behind, once their pipes are closed or their time is over.
    fn sweep_when_silent(
        &mut self,
        process: &Process,
        supervisor: &Supervisor,
        now: Instant,
    ) -> io::Result<()> {
        let is_drained = self.exited_at.is_some_and(|at| at + DRAIN_FOR <= now);
        if self.swept_at.is_none() && (process.has_closed_outputs() || is_drained) {
            supervisor.sweep()?;
            self.swept_at = Some(now);
        }
        Ok(())
    }

    fn is_overdue(&self) -> bool {
        self.swept_at.is_some_and(|at| at.elapsed() > SWEEP_FOR)
    }
}

fn ended(process: &Process, killed: u32) -> ProcessEnd {
    process
        .status
        .map_or(ProcessEnd::SupervisorLost, |status| ProcessEnd::Ended {
            status,
            killed,
        })
}
