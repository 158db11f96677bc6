//! Programs that are kept running and fed.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::path::Path;

use crate::support::{TestWorker, processes, until_true};

const FED: &str = "[default]\nmode = \"fed\"\n";

/// Answers with its process number, the number of jobs it has had, and what it was asked.
const SERVANT: &str = r#"
import json, os, sys
count = 0
for line in sys.stdin:
    job = json.loads(line)
    count += 1
    first = job["args"][0] if job["args"] else None
    answer = {"id": job["id"], "result": [os.getpid(), count, job["args"]]}
    print("job", count, file=sys.stderr, flush=True)
    if first == "die": sys.exit(3)
    if first == "kill": os.kill(os.getpid(), 9)
    if first == "hang": __import__("time").sleep(1000)
    if first == "error": answer = {"id": job["id"], "error": "no", "group": "mine"}
    if first == "never": answer = {"id": job["id"], "error": "never", "permanent": True}
    if first == "other": answer["id"] = "another"
    if first == "nonsense": print("nonsense", flush=True); continue
    if first == "flood": answer["result"] = "x" * 3000000
    if first == "twice": print(json.dumps(answer) + "\n{}")
    print(json.dumps(answer), flush=True)
    if first == "leave": sys.exit(0)
"#;

async fn pid_and_count(rig: &TestWorker, job: &str) -> (u64, u64) {
    let result: serde_json::Value = serde_json::from_str(&rig.sink.result(job).await).unwrap();
    (result[0].as_u64().unwrap(), result[1].as_u64().unwrap())
}

#[tokio::test]
async fn one_program_takes_many_jobs_each_with_its_own_log() {
    let rig = TestWorker::with(FED, |_| {});
    rig.python("servant", SERVANT);
    let mut pids = Vec::new();
    for number in 1..=20 {
        let job = number.to_string();
        rig.job(&job, "servant", "[1,\n\"a\\nb\"]");
        let (pid, count) = pid_and_count(&rig, &job).await;
        assert_eq!(count, number);
        assert!(rig.sink.result(&job).await.ends_with("[[1, \"a\\nb\"]]]"));
        pids.push(pid);
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "one program for all");
    rig.end().await;
}

#[tokio::test]
async fn an_error_is_the_jobs_and_the_program_goes_on() {
    let rig = TestWorker::with(FED, |_| {});
    rig.python("servant", SERVANT);
    rig.job("a", "servant", "\"error\"");
    let failure = rig.sink.failure("a").await;
    assert_eq!(
        (
            failure.group.as_str(),
            failure.message.as_str(),
            failure.permanent
        ),
        ("mine", "no", false)
    );
    rig.job("b", "servant", "\"never\"");
    let failure = rig.sink.failure("b").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("permanent", true)
    );
    rig.job("c", "servant", "");
    assert_eq!(pid_and_count(&rig, "c").await.1, 3);
    rig.end().await;
}

#[tokio::test]
async fn a_program_that_breaks_is_started_again_for_the_next_job() {
    let rig = TestWorker::with(FED, |_| {});
    rig.python("servant", SERVANT);
    let cases = [
        ("die", "exit-3", false),
        ("kill", "signal-SIGKILL", false),
        ("other", "feed-broken", false),
        ("twice", "feed-broken", false),
        ("nonsense", "bad-output", true),
        ("flood", "bad-output", true),
    ];
    for (what, group, permanent) in cases {
        rig.job(what, "servant", &format!("\"{what}\""));
        let failure = rig.sink.failure(what).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            (group, permanent),
            "{what}"
        );
        let next = format!("after {what}");
        rig.job(&next, "servant", "");
        assert_eq!(pid_and_count(&rig, &next).await.1, 1, "{what}");
        rig.job(&format!("{next} again"), "servant", "");
        assert_eq!(
            pid_and_count(&rig, &format!("{next} again")).await.1,
            2,
            "{what}"
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn a_program_that_ended_between_jobs_costs_no_job() {
    let rig = TestWorker::with(FED, |_| {});
    rig.python("servant", SERVANT);
    rig.job("a", "servant", "\"leave\"");
    let (pid, _) = pid_and_count(&rig, "a").await;
    until_true("it has left", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    rig.job("b", "servant", "");
    assert_eq!(pid_and_count(&rig, "b").await.1, 1);
    rig.end().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_ends_its_program() {
    let rig = TestWorker::with(FED, |_| {});
    rig.python("servant", SERVANT);
    rig.job("a", "servant", "\"hang\"");
    rig.sink.logged("a", "job 1").await;
    rig.lose("a");
    rig.sink.abandoned("a").await;
    rig.assert_no_process();
    rig.job("b", "servant", "");
    assert_eq!(pid_and_count(&rig, "b").await.1, 1);
    rig.end().await;
}

#[tokio::test]
async fn a_job_over_its_time_ends_its_program() {
    let rig = TestWorker::with("[default]\nmode = \"fed\"\nwall_time = \"500ms\"", |_| {});
    rig.python("servant", SERVANT);
    rig.job("a", "servant", "\"hang\"");
    assert_eq!(rig.sink.failure("a").await.group, "timeout");
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn an_idle_program_is_ended() {
    let rig = TestWorker::with("[default]\nmode = \"fed\"\nidle_for = \"1ms\"", |_| {});
    rig.python("servant", SERVANT);
    rig.job("a", "servant", "");
    rig.sink.result("a").await;
    until_true("it is ended", || processes(&rig.name).is_empty());
    rig.end().await;
}

#[tokio::test]
async fn a_kind_without_a_program_is_given_back() {
    let rig = TestWorker::with(FED, |_| {});
    rig.put("broken", "#!/no/such/interpreter\n");
    for kind in ["none", "broken"] {
        rig.job(kind, kind, "");
        assert!(!rig.sink.release(kind).await.counted);
    }
    rig.end().await;
}
