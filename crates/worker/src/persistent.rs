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
use crate::process_lifecycle::{ProcessEnd, follow};
use crate::slot::Work;
use crate::stop::{NextStep, Stop, StopSchedule};
use crate::supervise::SupervisorEvent;
use crate::text::excerpt;

/// Bytes in a line for everything but the result.
pub(crate) const ENVELOPE_BYTES_MAX: u64 = 4 << 10;

/// A running program without a job.
pub(crate) struct PersistentProgram {
    supervisor: SupervisorHandle,
    launched: LaunchedProgram,
    idle_since: Instant,
}

/// The end of a job, and the program if it can continue.
pub(crate) struct JobEnd {
    pub(crate) ending: Ending,
    /// The program; `None` if it cannot take another job.
    pub(crate) program: Option<PersistentProgram>,
}

#[derive(Deserialize)]
struct ProgramAnswer<'a> {
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
        let supervisor = SupervisorHandle::start(context)
            .map_err(|error| Ending::from_machine("no supervisor could be started", &error))?;
        let launched = launch(context, &supervisor, handler, job, false)?;
        Ok(Self {
            supervisor,
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
        let polled = process.poll_events(
            &self.supervisor.process,
            None,
            Some(Instant::now()),
            captured,
        );
        polled.is_ok() && process.last_event.is_none() && !process.has_closed_output()
    }

    /// Sends the program a job and waits for the answer.
    pub(crate) fn run(
        mut self,
        handler: &Handler,
        work: &Work,
        list: &[u8],
        stop_schedule: &mut StopSchedule,
        captured: &mut OutputCapture,
    ) -> JobEnd {
        self.launched
            .process
            .write_input(job_line(work, list), false);
        let reply = self.wait_for_reply(&work.stop, stop_schedule, captured);
        let refusal = match reply {
            Reply::End(ProcessEnd::Ended { status, .. })
                if status != 0 && stop_schedule.why().is_none() =>
            {
                refusal(
                    &self.supervisor,
                    handler,
                    &self.launched.directory,
                    captured,
                )
            }
            _ => None,
        };
        captured.finish();
        let without_program = |ending| JobEnd {
            ending,
            program: None,
        };
        match reply {
            Reply::Line => match read_answer(work, captured) {
                Ok(ending) => {
                    self.idle_since = Instant::now();
                    JobEnd {
                        ending,
                        program: Some(self),
                    }
                }
                Err(ending) => {
                    self.end(Duration::ZERO);
                    without_program(ending)
                }
            },
            Reply::Overflow => {
                let limit = captured.result_bytes_max() - ENVELOPE_BYTES_MAX;
                self.end(Duration::ZERO);
                let words = format!(
                    "the program's answer has more than the {limit} bytes of a result, or no end of line"
                );
                without_program(Ending::permanent(group::BAD_OUTPUT, words))
            }
            Reply::End(ProcessEnd::Ended { status, .. }) => {
                let ending = refusal.map(|why| why.with_tail(captured));
                without_program(
                    ending.unwrap_or_else(|| ending_of_exit(status, stop_schedule, captured)),
                )
            }
            Reply::End(ProcessEnd::NotStarted { step, errno }) => {
                without_program(Ending::not_started(step, errno))
            }
            Reply::End(ProcessEnd::SupervisorLost) => {
                self.supervisor.give_up();
                without_program(supervisor_lost("its supervisor was killed"))
            }
        }
    }

    fn wait_for_reply(
        &mut self,
        stop: &Stop,
        stop_schedule: &mut StopSchedule,
        captured: &mut OutputCapture,
    ) -> Reply {
        let supervisor = &self.supervisor.process;
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
            // Once the program must end, or has ended, it is followed like a program of the mode `once`.
            let is_ending = process.last_event.is_some() || process.status.is_some();
            let until = match stop_schedule.decide(Instant::now(), stop.asked()) {
                NextStep::WaitUntil(until) if !is_ending => until,
                NextStep::WaitUntil(_) => break,
                NextStep::Terminate | NextStep::Kill => {
                    // A dead supervisor is detected below.
                    let _ = supervisor.terminate();
                    break;
                }
            };
            if process
                .poll_events(supervisor, Some(stop), until, captured)
                .is_err()
            {
                return Reply::End(ProcessEnd::SupervisorLost);
            }
            match process.last_event.take() {
                None => {}
                Some(SupervisorEvent::NotStarted { step, errno }) => {
                    return Reply::End(ProcessEnd::NotStarted { step, errno });
                }
                Some(SupervisorEvent::Exited { .. }) => {
                    // Processes that it left behind are killed too.
                    let _ = supervisor.sweep();
                }
                Some(SupervisorEvent::Clean { killed }) => {
                    process.drain(captured);
                    let end = process
                        .status
                        .map(|status| ProcessEnd::Ended { status, killed });
                    return Reply::End(end.unwrap_or(ProcessEnd::SupervisorLost));
                }
                Some(SupervisorEvent::Stuck | SupervisorEvent::Gone) => {
                    return Reply::End(ProcessEnd::SupervisorLost);
                }
            }
        }
        follow(process, supervisor, stop, stop_schedule, captured)
            .map_or(Reply::End(ProcessEnd::SupervisorLost), Reply::End)
    }

    /// Ends the program: closes its input, waits for `patience`, kills what is left.
    pub(crate) fn end(self, patience: Duration) {
        let Self {
            supervisor,
            launched,
            ..
        } = self;
        let LaunchedProgram {
            mut process,
            directory,
        } = launched;
        process.write_input(Vec::new(), true);
        let until = Instant::now() + patience;
        let mut discard = DiscardOutput;
        while process.last_event.is_none() && Instant::now() < until {
            if process
                .poll_events(&supervisor.process, None, Some(until), &mut discard)
                .is_err()
            {
                break;
            }
        }
        // Dropping the supervisor waits until it has killed all remaining processes.
        drop(process);
        drop(supervisor);
        drop(directory);
    }
}

struct DiscardOutput;

impl crate::process::Listener for DiscardOutput {
    fn receive(&mut self, _pipe: crate::process::Pipe, _bytes: &[u8]) {}
}

enum Reply {
    Line,
    Overflow,
    End(ProcessEnd),
}

/// Returns the line for a job. Line ends in the arguments become spaces: JSON allows them only between tokens, so no
/// value changes.
fn job_line(work: &Work, list: &[u8]) -> Vec<u8> {
    let job = &work.job;
    let (id, kind) = (serde_json::json!(work.job_id), serde_json::json!(job.kind));
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
fn read_answer(work: &Work, captured: &OutputCapture) -> Result<Ending, Ending> {
    let broken = |words: String| Ending::retriable(group::FEED_BROKEN, words);
    let end = captured
        .output
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(captured.output.len());
    let (line, rest) = captured.output.split_at(end);
    let answer: ProgramAnswer<'_> = serde_json::from_slice(line).map_err(|error| {
        let shown = excerpt(line, 200);
        Ending::permanent(
            group::BAD_OUTPUT,
            format!("the program's answer cannot be read: {error}; it begins {shown}"),
        )
    })?;
    if answer.id != work.job_id {
        let other = excerpt(answer.id.as_bytes(), 100);
        return Err(broken(format!(
            "the program answered {other} when it was asked {}",
            work.job_id
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

fn ending_of_exit(status: i32, stop_schedule: &StopSchedule, captured: &OutputCapture) -> Ending {
    if stop_schedule.why().is_some() {
        // A successful exit when asked to end is no answer to the job.
        return ending_of_status(
            if status == 0 { 1 << 8 } else { status },
            stop_schedule.why(),
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
