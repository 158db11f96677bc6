//! Answers that are lost between two nodes, after the owner has made the change: what is safe to send again is sent again
//! by the node of the client, and makes nothing twice. Of everything else the client hears that the outcome is unknown.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::command::wait_for;
use ganger_e2e::relay::{AtLimit, Relay};
use ganger_proto::v1;
use ganger_proto::v1::jobs_client::JobsClient;
use serde_json::{Value, json};

use crate::nodes::{Nodes, ask};

/// Two nodes: requests are sent to `b`, and the answers of `a` pass a relay.
struct Pair {
    nodes: Nodes,
    relay: Relay,
}

impl Pair {
    /// Starts the nodes, with shard 1 at `a`.
    fn start(test: &str) -> Result<Option<Self>> {
        let Some(mut nodes) = Nodes::start(test, 2, &["a", "b"])? else {
            return Ok(None);
        };
        let relay = Relay::start(nodes.setup("a").address)?;
        nodes.server("a").stop()?;
        let advertised = ["--advertise".to_owned(), relay.address.to_string()];
        nodes.setup_mut("a").arguments.extend(advertised);
        nodes.start_again("a")?;
        let pair = Self { nodes, relay };
        pair.move_to("1", "a")?;
        Ok(Some(pair))
    }

    fn move_to(&self, shard: &str, node: &str) -> Result<()> {
        let path = format!("/api/v1/shards/{shard}/move?to={node}");
        wait_for("the move", || {
            // The node may not be known yet.
            let mut client = self.nodes.setup("b").client();
            let asked = client.request("POST", &path, &Value::Null);
            asked.map_err(|error| anyhow!("{path}: {error:?}"))?;
            Ok((self.nodes.owner("b", shard)?.as_deref() == Some(node)).then_some(()))
        })
    }

    /// Number of jobs in a queue, as the owner of its shard says itself.
    fn count(&self, owner: &str, shard: &str, queue: &str) -> Result<usize> {
        let path = format!("/api/v1/jobs?shard={shard}&queue={queue}");
        let listed = ask(self.nodes.setup(owner), &path)?.json();
        let jobs = listed["jobs"].as_array();
        Ok(jobs.with_context(|| listed.to_string())?.len())
    }

    /// Sends a request whose answer is lost after a job of this queue exists.
    fn lose_the_answer<T>(
        &self,
        shard: &str,
        queue: &str,
        send: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.relay.limit(0, AtLimit::Hold);
        let exchange = send()?;
        wait_for("the job", || {
            Ok((self.count("a", shard, queue)? == 1).then_some(()))
        })?;
        self.relay.wait_until_held()?;
        self.relay.limit(0, AtLimit::Cut);
        // The node has connected again, and has lost an answer there too.
        wait_for("another connection", || {
            Ok((self.relay.passed() > 0).then_some(()))
        })?;
        self.relay.release();
        Ok(exchange)
    }

    /// Begins a submission over HTTP.
    fn submit(&self, path: &str, key: Option<&str>, body: &Value) -> Result<Child> {
        let url = format!("http://{}{path}", self.nodes.setup("b").address);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--write-out", "\n%{http_code}"])
            .args(["--header", "Content-Type: application/json"]);
        if let Some(key) = key {
            curl.args(["--header", &format!("Idempotency-Key: {key}")]);
        }
        curl.args(["--data", &body.to_string(), &url])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        curl.spawn().context("cannot start curl")
    }
}

