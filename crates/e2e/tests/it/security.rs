//! Tokens: created, used, revoked, read again on SIGHUP, and never shown.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::{
    Worker, command, output_text, run, run_successfully, wait_for, write_programs,
};
use ganger_e2e::http::Client;
use ganger_e2e::ports::free_addresses;
use ganger_e2e::server::{Server, Setup, TIMEOUT};
use rustix::process::Signal;
use serde_json::Value;

/// A program that writes its environment to its log, and returns its input.
const SHOW: &str = "#!/bin/sh\nenv >&2\ncat\n";

fn text(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("test directories have plain names")
}

/// Creates a token; returns the path of the file with its secret.
fn token(directory: &Path, access: &Path, name: &str, more: &[&str]) -> Result<String> {
    let secret = directory.join(format!("{name}.secret"));
    let mut arguments = vec!["token", "create", "--access-file", path_text(access)];
    arguments.extend(["--name", name, "--secret-file", path_text(&secret)]);
    arguments.extend(more);
    let printed = run_successfully(&arguments, &[])?;
    ensure!(
        printed.is_empty(),
        "the secret is in the file only: {printed}"
    );
    Ok(path_text(&secret).to_owned())
}

/// Returns the setup of a server with an access file.
fn guarded_setup(directory: &Path, access: &Path) -> Result<Setup> {
    let mut setup = Setup::in_directory(directory)?;
    setup.arguments = ["--access-file", path_text(access)]
        .map(str::to_owned)
        .into();
    Ok(setup)
}

/// Waits until the server logs `what`. Polling with a token instead would be delayed by the pauses after wrong tokens.
fn wait_for_log(setup: &Setup, what: &str) -> Result<()> {
    wait_for(what, || Ok(setup.log_text().contains(what).then_some(())))
}

/// Runs a command with the secret in a file; returns exit code and output.
fn with_secret(secret: &str, server: &str, arguments: &[&str]) -> Result<(i32, String)> {
    let arguments = [&["--server", server, "--retry-for", "0"], arguments].concat();
    let output = run(&arguments, &[("GANGER_TOKEN_FILE", secret)])?;
    let code = output.status.code().context("the process was killed")?;
    Ok((code, output_text(&output)))
}

