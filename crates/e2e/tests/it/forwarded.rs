//! What bounds the way of a request between nodes that do not agree who owns its shard.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::nodes::Nodes;

/// Sends a request for shard 1 to a node, with a header as other nodes add it; returns status and text.
fn ask(nodes: &Nodes, node: &str, header: &str) -> Result<(String, String)> {
    let url = format!(
        "http://{}/api/v1/jobs?limit=1&shard=1",
        nodes.setup(node).address
    );
    let asked = Command::new("curl")
        .args(["--silent", "--show-error", "--write-out", "\n%{http_code}"])
        // As little as is left of the time to wait for an owner.
        .args([
            "--header",
            "ganger-wait-left: 300",
            "--header",
            header,
            &url,
        ])
        .output()
        .context("cannot start curl")?;
    ensure!(asked.status.success(), "{asked:?}");
    let text = String::from_utf8(asked.stdout)?;
    let (text, status) = text.rsplit_once('\n').context("there is a status")?;
    Ok((status.to_owned(), text.to_owned()))
}

#[test]
fn nodes_that_do_not_agree_pass_a_request_on_three_times_at_most() -> Result<()> {
    const NAME: &str = "nodes_that_do_not_agree_pass_a_request_on";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let owner = nodes.owner("a", "1")?.context("the shard has an owner")?;
    let other = nodes.other(&owner);
    for (header, status, words) in [
        ("ganger-hops: 2", "200", "jobs"),
        (
            "ganger-hops: 3",
            "503",
            "the nodes do not agree yet who owns it",
        ),
        (
            "ganger-hops: many",
            "503",
            "the nodes do not agree yet who owns it",
        ),
        // The other node has seen something newer, so this one waits for its next beat.
        ("ganger-places: 1", "200", "jobs"),
        (
            "ganger-places: 18446744073709551615",
            "503",
            "it is moving to another node",
        ),
    ] {
        let (answered, text) = ask(&nodes, &other, header)?;
        ensure!(
            answered == status && text.contains(words),
            "{header}: {answered} {text}"
        );
    }
    // The owner answers whatever others think.
    let (answered, text) = ask(&nodes, &owner, "ganger-hops: 3")?;
    ensure!(answered == "200", "{answered} {text}");
    nodes.stop()
}