/// Returns status and document of a submission.
fn finish(curl: Child) -> Result<(String, Value)> {
    let output = curl.wait_with_output()?;
    ensure!(output.status.success(), "curl ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let (document, status) = text.rsplit_once('\n').context("there is a status")?;
    Ok((status.to_owned(), serde_json::from_str(document)?))
}

/// Begins a submission over gRPC.
fn call(node: SocketAddr, queue: &str, key: &str) -> JoinHandle<Result<v1::EnqueueReply>> {
    let request = v1::EnqueueRequest {
        jobs: vec![v1::NewJob {
            queue: queue.to_owned(),
            kind: "k".to_owned(),
            ..v1::NewJob::default()
        }],
        idempotency_key: key.to_owned(),
        ..v1::EnqueueRequest::default()
    };
    thread::spawn(move || enqueue(node, request))
}

#[tokio::main(flavor = "current_thread")]
async fn enqueue(node: SocketAddr, request: v1::EnqueueRequest) -> Result<v1::EnqueueReply> {
    let mut client = JobsClient::connect(format!("http://{node}")).await?;
    Ok(client.enqueue(request).await?.into_inner())
}

#[test]
fn what_is_done_once_is_sent_again_when_its_answer_is_lost() -> Result<()> {
    const NAME: &str = "what_is_done_once_is_sent_again";
    let Some(pair) = Pair::start(NAME)? else {
        return Ok(());
    };
    let (jobs, graphs) = ("/api/v1/jobs", "/api/v1/graphs");
    for (queue, path, is_repeatable) in [
        ("job-with-header", jobs, true),
        ("job-with-id", jobs, false),
        ("job", jobs, false),
        ("graph-with-header", graphs, true),
        ("graph-with-key", graphs, true),
        ("graph-with-ids", graphs, false),
        ("graph", graphs, false),
    ] {
        let mut body = json!({"queue": queue, "kind": "k"});
        if queue.contains("-with-id") {
            body["id"] = json!(queue);
        }
        if path == graphs {
            let other = json!({"queue": "other", "kind": "k", "id": format!("other-of-{queue}")});
            body = json!({"jobs": [body, other]});
        }
        if queue.ends_with("-with-key") {
            body["idempotency_key"] = json!(queue);
        }
        let key = queue.ends_with("-with-header").then_some(queue);
        let sent = || pair.submit(path, key, &body);
        let (status, answer) = finish(pair.lose_the_answer("1", queue, sent)?)?;
        let is_done = ["200", "201"].contains(&status.as_str());
        let is_unknown = status == "504" && answer["code"] == "outcome_unknown";
        ensure!(is_done == is_repeatable, "{queue}: {status} {answer}");
        ensure!(is_unknown != is_repeatable, "{queue}: {status} {answer}");
        ensure!(pair.count("a", "1", queue)? == 1, "{queue} was made twice");
    }
    check_calls(&pair)?;
    check_reports(&pair)?;

    // The node of the client submits to the owner by itself: the jobs of the document are on another shard.
    pair.move_to("2", "a")?;
    pair.move_to("1", "b")?;
    let body = json!({"queue": "spread", "kind": "k", "shard": "2"});
    let sent = || pair.submit("/api/v1/jobs", Some("spread"), &body);
    let (status, answer) = finish(pair.lose_the_answer("2", "spread", sent)?)?;
    ensure!(status == "201" || status == "200", "{status} {answer}");
    ensure!(
        pair.count("a", "2", "spread")? == 1,
        "a job of a document was made twice"
    );
    pair.nodes.stop()
}

fn check_calls(pair: &Pair) -> Result<()> {
    let node = pair.nodes.setup("b").address;
    let sent = || Ok(call(node, "call", "key of a call"));
    let called = pair.lose_the_answer("1", "call", sent)?;
    let answer = called.join().map_err(|_| anyhow!("it panicked"))??;
    ensure!(
        answer.repeat,
        "it is the answer to the first one: {answer:?}"
    );
    ensure!(pair.count("a", "1", "call")? == 1, "a call made it twice");
    let sent = || Ok(call(node, "call-without", ""));
    let called = pair.lose_the_answer("1", "call-without", sent)?;
    let refused = called.join().map_err(|_| anyhow!("it panicked"))?;
    let refused = refused.err().context("its outcome is unknown")?;
    let status = refused.downcast_ref::<tonic::Status>();
    let code = status.map(tonic::Status::code);
    ensure!(code == Some(tonic::Code::Unknown), "{refused:?}");
    Ok(())
}

/// A report about a leased job has its token: the owner answers a repeat as the first one.
fn check_reports(pair: &Pair) -> Result<()> {
    let mut client = pair.nodes.setup("a").client();
    for report in ["renew", "complete", "fail", "release"] {
        let job = json!({"queue": report, "kind": "k"});
        let answer = client.request("POST", "/api/v1/jobs", &job);
        answer.map_err(|error| anyhow!("{error:?}"))?;
        let wanted = json!({"queues": [{"queue": report}], "worker": "w"});
        let leased = client.request("POST", "/api/v1/leases", &wanted);
        let leased = leased.map_err(|error| anyhow!("{error:?}"))?.json();
        let job = &leased["jobs"][0];
        let body = json!({"job": job["id"], "token": job["token"]});
        let sent = || pair.submit(&format!("/api/v1/leases/{report}"), None, &body);
        let (status, answer) = finish(pair.lose_the_answer("1", report, sent)?)?;
        ensure!(status == "200", "{report}: {status} {answer}");
    }
    Ok(())
}
