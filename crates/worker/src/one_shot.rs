//! The first mode: a program of its own for each job.

use crate::arguments;
use crate::ending::{Ending, PERMANENT_STATUS, group, of_status};
use crate::handler::Handler;
use crate::hearing::Hearing;
use crate::launch::{Launched, Shop, Watch, launch, refusal, too_large};
use crate::life::{End, follow};
use crate::slot::Work;
use crate::stop::{Guard, Why};

/// Runs `work` to its end. The flag tells whether the supervisor must be replaced.
pub(crate) fn run(
    shop: &Shop,
    watch: &Watch,
    handler: &Handler,
    work: &Work,
    list: Vec<u8>,
    guard: &mut Guard,
    hearing: &mut Hearing,
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
    let end = follow(&mut process, &watch.supervisor, &work.stop, guard, hearing);
    let refusal = match end {
        // Asked of every run that has such a limit, so that none is blamed for an earlier one's.
        Ok(End::Ended { status, .. }) if status != 0 || handler.has_bounds() => {
            refusal(watch, handler, &directory, hearing)
                .filter(|_| status != 0 && guard.why().is_none())
        }
        _ => None,
    };
    hearing.finish();
    drop(process);
    shop.scratch.take_back(directory);
    match end {
        Ok(End::Ended { status, killed }) => {
            if killed > 0 {
                tracing::debug!(job = %work.task, killed, "killed what the program left behind");
            }
            let ending = refusal.map(|why| why.with_tail(hearing));
            let ending = ending.unwrap_or_else(|| judge(status, guard.why(), hearing));
            (ending, false)
        }
        Ok(End::NotStarted { step, errno }) => (Ending::not_started(step, errno), false),
        // Where cleaning up took the supervisor too, what made it necessary is the cause.
        Ok(End::SupervisorLost) if guard.why().is_some() => {
            (judge(libc::SIGKILL, guard.why(), hearing), true)
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
pub(crate) fn judge(status: i32, why: Option<&Why>, hearing: &Hearing) -> Ending {
    match why {
        Some(Why::Lost(reason)) => return Ending::Dropped(reason.clone()),
        // A program that finished well in its period of grace has finished well.
        Some(_) if status == 0 => {}
        Some(Why::TimedOut(length)) => {
            return Ending::retriable(
                group::TIMEOUT,
                with_tail(&format!("ran longer than {length:?}"), hearing),
            );
        }
        Some(Why::Interrupted) => {
            return Ending::retriable(
                group::INTERRUPTED,
                "the worker stopped before the program had finished",
            );
        }
        None => {}
    }
    if status != 0 {
        return failure(status, hearing);
    }
    if let Some(written) = hearing.output_overflow() {
        return too_large(written, hearing);
    }
    match arguments::result(&hearing.output) {
        Ok(result) => Ending::Completed(result),
        Err(error) => Ending::permanent(group::BAD_OUTPUT, error),
    }
}

fn failure(status: i32, hearing: &Hearing) -> Ending {
    let (group, words) = of_status(status);
    let tail = hearing.tail();
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

pub(crate) fn with_tail(words: &str, hearing: &Hearing) -> String {
    let tail = hearing.tail();
    if tail.is_empty() {
        words.into()
    } else {
        format!("{words}; the end of its log:\n{tail}")
    }
}
