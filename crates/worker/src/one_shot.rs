//! The first mode: a program of its own for each job.

use crate::arguments;
use crate::ending::{Ending, PERMANENT_STATUS, group, of_status};
use crate::handler::Handler;
use crate::launch::{Launched, Watch, WorkerContext, launch, refusal, too_large};
use crate::output_capture::OutputCapture;
use crate::process_lifecycle::{End, follow};
use crate::slot::Work;
use crate::stop::{Guard, StopCause};

/// Runs `work` to its end. The flag tells whether the supervisor must be replaced.
pub(crate) fn run(
    shop: &WorkerContext,
    watch: &Watch,
    handler: &Handler,
    work: &Work,
    list: Vec<u8>,
    guard: &mut Guard,
    captured: &mut OutputCapture,
) -> (Ending, bool) {
    let launched = launch(shop, watch, handler, &work.job, true);
    let Launched {
        mut process,
        directory,
    } = match launched {
        Ok(launched) => launched,
        // What failed may have been the way to the supervisor.
        Err(ending) => return (ending, false),
    };
    process.feed(list, true);
    let end = follow(&mut process, &watch.supervisor, &work.stop, guard, captured);
    let refusal = match end {
        // Asked of every run that has such a limit, so that none is blamed for an earlier one's.
        Ok(End::Ended { status, .. }) if status != 0 || handler.has_bounds() => {
            refusal(watch, handler, &directory, captured)
                .filter(|_| status != 0 && guard.why().is_none())
        }
        _ => None,
    };
    captured.finish();
    drop(process);
    shop.scratch.take_back(directory);
    match end {
        Ok(End::Ended { status, killed }) => {
            if killed > 0 {
                tracing::debug!(job = %work.task, killed, "killed what the program left behind");
            }
            let ending = refusal.map(|why| why.with_tail(captured));
            let ending = ending.unwrap_or_else(|| judge(status, guard.why(), captured));
            (ending, false)
        }
        Ok(End::NotStarted { step, errno }) => (Ending::not_started(step, errno), false),
        // Where cleaning up took the supervisor too, what made it necessary is the cause.
        Ok(End::SupervisorLost) if guard.why().is_some() => {
            (judge(libc::SIGKILL, guard.why(), captured), true)
        }
        Ok(End::SupervisorLost) => (supervisor_lost("its supervisor was killed"), true),
        Err(error) => (supervisor_lost(&error.to_string()), true),
    }
}

/// The ending of a run whose supervisor is no more.
pub(crate) fn supervisor_lost(why: &str) -> Ending {
    Ending::retriable(
        group::SUPERVISOR_LOST,
        format!("the program was killed: {why}"),
    )
}

/// What a status means, given what was written and whether the run was stopped.
pub(crate) fn judge(status: i32, why: Option<&StopCause>, captured: &OutputCapture) -> Ending {
    match why {
        Some(StopCause::Lost(reason)) => return Ending::Dropped(reason.clone()),
        // A program that finished well in its period of grace has finished well.
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
