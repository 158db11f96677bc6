//! `ganger top` in a real terminal: keys, actions, sizes, a lost server, signals, and the terminal afterwards.
//!
//! The program `script` makes the terminal, and the crate `vt100` reads what arrives there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::binary::ganger;
use ganger_e2e::command::{output_text, run, wait_for};
use ganger_e2e::server::Setup;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// What has arrived at a terminal.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// A number of columns or lines.
fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN)
}

/// A terminal with a program in it.
struct Terminal {
    script: Child,
    seen: Arc<Mutex<Seen>>,
    /// Files with the name of the terminal and the process of the program.
    files: PathBuf,
}

impl Terminal {
    /// Starts `ganger top` in a terminal of this size.
    fn start(
        directory: &Path,
        setup: &Setup,
        arguments: &str,
        (columns, lines): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let files = directory.join("terminal");
        fs::create_dir_all(&files)?;
        let program = format!(
            "stty cols {columns} rows {lines}; tty > tty.new; echo $$ > pid; mv tty.new tty; exec \"$GANGER\" top --server {} {arguments}",
            setup.address
        );
        let mut script = Command::new("script")
            .args(["-qfec", &program, "/dev/null"])
            .current_dir(&files)
            .env("GANGER", ganger())
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env_remove("LC_ALL")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("script cannot be started")?;
        let mut output = script.stdout.take().context("no output")?;
        let seen = Arc::new(Mutex::new(Seen {
            parser: vt100::Parser::new(size(lines), size(columns), 0),
            bytes: Vec::new(),
        }));
        let filled = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut seen = filled.lock().unwrap_or_else(PoisonError::into_inner);
                seen.parser.process(&buffer[..count]);
                seen.bytes.extend_from_slice(&buffer[..count]);
            }
        });
        Ok(Self {
            script,
            seen,
            files,
        })
    }

    fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn text(&self) -> String {
        self.look(|seen| seen.parser.screen().contents())
    }

    /// Waits until the screen contains some words.
    fn expect(&self, words: &str) -> Result<String> {
        wait_for(words, || {
            let text = self.text();
            Ok(text.contains(words).then_some(text))
        })
        .with_context(|| self.text())
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        let input = self.script.stdin.as_mut().context("no input")?;
        input.write_all(keys.as_bytes())?;
        Ok(input.flush()?)
    }

    /// Returns the process of `ganger top`.
    fn process(&self) -> Result<Pid> {
        let text = fs::read_to_string(self.files.join("pid"))?;
        Pid::from_raw(text.trim().parse()?).context("no process")
    }

    fn resize(&self, columns: u16, lines: u16) -> Result<()> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .parser
            .screen_mut()
            .set_size(size(lines), size(columns));
        let terminal = fs::read_to_string(self.files.join("tty"))?;
        let status = Command::new("stty")
            .args([
                "-F",
                terminal.trim(),
                "cols",
                &columns.to_string(),
                "rows",
                &lines.to_string(),
            ])
            .status()?;
        ensure!(status.success(), "the terminal cannot be resized");
        // Only the process group in the foreground gets the signal by itself.
        Ok(kill_process(self.process()?, Signal::WINCH)?)
    }

    /// Waits for the end of the program.
    fn end(&mut self) -> Result<ExitStatus> {
        wait_for("the end of ganger top", || Ok(self.script.try_wait()?))
    }

    /// Checks that the terminal is as it was before the program.
    fn expect_restored(&self) -> Result<()> {
        wait_for("the restored terminal", || {
            Ok(self
                .look(|seen| {
                    let screen = seen.parser.screen();
                    !screen.alternate_screen() && !screen.hide_cursor()
                })
                .then_some(()))
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

const USUAL: (u16, u16) = (80, 24);

#[test]
fn a_job_is_found_explained_and_cancelled_by_keys_alone() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    api.expect(
        "POST",
        "jobs",
        &json!({"id": "one", "kind": "resize", "queue": "mail"}),
    )?;
    let mut top = Terminal::start(directory.path(), &setup, "", USUAL, &[])?;
    let first = top.expect("mail")?;
    ensure!(first.contains("no worker has asked"), "{first}");
    ensure!(top.look(|seen| seen.parser.screen().alternate_screen()));
    top.press("\r")?;
    top.expect("JOBS of queue mail")?;
    top.expect("1/one")?;
    top.press("\r")?;
    top.expect("Why it does not run")?;
    top.expect("no worker")?;
    top.press("c")?;
    top.expect("Cancel job 1/one? y/N")?;
    top.press("n")?;
    top.expect("Nothing was changed.")?;
    top.press("c")?;
    top.expect("Cancel job 1/one? y/N")?;
    top.press("y")?;
    top.expect("Cancelled 1/one.")?;
    top.expect("How it ended")?;
    let job = api.expect("GET", "jobs/one", &Value::Null)?;
    ensure!(job["state"] == "cancelled", "{job}");
    top.press("yq")?;
    let status = top.end()?;
    ensure!(status.success(), "{status}");
    top.expect_restored()?;
    // The kept id is all that stays.
    top.expect("1/one")?;
    server.stop()
}

#[test]
fn a_lost_server_is_named_keys_work_meanwhile_and_it_goes_on_when_the_server_is_back() -> Result<()>
{
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    api.expect("POST", "jobs", &json!({"kind": "a", "queue": "mail"}))?;
    let mut top = Terminal::start(directory.path(), &setup, "--every 500ms", USUAL, &[])?;
    top.expect("mail")?;
    server.kill()?;
    let lost = top.expect("no answer for")?;
    ensure!(lost.contains("mail"), "what was known stays: {lost}");
    top.press("?")?;
    top.expect("this help")?;
    top.press("x")?;
    let mut server = setup.start()?;
    wait_for("an answer", || {
        let text = top.text();
        Ok((!text.contains("no answer") && text.contains("/s in")).then_some(()))
    })?;
    // A server that hangs is not asked twice, and the keys still work.
    server.signal(Signal::STOP)?;
    top.expect("no answer for")?;
    top.press("?")?;
    top.expect("this help")?;
    server.signal(Signal::CONT)?;
    top.press("xq")?;
    ensure!(top.end()?.success());
    server.stop()
}

#[test]
fn signals_end_it_with_the_terminal_restored() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut top = Terminal::start(directory.path(), &setup, "", USUAL, &[])?;
        top.expect("No queues yet.")?;
        kill_process(top.process()?, signal)?;
        top.end()?;
        top.expect_restored()?;
    }
    let mut top = Terminal::start(directory.path(), &setup, "", USUAL, &[])?;
    top.expect("No queues yet.")?;
    top.press("\u{3}")?;
    ensure!(top.end()?.success(), "Ctrl-C leaves");
    top.expect_restored()?;
    server.stop()
}

