//! A running program and its pipes, served by one thread with one `poll`.
//!
//! Every pipe is read as long as it has data, so a program never blocks on the worker; the listener decides what is
//! kept. Every wait for a program also watches its supervisor and [`Stop`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::stop::Stop;
use crate::supervise::{Order, Supervisor, SupervisorEvent};

const READ_BYTES: usize = 64 << 10;

/// The pipes that a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    /// Standard output: descriptor 1.
    Output = 0,
    /// Standard error: descriptor 2.
    Log = 1,
    /// Progress reports: descriptor 3.
    Progress = 2,
}

impl Pipe {
    const ALL: [Self; 3] = [Self::Output, Self::Log, Self::Progress];

    fn index(self) -> usize {
        match self {
            Self::Output => 0,
            Self::Log => 1,
            Self::Progress => 2,
        }
    }
}

/// Receives what a program writes.
pub(crate) trait Listener {
    fn receive(&mut self, pipe: Pipe, bytes: &[u8]);
}

/// A running program. Dropping it closes its pipes and does nothing else.
pub(crate) struct Process {
    input: Option<OwnedFd>,
    unwritten: Vec<u8>,
    written: usize,
    closes_input: bool,
    outputs: [Option<OwnedFd>; 3],
    /// The program's ends of `outputs`, kept open until it has ended. Meanwhile only the supervisor reports the end,
    /// and not the pipes too: one wake-up instead of several.
    program_ends: Option<[OwnedFd; 3]>,
    buffer: Vec<u8>,
    /// Status in the form of `wait`; `None` until the program's own process has ended.
    pub(crate) status: Option<i32>,
    /// The supervisor's last event.
    pub(crate) last_event: Option<SupervisorEvent>,
}

impl Process {
    /// Starts a program through `supervisor`, which reports later whether that succeeded. `reports_closing`: whether
    /// the caller needs to know when the program closes its outputs before it ends.
    pub(crate) fn start(
        supervisor: &Supervisor,
        order: &Order,
        program: BorrowedFd<'_>,
        directory: BorrowedFd<'_>,
        reports_closing: bool,
    ) -> io::Result<Self> {
        let (its_input, input) = pipe()?;
        let (output, its_output) = pipe()?;
        let (log, its_log) = pipe()?;
        let (progress, its_progress) = pipe()?;
        for ours in [&input, &output, &log, &progress] {
            fcntl_setfl(ours, OFlags::NONBLOCK)?;
        }
        let files = [&its_input, &its_output, &its_log, &its_progress].map(AsFd::as_fd);
        let [a, b, c, d] = files;
        supervisor.run(order, [program, directory, a, b, c, d])?;
        Ok(Self {
            input: Some(input),
            unwritten: Vec::new(),
            written: 0,
            closes_input: false,
            outputs: [Some(output), Some(log), Some(progress)],
            program_ends: (!reports_closing).then_some([its_output, its_log, its_progress]),
            buffer: Vec::new(),
            status: None,
            last_event: None,
        })
    }

    /// Writes to the program's standard input, and closes it after these bytes if `closes`.
    pub(crate) fn write_input(&mut self, bytes: Vec<u8>, closes: bool) {
        self.unwritten = bytes;
        self.written = 0;
        self.closes_input = closes;
        // The pipe nearly always has room for everything at once.
        self.write();
    }

    /// Whether the program has closed everything it writes to.
    pub(crate) fn has_closed_outputs(&self) -> bool {
        self.outputs.iter().all(Option::is_none)
    }

    /// Whether the program can write no result any more.
    pub(crate) fn has_closed_output(&self) -> bool {
        self.outputs[Pipe::Output.index()].is_none()
    }

    /// Waits for an event, at most until `until`, and handles all that have happened.
    pub(crate) fn poll_events(
        &mut self,
        supervisor: &Supervisor,
        stop: Option<&Stop>,
        until: Option<Instant>,
        listener: &mut dyn Listener,
    ) -> io::Result<()> {
        let (mut has_word, mut is_writable, mut readable) = (false, false, [false; 3]);
        {
            let input = self
                .input
                .as_ref()
                .filter(|_| self.written < self.unwritten.len());
            let mut polled = vec![PollFd::from_borrowed_fd(supervisor.socket(), PollFlags::IN)];
            let wake_fd = stop.map(|stop| PollFd::from_borrowed_fd(stop.wake_fd(), PollFlags::IN));
            let bells = usize::from(wake_fd.is_some());
            polled.extend(wake_fd);
            let open: Vec<usize> = (0..3)
                .filter(|place| self.outputs[*place].is_some())
                .collect();
            polled.extend(
                self.outputs
                    .iter()
                    .flatten()
                    .map(|fd| PollFd::new(fd, PollFlags::IN)),
            );
            polled.extend(input.map(|fd| PollFd::new(fd, PollFlags::OUT)));
            let timeout =
                until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has = |place: usize| {
                polled
                    .get(place)
                    .is_some_and(|one| !one.revents().is_empty())
            };
            has_word |= has(0);
            for (place, output) in (1 + bells..).zip(&open) {
                readable[*output] = has(place);
            }
            is_writable |= input.is_some() && has(1 + bells + open.len());
        }
        for pipe in Pipe::ALL {
            if readable[pipe.index()] {
                self.read(pipe, listener);
            }
        }
        if is_writable {
            self.write();
        }
        if has_word {
            let last_event = supervisor.next_event();
            if let SupervisorEvent::Exited { status, .. } = last_event {
                self.status = Some(status);
                self.program_ends = None;
            }
            self.last_event = Some(last_event);
        }
        Ok(())
    }

    /// Reads the remaining bytes in the pipes, without waiting.
    pub(crate) fn drain(&mut self, listener: &mut dyn Listener) {
        // A pipe holds at most 1 MiB; only a process outside the run can write faster than this reads.
        const READS_MAX: u32 = 32;
        for pipe in Pipe::ALL {
            for _ in 0..READS_MAX {
                if !self.read(pipe, listener) {
                    break;
                }
            }
        }
    }

    fn write(&mut self) {
        while let Some(input) = &self.input {
            let rest = &self.unwritten[self.written..];
            if rest.is_empty() {
                break;
            }
            match rustix::io::write(input, rest) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The program has closed its input, which is allowed.
                Err(_) => self.input = None,
            }
        }
        if self.closes_input {
            self.input = None;
        }
    }

    /// Reads once; returns whether more may be available at once.
    fn read(&mut self, pipe: Pipe, listener: &mut dyn Listener) -> bool {
        let Some(fd) = &self.outputs[pipe.index()] else {
            return false;
        };
        self.buffer.clear();
        self.buffer.reserve(READ_BYTES);
        match rustix::io::read(fd, spare_capacity(&mut self.buffer)) {
            Ok(0) => self.outputs[pipe.index()] = None,
            Ok(_) => {
                listener.receive(pipe, &self.buffer);
                return true;
            }
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => {}
            Err(_) => self.outputs[pipe.index()] = None,
        }
        false
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

fn timespec(time: Duration) -> Timespec {
    // Rounded up, so that the time has passed when the wait ends.
    let time = time + Duration::from_micros(1);
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
