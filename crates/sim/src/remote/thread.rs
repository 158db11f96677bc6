//! Threads of a simulated process. One runs at a time: whenever it asks for something, the world goes on, and the
//! thread waits for the answer. So the product's own code, which waits for its database, runs in simulated time.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use ganger_shard::core::{StoreReport, StoreTask};
use ganger_store::memory::MemoryReader;
use ganger_store::{Opened, StoreError};
use ganger_store_postgres::Durability;
use ganger_store_postgres::rules::{Fault, Shared};

use super::backend::ModelBackend;
use super::statement::{Reply, Statement};

/// What a thread asks the world for.
pub(crate) enum Ask {
    /// A connection with the first server that accepts writes, under this name.
    Connect(String),
    /// The answer to a statement.
    Run(u64, Box<Statement>),
    /// That a statement is sent, without its answer. Answered at once.
    Send(u64, Box<Statement>),
    /// To be woken after so many microseconds.
    Sleep(u64),
    /// Whether a connection has not been seen to end. Answered at once.
    IsAlive(u64),
    /// That a connection is closed. Answered at once.
    Close(u64),
    /// The time. Answered at once.
    Time,
    /// The first task, once the store is open.
    Opened(
        Box<Result<Opened, StoreError>>,
        Option<Arc<Shared<ModelBackend>>>,
    ),
    /// The next task, after this report.
    Next(Option<Box<StoreReport<MemoryReader>>>),
    /// The next order to write rows.
    NextRows,
}

/// What the world answers.
pub(crate) enum Answer {
    /// That the thread may begin.
    Start,
    /// A new connection and what its server promises.
    Connected(Result<(u64, Durability), Fault>),
    /// The answer to a statement, with a warning.
    Ran(Result<Reply, Fault>, Option<String>),
    /// Yes or no; or that something was done.
    Is(bool),
    /// The time in microseconds of the world.
    Time(u64),
    /// A task for the store.
    Task(Box<StoreTask>),
    /// Rows are to be written.
    WriteRows,
    /// The process is dead.
    Gone,
}

struct Line {
    asks: Sender<Ask>,
    answers: Receiver<Answer>,
}

thread_local! {
    static LINE: RefCell<Option<Line>> = const { RefCell::new(None) };
}

/// Asks the world, from one of its threads, and waits for the answer.
pub(crate) fn ask(ask: Ask) -> Answer {
    LINE.with_borrow(|line| {
        // A connection may be dropped by the world itself, after its process.
        let Some(line) = line.as_ref() else {
            return Answer::Gone;
        };
        if line.asks.send(ask).is_err() {
            return Answer::Gone;
        }
        line.answers.recv().unwrap_or(Answer::Gone)
    })
}

/// A thread of a simulated process.
pub(crate) struct SimThread {
    answers: Option<Sender<Answer>>,
    asks: Receiver<Ask>,
    thread: Option<JoinHandle<()>>,
}

impl SimThread {
    /// Makes a thread, which runs once it gets its first answer.
    pub(crate) fn new(run: impl FnOnce() + Send + 'static) -> Self {
        let (asks_out, asks) = channel();
        let (answers, answers_in) = channel();
        let line = Line {
            asks: asks_out,
            answers: answers_in,
        };
        let thread = std::thread::spawn(move || {
            if !matches!(line.answers.recv(), Ok(Answer::Start)) {
                return;
            }
            LINE.set(Some(line));
            run();
            LINE.take();
        });
        Self {
            answers: Some(answers),
            asks,
            thread: Some(thread),
        }
    }

    /// Gives it an answer and lets it run until it asks again; `None` if it has ended.
    ///
    /// # Panics
    /// If it does.
    pub(crate) fn resume(&mut self, answer: Answer) -> Option<Ask> {
        let answers = self.answers.as_ref()?;
        if answers.send(answer).is_ok()
            && let Ok(ask) = self.asks.recv()
        {
            return Some(ask);
        }
        self.abandon();
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
        None
    }

    /// Lets it end: everything that it asks for is gone.
    pub(crate) fn abandon(&mut self) {
        self.answers = None;
    }
}

impl Drop for SimThread {
    fn drop(&mut self) {
        self.abandon();
        if let Some(thread) = self.thread.take() {
            // A panic of a process that is dead is nobody's.
            drop(thread.join());
        }
    }
}
