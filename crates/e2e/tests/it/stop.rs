//! Stopping the server: gracefully on the first signal, at once on the second.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::command::{Worker, wait_for, write_programs};
use ganger_e2e::server::{Setup, TIMEOUT};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn one_signal_stops_gracefully_and_waiting_requests_are_answered() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = tempfile::tempdir()?;
        let setup = Setup::in_directory(directory.path())?;
        let mut server = setup.start()?;
        let client = setup.client();
        let waiting = thread::spawn(move || {
            Api::new(client).lease(
                "empty",
                "w",
                1,
                Duration::from_secs(60),
                Duration::from_secs(60),
            )
        });
        // The request must be waiting before the signal comes, which cannot be observed otherwise.
        thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        server.signal(signal)?;
        let status = server.wait(TIMEOUT)?;
        ensure!(
            status.success(),
            "{signal:?} ended the server with {status}"
        );
        ensure!(
            begun.elapsed() < Duration::from_secs(15),
            "the waiting request delayed the stop"
        );
        waiting.join().expect("the waiting client does not panic");
        setup.check()?;
        setup.expect_no_panic()?;
    }
    Ok(())
}

#[test]
fn a_second_signal_stops_at_once_and_nothing_acknowledged_is_lost() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    api.expect("POST", "jobs", &json!({ "id": "kept", "kind": "a" }))?;

    // A request that never ends delays a graceful stop.
    let mut stuck = TcpStream::connect(setup.address)?;
    write!(
        stuck,
        "POST /api/v1/jobs HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        setup.address
    )?;
    thread::sleep(Duration::from_millis(200));
    server.signal(Signal::TERM)?;
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    // The server may have ended already.
    let _ = server.signal(Signal::TERM);
    server.wait(TIMEOUT)?;
    ensure!(
        begun.elapsed() < Duration::from_secs(3),
        "the second signal took {:?}",
        begun.elapsed()
    );
    stuck.set_read_timeout(Some(Duration::from_secs(5)))?;
    let _ = stuck.read(&mut [0; 1]);

    setup.check()?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    ensure!(api.find("kept")?.is_some(), "the acknowledged job is gone");
    server.stop()?;
    setup.expect_no_panic()
}

/// Log messages of a server that cut off requests or workers.
const CUT: [&str; 2] = ["still in flight", "still hold jobs"];

#[test]
fn an_idle_worker_does_not_delay_a_stop_and_can_stop_without_its_server() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut setup = Setup::in_directory(directory.path())?;
    // A stop that needs the whole timeout fails the test.
    setup
        .arguments
        .extend(["--stop-timeout", "1h"].map(Into::into));
    let mut server = setup.start()?;
    let log = directory.path().join("worker.log");
    let programs = write_programs(
        &directory.path().join("programs"),
        &[("echo", "#!/bin/sh\ncat\n")],
    )?;
    let address = setup.address.to_string();
    let mut worker = Worker::start(&programs, &log, &["--server", &address], &[])?;
    let log_text = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("the worker's stream", || {
        Ok(log_text().contains("connected").then_some(()))
    })?;
    // After a job, the worker's slot has a supervisor process.
    let mut api = Api::new(setup.client());
    api.expect("POST", "jobs", &json!({ "id": "a", "kind": "echo" }))?;
    wait_for("the job", || {
        Ok(log_text().contains("succeeded").then_some(()))
    })?;

    server.stop()?;
    let server_log = setup.log_text();
    ensure!(
        !CUT.iter().any(|words| server_log.contains(words)),
        "{server_log}"
    );
    wait_for("the worker's message about it", || {
        Ok(log_text()
            .contains("the server is unreachable")
            .then_some(()))
    })?;
    let status = worker.stop()?;
    ensure!(
        status.success(),
        "the worker ended with {status}: {}",
        log_text()
    );
    ensure!(
        log_text().contains("could not deregister this worker"),
        "it did not try: {}",
        log_text()
    );
    setup.check()?;
    setup.expect_no_panic()
}
