//! `ganger graphs` against a real server.

use serde_json::Value;

use crate::walkthroughs::TestServer;

/// Submits a graph of two jobs in a queue that has no worker; returns its name. `second`: shard of the second job.
fn submit(server: &TestServer, second: &str) -> String {
    let graph = format!(
        r#"{{"jobs": [{{"name": "x", "kind": "c", "queue": "stock", "shard": "1"}},
            {{"name": "y", "kind": "d", "queue": "stock", "shard": "{second}", "after": ["x"]}}]}}"#
    );
    let answer = json(&server.run_ok(&["submit", "--json"], &graph));
    answer["graph"].as_str().expect("a graph").to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs a command; returns its exit code, its output and what it remarked.
fn run(server: &TestServer, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = server.ganger(arguments, "");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, remarks) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, remarks)
}

#[test]
fn graphs_are_listed_page_by_page_and_shown() {
    let server = TestServer::new();
    let (code, _, remarks) = run(&server, &["graphs"]);
    assert_eq!(code, Some(0), "{remarks}");
    assert!(remarks.contains("no graphs"), "{remarks}");
    let first = submit(&server, "1");
    let second = submit(&server, "1");
    let (_, text, remarks) = run(&server, &["graphs", "--limit", "1"]);
    assert!(text.contains(&second) && !text.contains(&first), "{text}");
    assert!(text.contains("running"), "{text}");
    let (_, after) = remarks.split_once("--after '").expect("there are more");
    let (after, _) = after.split_once('\'').expect("it ends");
    let text = server.run_ok(&["graphs", "--after", after], "");
    assert!(text.contains(&first) && !text.contains(&second), "{text}");

    let text = server.run_ok(&["graphs", &first], "");
    for words in [
        "2 (1 blocked, 1 ready)",
        "critical path, 2 jobs",
        "holding it up",
        "1 behind it",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let drawn = json(&server.run_ok(&["graphs", &first, "--layout"], ""));
    assert_eq!(drawn["boxes"].as_array().map(Vec::len), Some(2), "{drawn}");
    assert_eq!(drawn["lines"][0]["carries_data"], false);
    let (code, _, remarks) = run(&server, &["graphs", "none"]);
    assert_eq!(code, Some(3), "{remarks}");
    let (code, _, remarks) = run(&server, &["graphs", "--layout"]);
    assert_eq!(code, Some(2), "{remarks}");
}

#[test]
fn a_graph_over_two_shards_is_one_graph() {
    let server = TestServer::start(["--shards", "2"]);
    let name = submit(&server, "2");
    let list = json(&server.run_ok(&["graphs", "--json"], ""));
    let graphs = list["graphs"].as_array().expect("a list");
    assert_eq!(graphs.len(), 1, "{list}");
    assert_eq!(graphs[0]["shards"], serde_json::json!(["1", "2"]));
    assert_eq!(graphs[0]["jobs"], 2);
    let shown = json(&server.run_ok(&["graphs", &name, "--json"], ""));
    assert_eq!((&shown["levels"], &shown["edges"]), (&2.into(), &1.into()));
    let jobs = shown["critical_path"]["jobs"].as_array().expect("a path");
    let ids: Vec<&str> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
    assert!(
        ids[0].starts_with("1/") && ids[1].starts_with("2/"),
        "{ids:?}"
    );
    let text = server.run_ok(&["graphs", &name], "");
    assert!(text.contains("1, 2"), "both shards: {text}");
}
