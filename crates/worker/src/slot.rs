//! A slot: a thread with a supervisor that runs one program at a time, for as long as the worker lives.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ganger_client::Delivery;

use crate::arguments;
use crate::ending::{Ending, group};
use crate::handler::{Handler, Mode};
use crate::launch::{SupervisorHandle, WorkerContext, output_limits};
use crate::one_shot;
use crate::output_capture::{self, OutputCapture};
use crate::persistent::{self, PersistentProgram};
use crate::stop::{Stop, StopCause, StopSchedule, TimeBounds};
use crate::text::excerpt;

/// Maximum number of persistent programs that one slot keeps running.
const PERSISTENT_MAX: usize = 4;
/// Interval at which an idle slot checks for persistent programs that have been idle for too long.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a persistent program may take to end after its input is closed.
const PERSISTENT_END_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of the arguments that the worker's log shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// A job to run.
pub(crate) struct Work {
    /// The job with its lease.
    pub(crate) job: Delivery,
    /// The job's global id.
    pub(crate) job_id: String,
    /// Asks the run to stop.
    pub(crate) stop: Arc<Stop>,
    /// Returns the time until which the lease surely lasts; `None` if it has ended.
    pub(crate) lease_ends: Box<dyn Fn() -> Option<Instant> + Send>,
    /// Receives log and progress.
    pub(crate) send: output_capture::Sender,
    /// Index of the slot that runs the job; unset before it starts.
    pub(crate) slot_index: Arc<OnceLock<usize>>,
    /// Function that takes the report of the run's end.
    pub(crate) done: Box<dyn FnOnce(SlotReport) + Send>,
}

/// The end of a job, as its slot reports it.
pub(crate) struct SlotReport {
    /// The way in which the run ended.
    pub(crate) ending: Ending,
    /// Whether the slot is free now; otherwise it has continued with a prefetched job.
    pub(crate) is_free: bool,
    /// Run time; `None` if the job never started.
    pub(crate) took: Option<Duration>,
}

impl Work {
    /// Releases the job, which was never started.
    pub(crate) fn release(self, reason: &str) {
        tracing::info!(job = %self.job_id, "released: {reason}");
        (self.done)(SlotReport {
            ending: Ending::Unstarted(reason.into()),
            is_free: false,
            took: None,
        });
    }
}

/// A handle to a slot's thread. Dropping it ends the slot eventually.
pub(crate) struct Slot {
    work: Sender<Box<Work>>,
    thread: JoinHandle<()>,
}

impl Slot {
    /// Starts the slot with this index.
    pub(crate) fn start(context: Arc<WorkerContext>, slot_index: usize) -> io::Result<Self> {
        let (work, inbox) = channel();
        let builder = thread::Builder::new().name("slot".into());
        let thread = builder.spawn(move || {
            let mut bench = SlotThread {
                context,
                slot_index,
                supervisor: None,
                persistent: BTreeMap::new(),
            };
            bench.serve(&inbox);
            bench.close();
        })?;
        Ok(Self { work, thread })
    }

    /// Ends the slot, and waits until its persistent programs have ended.
    pub(crate) fn end(self) {
        drop(self.work);
        // A panic of the thread has been logged.
        let _ = self.thread.join();
    }

    /// Sends a job to the slot; returns the job if the slot's thread has ended.
    pub(crate) fn run(&self, work: Box<Work>) -> Result<(), Box<Work>> {
        self.work.send(work).map_err(|error| error.0)
    }
}

/// State of a slot's thread.
struct SlotThread {
    context: Arc<WorkerContext>,
    slot_index: usize,
    supervisor: Option<SupervisorHandle>,
    persistent: BTreeMap<String, PersistentProgram>,
}

