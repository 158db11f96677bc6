//! A slot: a thread that runs one program at a time, with its supervisor, for as long as the worker lives.

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
use crate::launch::{Watch, WorkerContext, caps};
use crate::one_shot;
use crate::output_capture::{self, OutputCapture};
use crate::persistent::{self, PersistentProgram};
use crate::stop::{Bounds, Guard, Stop, StopCause};
use crate::text::excerpt;

/// Fed programs that one slot keeps running.
const FED_MAX: usize = 4;
/// How often a slot without work looks for programs that have been idle for long enough.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a fed program may take to end when its input is closed.
const FED_END_FOR: Duration = Duration::from_secs(1);
/// Bytes of the arguments that the worker's log shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// A job to run.
pub(crate) struct Work {
    /// The job with its lease.
    pub(crate) job: Delivery,
    /// The job's global id.
    pub(crate) task: String,
    /// Asks the run to stop.
    pub(crate) stop: Arc<Stop>,
    /// Until when its lease surely lasts.
    pub(crate) lease_ends: Box<dyn Fn() -> Option<Instant> + Send>,
    /// Takes log and progress.
    pub(crate) send: output_capture::Sender,
    /// Where it runs, once it does.
    pub(crate) place: Arc<OnceLock<usize>>,
    /// Function that takes the report of the run's end.
    pub(crate) done: Box<dyn FnOnce(SlotReport) + Send>,
}

/// The end of a job, as its slot tells it.
pub(crate) struct SlotReport {
    /// The way in which the run ended.
    pub(crate) ending: Ending,
    /// Whether its slot has nothing to do now; else it has gone on with a job in hand.
    pub(crate) is_free: bool,
    /// How long it ran; `None` if it was never begun.
    pub(crate) took: Option<Duration>,
}

impl Work {
    /// Gives it back unstarted.
    pub(crate) fn give_back(self, reason: &str) {
        tracing::info!(job = %self.task, "given back: {reason}");
        (self.done)(SlotReport {
            ending: Ending::Unstarted(reason.into()),
            is_free: false,
            took: None,
        });
    }
}

/// The way to a slot's thread. Dropping it ends the slot, sooner or later.
pub(crate) struct Slot {
    work: Sender<Box<Work>>,
    thread: JoinHandle<()>,
}

impl Slot {
    /// Starts the slot at `place`.
    pub(crate) fn start(shop: Arc<WorkerContext>, place: usize) -> io::Result<Self> {
        let (work, inbox) = channel();
        let builder = thread::Builder::new().name("slot".into());
        let thread = builder.spawn(move || {
            let mut bench = SlotThread {
                shop,
                place,
                watch: None,
                fed: BTreeMap::new(),
            };
            bench.serve(&inbox);
            bench.close();
        })?;
        Ok(Self { work, thread })
    }

    /// Ends the slot, and waits until all that it kept running has ended.
    pub(crate) fn end(self) {
        drop(self.work);
        // A thread that panicked has told so itself.
        let _ = self.thread.join();
    }

    /// Hands over a job; gives it back if the slot is gone.
    pub(crate) fn run(&self, work: Box<Work>) -> Result<(), Box<Work>> {
        self.work.send(work).map_err(|error| error.0)
    }
}

/// What a slot works with.
struct SlotThread {
    shop: Arc<WorkerContext>,
    place: usize,
    watch: Option<Watch>,
    fed: BTreeMap<String, PersistentProgram>,
}