#[test]
fn a_new_size_is_used_at_once_and_a_quiet_second_is_small() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    api.expect("POST", "jobs", &json!({"kind": "a", "queue": "mail"}))?;
    let no_color = [("NO_COLOR", "1")];
    let mut top = Terminal::start(directory.path(), &setup, "--ascii", USUAL, &no_color)?;
    let narrow = top.expect("mail")?;
    ensure!(!narrow.contains("Last 10 min"), "{narrow}");
    let before = top.look(|seen| seen.bytes.len());
    let began = Instant::now();
    thread::sleep(Duration::from_secs(5));
    let bytes = top.look(|seen| seen.bytes.len()) - before;
    let seconds = began.elapsed().as_secs_f64();
    let most = 2_048.0 * seconds;
    ensure!(
        f64::from(u32::try_from(bytes)?) < most,
        "{bytes} bytes in {seconds} s"
    );
    top.resize(120, 30)?;
    top.expect("Last 10 min")?;
    top.resize(59, 14)?;
    top.expect("Too small: 60 by 15 at least")?;
    top.press("q")?;
    ensure!(top.end()?.success());
    // Colours are 30 to 37 and 90 to 97; none of them was ever sent, and nothing beyond ASCII.
    let bytes = top.look(|seen| seen.bytes.clone());
    ensure!(bytes.is_ascii(), "something is not ASCII");
    let text = String::from_utf8(bytes)?;
    for start in text.split("\u{1b}[").skip(1) {
        let end = start.find(|it: char| it.is_ascii_alphabetic()).unwrap_or(0);
        let is_style = start[end..].starts_with('m');
        let has_color = start[..end].split(';').any(|number| {
            let number: u32 = number.parse().unwrap_or(0);
            (30..=37).contains(&number)
                || (40..=47).contains(&number)
                || (90..=107).contains(&number)
        });
        ensure!(
            !(is_style && has_color),
            "a colour was sent: {:?}",
            &start[..=end]
        );
    }
    server.stop()
}

#[test]
fn without_a_terminal_one_plain_frame_is_printed_and_errors_have_their_codes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let address = setup.address.to_string();
    let top = |more: &[&str]| run(&[&["top", "--server", &address], more].concat(), &[]);
    let unreachable = top(&["--once"])?;
    ensure!(
        unreachable.status.code() == Some(4),
        "{}",
        output_text(&unreachable)
    );
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let hostile = json!({"kind": "a", "queue": "evil\u{1b}[2J\u{202e}"});
    api.expect("POST", "jobs", &hostile)?;
    for arguments in [&[][..], &["--once"], &["--once", "--screen", "jobs"]] {
        let frame = top(arguments)?;
        ensure!(frame.status.success(), "{}", output_text(&frame));
        let text = String::from_utf8(frame.stdout)?;
        ensure!(text.contains("evil\\x1b[2J"), "{text}");
        ensure!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text:?}"
        );
    }
    let document = run(&["--json", "top", "--server", &address], &[])?;
    let document: Value = serde_json::from_slice(&document.stdout)?;
    ensure!(
        document["attention"][0]["code"] == "no_worker",
        "{document}"
    );
    ensure!(document["queues"][0]["counts"]["ready"] == 1, "{document}");
    let wrong = top(&["--every", "1h"])?;
    ensure!(wrong.status.code() == Some(2), "{}", output_text(&wrong));
    server.stop()
}
