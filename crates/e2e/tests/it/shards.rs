//! A graph over two servers, as in the guide, also with kills of either server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ganger_e2e::command::{Worker, command, output_text, write_programs};
use ganger_e2e::ports::free_addresses;
use ganger_e2e::random::Random;
use ganger_e2e::server::{Server, Setup, TIMEOUT};
use serde_json::Value;

/// The third walk-through of the guide, with its trailing commas.
const WALK: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 1234}",
        }
    ]
}, {
    "task_id": {
        "shard": "2",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 5678}",
        }
    ]
}, {
    "task_id": {
        "shard": "1",
        "id": "email",
    },
    "method": "send-mail",
    "args": [
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "1",
                "id": "save",
            },
        },
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "2",
                "id": "save",
            },
        }
    ]
}]
"#;

const SAVE: &str = "#!/bin/sh\nuid=$(jq '.[].uid' -)\necho \"{\\\"link\\\": \\\"https://download/for/$uid\\\"}\"\n";
const MAIL: &str = "#!/bin/sh\njq -c '[.[].link]' -\n";

/// Default number of rounds with kills; `GANGER_SHARD_ROUNDS` overrides it.
const ROUNDS: usize = 6;

/// Two servers with a common topology.
struct TwoServers {
    setups: Vec<Setup>,
    servers: Vec<Server>,
}

impl TwoServers {
    fn start(directory: &Path) -> Result<Self> {
        let addresses = free_addresses(2)?;
        let topology = format!("static:1={},2={}", addresses[0], addresses[1]);
        let setups: Vec<Setup> = addresses
            .iter()
            .enumerate()
            .map(|(index, address)| setup(directory, index + 1, *address, &topology))
            .collect();
        let servers = setups.iter().map(Setup::start).collect::<Result<_>>()?;
        Ok(Self { setups, servers })
    }

    fn address(&self, index: usize) -> String {
        self.setups[index].address.to_string()
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        self.servers[index].kill()
    }

