//! Connects keys, clock, signals and the feed with the state and the terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use crate::action::Action;
use crate::data::Update;
use crate::draw;
use crate::feed::{Feed, Source, Want};
use crate::keys::{Request, press};
use crate::screen::Screen as Page;
use crate::state::State;
use crate::terminal::Screen;
use crate::theme::Theme;

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// Longest wait for a key before the reader looks whether it should end.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// How the screen begins.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Colours and shapes of the screen.
    pub theme: Theme,
    /// The screen that is shown first.
    pub screen: Page,
    /// Time between two questions to the server.
    pub every: Duration,
    /// Whether nothing can be changed.
    pub is_read_only: bool,
}

/// What is left when the screen was left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Ids that the person wanted to keep.
    pub kept: Vec<String>,
}

/// Why the screen ended without being left.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The server does not know the caller any more, or refuses.
    #[error(transparent)]
    Server(#[from] ganger_client::Error),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows the screen until the person leaves it, a signal ends it, or the server refuses.
///
/// # Errors
/// If the terminal cannot be used, or the server refuses for good.
pub async fn run(source: Source, settings: Settings) -> Result<End, Failed> {
    let mut state = State::new(settings.theme, settings.screen);
    state.every = settings.every;
    state.is_read_only = settings.is_read_only;
    let mut signals = Signals::new()?;
    let mut screen = Screen::open()?;
    state.size = screen.size()?;
    let (want, wanted) = watch::channel(want(&state, 0));
    let (actions, to_do) = mpsc::channel(1);
    let (out, mut updates) = mpsc::channel(4);
    let mut feed = tokio::spawn(Feed::new(source).run(wanted, to_do, out));
    let keys = Keys::start();
    let mut input = keys.events;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut answered = Instant::now();
    let mut loop_state = Loop {
        want,
        actions,
        turn: 0,
    };
    loop {
        tokio::select! {
            biased;
            event = input.recv() => match event {
                Some(Ok(event)) => match loop_state.input(&mut state, &event) {
                    Request::Quit => break,
                    Request::Suspend => screen.suspend()?,
                    _ => {}
                },
                Some(Err(error)) => return Err(error.into()),
                None => break,
            },
            kind = signals.next() => match kind {
                Wish::End => break,
                Wish::Suspend => screen.suspend()?,
            },
            result = &mut feed => match result {
                Ok(Ok(())) => break,
                Ok(Err(error)) => return Err(error.into()),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            },
            Some(update) = updates.recv() => {
                if matches!(update, Update::Data(_)) {
                    answered = Instant::now();
                }
                state.update(update);
            }
            _ = ticks.tick() => {}
        }
        state.now = SystemTime::now();
        state.clock = draw::clock(state.now);
        state.silent_for = answered.elapsed();
        state.size = screen.size()?;
        loop_state.want(&state);
        screen.draw(&state)?;
    }
    drop(screen);
    Ok(End { kept: state.kept })
}

/// What connects the loop with the feed.
struct Loop {
    want: watch::Sender<Want>,
    actions: mpsc::Sender<Action>,
    turn: u64,
}

impl Loop {
    fn input(&mut self, state: &mut State, event: &Event) -> Request {
        let Event::Key(key) = event else {
            return Request::Draw;
        };
        if key.kind == KeyEventKind::Release {
            return Request::Draw;
        }
        let request = press(state, *key);
        match &request {
            Request::Ask => self.turn += 1,
            Request::Do(confirmed) => {
                if self.actions.try_send(confirmed.0.clone()).is_err() {
                    state.notice =
                        Some("Not done: the server still works on the last one.".to_owned());
                }
            }
            Request::Draw | Request::Quit | Request::Suspend => {}
        }
        request
    }

    /// Tells the feed what the screen needs, if that has changed.
    fn want(&self, state: &State) {
        let new = want(state, self.turn);
        self.want.send_if_modified(|old| {
            let is_new = *old != new;
            *old = new;
            is_new
        });
    }
}

fn want(state: &State, turn: u64) -> Want {
    Want {
        screen: state.screen().clone(),
        is_wide: draw::is_beside(state.size),
        every: state.every,
        turn,
    }
}

/// What a signal asks for.
enum Wish {
    End,
    Suspend,
}

struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    stop: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let stop = rustix::process::Signal::TSTP.as_raw();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            stop: signal(SignalKind::from_raw(stop))?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.hang_up.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.stop.recv() => Wish::Suspend,
        }
    }
}

/// Reads keys on a thread of its own, so that they are handled whatever the server does.
struct Keys {
    events: mpsc::Receiver<io::Result<Event>>,
}

impl Keys {
    fn start() -> Self {
        let (out, events) = mpsc::channel(64);
        let is_gone = Arc::new(AtomicBool::new(false));
        std::thread::spawn(move || {
            while !is_gone.load(Ordering::Relaxed) {
                let event = match event::poll(KEY_WAIT) {
                    Ok(false) if out.is_closed() => return,
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(error) => Err(error),
                };
                let has_failed = event.is_err();
                if out.blocking_send(event).is_err() || has_failed {
                    is_gone.store(true, Ordering::Relaxed);
                }
            }
        });
        Self { events }
    }
}
