//! The Redis port of the real server with TLS and authentication: tokens, certificates, roles.

use std::fs;

use anyhow::{Result, ensure};
use ganger_e2e::certificates::make_certificates;
use ganger_e2e::clients::python;
use ganger_e2e::command::{run_successfully, wait_for};
use ganger_e2e::redis::{TestBed, or_skip};
use ganger_e2e::skip::note_skip;

#[test]
fn roles_are_enforced_on_the_port_over_tls() -> Result<()> {
    const NAME: &str = "roles_are_enforced_on_the_port_over_tls";
    let Some(python) = or_skip(NAME, python()) else {
        return Ok(());
    };
    let mut test_bed = TestBed::new(&["--require", "either"])?;
    let directory = test_bed.directory.path();
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let access = path("access");
    let wanted = [
        &["server", "localhost", "127.0.0.1"][..],
        &["client", "box"],
    ];
    if !make_certificates(&directory.join("ca"), &wanted)? {
        note_skip(NAME, "certificates cannot be created here");
        return Ok(());
    }
    for role in ["reader", "producer", "worker"] {
        let secret = path(&format!("{role}.secret"));
        let arguments = [
            "token",
            "create",
            "--access-file",
            &access,
            "--name",
            role,
            "--role",
            role,
            "--secret-file",
            &secret,
        ];
        run_successfully(&arguments, &[])?;
    }
    let certificate = "certificate name=box grants=worker@*\n";
    fs::write(&access, fs::read_to_string(&access)? + certificate)?;
    for (option, file) in [
        ("--tls-cert", "ca/server.pem"),
        ("--tls-key", "ca/server.key"),
        ("--tls-client-ca", "ca/ca.pem"),
        ("--access-file", "access"),
        ("--audit-log", "audit"),
    ] {
        test_bed
            .setup
            .arguments
            .extend([option.to_owned(), path(file)]);
    }
    // With TLS, only the log shows that the server is ready.
    let mut server = test_bed.setup.spawn()?;
    wait_for("the server's start", || {
        let is_ready = test_bed.setup.log_text().contains("ready addr=");
        Ok(is_ready.then_some(()))
    })?;
    test_bed.run(python, "access_checks.py", &[&path("")])?;
    server.stop()?;
    let audit = fs::read_to_string(path("audit"))?;
    for what in [
        "\"rpop\"",
        "\"set\"",
        "\"put\"",
        "\"pop\"",
        "\"config.set\"",
    ] {
        let is_logged = audit
            .lines()
            .any(|line| line.contains(what) && line.contains("\"denied\""));
        ensure!(is_logged, "{what} is not in the audit log: {audit}");
    }
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}
