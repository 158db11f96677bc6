//! Only one process uses a store, however the previous one ended.

use anyhow::{Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::ports::free_address;
use ganger_e2e::server::{Setup, TIMEOUT};
use serde_json::json;

#[test]
fn a_second_server_refuses_a_store_that_is_in_use() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut first = setup.start()?;

    let mut other = setup.clone();
    other.address = free_address()?;
    other.log = directory.path().join("second.log");
    let mut second = other.spawn()?;
    let status = second.wait(TIMEOUT)?;
    ensure!(!status.success(), "the second server ended with {status}");
    let log = other.log_text();
    ensure!(log.contains("in use"), "the log does not say why:\n{log}");

    // The first server is not affected.
    let mut api = Api::new(setup.client());
    api.expect("POST", "jobs", &json!({ "kind": "a" }))?;
    first.stop()
}

#[test]
fn a_killed_server_leaves_the_store_free() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    for _ in 0..5 {
        let mut server = setup.start()?;
        server.kill()?;
    }
    setup.start()?.stop()?;
    setup.expect_no_panic()
}