impl SlotThread {
    fn serve(&mut self, inbox: &Receiver<Box<Work>>) {
        loop {
            let next = if self.fed.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(LOOK_EVERY)
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

    /// Runs a job to its end. Gives the next one, if one is in hand.
    fn attend(&mut self, mut work: Work) -> Option<Box<Work>> {
        let begun = Instant::now();
        // Set already if it was handed to this slot and no other.
        let _ = work.place.set(self.place);
        let send = std::mem::replace(&mut work.send, Box::new(|_| {}));
        let done = std::mem::replace(&mut work.done, Box::new(|_| {}));
        let ending = self.run(&mut work, send);
        let took = begun.elapsed();
        log_end(&work, &ending, took);
        let next = self.shop.hand.take();
        done(SlotReport {
            ending,
            is_free: next.is_none(),
            took: Some(took),
        });
        next
    }

    fn run(&mut self, work: &mut Work, send: output_capture::Sender) -> Ending {
        let shop = Arc::clone(&self.shop);
        let handler = shop.handlers.of(&work.job.kind);
        let list = match arguments::list(&work.job) {
            Ok(list) => list,
            Err(error) => return Ending::permanent(group::BAD_INPUT, error),
        };
        let (job, kind, attempt) = (&work.task, &work.job.kind, work.job.attempt);
        tracing::info!(%job, %kind, attempt, "starts with {}", excerpt(&list, SHOWN_BYTES_MAX));
        if let (Some(why), _) = work.stop.asked() {
            return unstarted(why);
        }
        let mut guard = Guard::new(bounds(&shop, handler, work));
        match handler.mode {
            Mode::Once => self.run_once(&shop, handler, work, list, &mut guard, send),
            Mode::Fed => self.run_fed(&shop, handler, work, &list, &mut guard, send),
        }
    }

    fn run_once(
        &mut self,
        shop: &WorkerContext,
        handler: &Handler,
        work: &Work,
        list: Vec<u8>,
        guard: &mut Guard,
        send: output_capture::Sender,
    ) -> Ending {
        let mut captured = OutputCapture::new(work.task.clone(), caps(handler), send);
        let watch = match self.take_watch() {
            Ok(watch) => watch,
            Err(error) => return Ending::from_machine("no supervisor could be started", &error),
        };
        let (ending, is_lost) =
            one_shot::run(shop, &watch, handler, work, list, guard, &mut captured);
        if is_lost {
            watch.give_up();
        } else {
            self.watch = Some(watch);
        }
        ending
    }

    fn run_fed(
        &mut self,
        shop: &WorkerContext,
        handler: &Handler,
        work: &Work,
        list: &[u8],
        guard: &mut Guard,
        send: output_capture::Sender,
    ) -> Ending {
        let mut caps = caps(handler);
        caps.result_bytes_max = caps
            .result_bytes_max
            .saturating_add(persistent::ENVELOPE_BYTES_MAX);
        let mut captured = OutputCapture::new(work.task.clone(), caps, send);
        let kind = &work.job.kind;
        let kept = self.take_living(kind, &mut captured);
        let program =
            match kept.map_or_else(|| PersistentProgram::start(shop, handler, &work.job), Ok) {
                Ok(program) => program,
                Err(ending) => return ending,
            };
        let answered = program.run(handler, work, list, guard, &mut captured);
        if let Some(program) = answered.program {
            self.make_room();
            self.fed.insert(kind.clone(), program);
        }
        answered.ending
    }

    /// The kept program of a kind. One that has ended while it had nothing to do is no fault of the next job's.
    fn take_living(
        &mut self,
        kind: &str,
        captured: &mut OutputCapture,
    ) -> Option<PersistentProgram> {
        let mut program = self.fed.remove(kind)?;
        if program.is_alive(captured) {
            return Some(program);
        }
        program.end(Duration::ZERO);
        None
    }

    /// The slot's supervisor, a new one if it was killed.
    fn take_watch(&mut self) -> io::Result<Watch> {
        if let Some(mut watch) = self.watch.take() {
            if watch.supervisor.is_alive() {
                return Ok(watch);
            }
            watch.give_up();
        }
        Watch::start(&self.shop)
    }

    /// Ends the program that has been idle for longest, if there are too many.
    fn make_room(&mut self) {
        while self.fed.len() >= FED_MAX {
            let oldest = self
                .fed
                .iter()
                .max_by_key(|(_, program)| program.idle_time());
            let Some(kind) = oldest.map(|(kind, _)| kind.clone()) else {
                return;
            };
            if let Some(program) = self.fed.remove(&kind) {
                program.end(FED_END_FOR);
            }
        }
    }

    fn end_idle(&mut self) {
        let shop = Arc::clone(&self.shop);
        let is_idle = |kind: &String, program: &mut PersistentProgram| {
            program.idle_time() >= shop.handlers.of(kind).idle_for
        };
        let idle: Vec<_> = self
            .fed
            .extract_if(.., |kind, program| is_idle(kind, program))
            .collect();
        for (_, program) in idle {
            program.end(FED_END_FOR);
        }
    }

    fn close(self) {
        for program in self.fed.into_values() {
            program.end(FED_END_FOR);
        }
    }
}

fn unstarted(why: StopCause) -> Ending {
    match why {
        StopCause::Lost(reason) => Ending::Dropped(reason),
        StopCause::Interrupted | StopCause::TimedOut(_) => {
            Ending::Unstarted("the worker stops".into())
        }
    }
}

fn bounds(shop: &WorkerContext, handler: &Handler, work: &mut Work) -> Bounds {
    let job = &work.job;
    let now = Instant::now();
    // The job's own time-out runs from the grant, which was no earlier than this.
    let granted = job
        .expires_at
        .checked_sub(job.lease_for)
        .unwrap_or(now)
        .min(now);
    let own = job.timeout.map(|length| (granted + length, length));
    let handlers = handler.wall_time.map(|length| (now + length, length));
    Bounds {
        timeout: [own, handlers].into_iter().flatten().min(),
        grace: handler.grace.unwrap_or(shop.settings.grace),
        lease_for: job.lease_for,
        lease_ends: std::mem::replace(&mut work.lease_ends, Box::new(|| None)),
    }
}

fn log_end(work: &Work, ending: &Ending, took: Duration) {
    let (job, kind, attempt) = (&work.task, &work.job.kind, work.job.attempt);
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
        Ending::Unstarted(reason) => tracing::info!(%job, %kind, attempt, "given back: {reason}"),
    }
}