impl SlotThread {
    fn serve(&mut self, inbox: &Receiver<Box<Work>>) {
        loop {
            let next = if self.persistent.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(IDLE_CHECK_INTERVAL)
            };
            match next {
                Ok(work) => {
                    let mut next = Some(work);
                    while let Some(work) = next {
                        next = self.attend(*work);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.end_idle(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Runs a job to its end. Returns the next prefetched job, if there is one.
    fn attend(&mut self, mut work: Work) -> Option<Box<Work>> {
        let begun = Instant::now();
        // Already set if the job was sent to this slot.
        let _ = work.slot_index.set(self.slot_index);
        let send = std::mem::replace(&mut work.send, Box::new(|_| {}));
        let done = std::mem::replace(&mut work.done, Box::new(|_| {}));
        let ending = self.run(&mut work, send);
        let took = begun.elapsed();
        log_end(&work, &ending, took);
        let next = self.context.prefetched.take();
        done(SlotReport {
            ending,
            is_free: next.is_none(),
            took: Some(took),
        });
        next
    }

    fn run(&mut self, work: &mut Work, send: output_capture::Sender) -> Ending {
        let context = Arc::clone(&self.context);
        let handler = context.handlers.of(&work.job.kind);
        let list = match arguments::list(&work.job) {
            Ok(list) => list,
            Err(error) => return Ending::permanent(group::BAD_INPUT, error),
        };
        let (job, kind, attempt) = (&work.job_id, &work.job.kind, work.job.attempt);
        tracing::info!(%job, %kind, attempt, "starts with {}", excerpt(&list, SHOWN_BYTES_MAX));
        if let (Some(why), _) = work.stop.asked() {
            return unstarted(why);
        }
        let mut stop_schedule = StopSchedule::new(bounds(&context, handler, work));
        match handler.mode {
            Mode::Once => self.run_once(&context, handler, work, list, &mut stop_schedule, send),
            Mode::Fed => {
                self.run_persistent(&context, handler, work, &list, &mut stop_schedule, send)
            }
        }
    }

    fn run_once(
        &mut self,
        context: &WorkerContext,
        handler: &Handler,
        work: &Work,
        list: Vec<u8>,
        stop_schedule: &mut StopSchedule,
        send: output_capture::Sender,
    ) -> Ending {
        let mut captured = OutputCapture::new(work.job_id.clone(), output_limits(handler), send);
        let supervisor = match self.take_supervisor() {
            Ok(supervisor) => supervisor,
            Err(error) => return Ending::from_machine("no supervisor could be started", &error),
        };
        let (ending, is_lost) = one_shot::run(
            context,
            &supervisor,
            handler,
            work,
            list,
            stop_schedule,
            &mut captured,
        );
        if is_lost {
            supervisor.give_up();
        } else {
            self.supervisor = Some(supervisor);
        }
        ending
    }

    fn run_persistent(
        &mut self,
        context: &WorkerContext,
        handler: &Handler,
        work: &Work,
        list: &[u8],
        stop_schedule: &mut StopSchedule,
        send: output_capture::Sender,
    ) -> Ending {
        let mut output_limits = output_limits(handler);
        output_limits.result_bytes_max = output_limits
            .result_bytes_max
            .saturating_add(persistent::ENVELOPE_BYTES_MAX);
        let mut captured = OutputCapture::new(work.job_id.clone(), output_limits, send);
        let kind = &work.job.kind;
        let kept = self.take_persistent(kind, &mut captured);
        let program =
            match kept.map_or_else(|| PersistentProgram::start(context, handler, &work.job), Ok) {
                Ok(program) => program,
                Err(ending) => return ending,
            };
        let answered = program.run(handler, work, list, stop_schedule, &mut captured);
        if let Some(program) = answered.program {
            self.make_room();
            self.persistent.insert(kind.clone(), program);
        }
        answered.ending
    }

    /// Takes the persistent program of a kind. A program that ended while idle does not fail the next job.
    fn take_persistent(
        &mut self,
        kind: &str,
        captured: &mut OutputCapture,
    ) -> Option<PersistentProgram> {
        let mut program = self.persistent.remove(kind)?;
        if program.is_alive(captured) {
            return Some(program);
        }
        program.end(Duration::ZERO);
        None
    }

    /// Takes the slot's supervisor; starts a new one if it was killed.
    fn take_supervisor(&mut self) -> io::Result<SupervisorHandle> {
        if let Some(mut supervisor) = self.supervisor.take() {
            if supervisor.process.is_alive() {
                return Ok(supervisor);
            }
            supervisor.give_up();
        }
        SupervisorHandle::start(&self.context)
    }

    /// Ends the program that has been idle for longest, if there are too many.
    fn make_room(&mut self) {
        while self.persistent.len() >= PERSISTENT_MAX {
            let oldest = self
                .persistent
                .iter()
                .max_by_key(|(_, program)| program.idle_time());
            let Some(kind) = oldest.map(|(kind, _)| kind.clone()) else {
                return;
            };
            if let Some(program) = self.persistent.remove(&kind) {
                program.end(PERSISTENT_END_TIMEOUT);
            }
        }
    }

    fn end_idle(&mut self) {
        let context = Arc::clone(&self.context);
        let is_idle = |kind: &String, program: &mut PersistentProgram| {
            program.idle_time() >= context.handlers.of(kind).idle_for
        };
        let idle: Vec<_> = self
            .persistent
            .extract_if(.., |kind, program| is_idle(kind, program))
            .collect();
        for (_, program) in idle {
            program.end(PERSISTENT_END_TIMEOUT);
        }
    }

    fn close(self) {
        for program in self.persistent.into_values() {
            program.end(PERSISTENT_END_TIMEOUT);
        }
    }
}

fn unstarted(why: StopCause) -> Ending {
    match why {
        StopCause::LeaseLost(reason) => Ending::Dropped(reason),
        StopCause::Interrupted | StopCause::TimedOut(_) => {
            Ending::Unstarted("the worker stops".into())
        }
    }
}

fn bounds(context: &WorkerContext, handler: &Handler, work: &mut Work) -> TimeBounds {
    let job = &work.job;
    let now = Instant::now();
    // The job's own timeout runs from the grant, which was no earlier than this.
    let granted = job
        .expires_at
        .checked_sub(job.lease_for)
        .unwrap_or(now)
        .min(now);
    let own = job.timeout.map(|length| (granted + length, length));
    let handlers = handler.wall_time.map(|length| (now + length, length));
    TimeBounds {
        timeout: [own, handlers].into_iter().flatten().min(),
        grace: handler.grace.unwrap_or(context.settings.grace),
        lease_for: job.lease_for,
        lease_ends: std::mem::replace(&mut work.lease_ends, Box::new(|| None)),
    }
}

fn log_end(work: &Work, ending: &Ending, took: Duration) {
    let (job, kind, attempt) = (&work.job_id, &work.job.kind, work.job.attempt);
    match ending {
        Ending::Completed(result) => {
            tracing::info!(%job, %kind, attempt, ?took, "succeeded with {} bytes", result.len());
        }
        Ending::Failed(failed) => {
            let message = excerpt(failed.message.as_bytes(), 500);
            let (group, permanent) = (&failed.group, failed.is_permanent);
            tracing::warn!(%job, %kind, attempt, ?took, group, permanent, "failed: {message}");
        }
        Ending::NoHandler(reason) => tracing::warn!(%job, %kind, attempt, "no program: {reason}"),
        Ending::Dropped(reason) => {
            tracing::warn!(%job, %kind, attempt, ?took, "outcome dropped: {reason}");
        }
        Ending::Unstarted(reason) => tracing::info!(%job, %kind, attempt, "released: {reason}"),
    }
}