#[test]
fn a_token_does_what_its_roles_allow_until_it_is_revoked() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let access = directory.path().join("access");
    let path = directory.path();
    let producer = token(path, &access, "ci", &["--role", "producer"])?;
    let setup = guarded_setup(path, &access)?;
    let mut server = setup.start()?;
    let address = setup.address.to_string();

    // Tokens created while the server runs are picked up automatically.
    let worker = token(path, &access, "box", &["--role", "worker"])?;
    let other = [
        "--role",
        "reader",
        "--namespace",
        "team-*",
        "--expires",
        "1d",
    ];
    let reader = token(path, &access, "eyes", &other)?;
    wait_for_log(&setup, r#"added token \"eyes\""#)?;

    let submit = &["run", "--detach", "show"][..];
    let list = &["job", "list"][..];
    let elsewhere = &["job", "list", "--namespace", "team-a"][..];
    let limits = &["queue", "pause", "default"][..];
    let allowed = [
        (&producer, vec![submit, list]),
        (&worker, vec![]),
        (&reader, vec![elsewhere]),
    ];
    for (who, may) in &allowed {
        for what in [submit, list, elsewhere, limits] {
            let (code, printed) = with_secret(who, &address, what)?;
            let is_allowed = may.contains(&what);
            ensure!(
                code == if is_allowed { 0 } else { 5 },
                "{who} {what:?}: {code} {printed}"
            );
            ensure!(
                is_allowed || printed.contains("permission_denied"),
                "{who} {what:?}: {printed}"
            );
        }
    }

    // A worker with its token runs the producer's job.
    let handlers = write_programs(&path.join("worker.d"), &[("show", "#!/bin/sh\ncat\n")])?;
    let working = Worker::start(
        &handlers,
        &path.join("worker.log"),
        &["--server", &address],
        &[("GANGER_TOKEN_FILE", &worker)],
    )?;
    wait_for("the end of the job", || {
        let (_, printed) = with_secret(&producer, &address, &["job", "list", "--json"])?;
        Ok(printed.contains("\"succeeded\"").then_some(()))
    })?;
    drop(working);

    let listed = run_successfully(&["token", "list", "--access-file", path_text(&access)], &[])?;
    for words in ["producer@default", "worker@default", "reader@team-*"] {
        ensure!(listed.contains(words), "{words}: {listed}");
    }
    let revoke = ["token", "revoke", "--access-file", path_text(&access), "ci"];
    run_successfully(&revoke, &[])?;
    wait_for_log(&setup, r#"removed token \"ci\""#)?;
    let (code, printed) = with_secret(&producer, &address, list)?;
    ensure!(code == 5 && printed.contains("unauthorized"), "{printed}");
    let again = run(&revoke, &[])?;
    ensure!(again.status.code() == Some(3), "{}", output_text(&again));
    let (code, printed) = with_secret(&reader, &address, elsewhere)?;
    ensure!(code == 0, "the others go on: {printed}");
    server.stop()
}

#[test]
fn a_hangup_rereads_secrets_and_starts_a_new_audit_log() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("token");
    let audit = directory.path().join("audit.log");
    let (old, new) = ("the-first-token-of-ours", "the-other-token-of-ours");
    fs::write(&path, old)?;
    let modified = fs::metadata(&path)?.modified()?;
    let mut setup = Setup::in_directory(directory.path())?;
    let arguments = [
        "--token-file",
        path_text(&path),
        "--audit-log",
        path_text(&audit),
    ];
    setup.arguments = arguments.map(str::to_owned).into();
    let mut server = setup.start()?;
    let ask = |token: &str| -> Result<u16> {
        let mut client = Client::new(setup.address, TIMEOUT).with_token(token);
        let answer = client.request("GET", "/api/v1/queues", &Value::Null);
        Ok(answer.ok().context("no response")?.status)
    };
    ensure!(ask(old)? == 200 && ask(new)? == 401);

    // The new file has the same path, length and time, so that only the signal can make the server read it.
    fs::write(&path, new)?;
    File::options()
        .write(true)
        .open(&path)?
        .set_modified(modified)?;
    let moved = directory.path().join("audit.log.1");
    fs::rename(&audit, &moved)?;
    server.signal(Signal::HUP)?;
    wait_for("the new token", || Ok((ask(new)? == 200).then_some(())))?;
    ensure!(ask(old)? == 401);
    ensure!(text(&moved).contains("wrong token"), "{}", text(&moved));
    let fresh = text(&audit);
    ensure!(fresh.contains("the shared token has changed"), "{fresh}");
    ensure!(fresh.contains("wrong token"), "{fresh}");
    server.stop()?;
    setup.expect_no_panic()
}

/// Two servers that authenticate to each other with tokens and log at level trace.
struct TracedPair {
    setups: Vec<Setup>,
    servers: Vec<Server>,
    audits: Vec<std::path::PathBuf>,
}

