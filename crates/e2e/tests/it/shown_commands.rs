//! The commands that pages without jobs, schedules and workers offer to copy: a shell can run them.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::binary::ganger;
use ganger_e2e::server::Setup;
use serde_json::Value;

/// The texts that a page offers to copy.
fn offered(page: &str) -> Vec<String> {
    let texts = page.split("data-copy=\"").skip(1);
    let texts = texts.filter_map(|rest| rest.split('"').next());
    texts
        .map(|text| {
            text.replace("&quot;", "\"")
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&")
        })
        .collect()
}

#[test]
fn commands_that_empty_pages_offer_can_be_pasted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut client = setup.client();
    let programs = ganger().parent().context("a directory")?.to_owned();
    let path = std::env::var("PATH")?;
    let mut run = 0;
    // Overview comes first: what is pasted from it makes a job.
    for page in ["/ui/", "/ui/schedules", "/ui/workers"] {
        let answer = client.request("GET", page, &Value::Null);
        let answer = answer.map_err(|error| anyhow::anyhow!("{page}: {error:?}"))?;
        for text in offered(&answer.to_text()) {
            // A worker has no end; with --help it checks its arguments alone.
            let text = if text.starts_with("ganger worker") {
                format!("{text} --help")
            } else {
                text.replace(
                    "http://127.0.0.1:3733",
                    &format!("http://{}", setup.address),
                )
            };
            let done = Command::new("sh")
                .args(["-c", &text])
                .env("PATH", format!("{}:{path}", programs.display()))
                .env("GANGER_URL", setup.address.to_string())
                .output()?;
            let words = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "{page}: {text}: {words}");
            let printed = String::from_utf8_lossy(&done.stdout);
            ensure!(!printed.contains("\"urn:ganger:error"), "{text}: {printed}");
            run += 1;
        }
    }
    ensure!(run >= 5, "only {run} commands were offered");
    server.stop()?;
    setup.expect_no_panic()
}
