//! `ganger bench`: every load runs over every API, against a server that it starts.

use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

/// The loads that other systems are compared in.
const LOADS: [&str; 14] = [
    "E1", "E256", "E100", "E4x64", "P1", "P4", "P4x64", "P16x64", "M", "MIXED", "ACK", "L",
    "PACED", "D",
];

fn bench(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    Command::new(cargo_bin("ganger"))
        .args(["bench", "--time", "100ms", "--waiting", "1000", "--json"])
        .arg("--dir")
        .arg(directory.path())
        .args(arguments)
        .output()
        .expect("the program was built")
}

fn report(arguments: &[&str]) -> Value {
    let output = bench(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Measures all loads over an API, of which the report has a row each.
fn check_all(api: &str) {
    let report = report(&["--apis", api, "--loads", &LOADS.join(",")]);
    let rows = report["loads"].as_array().expect("a list");
    for load in LOADS.into_iter().chain(["D empty"]) {
        let row = rows.iter().find(|row| row["load"] == load);
        let row = row.unwrap_or_else(|| panic!("{load} is missing: {report}"));
        assert_eq!(row["api"], api);
        assert!(row["per_second"].as_f64() > Some(0.0), "{row}");
        assert!(row["server_cpu_seconds_per_million"].is_number(), "{row}");
        assert!(row["flushes_per_thousand"].is_number(), "{row}");
        assert!(row["bytes_written_per_job"].is_number(), "{row}");
        let is_paced = ["ACK", "L", "PACED"].contains(&load);
        assert_eq!(row["latency"]["p50_ms"].is_number(), is_paced, "{row}");
    }
}

#[test]
fn every_load_runs_over_streams() {
    check_all("streams");
}

#[test]
fn every_load_runs_over_unary_calls() {
    check_all("unary");
}

#[test]
fn every_load_runs_over_http() {
    check_all("http");
}

#[cfg(feature = "redis")]
#[test]
fn every_load_runs_over_the_redis_port() {
    check_all("redis");
}

#[test]
fn the_loads_of_ganger_alone_run_under_their_old_names() {
    let report = report(&[
        "--apis",
        "grpc,http",
        "--loads",
        "lives,enqueue,mix,latency,deep,restart,memory",
        "--connections",
        "2",
        "--batches",
        "1,16",
        "--rates",
        "50",
    ]);
    let lives = report["lives"].as_array().expect("a list");
    assert_eq!(lives.len(), 4, "{report}");
    assert!(lives.iter().all(|row| row["ratio"].as_f64() > Some(0.0)));
    let rows = report["loads"].as_array().expect("a list");
    for load in ["enqueue", "mix", "mix_empty", "mix_deep"] {
        let count = rows.iter().filter(|row| row["load"] == load).count();
        assert_eq!(count, 2, "{load}: {report}");
    }
    assert_eq!(report["latency"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["restart"][0]["jobs"], 1_000);
    assert!(report["restart"][0]["seconds"].is_number(), "{report}");
    assert!(report["memory"]["idle_bytes"].as_f64() > Some(0.0));
}

#[test]
fn a_server_that_runs_is_not_asked_for_what_needs_its_own() {
    for arguments in [
        ["--attach", "--loads", "restart"],
        ["--attach", "--loads", "shards"],
        ["--attach", "--apis", "redis"],
        ["--attach", "--program", "ganger"],
        ["--rates", "0", "--apis=http"],
    ] {
        let output = bench(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    }
}