impl TracedPair {
    fn start(directory: &Path, shared: &str) -> Result<Self> {
        let addresses = free_addresses(2)?;
        let topology = format!("static:1={},2={}", addresses[0], addresses[1]);
        let accesses = [directory.join("access-1"), directory.join("access-2")];
        let everything = ["--role", "admin", "--namespace", "*"];
        // Each server issues the token for the other.
        let to_two = token(directory, &accesses[1], "one", &everything)?;
        let to_one = token(directory, &accesses[0], "two", &everything)?;
        let mut setups = Vec::new();
        let mut audits = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let id = (index + 1).to_string();
            let audit = directory.join(format!("audit-{id}"));
            let peer = if index == 0 { &to_two } else { &to_one };
            let mut arguments = vec!["--shard", &id, "--topology", &topology];
            arguments.extend(["--access-file", path_text(&accesses[index])]);
            arguments.extend(["--peer-token-file", peer, "--log", "trace"]);
            arguments.extend(["--audit-log", path_text(&audit)]);
            setups.push(Setup {
                store: directory.join(format!("{id}.db")),
                log: directory.join(format!("{id}.log")),
                address: *address,
                arguments: arguments.into_iter().map(str::to_owned).collect(),
                wrapper: Vec::new(),
                variables: vec![("GANGER_TOKEN".to_owned(), shared.to_owned())],
            });
            audits.push(audit);
        }
        let servers = setups.iter().map(Setup::start).collect::<Result<_>>()?;
        Ok(Self {
            setups,
            servers,
            audits,
        })
    }

    /// Collects answers to unauthorized callers and other output of the servers.
    fn collect_outputs(&self, shared: &str, wrong: &str) -> Result<BTreeMap<String, String>> {
        let address = self.setups[0].address.to_string();
        let mut outputs = BTreeMap::new();
        let output = run(
            &["job", "list", "--server", &address, "--retry-for", "0"],
            &[("GANGER_TOKEN", wrong)],
        )?;
        ensure!(output.status.code() == Some(5), "{}", output_text(&output));
        outputs.insert("a wrong token".to_owned(), output_text(&output));
        let settings = run(&["server", "--list-settings"], &[("GANGER_TOKEN", shared)])?;
        outputs.insert("the settings".to_owned(), output_text(&settings));
        let refused = run(&["server", "--addr", "x"], &[("GANGER_TOKEN", shared)])?;
        outputs.insert(
            "a server that does not start".to_owned(),
            output_text(&refused),
        );
        for setup in &self.setups {
            let readable = ["/metrics", "/healthz", "/version", "/openapi.json"];
            let refused = ["/api/v1/peers", "/api/v1/nothing", "/api/v1/jobs/2%2Fx"];
            let requests = readable.iter().chain(&refused).map(|path| (shared, *path));
            // Each wrong token delays its answer more, so one is enough.
            for (token, path) in requests.chain([(wrong, "/api/v1/peers")]) {
                let mut client = setup.client().with_token(token);
                let answer = client.request("GET", path, &Value::Null);
                let answer = answer.ok().context("no response")?;
                outputs.insert(
                    format!("{path} {} {}", setup.address, answer.status),
                    answer.to_text(),
                );
            }
        }
        Ok(outputs)
    }
}

/// A graph over both shards.
const GRAPH: &str = r#"[
    {"task_id": {"shard": "2", "id": "a"}, "method": "show", "args": [{"type": "VALUE", "value_json": "{}"}]},
    {"task_id": {"shard": "1", "id": "b"}, "method": "show", "args": [
        {"type": "TASKREF", "task_id": {"shard": "2", "id": "a"}}]}
]"#;

