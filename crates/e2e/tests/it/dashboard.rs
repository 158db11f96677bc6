//! The dashboard in a real browser: `browser/dashboard.mjs` with Debian's Chromium.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients::browser;
use ganger_e2e::server::Setup;
use ganger_e2e::skip::note_skip;

/// The token of the server that asks for one.
const TOKEN: &str = "a-token-for-the-browser";

#[test]
fn the_dashboard_works_in_a_browser() -> Result<()> {
    let Some(chromium) = chromium() else {
        note_skip("the_dashboard_works_in_a_browser", "there is no chromium");
        return Ok(());
    };
    let mut script = match browser() {
        Ok(script) => script,
        Err(error) => {
            note_skip("the_dashboard_works_in_a_browser", &format!("{error:#}"));
            return Ok(());
        }
    };
    let directories = [
        tempfile::tempdir()?,
        tempfile::tempdir()?,
        tempfile::tempdir()?,
    ];
    let setup = |at: usize| Setup::in_directory(directories[at].path());
    let (open, mut closed, mut based) = (setup(0)?, setup(1)?, setup(2)?);
    closed
        .variables
        .push(("GANGER_TOKEN".to_owned(), TOKEN.to_owned()));
    based.arguments = vec!["--set".to_owned(), "ui.base_path=/ganger".to_owned()];
    let mut server = open.start()?;
    let _others = (closed.start()?, based.start()?);
    let address = |setup: &Setup| format!("http://{}", setup.address);
    let mut running = script
        .args([
            address(&open),
            address(&closed),
            TOKEN.to_owned(),
            address(&based),
        ])
        .env("CHROMIUM", chromium)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start node")?;
    let mut input = running.stdin.take().context("it has an input")?;
    let output = BufReader::new(running.stdout.take().context("it has an output")?);
    let mut said = Vec::new();
    for line in output.lines() {
        let line = line?;
        if line == "restart" {
            server.kill()?;
            server = open.start()?;
            writeln!(input, "done")?;
        }
        said.push(line);
    }
    let status = running.wait()?;
    ensure!(status.success(), "{status} after:\n{}", said.join("\n"));
    for setup in [&open, &closed, &based] {
        setup.expect_no_panic()?;
    }
    Ok(())
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
