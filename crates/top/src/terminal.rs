//! The terminal: raw mode and the alternate screen, left again whatever happens.

use std::io::{self, Stdout, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::draw::draw;
use crate::state::State;

/// Whether the terminal is in our hands now. The panic hook has no other way to know.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while the screen is shown. Dropping it restores the terminal.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether the terminal is told where a frame begins and ends, so that it shows it at once.
    is_synchronized: bool,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// If it is no terminal that can be controlled.
    pub(crate) fn open() -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let name = std::env::var("TERM").unwrap_or_default();
        Ok(Self {
            terminal: terminal.inspect_err(|_| restore())?,
            is_synchronized: !matches!(name.as_str(), "" | "dumb" | "linux" | "vt100" | "vt220"),
        })
    }

    /// Draws what has changed since the last frame.
    pub(crate) fn draw(&mut self, state: &State) -> io::Result<()> {
        if self.is_synchronized {
            execute!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        }
        self.terminal.draw(|frame| draw(state, frame))?;
        if self.is_synchronized {
            execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        }
        Ok(())
    }

    /// Returns the size in columns and lines.
    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Gives the terminal back, stops the process, and takes the terminal again once it is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        let process = rustix::process::getpid();
        rustix::process::kill_process(process, rustix::process::Signal::STOP)?;
        take()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Leaves the alternate screen and raw mode, if they are on. An error cannot be shown anywhere.
fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            LeaveAlternateScreen,
            Show
        );
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Name of this test for the program in the terminal, which is the test itself.
    const SELF: &str = "terminal::tests::a_panic_gives_the_terminal_back_before_its_message";
    /// Variable that makes it panic there.
    const IN_TERMINAL: &str = "GANGER_TOP_TEST_IN_TERMINAL";

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        if std::env::var_os(IN_TERMINAL).is_some() {
            let _screen = Screen::open().expect("a terminal");
            panic!("in the middle of a frame");
        }
        let program = std::env::current_exe().expect("the path of the test");
        let program = program.to_str().expect("text");
        let commands = format!("stty -g; '{program}' --exact {SELF} --nocapture; stty -g");
        let output = Command::new("script")
            .args(["-qfec", &commands, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .env(IN_TERMINAL, "1")
            .stdin(Stdio::null())
            .output()
            .expect("script is there");
        let text = String::from_utf8_lossy(&output.stdout);
        let place = |words: &str| {
            let found = text.find(words);
            found.unwrap_or_else(|| panic!("{words:?} is missing in {text:?}"))
        };
        let (taken, left) = (place("\x1b[?1049h"), place("\x1b[?1049l"));
        assert!(taken < left, "the screen is taken, then left: {text:?}");
        assert!(left < place("in the middle of a frame"), "{text:?}");
        assert!(
            place("\x1b[?25l") < place("\x1b[?25h"),
            "the cursor is back"
        );
        let (first, last) = (text.lines().next(), text.lines().last());
        assert_eq!(first, last, "the settings are those from before");
    }
}