#[test]
fn rel_s3_no_secret_is_shown_anywhere() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    let shared = "canary-shared-token-of-the-environment";
    let wrong = "canary-wrong-token-that-opens-nothing";
    let mut pair = TracedPair::start(path, shared)?;
    let producer = token(path, &path.join("access-1"), "ci", &["--role", "producer"])?;
    let address = pair.setups[0].address.to_string();
    let mut outputs = BTreeMap::new();

    // Run a graph over both servers, with secrets from files and from the environment.
    let handlers = write_programs(&path.join("worker.d"), &[("show", SHOW)])?;
    let log = path.join("worker.log");
    let workers = ["1", "2"]
        .map(|shard| {
            Worker::start(
                &handlers,
                &log.with_extension(shard),
                &["--server", &address, "--shard", shard, "--log", "trace"],
                &[("GANGER_TOKEN", shared)],
            )
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    wait_for_log(&pair.setups[0], r#"added token \"ci\""#)?;
    let graph = path.join("graph.json");
    fs::write(&graph, GRAPH)?;
    let submit = ["submit", "--server", &address, "--json", "--wait"];
    let output = command(&submit, &[("GANGER_TOKEN_FILE", &producer)])
        .stdin(File::open(&graph)?)
        .output()?;
    ensure!(output.status.success(), "{}", output_text(&output));
    outputs.insert("submit".to_owned(), output_text(&output));
    let lines: Vec<Value> = String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let job = lines
        .iter()
        .find_map(|line| line["jobs"][0]["ref"].as_str())
        .context("the response has no list of jobs")?
        .to_owned();
    let (_, printed) = with_secret(&producer, &address, &["job", "logs", &job])?;
    ensure!(
        printed.contains("GANGER_TASK_ID="),
        "the program's log: {printed}"
    );
    outputs.insert("the program's environment".to_owned(), printed);

    outputs.extend(pair.collect_outputs(shared, wrong)?);
    let servers = pair.servers.iter().map(Server::id);
    for id in servers.chain(workers.iter().map(Worker::id)) {
        let line = Path::new("/proc").join(id.to_string()).join("cmdline");
        outputs.insert(format!("process {id}"), text(&line));
    }
    for id in workers.iter().map(Worker::id) {
        // A program of the worker could read this if it ran as the same user.
        let shown = Path::new("/proc").join(id.to_string()).join("environ");
        outputs.insert(format!("environment of worker {id}"), text(&shown));
    }
    drop(workers);
    for server in &mut pair.servers {
        server.stop()?;
    }
    for setup in &pair.setups {
        let files = [
            &setup.log,
            &setup.store,
            &setup.store.with_extension("db-wal"),
            &setup.store.with_extension("db-turns"),
        ];
        for file in files {
            outputs.insert(path_text(file).to_owned(), text(file));
        }
    }
    let logs = ["1", "2"].map(|shard| log.with_extension(shard));
    for file in pair.audits.iter().chain(&logs) {
        outputs.insert(path_text(file).to_owned(), text(file));
    }
    for place in ["1.log", "2.log", "worker.1", "audit-1"] {
        let there = outputs.get(path_text(&path.join(place)));
        ensure!(
            there.is_some_and(|text| !text.is_empty()),
            "{place} is empty"
        );
    }

    let mut secrets = vec![shared.to_owned(), wrong.to_owned()];
    for name in ["one", "two", "ci"] {
        let secret = text(&path.join(format!("{name}.secret")));
        secrets.push(secret.trim().to_owned());
    }
    expect_none(&secrets, &outputs)
}

/// Checks that no output contains a secret.
fn expect_none(secrets: &[String], outputs: &BTreeMap<String, String>) -> Result<()> {
    for secret in secrets {
        ensure!(secret.len() > 16, "the secret is too short to search for");
        for (output, text) in outputs {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            ensure!(line.is_none(), "{output} shows a secret: {line:?}");
        }
    }
    Ok(())
}

#[test]
fn rel_s3_a_misplaced_secret_is_refused_without_being_shown() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let short = "canary-short";
    let spaced = "canary with white space in it";
    let key = "-----BEGIN PRIVATE KEY-----\ncanarykeymaterial\n-----END PRIVATE KEY-----\n";
    let place = |name: &str, content: &str| -> Result<String> {
        let path = directory.path().join(name);
        fs::write(&path, content)?;
        Ok(path_text(&path).to_owned())
    };
    let short = place("short", short)?;
    let spaced = place("spaced", spaced)?;
    let key = place("key.pem", key)?;
    let settings = place("ganger.toml", "token = \"canary-of-the-file\nport = 1\n")?;
    let access = place("access", "token name=a hash=canary-of-the-access-file\n")?;
    for arguments in [
        vec!["server", "--token-file", &short],
        vec!["server", "--token-file", &spaced],
        vec!["server", "--peer-token-file", &spaced],
        vec!["server", "--tls-cert", &key, "--tls-key", &key],
        vec!["server", "--config", &settings],
        vec!["server", "--access-file", &access],
        vec!["server", "--set", "token=canary-on-the-command-line"],
        vec!["token", "list", "--access-file", &access],
    ] {
        let output = run(&arguments, &[])?;
        let printed = output_text(&output);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {printed}");
        ensure!(!printed.contains("canary"), "{arguments:?}: {printed}");
    }
    Ok(())
}
