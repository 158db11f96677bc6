//! The dashboard in a real browser: the scripts in `browser/` with Debian's Chromium.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::clients::browser;
use ganger_e2e::command::run_successfully;
use ganger_e2e::server::{Server, Setup};
use ganger_e2e::skip::note_skip;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Tokens of the servers that ask for them, with their role and namespace.
const TOKENS: &[(&str, &str, &str)] = &[
    ("root", "admin", "*"),
    ("op", "operator", "default"),
    ("eyes", "reader", "default"),
    ("hands", "worker", "*"),
    ("gone", "reader", "default"),
    ("late", "operator", "default"),
];
/// Number of jobs in the large queue.
const LARGE: usize = 200_000;
/// Number of jobs that are enqueued at once.
const BATCH: usize = 10_000;

/// A server in a directory of its own.
struct TestServer {
    setup: Setup,
    running: Server,
    _directory: TempDir,
}

impl TestServer {
    fn start(arguments: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut setup = Setup::in_directory(directory.path())?;
        setup.arguments = arguments.iter().map(|&it| it.to_owned()).collect();
        Ok(Self {
            running: setup.start()?,
            setup,
            _directory: directory,
        })
    }

    /// Starts a server that asks for tokens, with more arguments.
    fn start_closed(access: &Access, arguments: &[&str]) -> Result<Self> {
        let mut all = vec!["--access-file", access.path()];
        all.extend(arguments);
        Self::start(&all)
    }

    fn address(&self) -> String {
        format!("http://{}", self.setup.address)
    }

    fn restart(&mut self) -> Result<()> {
        self.running.kill()?;
        self.running = self.setup.start()?;
        Ok(())
    }
}

/// An access file with [`TOKENS`].
struct Access {
    directory: TempDir,
    path: String,
}

impl Access {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("access").display().to_string();
        let access = Self { directory, path };
        for (name, role, namespace) in TOKENS {
            let secret = access.directory.path().join(name).display().to_string();
            access.edit(&[
                "create",
                "--name",
                name,
                "--role",
                role,
                "--namespace",
                namespace,
                "--secret-file",
                &secret,
            ])?;
        }
        Ok(access)
    }

    fn path(&self) -> &str {
        &self.path
    }

    /// Runs `ganger token` on the access file; returns its output.
    fn edit(&self, words: &[&str]) -> Result<String> {
        let mut arguments = vec!["token"];
        arguments.extend(words);
        run_successfully(&arguments, &[("GANGER_ACCESS_FILE", &self.path)])
    }

    /// Gives a token other rights, as people do with an editor.
    fn grant(&self, name: &str, grants: &str) -> Result<()> {
        let text = fs::read_to_string(&self.path)?;
        let begin = format!("token name={name} ");
        let lines = text.lines().map(|line| {
            let words = line.split(' ').map(|word| match word {
                word if line.starts_with(&begin) && word.starts_with("grants=") => {
                    format!("grants={grants}")
                }
                word => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ") + "\n"
        });
        let fresh = self.directory.path().join("access.new");
        fs::write(&fresh, lines.collect::<String>())?;
        Ok(fs::rename(fresh, &self.path)?)
    }

    /// Returns the secrets by name, as a JSON object.
    fn secrets(&self) -> Result<String> {
        let mut secrets = Map::new();
        for (name, ..) in TOKENS {
            let secret = fs::read_to_string(self.directory.path().join(name))?;
            secrets.insert((*name).to_owned(), secret.trim().into());
        }
        Ok(Value::Object(secrets).to_string())
    }
}

/// Runs a script. Lines of its output that ask for something are passed to `act`, and answered with "done".
fn run_script(
    name: &str,
    arguments: &[String],
    mut act: impl FnMut(&[&str]) -> Result<()>,
) -> Result<()> {
    let mut command = browser(name)?;
    let mut running = command
        .args(arguments)
        .env("CHROMIUM", chromium().context("there is a chromium")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start node")?;
    let mut input = running.stdin.take().context("it has an input")?;
    let output = BufReader::new(running.stdout.take().context("it has an output")?);
    let mut said = Vec::new();
    for line in output.lines() {
        let line = line?;
        eprintln!("{line}");
        let words: Vec<_> = line.split(' ').collect();
        if ["restart", "revoke", "grant"].contains(&words[0]) {
            act(&words)?;
            writeln!(input, "done")?;
        }
        said.push(line);
    }
    let status = running.wait()?;
    ensure!(status.success(), "{status} after:\n{}", said.join("\n"));
    Ok(())
}

/// Whether this machine can drive a browser; notes the test as skipped if not.
fn can_browse(test: &str) -> bool {
    let why = if chromium().is_none() {
        "there is no chromium".to_owned()
    } else {
        match browser("kit.mjs") {
            Ok(_) => return true,
            Err(error) => format!("{error:#}"),
        }
    };
    note_skip(test, &why);
    false
}

/// Debian's Chromium, under its name of Debian or another.
fn chromium() -> Option<PathBuf> {
    let known = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let found = known.iter().map(Path::new).find(|path| path.exists());
    found.map(Path::to_owned).filter(|path| {
        let version = Command::new(path).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn the_dashboard_works_in_a_browser() -> Result<()> {
    if !can_browse("the_dashboard_works_in_a_browser") {
        return Ok(());
    }
    let mut open = TestServer::start(&[])?;
    let based = TestServer::start(&["--set", "ui.base_path=/ganger"])?;
    let arguments = [open.address(), based.address()];
    run_script("dashboard.mjs", &arguments, |_| open.restart())?;
    open.setup.expect_no_panic()?;
    based.setup.expect_no_panic()
}

#[test]
fn sessions_and_rights_hold_in_a_browser() -> Result<()> {
    if !can_browse("sessions_and_rights_hold_in_a_browser") {
        return Ok(());
    }
    let access = Access::new()?;
    let mut closed = TestServer::start_closed(&access, &[])?;
    let brief = TestServer::start_closed(&access, &["--set", "ui.session_max=5s"])?;
    let read_only = TestServer::start(&["--set", "ui.read_only=true"])?;
    let arguments = [
        access.secrets()?,
        closed.address(),
        brief.address(),
        read_only.address(),
    ];
    run_script("sessions.mjs", &arguments, |words| match words {
        ["restart"] => closed.restart(),
        ["revoke", name] => access.edit(&["revoke", name]).map(drop),
        ["grant", name, grants] => access.grant(name, grants),
        other => bail!("the script asks for {other:?}"),
    })?;
    for server in [&closed, &brief, &read_only] {
        server.setup.expect_no_panic()?;
    }
    Ok(())
}

#[test]
fn pages_over_many_jobs_stay_small_in_a_browser() -> Result<()> {
    if !can_browse("pages_over_many_jobs_stay_small_in_a_browser") {
        return Ok(());
    }
    let open = TestServer::start(&[])?;
    let mut client = open.setup.client();
    let mut enqueue = |jobs: Vec<_>| -> Result<()> {
        let response = client.request("POST", "/api/v1/graphs", &json!({ "jobs": jobs }));
        let response = response.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(response.status < 300, "{}", response.to_text());
        Ok(())
    };
    enqueue(vec![json!({"kind": "rare", "queue": "large"})])?;
    for _ in 0..LARGE / BATCH {
        enqueue(vec![json!({"kind": "send", "queue": "large"}); BATCH])?;
    }
    run_script("large.mjs", &[open.address()], |words| {
        bail!("the script asks for {words:?}")
    })?;
    open.setup.expect_no_panic()
}
