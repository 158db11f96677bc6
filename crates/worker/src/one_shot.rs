//! The mode `once`: a new program for each job.

use crate::arguments;
use crate::ending::{Ending, PERMANENT_STATUS, group, of_status};
use crate::handler::Handler;
use crate::launch::{LaunchedProgram, SupervisorHandle, WorkerContext, launch, refusal, too_large};
use crate::output_capture::OutputCapture;
use crate::process_lifecycle::{ProcessEnd, follow};
use crate::slot::Work;
use crate::stop::{StopCause, StopSchedule};

/// Runs `work` to its end. The returned flag says whether the supervisor must be replaced.
pub(crate) fn run(
    context: &WorkerContext,
    supervisor: &SupervisorHandle,
    handler: &Handler,
    work: &Work,
    list: Vec<u8>,
    stop_schedule: &mut StopSchedule,
    captured: &mut OutputCapture,
) -> (Ending, bool) {
    let launched = launch(context, supervisor, handler, &work.job, true);
    let LaunchedProgram {
        mut process,
        directory,
    } = match launched {
        Ok(launched) => launched,
        // The failure may have been the supervisor's.
        Err(ending) => return (ending, false),
    };
    process.write_input(list, true);
    let end = follow(
        &mut process,
        &supervisor.process,
        &work.stop,
        stop_schedule,
        captured,
    );
    let refusal = match end {
        // The limits are read after every run that has such a limit, so that no run is blamed for an earlier one.
        Ok(ProcessEnd::Ended { status, .. }) if status != 0 || handler.has_bounds() => {
            refusal(supervisor, handler, &directory, captured)
                .filter(|_| status != 0 && stop_schedule.why().is_none())
        }
        _ => None,
    };
    captured.finish();
    drop(process);
    context.scratch.take_back(directory);
    match end {
        Ok(ProcessEnd::Ended { status, killed }) => {
            if killed > 0 {
                tracing::debug!(job = %work.job_id, killed, "killed what the program left behind");
            }
            let ending = refusal.map(|why| why.with_tail(captured));
            let ending =
                ending.unwrap_or_else(|| ending_of_status(status, stop_schedule.why(), captured));
            (ending, false)
        }
        Ok(ProcessEnd::NotStarted { step, errno }) => (Ending::not_started(step, errno), false),
        // If cleaning up ended the supervisor too, the cause of the cleaning is reported.
        Ok(ProcessEnd::SupervisorLost) if stop_schedule.why().is_some() => (
            ending_of_status(libc::SIGKILL, stop_schedule.why(), captured),
            true,
        ),
        Ok(ProcessEnd::SupervisorLost) => (supervisor_lost("its supervisor was killed"), true),
        Err(error) => (supervisor_lost(&error.to_string()), true),
    }
}

/// Returns the ending of a run whose supervisor has died.
pub(crate) fn supervisor_lost(why: &str) -> Ending {
    Ending::retriable(
        group::SUPERVISOR_LOST,
        format!("the program was killed: {why}"),
    )
}

/// Returns the ending for a status, given the output and whether the run was stopped.
pub(crate) fn ending_of_status(
    status: i32,
    why: Option<&StopCause>,
    captured: &OutputCapture,
) -> Ending {
    match why {
        Some(StopCause::LeaseLost(reason)) => return Ending::Dropped(reason.clone()),
        // A program that succeeded in its grace period has succeeded.
        Some(_) if status == 0 => {}
        Some(StopCause::TimedOut(length)) => {
            return Ending::retriable(
                group::TIMEOUT,
                with_tail(&format!("ran longer than {length:?}"), captured),
            );
        }
        Some(StopCause::Interrupted) => {
            return Ending::retriable(
                group::INTERRUPTED,
                "the worker stopped before the program had finished",
            );
        }
        None => {}
    }
    if status != 0 {
        return failure(status, captured);
    }
    if let Some(written) = captured.output_overflow() {
        return too_large(written, captured);
    }
    match arguments::result(&captured.output) {
        Ok(result) => Ending::Completed(result),
        Err(error) => Ending::permanent(group::BAD_OUTPUT, error),
    }
}

fn failure(status: i32, captured: &OutputCapture) -> Ending {
    let (group, words) = of_status(status);
    let tail = captured.tail();
    let message = if tail.is_empty() {
        format!("{words}, and nothing on standard error")
    } else {
        tail
    };
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == PERMANENT_STATUS {
        return Ending::permanent(group::PERMANENT, message);
    }
    Ending::retriable(group, message)
}

pub(crate) fn with_tail(words: &str, captured: &OutputCapture) -> String {
    let tail = captured.tail();
    if tail.is_empty() {
        words.into()
    } else {
        format!("{words}; the end of its log:\n{tail}")
    }
}