    fn start_again(&mut self, index: usize) -> Result<()> {
        self.servers[index] = self.setups[index].start()?;
        Ok(())
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

fn setup(directory: &Path, shard: usize, address: SocketAddr, topology: &str) -> Setup {
    Setup {
        store: directory.join(format!("{shard}.db")),
        log: directory.join(format!("{shard}.log")),
        address,
        arguments: ["--shard", &shard.to_string(), "--topology", topology]
            .map(str::to_owned)
            .into(),
        wrapper: Vec::new(),
        variables: Vec::new(),
    }
}

fn worker(server: &str, handlers: &Path, log: &Path, more: &[&str]) -> Result<Worker> {
    let arguments = [&["--server", server, "--id", "worker1"], more].concat();
    Worker::start(handlers, log, &arguments, &[])
}

fn handlers(directory: &Path) -> Result<PathBuf> {
    let directory = directory.join("worker.d");
    write_programs(&directory, &[("save-user-data", SAVE), ("send-mail", MAIL)])
}

/// Submits the graph; returns the ids of its jobs, in order.
fn submit(server: &str, walk: &Path) -> Result<Vec<String>> {
    let output = command(&["submit", "--server", server, "--json"], &[])
        .stdin(fs::File::open(walk)?)
        .output()?;
    ensure!(
        output.status.success(),
        "submit ended with {}: {}",
        output.status,
        output_text(&output)
    );
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let jobs = answer["jobs"]
        .as_array()
        .context("the response has no list of jobs")?;
    let name = |job: &Value| job["ref"].as_str().map(str::to_owned);
    let names: Option<Vec<String>> = jobs.iter().map(name).collect();
    names.with_context(|| format!("submit names the jobs: {answer}"))
}

/// Reads a job by its global id; `None` if the server does not find it.
fn job(server: &Setup, name: &str) -> Option<Value> {
    get(server, name, "")
}

/// Reads a job or a sub-resource of it.
fn get(server: &Setup, name: &str, what: &str) -> Option<Value> {
    let path = format!("/api/v1/jobs/{}{what}", name.replace('/', "%2F"));
    let answer = server.client().request("GET", &path, &Value::Null).ok()?;
    (answer.status == 200).then(|| answer.json())
}

/// Waits until a job has ended, polling both servers.
fn wait_for_end(pair: &TwoServers, name: &str) -> Result<Value> {
    let begun = Instant::now();
    let mut last = None;
    while begun.elapsed() < TIMEOUT * 3 {
        for setup in &pair.setups {
            if let Some(job) = job(setup, name) {
                if matches!(
                    job["state"].as_str(),
                    Some("succeeded" | "failed" | "cancelled")
                ) {
                    return Ok(job);
                }
                last = Some(job);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("job {name} has not ended: {last:?}")
}

/// Waits until the mail is sent. After a retry on the other shard it may still be shown as failed for a while.
fn expect_mail_sent(pair: &TwoServers, jobs: &[String]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mail = wait_for_end(pair, &jobs[2])?;
        if mail["state"] == "succeeded" {
            break;
        }
        ensure!(begun.elapsed() < TIMEOUT, "the mail has failed: {mail}");
        thread::sleep(Duration::from_millis(20));
    }
    let links = ["https://download/for/1234", "https://download/for/5678"];
    // Both servers return the result.
    for setup in &pair.setups {
        let result = get(setup, &jobs[2], "/result");
        ensure!(
            result == Some(Value::from(links.to_vec())),
            "the mail had other links, or in another order: {result:?}"
        );
    }
    Ok(())
}

#[test]
fn the_third_walk_through_works_through_either_server_as_written() -> Result<()> {
    for through in [0, 1] {
        let directory = tempfile::tempdir()?;
        let walk = directory.path().join("task.json");
        fs::write(&walk, WALK)?;
        let handlers = handlers(directory.path())?;
        let pair = TwoServers::start(directory.path())?;
        let workers = (0..2)
            .map(|index| {
                let log = directory.path().join(format!("worker{index}.log"));
                worker(&pair.address(index), &handlers, &log, &[])
            })
            .collect::<Result<Vec<_>>>()?;
        let jobs = submit(&pair.address(through), &walk)?;
        ensure!(
            jobs[0].starts_with("1/") && jobs[1].starts_with("2/") && jobs[2].starts_with("1/"),
            "the ids name their shards: {jobs:?}"
        );
        expect_mail_sent(&pair, &jobs)?;
        drop(workers);
        pair.finish()?;
    }
    Ok(())
}

#[test]
fn a_shard_that_is_down_for_a_while_only_delays_the_graph() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let walk = directory.path().join("task.json");
    fs::write(&walk, WALK)?;
    let handlers = handlers(directory.path())?;
    let mut pair = TwoServers::start(directory.path())?;
    let log = directory.path().join("worker1.log");
    let one = worker(&pair.address(0), &handlers, &log, &[])?;
    let jobs = submit(&pair.address(0), &walk)?;
    pair.kill(1)?;
    let save = wait_for_end(&pair, &jobs[0])?;
    ensure!(save["state"] == "succeeded", "{save}");
    let mail = job(&pair.setups[0], &jobs[2]).context("shard 1 does not respond")?;
    ensure!(mail["state"] == "blocked", "the mail waits: {mail}");
    pair.start_again(1)?;
    let log = directory.path().join("worker2.log");
    let two = worker(&pair.address(1), &handlers, &log, &[])?;
    expect_mail_sent(&pair, &jobs)?;
    drop((one, two));
    pair.finish()
}

/// Runs a command with `--json` at one of the servers; returns the document.
fn run_json(server: &str, arguments: &[&str]) -> Result<Value> {
    let arguments = [arguments, &["--server", server, "--json"]].concat();
    let output = command(&arguments, &[]).output()?;
    ensure!(
        output.status.success(),
        "{arguments:?} ended with {}: {}",
        output.status,
        output_text(&output)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn expect_states(pair: &TwoServers, jobs: &[String], states: [&str; 3]) -> Result<()> {
    for (job, state) in jobs.iter().zip(states) {
        let found = wait_for_end(pair, job)?;
        ensure!(found["state"] == state, "{job} is not {state}: {found}");
    }
    Ok(())
}

/// Includes the dependents on a shard that is down when the retry is requested.
#[test]
fn a_retry_also_restarts_jobs_on_the_other_server() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let walk = directory.path().join("task.json");
    fs::write(&walk, WALK)?;
    let handlers = handlers(directory.path())?;
    let mut pair = TwoServers::start(directory.path())?;
    let (one, two) = (pair.address(0), pair.address(1));

    let jobs = submit(&one, &walk)?;
    run_json(&two, &["job", "cancel", &jobs[1]])?;
    expect_states(&pair, &jobs, ["cancelled", "cancelled", "failed"])?;
    pair.kill(0)?;
    let done = run_json(&two, &["job", "retry", "--dependents", &jobs[1]])?;
    ensure!(
        done["changed"] == 1 && done["passed_on"] == serde_json::json!(["1"]),
        "{done}"
    );
    pair.start_again(0)?;
    let workers = (0..2)
        .map(|index| {
            let log = directory.path().join(format!("worker{index}.log"));
            worker(&pair.address(index), &handlers, &log, &[])
        })
        .collect::<Result<Vec<_>>>()?;
    expect_mail_sent(&pair, &jobs)?;
    drop(workers);

    let jobs = submit(&one, &walk)?;
    let found = job(&pair.setups[0], &jobs[2]).context("shard 1 does not respond")?;
    let graph = found["graph"].as_str().context("the job has no graph")?;
    run_json(&one, &["job", "cancel", "--graph", graph])?;
    expect_states(&pair, &jobs, ["cancelled"; 3])?;
    let path = format!("/api/v1/graphs/{}/retry", graph.replace('/', "%2F"));
    let mut client = pair.setups[0].client();
    let done = client.request("POST", &path, &Value::Null);
    let done = done.map_err(|none| anyhow!("{none:?}"))?.json();
    ensure!(
        done["changed"] == 2 && done["passed_on"] == serde_json::json!(["2"]),
        "{done}"
    );
    let workers = (0..2)
        .map(|index| {
            let log = directory.path().join(format!("later{index}.log"));
            worker(&pair.address(index), &handlers, &log, &[])
        })
        .collect::<Result<Vec<_>>>()?;
    expect_mail_sent(&pair, &jobs)?;
    drop(workers);
    pair.finish()
}

#[test]
fn either_server_may_be_killed_at_any_point() -> Result<()> {
    let rounds = std::env::var("GANGER_SHARD_ROUNDS").map_or(Ok(ROUNDS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let walk = directory.path().join("task.json");
    fs::write(&walk, WALK)?;
    let handlers = handlers(directory.path())?;
    let mut pair = TwoServers::start(directory.path())?;
    let workers = (0..2)
        .map(|index| {
            let log = directory.path().join(format!("worker{index}.log"));
            worker(&pair.address(index), &handlers, &log, &[])
        })
        .collect::<Result<Vec<_>>>()?;
    let mut random = Random::new(20_261_121);
    let mut all = Vec::new();
    for round in 0..rounds {
        let through = round % 2;
        let jobs = submit(&pair.address(through), &walk)?;
        all.push(jobs);
        thread::sleep(Duration::from_millis(random.below(120)));
        let victim = usize::try_from(random.below(2))?;
        pair.kill(victim)?;
        thread::sleep(Duration::from_millis(random.below(50)));
        pair.start_again(victim)?;
    }
    for jobs in &all {
        expect_mail_sent(&pair, jobs)?;
    }
    drop(workers);
    pair.finish()
}

#[test]
fn several_shards_in_one_process_run_a_graph_through_a_kill() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let walk = directory.path().join("task.json");
    fs::write(&walk, WALK)?;
    let handlers = handlers(directory.path())?;
    let mut setup = Setup::in_directory(directory.path())?;
    setup.arguments = vec!["--shards".to_owned(), "2".to_owned()];
    let mut server = setup.start()?;
    let address = setup.address.to_string();
    let jobs = submit(&address, &walk)?;
    server.kill()?;
    let server = setup.start()?;
    let workers = ["1", "2"]
        .map(|shard| {
            let log = directory.path().join(format!("worker{shard}.log"));
            worker(&address, &handlers, &log, &["--shard", shard])
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let mut pair = TwoServers {
        setups: vec![setup],
        servers: vec![server],
    };
    expect_mail_sent(&pair, &jobs)?;
    drop(workers);
    pair.servers[0].stop()?;
    for shard in 1..=2 {
        let store = directory.path().join(format!("store-{shard}.db"));
        let setup = Setup {
            store,
            ..pair.setups[0].clone()
        };
        setup.check()?;
        setup.expect_no_panic()?;
    }
    Ok(())
}
