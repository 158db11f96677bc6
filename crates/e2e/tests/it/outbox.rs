//! Messages between shards as the operator sees them: listed with reasons, and resumed after a store was restored from a
//! backup.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::{
    Worker, command, output_text, run, run_successfully, wait_for, write_programs,
};
use ganger_e2e::ports::free_addresses;
use ganger_e2e::server::{Server, Setup};
use serde_json::Value;

/// A job on shard 2 waits for one on shard 1.
const GRAPH: &str = r#"[
    {"task_id": {"shard": "1", "id": "up"}, "method": "up", "args": []},
    {"task_id": {"shard": "2", "id": "down"}, "method": "down", "args": [
        {"type": "TASKREF", "task_id": {"shard": "1", "id": "up"}}]}
]"#;

/// Two servers, and the programs for their workers.
struct TwoShards {
    directory: tempfile::TempDir,
    setups: Vec<Setup>,
    servers: Vec<Server>,
    handlers: PathBuf,
}

impl TwoShards {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        let addresses = free_addresses(2)?;
        let topology = format!("static:1={},2={}", addresses[0], addresses[1]);
        let setups: Vec<Setup> = ["1", "2"]
            .iter()
            .zip(&addresses)
            .map(|(shard, address)| Setup {
                store: path.join(format!("{shard}.db")),
                log: path.join(format!("{shard}.log")),
                address: *address,
                arguments: ["--shard", shard, "--topology", &topology]
                    .map(str::to_owned)
                    .into(),
                wrapper: Vec::new(),
                variables: Vec::new(),
            })
            .collect();
        let servers = setups.iter().map(Setup::start).collect::<Result<_>>()?;
        let one = "#!/bin/sh\necho 1\n";
        let handlers = write_programs(&path.join("worker.d"), &[("up", one), ("down", one)])?;
        Ok(Self {
            directory,
            setups,
            servers,
            handlers,
        })
    }

    fn worker(&self, index: usize) -> Result<Worker> {
        let log = self.directory.path().join(format!("worker{index}.log"));
        let address = self.setups[index].address.to_string();
        Worker::start(&self.handlers, &log, &["--server", &address], &[])
    }

    /// Submits the graph to the first server; returns the ids.
    fn submit(&self) -> Result<Vec<String>> {
        let path = self.directory.path().join("graph.json");
        fs::write(&path, GRAPH)?;
        let address = self.setups[0].address.to_string();
        let output = command(&["submit", "--server", &address, "--json"], &[])
            .stdin(fs::File::open(&path)?)
            .output()?;
        ensure!(output.status.success(), "{}", output_text(&output));
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        let jobs = answer["jobs"]
            .as_array()
            .context("the response has no list of jobs")?;
        let names = jobs
            .iter()
            .filter_map(|job| job["ref"].as_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn wait_for_state(&self, job: &str, state: &str) -> Result<()> {
        let address = self.setups[0].address.to_string();
        wait_for(&format!("{job} being {state}"), || {
            let output = run(&["job", "get", job, "--json", "--server", &address], &[])?;
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            Ok((shown["state"] == state).then_some(()))
        })
    }

    /// Runs `ganger outbox` for a shard at the first server; returns one document per other shard.
    fn outbox(&self, shard: &str, more: &[&str]) -> Result<Vec<Value>> {
        let address = self.setups[0].address.to_string();
        let arguments = ["outbox", "--json", "--server", &address, "--shard", shard];
        let printed = run_successfully(&[&arguments, more].concat(), &[])?;
        let lines = printed.lines().map(serde_json::from_str);
        Ok(lines.collect::<Result<_, _>>()?)
    }

    fn finish(mut self) -> Result<()> {
        for server in &mut self.servers {
            server.stop()?;
        }
        for setup in &self.setups {
            setup.check()?;
            setup.expect_no_panic()?;
        }
        Ok(())
    }
}

#[test]
fn waiting_messages_are_listed_with_a_reason_until_the_shard_is_back() -> Result<()> {
    let mut shards = TwoShards::new()?;
    let jobs = shards.submit()?;
    let address = shards.setups[0].address.to_string();
    let why = ["job", "why", &jobs[1], "--server", &address];
    let printed = run_successfully(&why, &[])?;
    for words in [
        format!("{} is blocked.", jobs[1]),
        format!("The job waits for a job of another shard: {}.", jobs[0]),
        format!("-> ganger job why {}", jobs[0]),
    ] {
        ensure!(printed.contains(&words), "{words}: {printed}");
    }
    shards.servers[1].kill()?;
    let one = shards.worker(0)?;
    shards.wait_for_state(&jobs[0], "succeeded")?;
    let peer = wait_for("a try that failed", || {
        let peers = shards.outbox("1", &[])?;
        let two = peers.into_iter().find(|peer| peer["peer"] == "2");
        Ok(two.filter(|two| two["tries_failed"].as_u64() > Some(0)))
    })?;
    ensure!(peer["shard"] == "1" && peer["waiting"] == 1, "{peer}");
    ensure!(
        peer["oldest_at"].is_string() && peer["last_error"].is_string(),
        "{peer}"
    );
    let messages = shards.outbox("1", &["--to", "2"])?;
    ensure!(messages.len() == 1, "{messages:?}");
    ensure!(
        messages[0]["number"] == peer["written"],
        "{messages:?} {peer}"
    );
    ensure!(messages[0]["kind"].is_string() && messages[0]["at"].is_string());
    let printed = run_successfully(&["outbox", "--server", &address], &[])?;
    ensure!(
        printed.contains("BECAUSE") && printed.contains("cannot be reached"),
        "{printed}"
    );

    // Nothing has stopped, so nothing can be reconciled.
    let output = run(&["outbox", "--server", &address, "reconcile", "2"], &[])?;
    ensure!(output.status.code() == Some(5), "{}", output_text(&output));
    ensure!(
        output_text(&output).contains("peer_not_stopped"),
        "{}",
        output_text(&output)
    );

    shards.servers[1] = shards.setups[1].start()?;
    let two = shards.worker(1)?;
    shards.wait_for_state(&jobs[1], "succeeded")?;
    wait_for("an empty outbox", || {
        let peers = shards.outbox("1", &[])?;
        Ok(peers.iter().all(|peer| peer["waiting"] == 0).then_some(()))
    })?;
    ensure!(shards.outbox("1", &["--to", "2"])?.is_empty());
    drop((one, two));
    shards.finish()
}

/// Copies the files of a store that is not open.
fn copy_store(from: &Path, to: &Path) -> Result<()> {
    for ending in ["", "-wal", "-shm", "-turns"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        let (from, to) = (beside(from), beside(to));
        if from.exists() {
            fs::copy(&from, &to)?;
        } else if to.exists() {
            fs::remove_file(&to)?;
        }
    }
    Ok(())
}

#[test]
fn rel_x6_traffic_with_a_restored_shard_resumes_when_an_operator_reconciles() -> Result<()> {
    let mut shards = TwoShards::new()?;
    let saved = shards.directory.path().join("saved.db");
    let workers = [shards.worker(0)?, shards.worker(1)?];
    let first = shards.submit()?;
    shards.wait_for_state(&first[1], "succeeded")?;
    shards.servers[1].kill()?;
    copy_store(&shards.setups[1].store, &saved)?;
    shards.servers[1] = shards.setups[1].start()?;
    let second = shards.submit()?;
    shards.wait_for_state(&second[1], "succeeded")?;
    shards.servers[1].kill()?;
    copy_store(&saved, &shards.setups[1].store)?;
    shards.servers[1] = shards.setups[1].start()?;

    // Either side may notice first.
    let stopped = wait_for("the end of the traffic", || {
        // Causes a message; the submission may fail.
        let _ = shards.submit();
        for (shard, peer) in [("1", "2"), ("2", "1")] {
            let peers = shards.outbox(shard, &[])?;
            if peers.iter().any(|peer| peer["stopped"].is_string()) {
                return Ok(Some((shard, peer)));
            }
        }
        Ok(None)
    })?;
    let (shard, peer) = stopped;
    let address = shards.setups[0].address.to_string();
    let reconcile = ["outbox", "--server", &address, "--shard", shard];
    run_successfully(&[&reconcile[..], &["reconcile", peer]].concat(), &[])?;
    wait_for("traffic on both sides", || {
        for (shard, other) in [("1", "2"), ("2", "1")] {
            for peer in shards.outbox(shard, &[])? {
                if peer["stopped"].is_string() {
                    let reconcile = ["outbox", "--server", &address, "--shard", shard];
                    run_successfully(&[&reconcile[..], &["reconcile", other]].concat(), &[])?;
                }
                if peer["stopped"].is_string() || peer["stopped_there"].is_string() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    })?;
    let last = wait_for("a submission", || Ok(shards.submit().ok()))?;
    shards.wait_for_state(&last[1], "succeeded")?;
    drop(workers);
    shards.finish()
}
