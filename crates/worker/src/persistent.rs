//! The mode `fed`: a program that keeps running and gets one line for each job.
//!
//! In: `{"id":"1/x","kind":"greet","attempt":1,"args":["world"]}`, with `"deadline"` (seconds since 1970) if there is
//! one. Out: `{"id":"1/x","result":...}`, or `{"id":"1/x","error":"words"}` with optional `"permanent":true` and
//! `"group"`. One line each, one job at a time. Output on standard error and descriptor 3 in between belongs to the
//! current job. When the program is no longer needed, the worker closes its standard input and expects it to end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ganger_client::Delivery;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ending::{Ending, group, of_status};
use crate::environment::deadline;
use crate::handler::Handler;
use crate::launch::{LaunchedProgram, SupervisorHandle, WorkerContext, launch, refusal};
use crate::one_shot::{ending_of_status, supervisor_lost, with_tail};
use crate::output_capture::OutputCapture;
use crate::process_lifecycle::{End, follow};
use crate::slot::Work;
use crate::stop::{Guard, NextStep, Stop};
use crate::supervise::SupervisorEvent;
use crate::text::excerpt;

/// Bytes in a line for everything but the result.
pub(crate) const ENVELOPE_BYTES_MAX: u64 = 4 << 10;

/// A running program without a job.
pub(crate) struct PersistentProgram {
    watch: SupervisorHandle,
    launched: LaunchedProgram,
    idle_since: Instant,
}

/// The end of a job, and the program.
pub(crate) struct JobEnd {
    pub(crate) ending: Ending,
    /// The program; `None` if it cannot take another job.
    pub(crate) program: Option<PersistentProgram>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: String,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<String>,
    group: Option<String>,
    #[serde(default)]
    permanent: bool,
}

impl PersistentProgram {
    /// Starts the program for `job` under a new supervisor.
    ///
    /// # Errors
    /// The ending of the job, if the program cannot be started.
    pub(crate) fn start(
        context: &WorkerContext,
        handler: &Handler,
        job: &Delivery,
    ) -> Result<Self, Ending> {
        let watch = SupervisorHandle::start(context)
            .map_err(|error| Ending::from_machine("no supervisor could be started", &error))?;
        let launched = launch(context, &watch, handler, job, false)?;
        Ok(Self {
            watch,
            launched,
            idle_since: Instant::now(),
        })
    }

    /// Returns how long the program has been idle.
    pub(crate) fn idle_time(&self) -> Duration {
        self.idle_since.elapsed()
    }

    /// Whether the program still runs, as far as that is known without waiting.
    pub(crate) fn is_alive(&mut self, captured: &mut OutputCapture) -> bool {
        let process = &mut self.launched.process;
        let turned = process.turn(&self.watch.supervisor, None, Some(Instant::now()), captured);
        turned.is_ok() && process.last_event.is_none() && !process.has_closed_output()
    }

    /// Sends the program a job and waits for the answer.
    pub(crate) fn run(
        mut self,
        handler: &Handler,
        work: &Work,
        list: &[u8],
        guard: &mut Guard,
        captured: &mut OutputCapture,
    ) -> JobEnd {
        self.launched.process.feed(line(work, list), false);
        let heard = self.listen(&work.stop, guard, captured);
        let refusal = match heard {
            Reply::End(End::Ended { status, .. }) if status != 0 && guard.why().is_none() => {
                refusal(&self.watch, handler, &self.launched.directory, captured)
            }
            _ => None,
        };
        captured.finish();
        let gone = |ending| JobEnd {
            ending,
            program: None,
        };
        match heard {
            Reply::Line => match answer(work, captured) {
                Ok(ending) => {
                    self.idle_since = Instant::now();
                    JobEnd {
                        ending,
                        program: Some(self),
                    }
                }
                Err(ending) => {
                    self.end(Duration::ZERO);
                    gone(ending)
                }
            },
            Reply::Overflow => {
                let limit = captured.result_bytes_max() - ENVELOPE_BYTES_MAX;
                self.end(Duration::ZERO);
                let words = format!(
                    "the program's answer has more than the {limit} bytes of a result, or no end of line"
                );
                gone(Ending::permanent(group::BAD_OUTPUT, words))
            }
            Reply::End(End::Ended { status, .. }) => {
                let ending = refusal.map(|why| why.with_tail(captured));
                gone(ending.unwrap_or_else(|| died(status, guard, captured)))
            }
            Reply::End(End::NotStarted { step, errno }) => gone(Ending::not_started(step, errno)),
            Reply::End(End::SupervisorLost) => {
                self.watch.give_up();
                gone(supervisor_lost("its supervisor was killed"))
            }
        }
    }

