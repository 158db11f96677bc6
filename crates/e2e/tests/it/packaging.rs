//! The systemd units, the alert rules and the Grafana dashboard: their commands, rules and metrics are valid, and the
//! server sends the notifications that the units rely on.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::binary::ganger;
use ganger_e2e::command::{output_text, run};
use ganger_e2e::server::{Setup, TIMEOUT};
use ganger_e2e::skip::note_skip;
use rustix::process::Signal;
use serde_json::Value;

const UNITS: [&str; 2] = ["ganger.service", "ganger-worker.service"];
/// Path of the program in the units.
const INSTALLED: &str = "/usr/bin/ganger";

fn unit(name: &str) -> Result<String> {
    let directory = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd"
    ));
    Ok(fs::read_to_string(directory.join(name))?)
}

fn receive(socket: &UnixDatagram) -> Result<String> {
    let mut words = [0; 256];
    let count = socket.recv(&mut words).context("no notification arrived")?;
    Ok(String::from_utf8_lossy(&words[..count]).into_owned())
}

#[test]
fn the_server_notifies_the_service_manager_when_it_is_ready_and_when_it_stops() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut setup = Setup::in_directory(directory.path())?;
    let path = path.to_str().context("the path is not UTF-8")?.to_owned();
    setup.variables = vec![("NOTIFY_SOCKET".to_owned(), path)];
    let mut server = setup.spawn()?;
    ensure!(receive(&socket)? == "READY=1");
    // The server really is ready.
    let answer = setup.client().request("GET", "/readyz", &Value::Null);
    let answer = answer.ok().context("no response")?;
    ensure!(answer.status == 200, "{}", answer.to_text());
    server.signal(Signal::TERM)?;
    ensure!(receive(&socket)? == "STOPPING=1");
    ensure!(server.wait(TIMEOUT)?.success());
    setup.expect_no_panic()
}

#[test]
fn the_units_start_the_program_with_valid_arguments() -> Result<()> {
    for name in UNITS {
        let text = unit(name)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="))
            .context("the unit has no ExecStart line")?;
        let arguments = line
            .strip_prefix(INSTALLED)
            .context("ExecStart does not name the installed ganger")?;
        let known: Vec<&str> = arguments
            .split_whitespace()
            .filter(|word| !word.starts_with('$') || word.contains('{'))
            .chain(["--help"])
            .collect();
        let output = run(&known, &[])?;
        ensure!(output.status.success(), "{name}: {}", output_text(&output));
    }
    Ok(())
}

#[test]
fn systemd_accepts_the_units() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = ganger();
    let program = program.to_str().context("the path is not UTF-8")?;
    for name in UNITS {
        let text = unit(name)?.replace(INSTALLED, program);
        fs::write(directory.path().join(name), text)?;
    }
    let files: Vec<PathBuf> = UNITS
        .iter()
        .map(|name| directory.path().join(name))
        .collect();
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&files)
        .output();
    let Ok(output) = verify else {
        note_skip("systemd_accepts_the_units", "no systemd-analyze here");
        return Ok(());
    };
    let messages = output_text(&output);
    let is_ours = |line: &&str| UNITS.iter().any(|name| line.contains(name));
    let faults: Vec<&str> = messages.lines().filter(is_ours).collect();
    ensure!(output.status.success() && faults.is_empty(), "{messages}");
    expect_hardened(&files)
}

/// Checks the exposure level of `systemd-analyze security`, from 0 (safe) to 10 (unsafe).
fn expect_hardened(units: &[PathBuf]) -> Result<()> {
    for unit in units {
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--threshold=40", "--no-pager"])
            .arg(unit)
            .output()?;
        let messages = output_text(&output);
        if messages.contains("unrecognized option") {
            note_skip(
                "systemd_accepts_the_units",
                "systemd-analyze has no --offline here",
            );
            return Ok(());
        }
        let name = unit
            .file_name()
            .map(Path::new)
            .context("the unit has no file name")?;
        ensure!(output.status.success(), "{}: {messages}", name.display());
    }
    Ok(())
}

/// Returns the path of a file in `packaging`.
fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// Names of metrics in a text, without the endings of histograms.
fn metrics_in(text: &str) -> std::collections::BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let words = text.split(|it: char| !is_part(it));
    let named = words.filter(|word| word.starts_with("ganger_"));
    named
        .map(|word| {
            let short = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| word.strip_suffix(end));
            short.unwrap_or(word).to_owned()
        })
        .collect()
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_are_documented() -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let documented = metrics_in(&fs::read_to_string(page)?);
    for name in [
        "prometheus/ganger-alerts.yml",
        "prometheus/ganger-alerts.test.yml",
        "grafana/ganger.json",
    ] {
        let named = metrics_in(&fs::read_to_string(packaged(name))?);
        ensure!(!named.is_empty(), "{name} names no metric");
        let unknown: Vec<_> = named.difference(&documented).collect();
        ensure!(
            unknown.is_empty(),
            "{name} names metrics that do not exist: {unknown:?}"
        );
    }
    Ok(())
}

#[test]
fn the_dashboard_for_grafana_is_whole() -> Result<()> {
    let text = fs::read_to_string(packaged("grafana/ganger.json"))?;
    let board: Value = serde_json::from_str(&text)?;
    let panels = board["panels"].as_array().context("no panels")?;
    let variables = board["templating"]["list"]
        .as_array()
        .context("no variables")?;
    let mut ids: Vec<i64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_i64())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == panels.len(), "two panels have one id");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().context("no queries")?;
        ensure!(!targets.is_empty(), "{}: no query", panel["title"]);
        for target in targets {
            let query = target["expr"].as_str().context("no expression")?;
            for word in query.split('$').skip(1) {
                let end = word.find(|it: char| !it.is_ascii_alphabetic() && it != '_');
                let name = &word[..end.unwrap_or(word.len())];
                let is_known = name == "__rate_interval"
                    || variables.iter().any(|variable| variable["name"] == name);
                ensure!(is_known, "{}: there is no variable {name}", panel["title"]);
            }
        }
    }
    Ok(())
}

#[test]
fn promtool_accepts_the_alert_rules_and_they_fire_as_their_tests_say() -> Result<()> {
    for (verb, name) in [
        ("check", "prometheus/ganger-alerts.yml"),
        ("test", "prometheus/ganger-alerts.test.yml"),
    ] {
        let promtool = Command::new("promtool")
            .args([verb, "rules"])
            .arg(packaged(name))
            .output();
        let Ok(output) = promtool else {
            note_skip("promtool_accepts_the_alert_rules", "there is no promtool");
            return Ok(());
        };
        ensure!(output.status.success(), "{}", output_text(&output));
    }
    Ok(())
}