    fn listen(&mut self, stop: &Stop, guard: &mut Guard, captured: &mut OutputCapture) -> Reply {
        let supervisor = &self.watch.supervisor;
        let process = &mut self.launched.process;
        let mut seen = 0;
        loop {
            if captured.output[seen..].contains(&b'\n') {
                return Reply::Line;
            }
            seen = captured.output.len();
            if captured.output_overflow().is_some() {
                return Reply::Overflow;
            }
            // Once the program must end, or has ended, its end is followed like that of any other program.
            let is_ending = process.last_event.is_some() || process.status.is_some();
            let until = match guard.decide(Instant::now(), stop.asked()) {
                NextStep::WaitUntil(until) if !is_ending => until,
                NextStep::WaitUntil(_) => break,
                NextStep::Terminate | NextStep::Kill => {
                    // A dead supervisor is noticed below.
                    let _ = supervisor.terminate();
                    break;
                }
            };
            if process
                .turn(supervisor, Some(stop), until, captured)
                .is_err()
            {
                return Reply::End(End::SupervisorLost);
            }
            match process.last_event.take() {
                None => {}
                Some(SupervisorEvent::NotStarted { step, errno }) => {
                    return Reply::End(End::NotStarted { step, errno });
                }
                Some(SupervisorEvent::Exited { .. }) => {
                    // Processes that it left behind are killed too.
                    let _ = supervisor.sweep();
                }
                Some(SupervisorEvent::Clean { killed }) => {
                    process.drain(captured);
                    let end = process.status.map(|status| End::Ended { status, killed });
                    return Reply::End(end.unwrap_or(End::SupervisorLost));
                }
                Some(SupervisorEvent::Stuck | SupervisorEvent::Gone) => {
                    return Reply::End(End::SupervisorLost);
                }
            }
        }
        follow(process, supervisor, stop, guard, captured)
            .map_or(Reply::End(End::SupervisorLost), Reply::End)
    }

    /// Ends the program: closes its input, waits for `patience`, kills what is left.
    pub(crate) fn end(self, patience: Duration) {
        let Self {
            watch, launched, ..
        } = self;
        let LaunchedProgram {
            mut process,
            directory,
        } = launched;
        process.feed(Vec::new(), true);
        let until = Instant::now() + patience;
        let mut deaf = WriteFailed;
        while process.last_event.is_none() && Instant::now() < until {
            if process
                .turn(&watch.supervisor, None, Some(until), &mut deaf)
                .is_err()
            {
                break;
            }
        }
        // Dropping the supervisor waits until it has killed all remaining processes.
        drop(process);
        drop(watch);
        drop(directory);
    }
}

struct WriteFailed;

impl crate::process::Listener for WriteFailed {
    fn receive(&mut self, _pipe: crate::process::Pipe, _bytes: &[u8]) {}
}

enum Reply {
    Line,
    Overflow,
    End(End),
}

/// Returns the line for a job. Between JSON tokens an end of line is only space, and within a string it cannot occur,
/// so replacing it changes no value.
fn line(work: &Work, list: &[u8]) -> Vec<u8> {
    let job = &work.job;
    let (id, kind) = (serde_json::json!(work.task), serde_json::json!(job.kind));
    let mut line =
        format!("{{\"id\":{id},\"kind\":{kind},\"attempt\":{}", job.attempt).into_bytes();
    if let Some(at) = deadline(job) {
        line.extend_from_slice(format!(",\"deadline\":{at}").as_bytes());
    }
    line.extend_from_slice(b",\"args\":");
    line.extend(list.iter().map(|byte| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            *byte
        }
    }));
    line.extend_from_slice(b"}\n");
    line
}

/// Reads the answer. An error means that the program must not get another job.
fn answer(work: &Work, captured: &OutputCapture) -> Result<Ending, Ending> {
    let broken = |words: String| Ending::retriable(group::FEED_BROKEN, words);
    let end = captured
        .output
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(captured.output.len());
    let (line, rest) = captured.output.split_at(end);
    let answer: Answer<'_> = serde_json::from_slice(line).map_err(|error| {
        let shown = excerpt(line, 200);
        Ending::permanent(
            group::BAD_OUTPUT,
            format!("the program's answer cannot be read: {error}; it begins {shown}"),
        )
    })?;
    if answer.id != work.task {
        let other = excerpt(answer.id.as_bytes(), 100);
        return Err(broken(format!(
            "the program answered {other} when it was asked {}",
            work.task
        )));
    }
    if !rest.trim_ascii().is_empty() {
        return Err(broken(format!(
            "the program answered more than one line: {}",
            excerpt(rest.trim_ascii(), 200)
        )));
    }
    Ok(match answer.error {
        Some(words) if answer.permanent => Ending::permanent(
            answer.group.unwrap_or_else(|| group::PERMANENT.into()),
            words,
        ),
        Some(words) => Ending::retriable(answer.group.unwrap_or_else(|| "error".into()), words),
        None => {
            let result = answer.result.map_or("null", RawValue::get);
            Ending::Completed(Bytes::copy_from_slice(result.as_bytes()))
        }
    })
}

fn died(status: i32, guard: &Guard, captured: &OutputCapture) -> Ending {
    if guard.why().is_some() {
        // A successful exit when asked to end is no answer to the job.
        return ending_of_status(
            if status == 0 { 1 << 8 } else { status },
            guard.why(),
            captured,
        );
    }
    let (group, words) = of_status(status);
    let words = with_tail(
        &format!("the program ended without an answer: {words}"),
        captured,
    );
    Ending::retriable(
        if status == 0 {
            group::FEED_BROKEN.into()
        } else {
            group
        },
        words,
    )
}
